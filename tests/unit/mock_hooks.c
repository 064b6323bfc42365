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
bool hs_copy_no_values(CUdeviceptr dst)
{
	(void)dst;
	return false;
}

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
	mock_driver();
	return 0;
}

int mock_balanced(void **state)
{
	(void)state;
	return told.inside_gate || hs_inside ? -1 : 0;
}
