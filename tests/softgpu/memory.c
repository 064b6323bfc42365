/* SPDX-License-Identifier: MIT */
#include "softgpu/soft.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define POISON 0xa5

static struct soft_range *ranges;

struct soft_range *soft_range_find(uintptr_t address)
{
	struct soft_range *range;

	for (range = ranges; range; range = range->next) {
		if (address - range->start < range->bytes)
			break;
	}
	return range;
}

struct soft_range *soft_range_add(uintptr_t start, size_t bytes, enum soft_kind kind)
{
	static unsigned long long id;
	struct soft_range *range = calloc(1, sizeof(*range));

	if (!range)
		return NULL;
	range->start = start;
	range->bytes = bytes;
	range->kind = kind;
	range->id = ++id;
	range->next = ranges;
	ranges = range;
	return range;
}

void soft_range_remove(struct soft_range *range)
{
	struct soft_range **link;

	for (link = &ranges; *link != range; link = &(*link)->next)
		continue;
	*link = range->next;
	free(range);
}

bool soft_account(int device, size_t bytes)
{
	size_t *used = device >= 0 ? &soft.device_used[device] : &soft.host_used;
	size_t total = device >= 0 ? soft.device_bytes : soft.host_bytes;

	if (bytes > total - *used)
		return false;
	*used += bytes;
	return true;
}

void soft_unaccount(int device, size_t bytes)
{
	*(device >= 0 ? &soft.device_used[device] : &soft.host_used) -= bytes;
}

void soft_poison(void *start, size_t bytes)
{
	if (soft_fuzzing())
		memset(start, POISON, bytes);
}

enum soft_place soft_place(uintptr_t address, size_t *run)
{
	struct soft_range *range = soft_range_find(address);

	if (!range)
		return SOFT_NOWHERE;
	if (range->kind == SOFT_RESERVED)
		return soft_mapped(address, run);
	if (run)
		*run = range->start + range->bytes - address;
	if (range->kind == SOFT_MANAGED)
		return range->device >= 0 ? SOFT_ON_DEVICE : SOFT_ON_HOST;
	return range->kind == SOFT_ALLOC || range->kind == SOFT_OPENED ? SOFT_ON_DEVICE
								       : SOFT_ON_HOST;
}

bool soft_known(uintptr_t address, size_t bytes)
{
	size_t run;

	while (bytes) {
		if (soft_place(address, &run) == SOFT_NOWHERE)
			return false;
		if (run >= bytes)
			break;
		address += run;
		bytes -= run;
	}
	return true;
}

static size_t pages(size_t bytes)
{
	return (bytes + PAGE - 1) & ~(PAGE - 1);
}

/* One pool's memory at an address of the kernel's choice. */
static CUresult take(void **out, size_t bytes, enum soft_kind kind)
{
	const int device = kind == SOFT_ALLOC ? soft_device(soft_context()) : SOFT_PINNED;
	struct soft_range *range = NULL;
	void *start;

	if (!out || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > SIZE_MAX - PAGE || !soft_account(device, pages(bytes)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	start = mmap(NULL, pages(bytes), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (start != MAP_FAILED)
		range = soft_range_add((uintptr_t)start, bytes, kind);
	if (!range) {
		if (start != MAP_FAILED)
			munmap(start, pages(bytes));
		soft_unaccount(device, pages(bytes));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	range->device = device;
	soft_poison(start, bytes);
	*out = start;
	return CUDA_SUCCESS;
}

#define MANAGED_STEP ((size_t)32 << 20)

static size_t managed_pages(size_t bytes)
{
	return (bytes + MANAGED_STEP - 1) & ~(MANAGED_STEP - 1);
}

static void give(struct soft_range *range)
{
	munmap((void *)range->start,
		range->kind == SOFT_MANAGED ? managed_pages(range->bytes) : pages(range->bytes));
	if (range->fd)
		close(range->fd);
	if (range->kind == SOFT_MANAGED)
		soft_unaccount(SOFT_PINNED, range->pinned);
	else
		soft_unaccount(range->device, pages(range->bytes));
	soft_range_remove(range);
}

void soft_memory_reset(CUdevice device)
{
	for (struct soft_range *range = ranges, *next; range; range = next) {
		next = range->next;
		if ((range->kind == SOFT_ALLOC && range->device == device) ||
			((range->kind == SOFT_HOST || range->kind == SOFT_MANAGED) &&
				soft.devices == 1))
			give(range);
	}
}

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	return take((void **)ptr, bytes, SOFT_ALLOC);
}

CUresult cuMemAllocPitch_v2(
	CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned element)
{
	CUresult result;

	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	if (!pitch || !width || (element != 4 && element != 8 && element != 16))
		return CUDA_ERROR_INVALID_VALUE;
	width = (width + 511) & ~(size_t)511;
	result = take((void **)ptr, width * height, SOFT_ALLOC);
	if (!result)
		*pitch = width;
	return result;
}

/* As measured (driver 580): frees wait for the device. */
static CUresult release(void *start, enum soft_kind kind)
{
	struct soft_range *range;

	if (!start)
		return CUDA_SUCCESS;
	range = soft_range_find((uintptr_t)start);
	if (!range || range->start != (uintptr_t)start ||
		(range->kind != kind && (kind != SOFT_ALLOC || range->kind != SOFT_MANAGED)))
		return CUDA_ERROR_INVALID_VALUE;
	soft_run_all();
	give(range);
	return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	return release((void *)ptr, SOFT_ALLOC);
}

/* The stream-ordered forms: memory at once, freed when the stream gets there. */
static CUresult alloc_async(CUdeviceptr *ptr, size_t bytes, CUstream handle, bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_stream *stream = soft_stream_find(handle, per_thread);

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capture)
		return CUDA_ERROR_NOT_SUPPORTED;
	return take((void **)ptr, bytes, SOFT_ALLOC);
}

static CUresult free_async(CUdeviceptr ptr, CUstream handle, bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_stream *stream = soft_stream_find(handle, per_thread);
	struct soft_range *range = soft_range_find(ptr);

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capture)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!range || range->start != ptr || range->kind != SOFT_ALLOC)
		return CUDA_ERROR_INVALID_VALUE;
	soft_run(stream->last);
	give(range);
	return CUDA_SUCCESS;
}

SOFT_BOTH(cuMemAllocAsync, _ptsz, (CUdeviceptr * ptr, size_t bytes, CUstream stream),
	alloc_async(ptr, bytes, stream, per_thread))
SOFT_BOTH(cuMemFreeAsync, _ptsz, (CUdeviceptr ptr, CUstream stream),
	free_async(ptr, stream, per_thread))

/*
 * Managed memory: zeros. It takes nothing before it is touched, so only what is told to
 * stay on the host is accounted for. Addresses as driver 580 gets them: it rounds up to the
 * step and asks for nearly one more at NULL, with PROT_NONE, cuts that to multiples of it,
 * and maps its file there.
 */
static void *managed_room(size_t bytes)
{
	const size_t whole = managed_pages(bytes), all = whole + MANAGED_STEP - PAGE;
	char *got = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *start;

	if (got == MAP_FAILED)
		return got;
	start = got + (-(uintptr_t)got & (MANAGED_STEP - 1));
	if (start != got)
		munmap(got, (size_t)(start - got));
	if (start + whole != got + all)
		munmap(start + whole, (size_t)(got + all - start) - whole);
	return mmap(start, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned flags)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	const CUdevice device = soft_device(soft_context());
	struct soft_range *range = NULL;
	void *start;

	if (!ptr || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > SIZE_MAX / 2)
		return CUDA_ERROR_OUT_OF_MEMORY;
	start = managed_room(pages(bytes));
	if (start != MAP_FAILED)
		range = soft_range_add((uintptr_t)start, bytes, SOFT_MANAGED);
	if (!range) {
		if (start != MAP_FAILED)
			munmap(start, managed_pages(bytes));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	range->device = device;
	range->flags = flags;
	*ptr = (CUdeviceptr)start;
	return CUDA_SUCCESS;
}

bool soft_managed(uintptr_t start, size_t bytes)
{
	const struct soft_range *range = soft_range_find(start);

	return range && range->kind == SOFT_MANAGED && bytes <= range->start + range->bytes - start;
}

static CUresult managed(CUdeviceptr ptr, size_t bytes)
{
	SOFT_ENTER(SOFT_CONTEXT);
	return bytes && soft_managed(ptr, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* From the start of an allocation on: so much stays there. */
static CUresult prefer(CUdeviceptr ptr, size_t bytes, const CUmemLocation *place)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_range *range = soft_range_find(ptr);
	const bool host = place->type != CU_MEM_LOCATION_TYPE_DEVICE;

	if (!bytes || !soft_managed(ptr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (ptr != range->start)
		return CUDA_SUCCESS;
	soft_unaccount(SOFT_PINNED, range->pinned);
	range->pinned = 0;
	range->device = host ? SOFT_PINNED : place->id;
	if (host && !soft_account(SOFT_PINNED, pages(bytes)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	range->pinned = host ? pages(bytes) : 0;
	return CUDA_SUCCESS;
}

SOFT_BOTH(cuMemPrefetchAsync, _ptsz, (CUdeviceptr ptr, size_t n, CUdevice to, CUstream s),
	((void)to, (void)s, (void)per_thread, managed(ptr, n)))
SOFT_BOTH(cuMemPrefetchAsync_v2, _ptsz,
	(CUdeviceptr ptr, size_t n, CUmemLocation to, unsigned flags, CUstream s),
	((void)to, (void)flags, (void)s, (void)per_thread, managed(ptr, n)))

CUresult cuMemAdvise(CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUdevice device)
{
	(void)advice, (void)device;
	return managed(ptr, bytes);
}

CUresult cuMemAdvise_v2(CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
	return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ? prefer(ptr, bytes, &location)
							      : managed(ptr, bytes);
}

/* Pools keep nothing: what is freed is the device's again. */
static char pools[4];

static CUmemoryPool *pool_find(CUmemoryPool pool)
{
	const size_t i = (size_t)((char *)pool - pools);

	return i < sizeof(pools) && pools[i] ? (CUmemoryPool *)&pools[i] : NULL;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	SOFT_ENTER(0);
	if (!pool || !soft_is_device(device))
		return CUDA_ERROR_INVALID_VALUE;
	pools[0] = 1;
	*pool = (CUmemoryPool)&pools[0];
	return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	SOFT_ENTER(0);
	if (!pool || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 1; i < sizeof(pools); i++) {
		if (!pools[i]) {
			pools[i] = 1;
			*pool = (CUmemoryPool)&pools[i];
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	SOFT_ENTER(0);
	if (!pool_find(pool) || (char *)pool == pools)
		return CUDA_ERROR_INVALID_VALUE;
	*(char *)pool = 0;
	return CUDA_SUCCESS;
}

static CUresult from_pool(
	CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream, bool per_thread)
{
	return pool_find(pool) ? alloc_async(ptr, bytes, stream, per_thread)
			       : CUDA_ERROR_INVALID_VALUE;
}

SOFT_BOTH(cuMemAllocFromPoolAsync, _ptsz,
	(CUdeviceptr * ptr, size_t bytes, CUmemoryPool pool, CUstream stream),
	from_pool(ptr, bytes, pool, stream, per_thread))

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	SOFT_ENTER(SOFT_CONTEXT);
	if (!free || !total)
		return CUDA_ERROR_INVALID_VALUE;
	*free = soft.device_bytes - soft.device_used[soft_device(soft_context())];
	*total = soft.device_bytes;
	return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
	CUresult result;

	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	result = take(out, bytes, SOFT_HOST);
	if (!result)
		soft_range_find((uintptr_t)*out)->flags = flags;
	return result;
}

CUresult cuMemFreeHost(void *start)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	return release(start, SOFT_HOST);
}

CUresult cuMemHostRegister_v2(void *start, size_t bytes, unsigned flags)
{
	uintptr_t first = (uintptr_t)start & ~(PAGE - 1);
	unsigned char resident;

	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	if (!start || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	for (struct soft_range *range = ranges; range; range = range->next) {
		if (range->start < (uintptr_t)start + bytes &&
			(uintptr_t)start < range->start + range->bytes)
			return range->kind == SOFT_REGISTERED
				       ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
				       : CUDA_ERROR_INVALID_VALUE;
	}
	for (uintptr_t page = first; page < (uintptr_t)start + bytes; page += PAGE) {
		if (mincore((void *)page, PAGE, &resident))
			return CUDA_ERROR_INVALID_VALUE; /* not mapped */
	}
	if (!soft_account(SOFT_PINNED, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!soft_range_add((uintptr_t)start, bytes, SOFT_REGISTERED)) {
		soft_unaccount(SOFT_PINNED, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	soft_range_find((uintptr_t)start)->flags = flags;
	return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *start)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	struct soft_range *range = soft_range_find((uintptr_t)start);

	if (!range || range->start != (uintptr_t)start || range->kind != SOFT_REGISTERED)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	soft_run_all();
	soft_unaccount(SOFT_PINNED, range->bytes);
	soft_range_remove(range);
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *start, unsigned flags)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_range *range = soft_range_find((uintptr_t)start);

	if (!out || flags || !range || (range->kind != SOFT_HOST && range->kind != SOFT_REGISTERED))
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUdeviceptr)start;
	return CUDA_SUCCESS;
}
