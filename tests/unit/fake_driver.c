/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fake_driver.h"
#include "src/base/log.h"
#include "src/memory/arena.h"

struct hs_driver hs_driver;
__thread int hs_inside;

struct fake fake = {
	.options =
		{
			.host_bytes = 256 * MIB,
			.gpu_bytes = HS_AUTO,
			.row = 656,
			.window_bytes = 4 * MIB,
		},
	.device_bytes = 256 * MIB,
};

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

static struct physical physicals[512];
static struct mapping mappings[512]; /* bytes 0: unused */
static CUcontext current = (CUcontext)0x1000;

static bool failing(void)
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

/* Who has what: reservations and registered memory never overlap. */
enum kind { NONE, RESERVED, REGISTERED };

static struct range {
	CUdeviceptr at;
	size_t bytes;
	enum kind kind;
} ranges[512];

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
	*r = (struct range){at, bytes, kind};
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

static CUresult reserve(
	CUdeviceptr *out, size_t bytes, size_t align, CUdeviceptr hint, unsigned long long flags)
{
	void *got;

	(void)align, (void)flags;
	if (fake.no_addresses)
		return CUDA_ERROR_OUT_OF_MEMORY;
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
	return CUDA_SUCCESS;
}

static CUresult enrol(void *memory, size_t bytes, unsigned flags)
{
	assert_int_equal(flags, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	if (failing() || fake.register_refused)
		return CUDA_ERROR_OUT_OF_MEMORY;
	assert_true(enter((CUdeviceptr)memory, bytes, REGISTERED));
	fake.host_used += bytes;
	fake.registered++;
	return CUDA_SUCCESS;
}

static CUresult strike(void *memory)
{
	if (failing())
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
	if (failing() || !range_of((CUdeviceptr)memory, 1))
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUdeviceptr)memory;
	return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
	const CUmemAllocationProp *prop, unsigned long long flags)
{
	const bool host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
	struct physical *p = physicals + 1;

	(void)flags;
	if (failing() || (host && fake.host_refused) ||
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
	if (failing())
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
	if (failing() || !m)
		return CUDA_ERROR_INVALID_VALUE;
	assert_true(mmap((void *)at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			    physicals[m->physical].fd, 0) != MAP_FAILED);
	return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr at, size_t bytes)
{
	struct mapping *m = mapped(at);

	if (failing() || !m)
		return CUDA_ERROR_INVALID_VALUE;
	fake.unmapped_while_busy += fake.busy;
	hold(at, bytes, MAP_FIXED);
	m->bytes = 0;
	fake.mappings--;
	return CUDA_SUCCESS;
}

enum hs_place fake_place(CUdeviceptr at)
{
	struct mapping *m = mapped(at);

	if (range_of(at, 1) && range_of(at, 1)->kind == REGISTERED)
		return HS_PLACE_HOST;
	assert_non_null(m);
	return physicals[m->physical].host ? HS_PLACE_HOST : HS_PLACE_DEVICE;
}

static CUresult alloc(CUdeviceptr *out, size_t bytes)
{
	if (!out || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (failing() || bytes > fake.device_bytes - fake.device_used)
		return CUDA_ERROR_OUT_OF_MEMORY;
	size_t *block = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	*block = bytes;
	memset(block + 512, 0xa5, bytes < 4096 ? bytes : 4096);
	fake.device_used += bytes;
	fake.driver_allocs++;
	*out = (CUdeviceptr)block + 4096;
	return CUDA_SUCCESS;
}

static CUresult dealloc(CUdeviceptr ptr)
{
	size_t *block = (size_t *)(ptr - 4096);

	if (!ptr)
		return CUDA_SUCCESS;
	fake.device_used -= *block;
	fake.driver_allocs--;
	munmap(block, *block + 4096);
	return CUDA_SUCCESS;
}

static CUresult range(CUdeviceptr *start, size_t *bytes, CUdeviceptr ptr)
{
	if (start)
		*start = ptr;
	if (bytes)
		*bytes = *(size_t *)(ptr - 4096);
	return CUDA_SUCCESS;
}

static CUresult info(size_t *left, size_t *total)
{
	if (left)
		*left = fake.device_bytes - fake.device_used;
	if (total)
		*total = fake.device_bytes;
	return CUDA_SUCCESS;
}

static CUresult total_mem(size_t *bytes, CUdevice device)
{
	(void)device;
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = fake.device_bytes;
	return CUDA_SUCCESS;
}

/* The context and the type say that the driver was asked, and about what. */
static CUresult attribute(void *data, CUpointer_attribute which, CUdeviceptr ptr)
{
	if (which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
		*(unsigned *)data = mapped(ptr) && fake_place(ptr) == HS_PLACE_HOST
					    ? CU_MEMORYTYPE_HOST
					    : CU_MEMORYTYPE_DEVICE;
	else if (which == CU_POINTER_ATTRIBUTE_HOST_POINTER)
		*(void **)data = (void *)ptr;
	else if (which == CU_POINTER_ATTRIBUTE_BUFFER_ID)
		*(unsigned long long *)data = ptr;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult attributes(unsigned count, CUpointer_attribute *which, void **data, CUdeviceptr ptr)
{
	for (unsigned i = 0; i < count; i++)
		attribute(data[i], which[i], ptr);
	return CUDA_SUCCESS;
}

static CUresult device_attribute(int *value, CUdevice_attribute which, CUdevice device)
{
	(void)device;
	*value = which == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
	return CUDA_SUCCESS;
}

static CUresult device_count(int *count)
{
	*count = 1;
	return CUDA_SUCCESS;
}

static CUresult context_get(CUcontext *context)
{
	*context = current;
	return CUDA_SUCCESS;
}

static CUresult context_device(CUdevice *device)
{
	*device = 0;
	return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult context_push(CUcontext context)
{
	current = context;
	return CUDA_SUCCESS;
}

static CUresult context_pop(CUcontext *context)
{
	*context = current;
	return CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
	if (failing())
		return CUDA_ERROR_LAUNCH_FAILED;
	fake.syncs++;
	if (fake.capturing) {
		fake.broken_captures++;
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	fake.busy = false;
	return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	if (failing())
		return CUDA_ERROR_INVALID_VALUE;
	memcpy((void *)to, (void *)from, bytes);
	return CUDA_SUCCESS;
}

static CUresult fill(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
	assert_ptr_equal(stream, 0x77);
	memset((void *)to, value, bytes);
	return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *stream, unsigned flags)
{
	assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
	*stream = (CUstream)0x77;
	return CUDA_SUCCESS;
}

static CUresult stream_wait(CUstream stream)
{
	assert_ptr_equal(stream, 0x77);
	return CUDA_SUCCESS;
}

static CUresult capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
	CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
	(void)graph, (void)nodes, (void)count;
	*status = stream == (CUstream)0x55 ? CU_STREAM_CAPTURE_STATUS_ACTIVE
					   : CU_STREAM_CAPTURE_STATUS_NONE;
	*id = 9;
	return CUDA_SUCCESS;
}

static CUresult capture_mode(CUstreamCaptureMode *mode)
{
	static CUstreamCaptureMode now = CU_STREAM_CAPTURE_MODE_GLOBAL;
	const CUstreamCaptureMode old = now;

	now = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}

__attribute__((constructor)) static void fill_in(void)
{
	hs_driver.cuMemAddressReserve = reserve;
	hs_driver.cuMemAddressFree = unreserve;
	hs_driver.cuMemHostRegister_v2 = enrol;
	hs_driver.cuMemHostUnregister = strike;
	hs_driver.cuMemHostGetDevicePointer_v2 = device_pointer;
	hs_driver.cuMemCreate = create;
	hs_driver.cuMemRelease = release;
	hs_driver.cuMemMap = map;
	hs_driver.cuMemSetAccess = access_set;
	hs_driver.cuMemUnmap = unmap;
	hs_driver.cuMemAlloc_v2 = alloc;
	hs_driver.cuMemFree_v2 = dealloc;
	hs_driver.cuMemGetAddressRange_v2 = range;
	hs_driver.cuMemGetInfo_v2 = info;
	hs_driver.cuDeviceTotalMem_v2 = total_mem;
	hs_driver.cuPointerGetAttribute = attribute;
	hs_driver.cuPointerGetAttributes = attributes;
	hs_driver.cuDeviceGetAttribute = device_attribute;
	hs_driver.cuDeviceGetCount = device_count;
	hs_driver.cuCtxGetCurrent = context_get;
	hs_driver.cuCtxGetDevice = context_device;
	hs_driver.cuCtxPushCurrent_v2 = context_push;
	hs_driver.cuCtxPopCurrent_v2 = context_pop;
	hs_driver.cuCtxSynchronize = synchronize;
	hs_driver.cuMemcpyDtoD_v2 = copy;
	hs_driver.cuMemsetD8Async = fill;
	hs_driver.cuStreamCreate = stream_create;
	hs_driver.cuStreamSynchronize = stream_wait;
	hs_driver.cuStreamGetCaptureInfo_v2 = capture_info;
	hs_driver.cuStreamGetCaptureInfo_v2_ptsz = capture_info;
	hs_driver.cuThreadExchangeStreamCaptureMode = capture_mode;
}

const struct hs_options *hs_options(void)
{
	return &fake.options;
}

bool hs_log_on(enum hs_log_level level)
{
	return level <= HS_LOG_INFO;
}

void hs_log_write(enum hs_log_level level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(fake.line, sizeof(fake.line), format, args);
	va_end(args);
	fake.lines += level <= HS_LOG_WARN;
}

void hs_cache_settle(void)
{
	fake.settled++;
}

int hs_cache_ready(void)
{
	return 0;
}

void hs_cache_context_gone(CUcontext context)
{
	(void)context;
}

unsigned hs_cache_extents(const struct hs_window *window, struct hs_extent *out, unsigned most)
{
	(void)window, (void)out, (void)most;
	return 0;
}

void hs_cache_forget(struct hs_window *window)
{
	(void)window;
	fake.forgotten++;
}

void hs_cache_wrote(
	struct hs_window *window, CUdeviceptr start, size_t bytes, const struct hs_site *site)
{
	fake.wrote++;
	fake.wrote_window = window;
	fake.wrote_start = start;
	fake.wrote_bytes = bytes;
	fake.wrote_site = *site;
}

CUdeviceptr fake_window(size_t mib)
{
	CUdeviceptr ptr = 0;

	hs_memory_settle();
	return INSIDE(hs_memory_alloc(&ptr, mib * MIB)) == CUDA_SUCCESS ? ptr : 0;
}

void fake_free(CUdeviceptr ptr)
{
	hs_memory_settle();
	assert_int_equal(INSIDE(hs_memory_free(ptr)), CUDA_SUCCESS);
}

void fake_fill(CUdeviceptr start, size_t bytes, unsigned seed)
{
	struct hs_window *window = hs_window_find(start);

	if (window)
		atomic_store(&window->virgin, false);
	for (size_t i = 0; i < bytes; i += 4096)
		*(uint64_t *)(start + i) = start + i + seed * 0x9e3779b97f4a7c15ull;
}

size_t fake_wrong(CUdeviceptr start, size_t bytes, unsigned seed)
{
	size_t wrong = 0;

	for (size_t i = 0; i < bytes; i += 4096)
		wrong += *(uint64_t *)(start + i) != start + i + seed * 0x9e3779b97f4a7c15ull;
	return wrong;
}

int fake_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count)
{
	int failed = 0, status;

	if (argc > 1) {
		cmocka_set_test_filter(argv[1]);
		return _cmocka_run_group_tests(argv[1], tests, count, NULL, NULL);
	}
	for (size_t i = 0; i < count; i++) {
		const pid_t child = fork();

		if (child == 0) {
			execl("/proc/self/exe", argv[0], tests[i].name, (char *)NULL);
			_exit(127);
		}
		if (child < 0 || waitpid(child, &status, 0) != child || status)
			failed++;
	}
	return failed != 0;
}
