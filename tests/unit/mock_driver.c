/* SPDX-License-Identifier: MIT */
#include "mock_hooks.h"

/* The driver that notes what it was asked. */

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
	return note_fill(dst, (size_t)src, 0, bytes, 1, stream);
}

static CUresult real_copy2d(const CUDA_MEMCPY2D *copy)
{
	(void)copy;
	return call();
}

static CUresult real_wait(CUstream stream)
{
	assert_null(stream);
	assert_int_not_equal(told.wrote, 0);
	told.waited++;
	return CUDA_SUCCESS;
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

static CUresult real_capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
	CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
	(void)stream, (void)graph, (void)nodes, (void)count;
	*status = driver.capture;
	*id = 7;
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
	*graph = (CUgraph)0x9;
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

static CUresult real_add_copy(CUgraphNode *out, CUgraph graph, const CUgraphNode *after,
	size_t count, const CUDA_MEMCPY3D *node, CUcontext context)
{
	(void)out, (void)graph, (void)after, (void)count, (void)node, (void)context;
	return call();
}

static CUresult real_set_fill(
	CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
{
	(void)exec, (void)node, (void)fill, (void)context;
	return call();
}

static CUresult real_replay(CUgraphExec exec, CUstream stream)
{
	(void)exec, (void)stream;
	assert_int_equal(told.replayed, 0);
	return call();
}

static CUresult real_instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	(void)graph, (void)flags;
	*exec = (CUgraphExec)0xe;
	return call();
}

static CUresult real_update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	(void)graph, (void)info;
	assert_ptr_equal(told.changed_exec, exec); /* nothing rests there any more */
	return call();
}

static CUresult real_exec_destroy(CUgraphExec exec)
{
	(void)exec;
	assert_null(told.exec);
	return call();
}

static CUresult real_graph_destroy(CUgraph graph)
{
	assert_ptr_not_equal(graph, told.kept);
	return call();
}

static CUresult real_node_destroy(CUgraphNode node)
{
	assert_ptr_equal(told.changed_node, node);
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

void mock_driver(void)
{
	hs_driver.cuGraphInstantiateWithFlags = real_instantiate;
	hs_driver.cuGraphExecUpdate_v2 = real_update;
	hs_driver.cuGraphExecDestroy = real_exec_destroy;
	hs_driver.cuGraphDestroy = real_graph_destroy;
	hs_driver.cuGraphDestroyNode = real_node_destroy;
	hs_driver.cuCtxGetCurrent = real_current;
	hs_driver.cuMemAlloc_v2 = real_alloc;
	hs_driver.cuMemsetD8_v2 = real_fill8;
	hs_driver.cuMemsetD32Async = real_fill32;
	hs_driver.cuMemsetD2D16_v2_ptds = real_fill2d;
	hs_driver.cuMemcpyHtoDAsync_v2_ptsz = real_copy;
	hs_driver.cuMemcpy2D_v2 = real_copy2d;
	hs_driver.cuMemcpy3DAsync_v2 = real_copy3d;
	hs_driver.cuStreamSynchronize = real_wait;
	hs_driver.cuMemcpyBatchAsync_v2 = real_batch;
	hs_driver.cuStreamGetCaptureInfo_v2 = real_capture_info;
	hs_driver.cuStreamBeginCapture_v2 = real_begin;
	hs_driver.cuStreamEndCapture = real_end;
	hs_driver.cuLaunchKernel = real_launch;
	hs_driver.cuGraphAddKernelNode_v2 = real_add_node;
	hs_driver.cuGraphAddMemcpyNode = real_add_copy;
	hs_driver.cuGraphExecMemsetNodeSetParams = real_set_fill;
	hs_driver.cuGraphLaunch_ptsz = real_replay;
	hs_driver.cuDevicePrimaryCtxGetState = real_state;
	hs_driver.cuDevicePrimaryCtxRetain = real_retain;
	hs_driver.cuDevicePrimaryCtxRelease = real_release;
	hs_driver.cuDevicePrimaryCtxRelease_v2 = real_release;
}
