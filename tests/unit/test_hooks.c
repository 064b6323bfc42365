/* SPDX-License-Identifier: MIT */
/* The hook bodies between a driver that notes what it was asked and policy
 * modules that note what they were told. One window lies at WINDOW. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>
#include "hooks/hook.h"
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/launch/launch.h"
#include "src/memory/copy.h"
#include "src/memory/gate.h"
#include "src/memory/memory.h"

#define WINDOW ((CUdeviceptr)0x200000000000)
#define BYTES ((size_t)64 << 20)
#define OTHER ((CUdeviceptr)0x7f0000000000)
#define STREAM ((CUstream)0x51)

struct hs_driver hs_driver;
__thread int hs_inside;
static struct hs_options settings;
static bool whole = true;

static struct {
	int inside_gate, entered, captures, settled, forgot, gone, launches, nodes, began, ending;
	int wrote, filled;
	CUdeviceptr start;
	size_t bytes;
	CUstream stream;
	bool per_thread;
	CUfunction node;
} told;

static struct {
	CUresult result;
	int calls;
	CUcontext current;
	CUstreamCaptureStatus capture;
	int active;
	struct {
		CUdeviceptr dst;
		size_t pitch, count, height;
		unsigned value;
		CUstream stream;
	} fills[16];
	int inside; /* hs_inside at the last call */
} driver;

const struct hs_options *hs_options(void)
{
	return &settings;
}

bool hs_driver_open(void)
{
	return true;
}

bool hs_driver_whole(void)
{
	return whole;
}

void hs_log_write(enum hs_log_level level, const char *format, ...)
{
	(void)level;
	(void)format;
}

bool hs_log_on(enum hs_log_level level)
{
	(void)level;
	return false;
}

void hs_gate_enter(void)
{
	told.inside_gate++;
	told.entered++;
}

void hs_gate_leave(void)
{
	told.inside_gate--;
}

void hs_capture_began(void)
{
	told.captures++;
}

void hs_capture_ended(void)
{
	told.captures--;
}

int hs_capture_count(void)
{
	return told.captures;
}

bool hs_window_any(void)
{
	return true;
}

struct hs_window *hs_window_find(CUdeviceptr ptr)
{
	static struct hs_window window = {.start = WINDOW, .bytes = BYTES};

	return ptr - WINDOW < BYTES ? &window : NULL;
}

CUresult hs_memory_alloc(CUdeviceptr *out, size_t bytes)
{
	(void)bytes;
	assert_int_equal(hs_inside, 1);
	errno = ENOMEM;
	*out = WINDOW;
	return CUDA_SUCCESS;
}

CUresult hs_memory_free(CUdeviceptr ptr)
{
	return ptr == WINDOW ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult hs_memory_info(size_t *free, size_t *total)
{
	(void)free;
	(void)total;
	return CUDA_ERROR_ALREADY_MAPPED;
}

CUresult hs_memory_total(size_t *bytes, CUdevice device)
{
	(void)bytes;
	(void)device;
	return CUDA_ERROR_ALREADY_MAPPED;
}

CUresult hs_memory_range(CUdeviceptr *start, size_t *bytes, CUdeviceptr ptr)
{
	(void)start;
	(void)bytes;
	(void)ptr;
	return CUDA_ERROR_ALREADY_MAPPED;
}

CUresult hs_memory_attribute(void *data, CUpointer_attribute which, CUdeviceptr ptr)
{
	(void)data;
	(void)which;
	(void)ptr;
	return CUDA_ERROR_ALREADY_MAPPED;
}

CUresult hs_memory_attributes(
	unsigned count, CUpointer_attribute *which, void **data, CUdeviceptr ptr)
{
	(void)count;
	(void)which;
	(void)data;
	(void)ptr;
	return CUDA_ERROR_ALREADY_MAPPED;
}

void hs_memory_settle(void)
{
	told.settled++;
}

void hs_memory_context_gone(CUcontext context)
{
	assert_ptr_equal(context, driver.current);
	told.gone++;
}

void hs_copy_wrote(CUdeviceptr dst, size_t bytes, CUstream stream, bool per_thread)
{
	assert_true(!hs_window_find(dst) || told.inside_gate);
	told.wrote++;
	told.start = dst;
	told.bytes = bytes;
	told.stream = stream;
	told.per_thread = per_thread;
}

void hs_copy_filled(CUdeviceptr dst, size_t bytes, CUstream stream, bool per_thread)
{
	hs_copy_wrote(dst, bytes, stream, per_thread);
	told.wrote--;
	told.filled++;
}

/* A seam after the first granule of the window. */
CUdeviceptr hs_copy_seam(CUdeviceptr ptr, size_t bytes)
{
	const CUdeviceptr seam = WINDOW + HS_GRANULE;

	return ptr < seam && ptr + bytes > seam ? seam : ptr + bytes;
}

CUresult hs_launch(struct hs_launch *launch)
{
	told.launches++;
	return launch->forward(launch);
}

void hs_launch_forget(void)
{
	told.forgot++;
}

void hs_launch_report(void)
{
}

void hs_launch_node(CUfunction function, void **params)
{
	(void)params;
	told.nodes++;
	told.node = function;
}

void hs_launch_capture_began(CUstream stream, bool per_thread)
{
	told.began++;
	told.stream = stream;
	told.per_thread = per_thread;
}

void hs_launch_capture_ending(CUstream stream, bool per_thread)
{
	(void)stream;
	(void)per_thread;
	told.ending++;
}

static CUresult call(void)
{
	driver.calls++;
	driver.inside = hs_inside;
	return driver.result;
}

static CUresult note_fill(
	CUdeviceptr dst, size_t pitch, unsigned value, size_t count, size_t height, CUstream stream)
{
	const int i = driver.calls;

	driver.fills[i].dst = dst;
	driver.fills[i].pitch = pitch;
	driver.fills[i].value = value;
	driver.fills[i].count = count;
	driver.fills[i].height = height;
	driver.fills[i].stream = stream;
	return call();
}

static CUresult real_fill8(CUdeviceptr dst, unsigned char value, size_t count)
{
	return note_fill(dst, 0, value, count, 1, NULL);
}

static CUresult real_fill32(CUdeviceptr dst, unsigned value, size_t count, CUstream stream)
{
	return note_fill(dst, 0, value, count, 1, stream);
}

static CUresult real_fill2d(
	CUdeviceptr dst, size_t pitch, unsigned short value, size_t count, size_t height)
{
	return note_fill(dst, pitch, value, count, height, NULL);
}

static CUresult real_current(CUcontext *context)
{
	*context = driver.current;
	return driver.current ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult real_alloc(CUdeviceptr *out, size_t bytes)
{
	(void)bytes;
	*out = OTHER;
	return call();
}

static CUresult real_copy(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
	(void)dst;
	(void)src;
	(void)bytes;
	(void)stream;
	return call();
}

static CUresult real_copy2d(const CUDA_MEMCPY2D *copy)
{
	(void)copy;
	return call();
}

static CUresult real_copy3d(const CUDA_MEMCPY3D *copy, CUstream stream)
{
	(void)copy;
	(void)stream;
	return call();
}

static CUresult real_batch(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
	CUmemcpyAttributes *attrs, size_t *firsts, size_t nattrs, CUstream stream)
{
	(void)dsts, (void)srcs, (void)sizes, (void)count;
	(void)attrs, (void)firsts, (void)nattrs, (void)stream;
	return call();
}

static CUresult real_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
	(void)stream;
	*status = driver.capture;
	return CUDA_SUCCESS;
}

static CUresult real_begin(CUstream stream, CUstreamCaptureMode mode)
{
	(void)stream;
	(void)mode;
	assert_int_equal(told.captures, 1);
	return call();
}

static CUresult real_end(CUstream stream, CUgraph *graph)
{
	(void)stream;
	(void)graph;
	if (driver.result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
		driver.capture = CU_STREAM_CAPTURE_STATUS_NONE;
	return call();
}

static CUresult real_launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
	unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
	assert_ptr_equal(function, 1);
	assert_true(gx == 2 && gy == 3 && gz == 4 && bx == 5 && by == 6 && bz == 7 && shared == 8);
	assert_ptr_equal(stream, 9);
	assert_ptr_equal(params, 10);
	assert_ptr_equal(extra, 11);
	return call();
}

static CUresult real_add_node(CUgraphNode *out, CUgraph graph, const CUgraphNode *after,
	size_t count, const CUDA_KERNEL_NODE_PARAMS *node)
{
	(void)out, (void)graph, (void)after, (void)count, (void)node;
	return call();
}

static CUresult real_state(CUdevice device, unsigned *flags, int *active)
{
	(void)device;
	*flags = 0;
	*active = driver.active > 0;
	return CUDA_SUCCESS;
}

static CUresult real_retain(CUcontext *context, CUdevice device)
{
	(void)device;
	*context = driver.current;
	driver.active++;
	return CUDA_SUCCESS;
}

static CUresult real_release(CUdevice device)
{
	(void)device;
	driver.active--;
	return CUDA_SUCCESS;
}

static int reset(void **state)
{
	(void)state;
	memset(&told, 0, sizeof(told));
	memset(&driver, 0, sizeof(driver));
	memset(&settings, 0, sizeof(settings));
	driver.current = (CUcontext)0xc0;
	whole = true;
	hs_inside = 0;
	atomic_store(&hs_hook_state, HS_HOOK_ASLEEP);
	hs_driver.cuCtxGetCurrent = real_current;
	hs_driver.cuMemAlloc_v2 = real_alloc;
	hs_driver.cuMemsetD8_v2 = real_fill8;
	hs_driver.cuMemsetD32Async = real_fill32;
	hs_driver.cuMemsetD2D16_v2_ptds = real_fill2d;
	hs_driver.cuMemcpyHtoDAsync_v2_ptsz = real_copy;
	hs_driver.cuMemcpy2D_v2 = real_copy2d;
	hs_driver.cuMemcpy3DAsync_v2 = real_copy3d;
	hs_driver.cuMemcpyBatchAsync_v2 = real_batch;
	hs_driver.cuStreamIsCapturing = real_capturing;
	hs_driver.cuStreamBeginCapture_v2 = real_begin;
	hs_driver.cuStreamEndCapture = real_end;
	hs_driver.cuLaunchKernel = real_launch;
	hs_driver.cuGraphAddKernelNode_v2 = real_add_node;
	hs_driver.cuDevicePrimaryCtxGetState = real_state;
	hs_driver.cuDevicePrimaryCtxRetain = real_retain;
	hs_driver.cuDevicePrimaryCtxRelease = real_release;
	hs_driver.cuDevicePrimaryCtxRelease_v2 = real_release;
	return 0;
}

static int balanced(void **state)
{
	(void)state;
	return told.inside_gate || hs_inside ? -1 : 0;
}

static void policy_after_init_only(void **state)
{
	CUdeviceptr ptr = 0;
	(void)state;

	driver.current = NULL;
	driver.result = CUDA_ERROR_NOT_INITIALIZED;
	assert_int_equal(cuMemAlloc_v2(&ptr, 1), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(driver.calls, 1);
	assert_int_equal(told.settled, 0);
	driver.current = (CUcontext)0xc0;
	errno = EEXIST;
	assert_int_equal(cuMemAlloc_v2(&ptr, 1), CUDA_SUCCESS);
	assert_int_equal(errno, EEXIST);
	assert_true(ptr == WINDOW);
	assert_int_equal(driver.calls, 1);
	assert_int_equal(told.settled, 1);
}

static void aside_means_forward(void **state)
{
	CUdeviceptr ptr = 0;
	(void)state;

	settings.disable = true;
	cuMemAlloc_v2(&ptr, 1);
	assert_true(ptr == OTHER);
	reset(NULL);
	whole = false;
	cuMemAlloc_v2(&ptr, 1);
	assert_true(ptr == OTHER);
	reset(NULL);
	hs_inside = 1;
	cuMemAlloc_v2(&ptr, 1);
	hs_inside = 0;
	assert_true(ptr == OTHER);
	assert_int_equal(driver.inside, 1);
}

static void absent_rows_refuse(void **state)
{
	(void)state;
	hs_driver.cuCtxSynchronize_v2 = NULL;
	assert_int_equal(cuCtxSynchronize_v2(NULL), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(hs_inside, 0);
	settings.disable = true;
	atomic_store(&hs_hook_state, HS_HOOK_ASLEEP);
	assert_int_equal(cuCtxSynchronize_v2(NULL), CUDA_ERROR_NOT_SUPPORTED);
}

static void copies_report_what_they_wrote(void **state)
{
	(void)state;
	assert_int_equal(cuMemcpyHtoDAsync_v2_ptsz(WINDOW + 5, "x", 100, STREAM), CUDA_SUCCESS);
	assert_true(told.start == WINDOW + 5 && told.bytes == 100);
	assert_true(told.stream == STREAM && told.per_thread);
	assert_int_equal(told.entered, 1);
	cuMemcpyHtoDAsync_v2_ptsz(OTHER, "x", 100, STREAM);
	assert_int_equal(told.entered, 1);
	told.wrote = 0;
	driver.result = CUDA_ERROR_INVALID_VALUE;
	assert_int_equal(
		cuMemcpyHtoDAsync_v2_ptsz(WINDOW, "x", 100, STREAM), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(told.wrote, 0);
}

static void boxes_are_covered(void **state)
{
	CUDA_MEMCPY2D flat = {.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = WINDOW,
		.dstPitch = 1000,
		.dstXInBytes = 7,
		.dstY = 3,
		.WidthInBytes = 50,
		.Height = 4};
	CUDA_MEMCPY3D deep = {.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
		.dstDevice = WINDOW,
		.dstPitch = 100,
		.dstHeight = 10,
		.dstXInBytes = 1,
		.dstY = 2,
		.dstZ = 3,
		.WidthInBytes = 5,
		.Height = 6,
		.Depth = 7};
	(void)state;

	cuMemcpy2D_v2(&flat);
	assert_true(told.start == WINDOW + 3007 && told.bytes == 3050);
	assert_true(!told.stream && !told.per_thread);
	cuMemcpy3DAsync_v2(&deep, STREAM);
	assert_true(told.start == WINDOW + 3201 && told.bytes == 6505);
	assert_true(told.stream == STREAM);
	told.wrote = 0;
	flat.dstMemoryType = CU_MEMORYTYPE_HOST;
	cuMemcpy2D_v2(&flat);
	deep.Depth = 0;
	cuMemcpy3DAsync_v2(&deep, STREAM);
	driver.result = CUDA_ERROR_INVALID_VALUE;
	assert_int_equal(cuMemcpy2D_v2(NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(told.wrote, 0);
}

static void batches_report_every_item(void **state)
{
	CUdeviceptr dsts[] = {OTHER, WINDOW + 64}, srcs[] = {OTHER, OTHER};
	size_t sizes[] = {1, 32};
	(void)state;

	driver.result = CUDA_ERROR_INVALID_VALUE; /* and may have been done in part */
	cuMemcpyBatchAsync_v2(dsts, srcs, sizes, 2, NULL, NULL, 0, STREAM);
	assert_int_equal(told.entered, 1);
	assert_true(told.start == WINDOW + 64 && told.bytes == 32);
	told.wrote = 0;
	cuMemcpyBatchAsync_v2(dsts, srcs, sizes, 1, NULL, NULL, 0, STREAM);
	assert_int_equal(told.wrote, 0);
	assert_int_equal(told.entered, 1);
}

static void fills_are_cut_at_seams(void **state)
{
	(void)state;
	cuMemsetD8_v2(WINDOW, 9, BYTES);
	assert_int_equal(driver.calls, 2);
	assert_true(driver.fills[0].dst == WINDOW && driver.fills[0].count == HS_GRANULE);
	assert_true(driver.fills[1].dst == WINDOW + HS_GRANULE);
	assert_true(driver.fills[1].count == BYTES - HS_GRANULE && driver.fills[1].value == 9);
	assert_int_equal(told.filled, 1);
	assert_true(told.start == WINDOW && told.bytes == BYTES);
	driver.calls = 0;
	cuMemsetD32Async(WINDOW + HS_GRANULE - 8, 0x12345678, 6, STREAM);
	assert_int_equal(driver.calls, 2);
	assert_true(driver.fills[0].count == 2 && driver.fills[1].count == 4);
	assert_true(driver.fills[1].value == 0x12345678 && driver.fills[1].stream == STREAM);
	assert_true(told.bytes == 24);
	driver.calls = 0;
	cuMemsetD8_v2(OTHER, 9, BYTES);
	assert_int_equal(driver.calls, 1);
	driver.calls = 0;
	cuMemsetD8_v2(WINDOW, 9, 0); /* the driver's to answer */
	assert_int_equal(driver.calls, 1);
}

/* Rows of 200 bytes, 256 apart; the seam cuts the third. */
static void rectangles_are_cut_at_seams(void **state)
{
	const CUdeviceptr start = WINDOW + HS_GRANULE - 600;
	static const struct {
		size_t at, count, height;
	} want[] = {{0, 100, 2}, {512, 44, 1}, {600, 56, 1}, {768, 100, 7}};
	(void)state;

	cuMemsetD2D16_v2_ptds(start, 256, 3, 100, 10);
	assert_int_equal(driver.calls, 4);
	for (int i = 0; i < 4; i++) {
		assert_true(driver.fills[i].dst == start + want[i].at);
		assert_true(driver.fills[i].count == want[i].count);
		assert_true(driver.fills[i].height == want[i].height);
		assert_true(driver.fills[i].pitch == 256 && driver.fills[i].value == 3);
	}
	assert_true(told.start == start && told.bytes == 9 * 256 + 200 && told.per_thread);
	driver.calls = 0;
	driver.result = CUDA_ERROR_INVALID_VALUE;
	assert_int_equal(cuMemsetD2D16_v2_ptds(start, 256, 3, 100, 10), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(driver.calls, 1);
}

static void captures_are_counted(void **state)
{
	CUgraph graph;
	(void)state;

	driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	assert_int_equal(cuStreamBeginCapture_v2(STREAM, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(told.captures, 1);
	assert_int_equal(told.began, 1);
	driver.result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	cuStreamEndCapture(STREAM, &graph);
	assert_int_equal(told.captures, 1);
	driver.result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	assert_int_equal(cuStreamEndCapture(STREAM, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_int_equal(told.captures, 0);
	driver.result = CUDA_ERROR_ILLEGAL_STATE;
	cuStreamEndCapture(STREAM, &graph);
	assert_int_equal(told.captures, 0);
	assert_int_equal(told.ending, 2);
	cuStreamBeginCapture_v2(STREAM, CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_int_equal(told.captures, 0);
	assert_int_equal(told.began, 1);
}

static void launches_arrive_whole(void **state)
{
	(void)state;
	assert_int_equal(cuLaunchKernel((CUfunction)1, 2, 3, 4, 5, 6, 7, 8, (CUstream)9,
				 (void **)10, (void **)11),
		CUDA_SUCCESS);
	assert_int_equal(told.launches, 1);
	assert_int_equal(driver.inside, 1);
	assert_int_equal(driver.calls, 1);
}

static void nodes_name_their_kernel(void **state)
{
	void *params[1];
	CUDA_KERNEL_NODE_PARAMS node = {
		.func = (CUfunction)1, .kern = (CUkernel)2, .kernelParams = params};
	(void)state;

	cuGraphAddKernelNode_v2(NULL, NULL, NULL, 0, &node);
	assert_ptr_equal(told.node, 1);
	node.func = NULL;
	cuGraphAddKernelNode_v2(NULL, NULL, NULL, 0, &node);
	assert_ptr_equal(told.node, 2);
	node.kernelParams = NULL;
	cuGraphAddKernelNode_v2(NULL, NULL, NULL, 0, &node);
	cuGraphAddKernelNode_v2(NULL, NULL, NULL, 0, NULL);
	assert_int_equal(told.nodes, 2);
	assert_int_equal(driver.calls, 4);
}

static void contexts_go_with_their_last_release(void **state)
{
	(void)state;
	driver.active = 2;
	cuDevicePrimaryCtxRelease(0);
	assert_int_equal(told.gone, 0);
	assert_int_equal(driver.active, 1);
	cuDevicePrimaryCtxRelease_v2(0);
	assert_int_equal(told.gone, 1);
	assert_int_equal(driver.active, 0);
	cuDevicePrimaryCtxRelease_v2(0);
	assert_int_equal(told.gone, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, reset, balanced)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(policy_after_init_only),
		TEST(aside_means_forward),
		TEST(absent_rows_refuse),
		TEST(copies_report_what_they_wrote),
		TEST(boxes_are_covered),
		TEST(batches_report_every_item),
		TEST(fills_are_cut_at_seams),
		TEST(rectangles_are_cut_at_seams),
		TEST(captures_are_counted),
		TEST(launches_arrive_whole),
		TEST(nodes_name_their_kernel),
		TEST(contexts_go_with_their_last_release),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
