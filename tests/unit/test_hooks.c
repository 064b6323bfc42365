/* SPDX-License-Identifier: MIT */
#include "mock_hooks.h"
#include "src/memory/account.h"

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

	mock_options.disable = true;
	cuMemAlloc_v2(&ptr, 1);
	assert_true(ptr == OTHER);
	mock_reset(NULL);
	mock_whole = false;
	cuMemAlloc_v2(&ptr, 1);
	assert_true(ptr == OTHER);
	mock_reset(NULL);
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
	mock_options.disable = true;
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

static void copies_are_cut_at_seams(void **state)
{
	static const char text[] = "text";

	(void)state;
	assert_int_equal(
		cuMemcpyHtoDAsync_v2_ptsz(WINDOW + HS_GRANULE - 3, text, sizeof(text), STREAM),
		CUDA_SUCCESS);
	assert_int_equal(driver.calls, 2);
	assert_true(driver.fills[0].dst == WINDOW + HS_GRANULE - 3 && driver.fills[0].count == 3);
	assert_true(driver.fills[1].dst == WINDOW + HS_GRANULE && driver.fills[1].count == 2);
	assert_ptr_equal(driver.fills[0].pitch, text);
	assert_ptr_equal(driver.fills[1].pitch, text + 3);
	assert_true(told.wrote == 1 && told.bytes == sizeof(text));
	assert_int_equal(told.start, WINDOW + HS_GRANULE - 3);
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
	/* without a stream: dropped on return */
	assert_int_equal(told.waited, 1);
	cuMemcpy3DAsync_v2(&deep, STREAM);
	assert_int_equal(told.waited, 1);
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
	assert_int_equal(told.wrote, 1);
	assert_true(told.start == WINDOW && told.bytes == BYTES);
	/* Only zeros leave a window as good as new. */
	assert_int_equal(told.filled, 0);
	driver.calls = 0;
	cuMemsetD8_v2(WINDOW, 0, BYTES);
	assert_true(told.filled == 1 && told.wrote == 1);
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

static int short_of_memory; /* so many calls more */

static CUresult creates(CUmemGenericAllocationHandle *handle, size_t bytes,
	const CUmemAllocationProp *prop, unsigned long long flags)
{
	(void)bytes, (void)prop, (void)flags;
	driver.calls++;
	*handle = 5;
	return short_of_memory-- > 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult releases(CUmemGenericAllocationHandle handle)
{
	return handle == 5 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult loads(CUmodule *module, const void *image)
{
	(void)module, (void)image;
	driver.calls++;
	return short_of_memory-- > 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static void allocations_are_counted(void **state)
{
	CUmemAllocationProp prop = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemGenericAllocationHandle handle;

	(void)state;
	hs_driver.cuMemCreate = creates;
	hs_driver.cuMemRelease = releases;
	short_of_memory = 0;
	told.cap = 100;
	assert_int_equal(cuMemCreate(&handle, 60, &prop, 0), CUDA_SUCCESS);
	assert_true(told.account == 60 && told.key == HS_ACCOUNT_HANDLE(5));
	/* Over the cap: the driver is not asked. */
	assert_int_equal(cuMemCreate(&handle, 60, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	assert_true(driver.calls == 1 && told.account == 60);
	assert_true(told.spared == 1 && told.spare_bytes == 60);
	/* What fails is not counted. */
	short_of_memory = 1;
	assert_int_equal(cuMemCreate(&handle, 10, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(told.account, 60);
	/* A window made way. */
	short_of_memory = 1;
	told.can_spare = true;
	assert_int_equal(cuMemCreate(&handle, 10, &prop, 0), CUDA_SUCCESS);
	assert_true(driver.calls == 4 && told.account == 70);
	prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
	assert_int_equal(cuMemCreate(&handle, 60, &prop, 0), CUDA_SUCCESS);
	assert_int_equal(told.account, 70);
	assert_int_equal(cuMemRelease(4), CUDA_ERROR_INVALID_VALUE);
	assert_true(told.account == 70 && told.key == HS_ACCOUNT_HANDLE(4)); /* kept again */
	assert_int_equal(cuMemRelease(5), CUDA_SUCCESS);
	assert_int_equal(told.given, HS_ACCOUNT_HANDLE(5));
}

static void windows_make_way_for_code(void **state)
{
	CUmodule module;

	(void)state;
	hs_driver.cuModuleLoadData = loads;
	short_of_memory = 9;
	assert_int_equal(cuModuleLoadData(&module, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_true(driver.calls == 1 && told.spared == 1);
	told.can_spare = true;
	assert_int_equal(cuModuleLoadData(&module, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_true(driver.calls == 3 && told.spared == 2); /* once, not for ever */
	short_of_memory = 1;
	assert_int_equal(cuModuleLoadData(&module, NULL), CUDA_SUCCESS);
	/* A launch and a replay, after they have left the gate. */
	driver.result = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(cuLaunchKernel((CUfunction)1, 2, 3, 4, 5, 6, 7, 8, (CUstream)9,
				 (void **)10, (void **)11),
		CUDA_ERROR_OUT_OF_MEMORY);
	assert_true(told.launches == 2 && told.spared == 4);
}

static CUresult waits_first(void)
{
	assert_int_equal(told.settled, 0);
	driver.calls++;
	return driver.result;
}

static CUresult destroys(CUstream stream)
{
	assert_ptr_equal(stream, STREAM);
	assert_int_equal(told.captures, 1);
	return driver.result;
}

static void windows_settle_after_what_waits(void **state)
{
	CUdeviceptr ptr;

	(void)state;
	hs_driver.cuCtxSynchronize = waits_first;
	driver.result = CUDA_ERROR_ILLEGAL_ADDRESS;
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(told.settled, 0);
	driver.result = CUDA_SUCCESS;
	assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
	assert_true(driver.calls == 2 && told.settled == 1 && told.settle_waits);
	cuMemAlloc_v2(&ptr, 1);
	assert_true(told.settled == 2 && !told.settle_waits);
}

/* A stream that goes takes its capture along, unless it stays. */
static void streams_take_captures_along(void **state)
{
	(void)state;
	hs_driver.cuStreamDestroy_v2 = destroys;
	told.captures = 1;
	driver.result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	cuStreamDestroy_v2(STREAM);
	assert_int_equal(told.captures, 1);
	driver.result = CUDA_SUCCESS;
	cuStreamDestroy_v2(STREAM);
	assert_int_equal(told.captures, 0);
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
	assert_int_equal(told.fresh, 1);
	assert_null(told.captured);
}

/* Who keeps nodes in graphs is told of all that happens to them. */
static void graphs_are_told(void **state)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphExec exec;
	CUgraph graph;
	(void)state;

	driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	assert_int_equal(cuStreamBeginCapture_v2(STREAM, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(cuStreamEndCapture(STREAM, &graph), CUDA_SUCCESS);
	assert_ptr_equal(told.captured, graph);
	assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 5), CUDA_SUCCESS);
	assert_ptr_equal(told.exec, exec);
	assert_int_equal(told.flags, 5);
	cuGraphExecUpdate_v2(exec, graph, &info);
	cuGraphDestroyNode((CUgraphNode)3);
	driver.calls = 0;
	told.kept = graph;
	assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
	assert_int_equal(driver.calls, 0);
	told.kept = NULL;
	assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
	assert_int_equal(driver.calls, 1);
	assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
	driver.result = CUDA_ERROR_INVALID_VALUE;
	cuGraphInstantiateWithFlags(&exec, graph, 0);
	assert_null(told.exec);
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

/* Copies and fills of nodes: what they write, whether windows move then, and
 * that every launch is told of. */
static void nodes_name_what_they_write(void **state)
{
	CUDA_MEMCPY3D copy = {.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = OTHER,
		.dstPitch = 100,
		.dstXInBytes = 7,
		.dstY = 1,
		.WidthInBytes = 50,
		.Height = 3,
		.Depth = 1};
	CUDA_MEMSET_NODE_PARAMS fill = {
		.dst = WINDOW + 8, .elementSize = 4, .width = 10, .height = 3, .pitch = 64};
	(void)state;

	cuGraphAddMemcpyNode(NULL, NULL, NULL, 0, &copy, NULL);
	assert_int_equal(told.start, OTHER + 107);
	assert_int_equal(told.bytes, 250);
	assert_int_equal(told.settled, 0);
	cuGraphExecMemsetNodeSetParams(NULL, NULL, &fill, NULL);
	assert_int_equal(told.start, WINDOW + 8);
	assert_int_equal(told.bytes, 2 * 64 + 40);
	assert_int_equal(told.settled, 1);
	assert_true(told.settle_waits);
	cuGraphAddMemcpyNode(NULL, NULL, NULL, 0, NULL, NULL);
	assert_int_equal(driver.calls, 3);
	cuGraphLaunch_ptsz(NULL, STREAM);
	assert_int_equal(told.replayed, 1);
	assert_ptr_equal(told.stream, STREAM);
	assert_true(told.per_thread);
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, mock_reset, mock_balanced)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(policy_after_init_only),
		TEST(aside_means_forward),
		TEST(absent_rows_refuse),
		TEST(copies_report_what_they_wrote),
		TEST(boxes_are_covered),
		TEST(batches_report_every_item),
		TEST(copies_are_cut_at_seams),
		TEST(fills_are_cut_at_seams),
		TEST(rectangles_are_cut_at_seams),
		TEST(allocations_are_counted),
		TEST(windows_make_way_for_code),
		TEST(windows_settle_after_what_waits),
		TEST(streams_take_captures_along),
		TEST(captures_are_counted),
		TEST(graphs_are_told),
		TEST(launches_arrive_whole),
		TEST(nodes_name_their_kernel),
		TEST(nodes_name_what_they_write),
		TEST(contexts_go_with_their_last_release),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
