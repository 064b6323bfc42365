/* SPDX-License-Identifier: MIT */
/* Captures, what they forbid, and the graphs that come of them. */
#include "softgpu/test_soft.h"

#include <pthread.h>

static CUstream a, b;
static int *mem;

static void add(int *to, int value)
{
	atomicAdd(to, value);
}
SOFT_KERNEL(add, int *, int)

static void twice(int *to)
{
	*to *= 2;
}
SOFT_KERNEL(twice, int *)

static void note(int *to, int value, CUstream stream)
{
	launch("add", 1, 1, stream, PARAMS(&to, &value));
}

static void begin(CUstreamCaptureMode mode)
{
	ok(cuStreamBeginCapture_v2(a, mode));
}

/* The capture must have been spoilt. */
static void spoilt(void)
{
	CUstreamCaptureStatus status;
	CUgraph graph = (CUgraph)1;

	ok(cuStreamIsCapturing(a, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	refused(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_null(graph);
	ok(cuStreamIsCapturing(a, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

static CUgraphExec finish(void)
{
	CUgraph graph;
	CUgraphExec exec;

	ok(cuStreamEndCapture(a, &graph));
	ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ok(cuGraphDestroy(graph));
	return exec;
}

static CUresult allocate(void)
{
	CUdeviceptr ptr;
	CUresult result = cuMemAlloc_v2(&ptr, 4096);

	if (!result)
		ok(cuMemFree_v2(ptr));
	return result;
}

static void *allocate_beside(void *context)
{
	ok(cuCtxSetCurrent(context));
	return (void *)(intptr_t)allocate();
}

static CUresult other_thread(void)
{
	CUcontext context;
	pthread_t thread;
	void *result;

	ok(cuCtxGetCurrent(&context));
	assert_int_equal(pthread_create(&thread, NULL, allocate_beside, context), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	return (CUresult)(intptr_t)result;
}

static void test_unsafe_calls(void **state)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	(void)state;
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	refused(allocate(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	refused(cuMemsetD8Async((CUdeviceptr)mem, 0, 4, a), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	spoilt();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	refused(other_thread(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	spoilt();
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	ok(other_thread());
	refused(allocate(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	spoilt();
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	ok(allocate());
	ok(other_thread());
	ok(cuGraphExecDestroy(finish()));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	ok(cuThreadExchangeStreamCaptureMode(&mode));
	assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	ok(allocate());
	ok(cuThreadExchangeStreamCaptureMode(&mode));
	ok(cuGraphExecDestroy(finish()));
}

static void test_illegal_calls(void **state)
{
	CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUevent inside, outside;

	(void)state;
	ok(cuEventCreate(&inside, 0));
	ok(cuEventCreate(&outside, 0));
	ok(cuEventRecord(outside, b));
	begin(relaxed);
	refused(cuStreamSynchronize(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	spoilt();
	begin(relaxed);
	refused(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	spoilt();
	begin(relaxed);
	ok(cuEventRecord(inside, a));
	refused(cuEventSynchronize(inside), CUDA_ERROR_CAPTURED_EVENT);
	spoilt();
	refused(cuStreamWaitEvent(b, inside, 0), CUDA_ERROR_CAPTURED_EVENT);
	begin(relaxed);
	refused(cuStreamWaitEvent(a, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	spoilt();
	begin(relaxed);
	refused(cuMemsetD8Async((CUdeviceptr)mem, 0, 4, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	spoilt();
	refused(cuStreamBeginCapture_v2(NULL, relaxed), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ok(cuEventDestroy_v2(inside));
	ok(cuEventDestroy_v2(outside));
}

static void test_fork_and_join(void **state)
{
	CUevent fork, join;
	CUgraphExec exec;
	CUgraph graph;
	CUstreamCaptureStatus status;
	cuuint64_t id_a, id_b;

	(void)state;
	ok(cuEventCreate(&fork, 0));
	ok(cuEventCreate(&join, 0));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	ok(cuMemsetD32Async((CUdeviceptr)mem, 1, 2, a));
	ok(cuEventRecord(fork, a));
	ok(cuStreamWaitEvent(b, fork, 0));
	ok(cuStreamGetCaptureInfo_v2(a, &status, &id_a, NULL, NULL, NULL));
	ok(cuStreamGetCaptureInfo_v2(b, &status, &id_b, NULL, NULL, NULL));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_int_equal(id_a, id_b);
	note(mem, 10, a);
	note(mem + 1, 100, b);
	ok(cuEventRecord(join, b));
	ok(cuStreamWaitEvent(a, join, 0));
	ok(cuMemcpyDtoDAsync_v2((CUdeviceptr)(mem + 2), (CUdeviceptr)mem, 8, a));
	exec = finish();
	assert_int_equal(mem[2], 0); /* captured, not run */
	for (uint64_t seed = 0; seed < 20; seed++) {
		soft_seed(seed);
		mem[2] = mem[3] = 0;
		ok(cuGraphLaunch(exec, a));
		ok(cuGraphLaunch(exec, b)); /* never beside itself */
		ok(cuCtxSynchronize());
		assert_int_equal(mem[2], 11);
		assert_int_equal(mem[3], 101);
	}
	soft_seed(0);
	ok(cuGraphExecDestroy(exec));

	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	ok(cuEventRecord(fork, a));
	ok(cuStreamWaitEvent(b, fork, 0));
	note(mem, 1, b);
	refused(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	ok(cuStreamIsCapturing(b, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
	ok(cuEventDestroy_v2(fork));
	ok(cuEventDestroy_v2(join));
}

static void map(CUdeviceptr at, CUmemLocationType where)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = where}};
	CUmemAccessDesc access = {
		{.type = CU_MEM_LOCATION_TYPE_DEVICE}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;

	ok(cuMemCreate(&handle, 2 * MIB, &prop, 0));
	ok(cuMemMap(at, 2 * MIB, 0, handle, 0));
	ok(cuMemRelease(handle));
	ok(cuMemSetAccess(at, 2 * MIB, &access, 1));
	ok(cuMemsetD8_v2(at, 0, 2 * MIB));
}

static void test_replay_follows_the_address(void **state)
{
	CUgraphExec exec;
	CUdeviceptr at;

	(void)state;
	ok(cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
	map(at, CU_MEM_LOCATION_TYPE_DEVICE);
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	note((int *)at, 5, a);
	exec = finish();
	ok(cuGraphLaunch(exec, a));
	ok(cuStreamSynchronize(a));
	assert_int_equal(*(int *)at, 5);
	ok(cuMemUnmap(at, 2 * MIB));
	map(at, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	ok(cuGraphLaunch(exec, a));
	ok(cuGraphLaunch(exec, a));
	ok(cuStreamSynchronize(a));
	assert_int_equal(*(int *)at, 10);
	ok(cuGraphExecDestroy(exec));
	ok(cuMemUnmap(at, 2 * MIB));
	ok(cuMemAddressFree(at, 2 * MIB));
}

static void test_nodes(void **state)
{
	CUgraph graph;
	CUgraphNode node, first, nodes[4];
	CUgraphExec exec;
	CUgraphNodeType type;
	CUDA_KERNEL_NODE_PARAMS_v2 params = {0}, got;
	int *to = mem, value = 3;
	unsigned enabled;
	size_t count = 4;

	(void)state;
	ok(cuGraphCreate(&graph, 0));
	params.func = function("add");
	params.gridDimX = params.gridDimY = params.gridDimZ = 1;
	params.blockDimX = params.blockDimY = params.blockDimZ = 1;
	params.kernelParams = PARAMS(&to, &value);
	ok(cuGraphAddKernelNode_v2(&first, graph, NULL, 0, &params));
	value = 4; /* it was copied */
	ok(cuGraphKernelNodeGetParams_v2(first, &got));
	assert_int_equal(*(int *)got.kernelParams[1], 3);
	assert_ptr_equal(got.func, params.func);
	params.func = function("twice");
	ok(cuGraphAddKernelNode_v2(&node, graph, &first, 1, &params));
	ok(cuGraphGetNodes(graph, nodes, &count));
	assert_int_equal(count, 2);
	assert_ptr_equal(nodes[1], node);
	ok(cuGraphNodeGetType(node, &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_KERNEL);
	ok(cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0));
	mem[0] = 0;
	ok(cuGraphLaunch(exec, a));
	ok(cuStreamSynchronize(a));
	assert_int_equal(mem[0], 6);
	params.func = function("add");
	ok(cuGraphExecKernelNodeSetParams_v2(exec, first, &params));
	ok(cuGraphLaunch(exec, a));
	ok(cuStreamSynchronize(a));
	assert_int_equal(mem[0], 20);
	ok(cuGraphKernelNodeGetParams_v2(first, &got)); /* the graph's own did not change */
	assert_int_equal(*(int *)got.kernelParams[1], 3);
	/* A node that is off does nothing, and may be set. */
	ok(cuGraphNodeSetEnabled(exec, first, 0));
	ok(cuGraphNodeGetEnabled(exec, first, &enabled));
	assert_int_equal(enabled, 0);
	value = 5;
	ok(cuGraphExecKernelNodeSetParams_v2(exec, first, &params));
	ok(cuGraphLaunch(exec, a));
	ok(cuStreamSynchronize(a));
	assert_int_equal(mem[0], 40);
	ok(cuGraphNodeSetEnabled(exec, first, 1));
	ok(cuGraphLaunch(exec, a));
	ok(cuStreamSynchronize(a));
	assert_int_equal(mem[0], 90);
	ok(cuGraphDestroy(graph));
	refused(cuGraphNodeSetEnabled(exec, first, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuGraphExecDestroy(exec));
	refused(cuGraphNodeGetType(node, &type), CUDA_ERROR_INVALID_VALUE);
}

/* NULL means this thread's own stream to the _ptsz forms, and that one can be
 * captured, behind nodes that a graph has already. */
static void test_into_a_graph(void **state)
{
	CUDA_KERNEL_NODE_PARAMS_v1 params = {.func = function("twice"),
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = PARAMS(&mem)};
	CUgraph graph, ended;
	CUgraphNode node;
	CUgraphExec exec;
	int value = 5;

	(void)state;
	ok(cuGraphCreate(&graph, 0));
	ok(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
	ok(cuStreamBeginCaptureToGraph_ptsz(
		NULL, graph, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cuLaunchKernel_ptsz(
		function("add"), 1, 1, 1, 1, 1, 1, 0, NULL, PARAMS(&mem, &value), NULL));
	ok(cuStreamEndCapture_ptsz(NULL, &ended));
	assert_ptr_equal(ended, graph);
	ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ok(cuGraphDestroy(graph));
	for (uint64_t seed = 0; seed < 10; seed++) {
		soft_seed(seed);
		mem[0] = 4;
		ok(cuGraphLaunch(exec, a));
		ok(cuStreamSynchronize(a));
		assert_int_equal(mem[0], 13);
	}
	soft_seed(0);
	ok(cuGraphExecDestroy(exec));
}

static int start_capture(void **state)
{
	start(state);
	ok(cuStreamCreate(&a, 0));
	ok(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	mem = zeroed(64);
	function("add");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unsafe_calls),
		cmocka_unit_test(test_illegal_calls),
		cmocka_unit_test(test_fork_and_join),
		cmocka_unit_test(test_replay_follows_the_address),
		cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_into_a_graph),
	};

	return cmocka_run_group_tests(tests, start_capture, NULL);
}
