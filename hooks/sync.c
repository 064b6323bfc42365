/* SPDX-License-Identifier: MIT */
#include "hooks/hook.h"
#include "src/cache/nodes.h"
#include "src/launch/launch.h"
#include "src/memory/capture.h"
#include "src/memory/gate.h"
#include "src/memory/memory.h"
#include "src/memory/peer.h"

/* Calls that wait. Windows may move after that: what the engine waits for may
 * need launches of other threads, which are held up while we wait. */
#define SETTLE(name, params, args)                                                                 \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		const CUresult result = HS_REAL(name) args;                                        \
		if (result == CUDA_SUCCESS)                                                        \
			hs_hook_settle(true);                                                      \
		return hs_hook_end(result);                                                        \
	}
SETTLE(cuCtxSynchronize, (void), ())
SETTLE(cuCtxSynchronize_v2, (CUcontext context), (context))
SETTLE(cuStreamSynchronize, (CUstream stream), (stream))
SETTLE(cuStreamSynchronize_ptsz, (CUstream stream), (stream))
SETTLE(cuEventSynchronize, (CUevent event), (event))
#undef SETTLE

/* A capture may go with its stream. */
HS_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
	if (!hs_hook_begin())
		return HS_REAL(cuStreamDestroy_v2)(stream);
	hs_hook_settle(false);
	const cuuint64_t id = hs_capture_of(stream);
	const CUresult result = hs_driver.cuStreamDestroy_v2(stream);
	if (result == CUDA_SUCCESS && id)
		hs_capture_ended(id);
	return hs_hook_end(result);
}

/* The primary context, NULL while nobody holds it: asking must not make it. */
static CUcontext primary(CUdevice device)
{
	CUcontext context = NULL;
	unsigned flags;
	int active = 0;

	if ((!hs_window_any() && !hs_peer_any()) ||
		hs_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS ||
		!active || hs_driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
		return NULL;
	hs_driver.cuDevicePrimaryCtxRelease_v2(device);
	return context;
}

HS_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned flags)
{
	if (!hs_hook_begin())
		return HS_REAL(cuCtxEnablePeerAccess)(other, flags);
	const CUresult result = hs_driver.cuCtxEnablePeerAccess(other, flags);
	if (result == CUDA_SUCCESS)
		hs_peer_enabled(other);
	return hs_hook_end(result);
}

HS_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
	if (!hs_hook_begin())
		return HS_REAL(cuCtxDestroy_v2)(context);
	if (hs_window_any() || hs_peer_any())
		hs_memory_context_gone(context);
	hs_capture_context_gone(context);
	return hs_hook_end(hs_driver.cuCtxDestroy_v2(context));
}

#define RESET(name)                                                                                \
	HS_EXPORT CUresult name(CUdevice device)                                                   \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(device);                                              \
		CUcontext context = primary(device);                                               \
		if (context)                                                                       \
			hs_memory_context_gone(context);                                           \
		return hs_hook_end(hs_driver.name(device));                                        \
	}
RESET(cuDevicePrimaryCtxReset) /* what cudart 13.0 asks for */
RESET(cuDevicePrimaryCtxReset_v2)
#undef RESET

/* Only the last of several releases takes the context away. */
#define RELEASE(name)                                                                              \
	HS_EXPORT CUresult name(CUdevice device)                                                   \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(device);                                              \
		CUcontext context = primary(device);                                               \
		const CUresult result = hs_driver.name(device);                                    \
		if (context && !primary(device))                                                   \
			hs_memory_context_gone(context);                                           \
		return hs_hook_end(result);                                                        \
	}
RELEASE(cuDevicePrimaryCtxRelease)
RELEASE(cuDevicePrimaryCtxRelease_v2)
#undef RELEASE

static bool capturing(CUstream stream, bool per_thread, cuuint64_t *id)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = (per_thread ? hs_driver.cuStreamGetCaptureInfo_v2_ptsz
				      : hs_driver.cuStreamGetCaptureInfo_v2)(
		stream, &status, id, NULL, NULL, NULL);

	return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult began(CUresult result, CUstream stream, bool per_thread, bool fresh)
{
	if (result == CUDA_SUCCESS) {
		hs_capture_opened(stream, per_thread);
		hs_launch_capture_began(stream, per_thread);
		if (fresh)
			hs_nodes_capture_began(stream, per_thread);
	} else {
		hs_capture_failed();
	}
	return hs_hook_end(result);
}

/* Counted before the driver opens it: windows then stay where they are. */
#define BEGIN_CAPTURE(name, per_thread)                                                            \
	HS_EXPORT CUresult name(CUstream stream, CUstreamCaptureMode mode)                         \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(stream, mode);                                        \
		hs_capture_began();                                                                \
		return began(hs_driver.name(stream, mode), stream, per_thread, true);              \
	}
BEGIN_CAPTURE(cuStreamBeginCapture_v2, false)
BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, true)
#undef BEGIN_CAPTURE

#define BEGIN_CAPTURE_TO(name, per_thread)                                                         \
	HS_EXPORT CUresult name(CUstream stream, CUgraph graph, const CUgraphNode *nodes,          \
		const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)              \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(stream, graph, nodes, edges, count, mode);            \
		hs_capture_began();                                                                \
		return began(HS_REAL(name)(stream, graph, nodes, edges, count, mode), stream,      \
			per_thread, false);                                                        \
	}
BEGIN_CAPTURE_TO(cuStreamBeginCaptureToGraph, false)
BEGIN_CAPTURE_TO(cuStreamBeginCaptureToGraph_ptsz, true)
#undef BEGIN_CAPTURE_TO

/* A capture that was invalidated ends here too, with an error. */
#define END_CAPTURE(name, per_thread)                                                              \
	HS_EXPORT CUresult name(CUstream stream, CUgraph *graph)                                   \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(stream, graph);                                       \
		cuuint64_t id = 0, none;                                                           \
		if (!capturing(stream, per_thread, &id))                                           \
			return hs_hook_end(hs_driver.name(stream, graph));                         \
		hs_launch_capture_ending(stream, per_thread);                                      \
		const CUresult result = hs_driver.name(stream, graph);                             \
		if (result == CUDA_SUCCESS || !capturing(stream, per_thread, &none)) {             \
			hs_nodes_captured(id, result == CUDA_SUCCESS ? *graph : NULL);             \
			hs_capture_ended(id);                                                      \
		}                                                                                  \
		return hs_hook_end(result);                                                        \
	}
END_CAPTURE(cuStreamEndCapture, false)
END_CAPTURE(cuStreamEndCapture_ptsz, true)
#undef END_CAPTURE
