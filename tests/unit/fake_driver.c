/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fake_driver.h"
#include "src/base/log.h"

struct hs_driver hs_driver;
__thread int hs_inside;

struct fake fake = {
	.options =
		{
			.host_bytes = 256 * MIB,
			.gpu_bytes = HS_AUTO,
			.row = 656,
			.layers = HS_AUTO,
			.window_bytes = 4 * MIB,
		},
	.device_bytes = 256 * MIB,
};

static CUcontext current = (CUcontext)0x1000, under[16];
static int depth;

static CUresult alloc(CUdeviceptr *out, size_t bytes)
{
	if (!out || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (fake_failing() || bytes > fake.device_bytes - fake.device_used)
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
	if (fake_managed(ptr))
		return fake_managed_free(ptr);
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
		*(unsigned *)data = fake_mapped(ptr) && fake_place(ptr) == HS_PLACE_HOST
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
	*value = which == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
		 (which == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS && fake.managed);
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
	assert_in_range(depth, 0, 15);
	under[depth++] = current;
	current = context;
	return CUDA_SUCCESS;
}

static CUresult context_pop(CUcontext *context)
{
	*context = current;
	assert_in_range(depth, 1, 16);
	current = under[--depth];
	return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *event, unsigned flags)
{
	(void)flags;
	*event = (CUevent)0x99;
	fake.events++;
	return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
	assert_ptr_equal(event, 0x99);
	fake.events--;
	return CUDA_SUCCESS;
}

static CUresult record_all(CUcontext context, CUevent event)
{
	assert_ptr_equal(context, current);
	assert_ptr_equal(event, 0x99);
	if (fake_failing())
		return CUDA_ERROR_LAUNCH_FAILED;
	fake.syncs++;
	if (fake.capturing) {
		fake.broken_captures++;
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
	assert_ptr_equal(event, 0x99);
	fake.queries++;
	if (fake.busy_context && fake.busy_context != current)
		return CUDA_SUCCESS;
	if (fake.endless || (fake.busy && fake.queries % 3))
		return CUDA_ERROR_NOT_READY;
	fake.busy = false;
	return CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
	fake.full_syncs++;
	return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	if (fake_failing())
		return CUDA_ERROR_INVALID_VALUE;
	memcpy((void *)to, (void *)from, bytes);
	return CUDA_SUCCESS;
}

static CUresult copy_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	assert_ptr_equal(stream, 0x77);
	return copy(to, from, bytes);
}

static CUresult copy_out(void *to, CUdeviceptr from, size_t bytes)
{
	return copy((CUdeviceptr)to, from, bytes);
}

static CUresult copy_in(CUdeviceptr to, const void *from, size_t bytes)
{
	return copy(to, (CUdeviceptr)from, bytes);
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
	return fake_failing() ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
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
	fake_memory_fill_in();
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
	hs_driver.cuCtxRecordEvent = record_all;
	hs_driver.cuEventCreate = event_create;
	hs_driver.cuEventDestroy_v2 = event_destroy;
	hs_driver.cuEventQuery = event_query;
	hs_driver.cuMemcpyDtoD_v2 = copy;
	hs_driver.cuMemcpyDtoDAsync_v2 = copy_async;
	hs_driver.cuMemcpyDtoH_v2 = copy_out;
	hs_driver.cuMemcpyHtoD_v2 = copy_in;
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

struct hs_cache_wants hs_cache_wants(CUdevice device)
{
	(void)device;
	return fake.wants;
}

void hs_cache_stop(CUdevice device)
{
	(void)device;
	fake.stopped++;
	if (fake.hot)
		hs_memory_cold(fake.hot);
	fake.hot = 0;
}

void hs_cache_context_gone(CUcontext context)
{
	(void)context;
}

unsigned hs_cache_extents(const struct hs_window *window, struct hs_extent *out, unsigned most)
{
	(void)window;
	for (unsigned i = 0; i < fake.layers && i < most; i++)
		out[i] = fake.extents[i];
	return fake.layers;
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

	hs_memory_settle(true);
	return INSIDE(hs_memory_alloc(&ptr, mib * MIB)) == CUDA_SUCCESS ? ptr : 0;
}

void fake_free(CUdeviceptr ptr)
{
	hs_memory_settle(true);
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
