/* SPDX-License-Identifier: MIT */
#include "softgpu/fibre.h"
#include "softgpu/soft.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Physical memory: a memfd, so that one handle can be mapped anywhere, twice
 * and again. */
struct backing {
	int fd;
	size_t bytes;
	int device; /* or SOFT_PINNED */
	CUmemAllocationProp prop;
	unsigned handles, maps;
	struct backing *next;
};

struct map {
	uintptr_t start;
	size_t bytes;
	struct backing *backing;
	unsigned access; /* a bit a device; the host's is above them */
	struct map *next;
};

static struct backing *backings;
static struct map *maps;

static struct backing *backing_of(CUmemGenericAllocationHandle handle)
{
	struct backing *backing;

	for (backing = backings; backing; backing = backing->next) {
		if ((uintptr_t)backing == handle && backing->handles)
			break;
	}
	return backing;
}

static struct map *map_of(uintptr_t address)
{
	struct map *map;

	for (map = maps; map; map = map->next) {
		if (address - map->start < map->bytes)
			break;
	}
	return map;
}

static void backing_drop(struct backing *backing)
{
	struct backing **link;

	if (backing->handles || backing->maps)
		return;
	for (link = &backings; *link != backing; link = &(*link)->next)
		continue;
	*link = backing->next;
	close(backing->fd);
	soft_unaccount(backing->device, backing->bytes);
	free(backing);
}

enum soft_place soft_mapped(uintptr_t address, size_t *run)
{
	struct map *map = map_of(address), *next;
	uintptr_t end;

	if (!map || !map->access)
		return SOFT_NOWHERE;
	end = map->start + map->bytes;
	while ((next = map_of(end)) && next->access &&
		next->backing->device == map->backing->device)
		end = next->start + next->bytes;
	if (run)
		*run = end - address;
	return map->backing->device >= 0 ? SOFT_ON_DEVICE : SOFT_ON_HOST;
}

CUdevice soft_owner(uintptr_t address)
{
	const struct soft_range *range = soft_range_find(address);
	const struct map *map = map_of(address);
	const int device = map ? map->backing->device : range ? range->device : 0;

	return device < 0 ? 0 : device;
}

bool soft_reaches(CUdevice device, uintptr_t address, size_t bytes)
{
	const uintptr_t end = address + bytes;

	while (address < end) {
		const struct map *map = map_of(address);

		if (!map)
			return true;
		if (!(map->access & 1u << device))
			return false;
		address = map->start + map->bytes;
	}
	return true;
}

static bool granular(uintptr_t a, size_t b)
{
	return b && !((a | b) & (SOFT_GRANULE - 1));
}

CUresult cuMemGetAllocationGranularity(
	size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
	SOFT_ENTER(0);
	(void)option;
	if (!bytes || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = SOFT_GRANULE;
	return CUDA_SUCCESS;
}

/* ThreadSanitizer's shadow lies where hints of interest point, and its mmap
 * takes a hint that it dislikes for 0: there none is honoured. */
#ifdef __SANITIZE_THREAD__
#define HINTS false
#else
#define HINTS true
#endif

/* As measured (driver 580.159.04): a hint is honoured at the next multiple of
 * 32 MiB, and only for sizes that are one and for which no addresses are in
 * stock. */
#define HINT_STEP ((uintptr_t)32 << 20)
#define STOCK ((size_t)96 << 20)
static size_t from_stock;
static uintptr_t stocked[STOCK / HINT_STEP];

static bool stock_has(size_t bytes)
{
	return HINTS && !(bytes & (HINT_STEP - 1)) && bytes <= STOCK - from_stock;
}

/* `bytes` at start were taken, or (given) came back if they are the stock's. */
static void stock_note(uintptr_t start, size_t bytes, bool given)
{
	for (size_t i = 0; i < STOCK / HINT_STEP; i++) {
		if (stocked[i] != (given ? start : 0))
			continue;
		stocked[i] = given ? 0 : start;
		from_stock += given ? -bytes : bytes;
		return;
	}
}

static void *reserve_at(uintptr_t hint, size_t bytes)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

	return mmap(
		(void *)hint, bytes, PROT_NONE, flags | (hint ? MAP_FIXED_NOREPLACE : 0), -1, 0);
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr hint,
	unsigned long long flags)
{
	uintptr_t start, slack;
	bool stock;

	SOFT_ENTER(0);
	if (!out || !granular(0, bytes) || flags || alignment & (alignment - 1))
		return CUDA_ERROR_INVALID_VALUE;
	if (alignment < SOFT_GRANULE)
		alignment = SOFT_GRANULE;
	hint = (hint + HINT_STEP - 1) & ~(HINT_STEP - 1);
	stock = stock_has(bytes);
	if (HINTS && !stock && hint && !(hint & (alignment - 1)) && !(bytes & (HINT_STEP - 1)) &&
		reserve_at(hint, bytes) != MAP_FAILED) {
		start = hint;
	} else { /* anywhere: a hint is no more than that */
		start = (uintptr_t)reserve_at(0, bytes + alignment);
		if (start == (uintptr_t)MAP_FAILED)
			return CUDA_ERROR_OUT_OF_MEMORY;
		slack = -start & (alignment - 1);
		if (slack)
			munmap((void *)start, slack);
		munmap((void *)(start + slack + bytes), alignment - slack);
		start += slack;
	}
	if (!soft_range_add(start, bytes, SOFT_RESERVED)) {
		munmap((void *)start, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (stock)
		stock_note(start, bytes, false);
	*out = start;
	return CUDA_SUCCESS;
}

/* The reservation that holds all of it, or NULL. */
static struct soft_range *reservation(uintptr_t start, size_t bytes)
{
	struct soft_range *range = soft_range_find(start);

	if (!range || range->kind != SOFT_RESERVED || !granular(start, bytes) ||
		bytes > range->start + range->bytes - start)
		return NULL;
	return range;
}

static bool overlaps(uintptr_t start, size_t bytes)
{
	for (struct map *map = maps; map; map = map->next) {
		if (map->start < start + bytes && start < map->start + map->bytes)
			return true;
	}
	return false;
}

CUresult cuMemAddressFree(CUdeviceptr start, size_t bytes)
{
	SOFT_ENTER(0);
	struct soft_range *range = reservation(start, bytes);

	if (!range || range->start != start || range->bytes != bytes || overlaps(start, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	munmap((void *)start, bytes);
	stock_note(start, bytes, true);
	soft_range_remove(range);
	return CUDA_SUCCESS;
}

static CUresult backing_add(
	struct backing **out, int fd, size_t bytes, const CUmemAllocationProp *prop)
{
	struct backing *backing = calloc(1, sizeof(*backing));

	if (!backing)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*backing = (struct backing){.fd = fd, .bytes = bytes, .prop = *prop, .handles = 1};
	backing->device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? prop->location.id
									     : SOFT_PINNED;
	backing->next = backings;
	backings = backing;
	*out = backing;
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
	const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct backing *backing;
	int device, fd;

	SOFT_ENTER(SOFT_UNSAFE);
	if (!handle || !prop || flags || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
		!granular(0, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	switch (prop->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		if (!soft_is_device(prop->location.id))
			return CUDA_ERROR_INVALID_DEVICE;
		break;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		if (prop->location.id)
			return CUDA_ERROR_INVALID_DEVICE;
		break;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? prop->location.id
								    : SOFT_PINNED;
	if (!soft_account(device, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	fd = memfd_create("softgpu", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) || backing_add(&backing, fd, bytes, prop)) {
		if (fd >= 0)
			close(fd);
		soft_unaccount(device, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (soft_fuzzing()) {
		void *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		if (all != MAP_FAILED) {
			soft_poison(all, bytes);
			munmap(all, bytes);
		}
	}
	*handle = (uintptr_t)backing;
	return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	SOFT_ENTER(SOFT_UNSAFE);
	struct backing *backing = backing_of(handle);

	if (!backing)
		return CUDA_ERROR_INVALID_VALUE;
	backing->handles--;
	backing_drop(backing);
	return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	SOFT_ENTER(0);
	struct map *map = map_of((uintptr_t)address);

	if (!handle || !map)
		return CUDA_ERROR_INVALID_VALUE;
	map->backing->handles++;
	*handle = (uintptr_t)map->backing;
	return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr start, size_t bytes, size_t offset,
	CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	SOFT_ENTER(SOFT_UNSAFE);
	struct backing *backing = backing_of(handle);
	struct map *map;

	/* "offset: must be 0 currently" (cuda.h, 13.0) */
	if (!backing || flags || offset || !reservation(start, bytes) || bytes > backing->bytes ||
		overlaps(start, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	map = calloc(1, sizeof(*map));
	if (!map)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (mmap((void *)start, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, backing->fd, 0) ==
		MAP_FAILED) {
		free(map);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*map = (struct map){.start = start, .bytes = bytes, .backing = backing, .next = maps};
	maps = map;
	backing->maps++;
	return CUDA_SUCCESS;
}

/* Calls visit for every mapping of [start, start + bytes), which they must
 * cover exactly. */
static bool each_map(
	uintptr_t start, size_t bytes, void (*visit)(struct map *map, int arg), int arg)
{
	uintptr_t end = start + bytes, at;
	struct map *map;

	for (at = start; at < end; at = map->start + map->bytes) {
		map = map_of(at);
		if (!map || map->start != at || map->bytes > end - at)
			return false;
	}
	for (at = start; at < end;) {
		map = map_of(at);
		at += map->bytes;
		visit(map, arg);
	}
	return true;
}

/* Does not wait for work that still uses it, as measured (driver 580). */
static void unmap(struct map *map, int arg)
{
	struct map **link;

	(void)arg;
	mmap((void *)map->start, map->bytes, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	for (link = &maps; *link != map; link = &(*link)->next)
		continue;
	*link = map->next;
	map->backing->maps--;
	backing_drop(map->backing);
	free(map);
}

CUresult cuMemUnmap(CUdeviceptr start, size_t bytes)
{
	SOFT_ENTER(SOFT_UNSAFE);
	if (!reservation(start, bytes) || !each_map(start, bytes, unmap, 0))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* arg: a location's bit, and whether it may read (1) and write (2) from here on.
 * The process has one page table: there the last word counts, unless it takes
 * away what others still have. */
static void protect(struct map *map, int arg)
{
	const unsigned who = (unsigned)arg >> 2;

	map->access = arg & 3 ? map->access | who : map->access & ~who;
	if (arg & 3 || !map->access)
		mprotect((void *)map->start, map->bytes,
			arg & 2	  ? PROT_READ | PROT_WRITE
			: arg & 1 ? PROT_READ
				  : PROT_NONE);
}

static int location_of(const CUmemLocation *location)
{
	return 1 << (location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : SOFT_DEVICES);
}

CUresult cuMemSetAccess(
	CUdeviceptr start, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	SOFT_ENTER(SOFT_UNSAFE);
	int may[SOFT_DEVICES + 1];

	if (!reservation(start, bytes) || !access || !count || count > SOFT_DEVICES + 1)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
			for (uintptr_t at = start; at < start + bytes; at += SOFT_GRANULE) {
				if (!map_of(at) || map_of(at)->backing->device >= 0)
					return CUDA_ERROR_INVALID_VALUE;
			}
		} else if (!soft_is_device(access[i].location.id)) {
			return CUDA_ERROR_INVALID_DEVICE;
		}
		may[i] = location_of(&access[i].location) << 2;
		switch (access[i].flags) {
		case CU_MEM_ACCESS_FLAGS_PROT_NONE:
			break;
		case CU_MEM_ACCESS_FLAGS_PROT_READ:
			may[i] |= 1;
			break;
		case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
			may[i] |= 3;
			break;
		default:
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	for (size_t i = 0; i < count; i++)
		if (!each_map(start, bytes, protect, may[i]))
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
	CUmemAllocationHandleType type, unsigned long long flags)
{
	SOFT_ENTER(0);
	struct backing *backing = backing_of(handle);
	int fd;

	if (!out || !backing || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
		!(backing->prop.requestedHandleTypes & type))
		return CUDA_ERROR_INVALID_VALUE;
	fd = dup(backing->fd);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	memcpy(out, &fd, sizeof(fd));
	return CUDA_SUCCESS;
}

/* Taken to be device memory; it counts here as it does where it came from. */
CUresult cuMemImportFromShareableHandle(
	CUmemGenericAllocationHandle *handle, void *os_handle, CUmemAllocationHandleType type)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = type,
		.location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	struct backing *backing;
	struct stat status;
	int fd = (int)(intptr_t)os_handle;

	SOFT_ENTER(0);
	if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &status) ||
		!granular(0, (size_t)status.st_size))
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_account(0, (size_t)status.st_size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	fd = dup(fd);
	if (fd < 0 || backing_add(&backing, fd, (size_t)status.st_size, &prop)) {
		soft_unaccount(0, (size_t)status.st_size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*handle = (uintptr_t)backing;
	return CUDA_SUCCESS;
}
