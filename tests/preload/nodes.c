/* SPDX-License-Identifier: MIT */
/*
 * Description: graph nodes that are made, set and updated by hand and write to
 * a window. Attention that is captured behind them in the same graph, and
 * attention after it, reads what they wrote, from the first launch on.
 *
 * usage: nodes
 */
#include "touch.h"

#include <string.h>

#define AT (SEAM + 70004) /* scribble writes words */
#define BYTES 12000

static struct touch window, buffer, sink;
static CUfunction scribble;
static unsigned failures; /* changes that the driver refused: the graph is not launched */

static CUDA_MEMCPY3D copy_to(CUdeviceptr dst)
{
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = buffer.ptr,
		.srcPitch = BYTES,
		.srcHeight = 1,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = dst,
		.dstPitch = BYTES,
		.dstHeight = 1,
		.WidthInBytes = BYTES,
		.Height = 1,
		.Depth = 1};
}

static CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr dst)
{
	return (CUDA_MEMSET_NODE_PARAMS){
		.dst = dst, .value = 0x5a, .elementSize = 1, .width = BYTES, .height = 1};
}

/* scribble(dst, value, bytes), which no profile knows */
struct scribbling {
	CUdeviceptr dst;
	uint32_t value;
	int bytes;
	void *params[3];
};

static void **scribble_on(struct scribbling *s, CUdeviceptr dst)
{
	*s = (struct scribbling){dst, 77, BYTES & ~3, {&s->dst, &s->value, &s->bytes}};
	return s->params;
}

static CUDA_KERNEL_NODE_PARAMS kernel_on(struct scribbling *s, CUdeviceptr dst)
{
	return (CUDA_KERNEL_NODE_PARAMS){.func = scribble,
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 32,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = scribble_on(s, dst)};
}

enum what { COPY, FILL, KERNEL, WHATS };

static CUgraphNodeParams any(enum what what, struct scribbling *s, CUdeviceptr dst)
{
	CUgraphNodeParams params = {.type = what == COPY   ? CU_GRAPH_NODE_TYPE_MEMCPY
					    : what == FILL ? CU_GRAPH_NODE_TYPE_MEMSET
							   : CU_GRAPH_NODE_TYPE_KERNEL};
	const CUDA_MEMSET_NODE_PARAMS fill = fill_of(dst);

	if (what == COPY) {
		params.memcpy.copyCtx = touch_context;
		params.memcpy.copyParams = copy_to(dst);
	} else if (what == FILL) {
		memcpy(&params.memset, &fill, sizeof(fill));
		params.memset.ctx = touch_context;
	} else {
		const CUDA_KERNEL_NODE_PARAMS kernel = kernel_on(s, dst);

		memcpy(&params.kernel, &kernel, sizeof(kernel));
	}
	return params;
}

static CUgraphNode add(CUgraph graph, enum what what, bool generic, CUdeviceptr dst)
{
	struct scribbling s;
	CUgraphNodeParams params = any(what, &s, dst);
	CUgraphNode node;

	if (generic)
		CHECK(cuGraphAddNode(&node, graph, NULL, 0, &params));
	else if (what == COPY)
		CHECK(cuGraphAddMemcpyNode(
			&node, graph, NULL, 0, (CUDA_MEMCPY3D[]){copy_to(dst)}, touch_context));
	else if (what == FILL)
		CHECK(cuGraphAddMemsetNode(&node, graph, NULL, 0,
			(CUDA_MEMSET_NODE_PARAMS[]){fill_of(dst)}, touch_context));
	else
		CHECK(cuGraphAddKernelNode_v2(
			&node, graph, NULL, 0, (CUDA_KERNEL_NODE_PARAMS[]){kernel_on(&s, dst)}));
	return node;
}

static void set(CUgraphNode node, enum what what, bool generic, CUdeviceptr dst)
{
	struct scribbling s;
	CUgraphNodeParams params = any(what, &s, dst);

	if (generic)
		CHECK(cuGraphNodeSetParams(node, &params));
	else if (what == COPY)
		CHECK(cuGraphMemcpyNodeSetParams(node, (CUDA_MEMCPY3D[]){copy_to(dst)}));
	else if (what == FILL)
		CHECK(cuGraphMemsetNodeSetParams(node, (CUDA_MEMSET_NODE_PARAMS[]){fill_of(dst)}));
	else
		CHECK(cuGraphKernelNodeSetParams_v2(
			node, (CUDA_KERNEL_NODE_PARAMS[]){kernel_on(&s, dst)}));
}

static CUresult set_exec(
	CUgraphExec exec, CUgraphNode node, enum what what, bool generic, CUdeviceptr dst)
{
	struct scribbling s;
	CUgraphNodeParams params = any(what, &s, dst);

	if (generic)
		return cuGraphExecNodeSetParams(exec, node, &params);
	if (what == COPY)
		return cuGraphExecMemcpyNodeSetParams(
			exec, node, (CUDA_MEMCPY3D[]){copy_to(dst)}, touch_context);
	if (what == FILL)
		return cuGraphExecMemsetNodeSetParams(
			exec, node, (CUDA_MEMSET_NODE_PARAMS[]){fill_of(dst)}, touch_context);
	return cuGraphExecKernelNodeSetParams_v2(
		exec, node, (CUDA_KERNEL_NODE_PARAMS[]){kernel_on(&s, dst)});
}

/* How the node comes to write to the window. */
enum way { ADDED, SET, EXEC_SET, UPDATED, WAYS };

/* The window's bytes where the node writes, before it does. */
static void wipe(void)
{
	touch_noise(window.model + AT, BYTES);
	CHECK(cuMemcpyHtoD_v2(window.ptr + AT, window.model + AT, BYTES));
}

/* What the kernel does is the graph's word for it; attention's is compared. */
static void imitate(enum what what)
{
	if (what == COPY)
		memcpy(window.model + AT, buffer.model, BYTES);
	else if (what == FILL)
		memset(window.model + AT, 0x5a, BYTES);
	else
		CHECK(cuMemcpyDtoH_v2(window.model + AT, window.ptr + AT, BYTES));
}

static CUgraphExec instantiate(CUgraph graph)
{
	CUgraphExec exec;

	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

/* busy: a capture elsewhere keeps windows as they are, so that the hot rows are
 * still there when the graph is launched. */
static void run(enum what what, enum way way, bool generic, bool busy)
{
	CUdeviceptr dst;
	CUgraphExec exec = NULL;
	CUgraph graph, other, open;
	CUgraphNode node;
	CUstream aside;
	CUresult result = CUDA_SUCCESS;
	size_t stale;

	touch_make(&window, TOUCH_WINDOW, 12 * MIB);
	dst = window.ptr + AT;
	CHECK(cuGraphCreate(&graph, 0));
	CHECK(cuGraphCreate(&other, 0));
	CHECK(cuStreamCreate(&aside, CU_STREAM_NON_BLOCKING));
	wipe();
	touch_heat(&window, AT);
	touch_aim(&window, AT);
	if (busy)
		CHECK(cuStreamBeginCapture_v2(aside, CU_STREAM_CAPTURE_MODE_RELAXED));
	node = add(graph, what, generic, way == ADDED ? dst : sink.ptr);
	if (way == SET)
		set(node, what, generic, dst);
	if (!busy && way != UPDATED) {
		CHECK(cuStreamBeginCaptureToGraph(
			touch_stream, graph, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
		touch_attend(&window, touch_stream);
		CHECK(cuStreamEndCapture(touch_stream, &graph));
	}
	exec = instantiate(graph);
	if (way == EXEC_SET)
		result = set_exec(exec, node, what, generic, dst);
	if (way == UPDATED) {
		CUgraphExecUpdateResultInfo info;

		add(other, what, generic, dst);
		result = cuGraphExecUpdate_v2(exec, other, &info);
	}
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "node %d, way %d%s%s: error %d\n", what, way,
			generic ? ", generic" : "", busy ? ", busy" : "", result);
		failures++;
	}
	for (int turn = 0; turn < 2 && result == CUDA_SUCCESS; turn++) {
		if (turn)
			wipe();
		CHECK(cuGraphLaunch(exec, touch_stream));
		if (busy || way == UPDATED)
			touch_attend(&window, touch_stream);
		if (busy && !turn) {
			CHECK(cuStreamSynchronize(touch_stream));
			CHECK(cuStreamEndCapture(aside, &open));
			CHECK(cuGraphDestroy(open));
		}
		CHECK(cuCtxSynchronize());
		imitate(what);
		stale = touch_read(&window);
		if (stale)
			touch_fail("node %d, way %d%s%s, launch %d: %zu stale rows", what, way,
				generic ? ", generic" : "", busy ? ", busy" : "", turn, stale);
		touch_check(&window, AT, "after the graph");
	}
	if (busy && result != CUDA_SUCCESS) {
		CHECK(cuStreamEndCapture(aside, &open));
		CHECK(cuGraphDestroy(open));
	}
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuGraphDestroy(graph));
	CHECK(cuGraphDestroy(other));
	CHECK(cuStreamDestroy_v2(aside));
	touch_free(&window);
}

int main(void)
{
	unsigned done = 0;

	touch_start();
	scribble = touch_function("coherence_scribble");
	touch_make(&buffer, TOUCH_DEVICE, BYTES);
	touch_make(&sink, TOUCH_DEVICE, BYTES);
	for (int what = 0; what < WHATS; what++)
		for (int way = 0; way < WAYS; way++)
			for (int k = 0; k < 4; k++, done++)
				run((enum what)what, (enum way)way, k & 1, k & 2);
	touch_free(&sink);
	touch_free(&buffer);
	printf("nodes: %u as the model\n", done - failures);
	if (failures)
		touch_fail("%u changes refused", failures);
	return 0;
}
