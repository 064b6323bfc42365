/* SPDX-License-Identifier: MIT */
#include "mock_hooks.h"
#include "src/memory/peer.h"
#include "src/base/log.h"
#include "src/cache/nodes.h"
#include "src/launch/launch.h"
#include "src/memory/account.h"
#include "src/memory/capture.h"
#include "src/memory/copy.h"
#include "src/memory/gate.h"
#include "src/trace/trace.h"

struct hs_driver hs_driver;
__thread int hs_inside;
struct hs_options mock_options;
bool mock_whole = true;

struct told told;
struct asked driver;

const struct hs_options *hs_options(void)
{
	return &mock_options;
}

bool hs_driver_open(void)
{
	return true;
}

bool hs_driver_whole(void)
{
	return mock_whole;
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

void hs_capture_opened(CUstream stream, bool per_thread)
{
	(void)stream, (void)per_thread;
	told.opened++;
}

void hs_capture_failed(void)
{
	told.captures--;
}

void hs_capture_ended(cuuint64_t id)
{
	assert_int_equal(id, 7);
	told.captures--;
}

cuuint64_t hs_capture_of(CUstream stream)
{
	return stream == STREAM && told.captures ? 7 : 0;
}

void hs_capture_context_gone(CUcontext context)
{
	(void)context;
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

void hs_memory_settle(bool waits)
{
	told.settle_waits = waits;
	told.settled++;
}

bool hs_memory_spare(size_t bytes)
{
	assert_int_equal(told.inside_gate, 0);
	told.spared++;
	told.spare_bytes = bytes;
	return told.can_spare;
}

CUresult hs_account_take(CUdevice device, size_t bytes)
{
	(void)device;
	if (told.account + bytes > told.cap)
		return CUDA_ERROR_OUT_OF_MEMORY;
	told.account += bytes;
	return CUDA_SUCCESS;
}

void hs_account_keep(CUresult result, CUdevice device, uint64_t key, size_t bytes)
{
	(void)device;
	if (result != CUDA_SUCCESS)
		told.account -= bytes;
	else
		told.key = key;
}

struct hs_account_held hs_account_give(uint64_t key)
{
	told.given = key;
	told.account -= key == HS_ACCOUNT_HANDLE(4) ? 20 : 0;
	return (struct hs_account_held){key == HS_ACCOUNT_HANDLE(4) ? 20 : 0, 0};
}

void hs_peer_enabled(CUcontext other)
{
	(void)other;
}

void hs_peer_note(void)
{
}

bool hs_peer_any(void)
{
	return false;
}

bool hs_peer_far(CUdeviceptr dst, CUdeviceptr src, struct hs_peer_ends *ends)
{
	(void)dst, (void)src, (void)ends;
	return false;
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

void hs_copy_node(CUdeviceptr dst, size_t bytes)
{
	assert_int_equal(told.inside_gate, 0);
	told.start = dst;
	told.bytes = bytes;
	told.unseen = told.unseen || (bytes && hs_window_find(dst));
}

bool hs_copy_unseen(void)
{
	assert_int_equal(told.inside_gate, 0);
	return told.unseen;
}

void hs_copy_replayed(CUstream stream, bool per_thread)
{
	assert_int_equal(told.inside_gate, 1);
	told.replayed++;
	told.stream = stream;
	told.per_thread = per_thread;
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

void hs_trace_settle(void)
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

void hs_nodes_capture_began(CUstream stream, bool per_thread)
{
	(void)stream, (void)per_thread;
	told.fresh++;
}

void hs_nodes_captured(cuuint64_t id, CUgraph graph)
{
	assert_int_equal(id, 7);
	told.captured = graph;
}

void hs_nodes_instantiated(CUgraphExec exec, CUgraph graph, uint64_t flags)
{
	(void)graph;
	told.exec = exec;
	told.flags = flags;
}

void hs_nodes_exec_goes(CUgraphExec exec)
{
	assert_ptr_equal(exec, told.exec);
	told.exec = NULL;
}

void hs_nodes_changes(CUgraphExec exec, CUgraphNode node, CUgraph graph)
{
	told.changed_exec = exec;
	told.changed_node = node;
	told.changed_graph = graph;
}

bool hs_nodes_graph_goes(CUgraph graph)
{
	return graph == told.kept;
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

int mock_reset(void **state)
{
	(void)state;
	memset(&told, 0, sizeof(told));
	memset(&driver, 0, sizeof(driver));
	memset(&mock_options, 0, sizeof(mock_options));
	driver.current = (CUcontext)0xc0;
	told.cap = SIZE_MAX / 2;
	mock_whole = true;
	hs_inside = 0;
	atomic_store(&hs_hook_state, HS_HOOK_ASLEEP);
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
	return 0;
}

int mock_balanced(void **state)
{
	(void)state;
	return told.inside_gate || hs_inside ? -1 : 0;
}
