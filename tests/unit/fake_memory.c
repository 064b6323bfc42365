/* SPDX-License-Identifier: MIT */
/* The part of the fake driver that makes, maps and registers memory. */
#include <sys/mman.h>
#include <unistd.h>
#include "fake_driver.h"
#include "src/memory/arena.h"
#include "src/memory/steer.h"

struct physical {
	int fd;
	size_t bytes;
	bool host, used;
};

struct mapping {
	CUdeviceptr at;
	size_t bytes;
	int physical;
};

static struct physical physicals[8192];
static struct mapping mappings[8192]; /* bytes 0: unused */

bool fake_failing(void)
{
	fake.outside += hs_inside == 0;
	if (fake.fail_after > 0 && --fake.fail_after == 0) {
		return true;
	}
	return false;
}

static void *hold(CUdeviceptr at, size_t bytes, int flags)
{
	return mmap((void *)at, bytes, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

/* Who has what: reservations, registered and managed memory never overlap. */
enum kind { NONE, RESERVED, REGISTERED, MANAGED };

static struct range {
	CUdeviceptr at;
	size_t bytes;
	enum kind kind;
	size_t pinned; /* of managed memory, what is to stay on the host */
} ranges[8192];

static struct range *range_of(CUdeviceptr at, size_t bytes)
{
	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
		if (ranges[i].kind && ranges[i].at < at + bytes &&
			at < ranges[i].at + ranges[i].bytes)
			return &ranges[i];
	return NULL;
}

static bool enter(CUdeviceptr at, size_t bytes, enum kind kind)
{
	struct range *r = ranges;

	if (range_of(at, bytes))
		return false;
	while (r->kind)
		r++;
	*r = (struct range){.at = at, .bytes = bytes, .kind = kind};
	return true;
}

static bool leave(CUdeviceptr at, enum kind kind)
{
	struct range *r = range_of(at, 1);

	if (!r || r->at != at || r->kind != kind)
		return false;
	r->kind = NONE;
	return true;
}

static CUdeviceptr kept;

static CUresult reserve(
	CUdeviceptr *out, size_t bytes, size_t align, CUdeviceptr hint, unsigned long long flags)
{
	void *got;

	(void)align, (void)flags;
	if (fake.no_addresses)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (kept && kept - hint < bytes) {
		munmap((void *)kept, HS_GRANULE);
		kept = 0;
	}
	/* As driver 580: both in steps of 32 MiB, or it is nobody's hint. */
	got = hint == fake.misplace || (hint | bytes) & (HS_ARENA_STEP - 1)
		      ? hold(0, bytes, 0)
		      : hold(hint, bytes, MAP_FIXED_NOREPLACE);
	if (got == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	assert_true(enter((CUdeviceptr)got, bytes, RESERVED));
	fake.reservations++;
	*out = (CUdeviceptr)got;
	return CUDA_SUCCESS;
}

static CUresult unreserve(CUdeviceptr at, size_t bytes)
{
	for (size_t i = 0; i < sizeof(mappings) / sizeof(*mappings); i++)
		assert_false(mappings[i].bytes && mappings[i].at - at < bytes);
	assert_int_equal(range_of(at, 1)->bytes, bytes);
	assert_true(leave(at, RESERVED));
	fake.reservations--;
	munmap((void *)at, bytes);
	if (fake.keeps && bytes > HS_ARENA_STEP) {
		kept = at + HS_ARENA_STEP;
		hold(kept, HS_GRANULE, MAP_FIXED_NOREPLACE);
	}
	return CUDA_SUCCESS;
}

static CUresult enrol(void *memory, size_t bytes, unsigned flags)
{
	assert_int_equal(flags, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	if (fake_failing() || fake.register_refused)
		return CUDA_ERROR_OUT_OF_MEMORY;
	assert_true(enter((CUdeviceptr)memory, bytes, REGISTERED));
	fake.host_used += bytes;
	fake.registered++;
	return CUDA_SUCCESS;
}

static CUresult strike(void *memory)
{
	if (fake_failing())
		return CUDA_ERROR_INVALID_VALUE;
	fake.unmapped_while_busy += fake.busy;
	fake.host_used -= range_of((CUdeviceptr)memory, 1)->bytes;
	assert_true(leave((CUdeviceptr)memory, REGISTERED));
	fake.registered--;
	return CUDA_SUCCESS;
}

static CUresult device_pointer(CUdeviceptr *out, void *memory, unsigned flags)
{
	assert_int_equal(flags, 0);
	if (fake_failing() || !range_of((CUdeviceptr)memory, 1))
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUdeviceptr)memory;
	return CUDA_SUCCESS;
}

/* Zeros whose pages the kernel makes, or cannot make, or makes only by a fault. */
static void *managed_pages(CUdeviceptr at, size_t bytes)
{
	const int protection = fake.managed_fixed ? PROT_READ : PROT_READ | PROT_WRITE;
	const int fd = fake.managed_full ? memfd_create("full", MFD_CLOEXEC) : -1;
	void *got = mmap((void *)at, bytes, protection,
		MAP_NORESERVE | MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED), fd,
		0);

	if (fd >= 0)
		close(fd);
	return got;
}

/* As driver 580.159.04 comes by its addresses (steer.h). */
static CUresult managed_alloc(CUdeviceptr *out, size_t bytes, unsigned flags)
{
	const size_t all =
		(bytes + HS_ARENA_STEP - 1) / HS_ARENA_STEP * HS_ARENA_STEP + HS_ARENA_STEP - 4096;
	CUdeviceptr got, at;

	assert_true(fake.managed);
	assert_int_equal(flags, CU_MEM_ATTACH_GLOBAL);
	fake.managed_asked++;
	if (fake_failing())
		return CUDA_ERROR_OUT_OF_MEMORY;
	got = (CUdeviceptr)hold(fake.managed_astray > 0 && fake.managed_astray--
					? 0
					: (CUdeviceptr)hs_steer(NULL, all, PROT_NONE),
		all, 0);
	at = (got + HS_ARENA_STEP - 1) & ~(HS_ARENA_STEP - 1);
	if (at != got)
		munmap((void *)got, at - got);
	if (at + bytes != got + all)
		munmap((void *)(at + bytes), got + all - at - bytes);
	assert_ptr_equal(managed_pages(at, bytes), at);
	assert_true(enter(at, bytes, MANAGED));
	fake.managed_count++;
	*out = at;
	return CUDA_SUCCESS;
}

bool fake_managed(CUdeviceptr at)
{
	return range_of(at, 1) && range_of(at, 1)->kind == MANAGED;
}

CUresult fake_managed_free(CUdeviceptr at)
{
	const size_t bytes = range_of(at, 1)->bytes, pinned = range_of(at, 1)->pinned;

	if (fake_failing() || !leave(at, MANAGED))
		return CUDA_ERROR_INVALID_VALUE;
	fake.unmapped_while_busy += fake.busy;
	fake.host_used -= pinned;
	fake.managed_count--;
	munmap((void *)at, bytes);
	return CUDA_SUCCESS;
}

static CUresult advise(CUdeviceptr at, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
	if (fake_failing() || fake.advice_refused || !fake_managed(at) ||
		at + bytes > range_of(at, 1)->at + range_of(at, 1)->bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION) {
		range_of(at, 1)->pinned = bytes;
		fake.host_used += bytes;
	}
	if (fake.advised < sizeof(fake.advice) / sizeof(*fake.advice))
		fake.advice[fake.advised++] = (struct fake_advice){advice, location, at, bytes};
	return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
	const CUmemAllocationProp *prop, unsigned long long flags)
{
	const bool host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
	struct physical *p = physicals + 1;

	(void)flags;
	if (fake_failing() || (host && fake.host_refused) ||
		(!host && bytes > fake.device_bytes - fake.device_used))
		return CUDA_ERROR_OUT_OF_MEMORY;
	while (p->used)
		p++;
	*p = (struct physical){.fd = memfd_create("fake", MFD_CLOEXEC),
		.bytes = bytes,
		.host = host,
		.used = true};
	assert_int_equal(ftruncate(p->fd, (off_t)bytes), 0);
	*(host ? &fake.host_used : &fake.device_used) += bytes;
	fake.handles++;
	*handle = (CUmemGenericAllocationHandle)(p - physicals);
	return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
	struct physical *p = &physicals[handle];

	close(p->fd);
	*(p->host ? &fake.host_used : &fake.device_used) -= p->bytes;
	p->used = false;
	fake.handles--;
	return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr at, size_t bytes, size_t offset,
	CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct mapping *m = mappings;

	(void)offset, (void)flags;
	if (fake_failing())
		return CUDA_ERROR_INVALID_VALUE;
	assert_non_null(range_of(at, bytes));
	assert_true(range_of(at, bytes)->at <= at &&
		    at + bytes <= range_of(at, bytes)->at + range_of(at, bytes)->bytes);
	while (m->bytes)
		m++;
	*m = (struct mapping){at, bytes, (int)handle};
	fake.mappings++;
	return CUDA_SUCCESS;
}

static struct mapping *mapped(CUdeviceptr at)
{
	for (size_t i = 0; i < sizeof(mappings) / sizeof(*mappings); i++)
		if (at - mappings[i].at < mappings[i].bytes)
			return &mappings[i];
	return NULL;
}

static CUresult access_set(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
	struct mapping *m = mapped(at);

	assert_int_equal(desc->location.type, CU_MEM_LOCATION_TYPE_DEVICE);
	assert_int_equal(count, 1);
	if (fake_failing() || !m)
		return CUDA_ERROR_INVALID_VALUE;
	assert_true(mmap((void *)at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			    physicals[m->physical].fd, 0) != MAP_FAILED);
	return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr at, size_t bytes)
{
	struct mapping *m = mapped(at);

	if (fake_failing() || !m)
		return CUDA_ERROR_INVALID_VALUE;
	fake.unmapped_while_busy += fake.busy;
	hold(at, bytes, MAP_FIXED);
	m->bytes = 0;
	fake.mappings--;
	return CUDA_SUCCESS;
}

bool fake_mapped(CUdeviceptr at)
{
	return mapped(at) != NULL;
}

enum hs_place fake_place(CUdeviceptr at)
{
	struct mapping *m = mapped(at);

	if (range_of(at, 1) && range_of(at, 1)->kind != RESERVED)
		return HS_PLACE_HOST;
	assert_non_null(m);
	return physicals[m->physical].host ? HS_PLACE_HOST : HS_PLACE_DEVICE;
}

bool fake_populates(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const bool made = !madvise(page, 4096, 23); /* MADV_POPULATE_WRITE */

	munmap(page, 4096);
	return made;
}

void fake_memory_fill_in(void)
{
	hs_driver.cuMemAddressReserve = reserve;
	hs_driver.cuMemAddressFree = unreserve;
	hs_driver.cuMemHostRegister_v2 = enrol;
	hs_driver.cuMemHostUnregister = strike;
	hs_driver.cuMemHostGetDevicePointer_v2 = device_pointer;
	hs_driver.cuMemAllocManaged = managed_alloc;
	hs_driver.cuMemAdvise_v2 = advise;
	hs_driver.cuMemCreate = create;
	hs_driver.cuMemRelease = release;
	hs_driver.cuMemMap = map;
	hs_driver.cuMemSetAccess = access_set;
	hs_driver.cuMemUnmap = unmap;
}
