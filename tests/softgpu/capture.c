/* SPDX-License-Identifier: MIT */
#include "softgpu/capture.h"

#include <stdlib.h>
#include <string.h>

static struct soft_capture *captures;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static __thread char thread_mark; /* its address names the thread */

CUresult soft_capture_spoil(struct soft_capture *capture, CUresult error)
{
	capture->invalid = true;
	return error;
}

CUresult soft_capture_unsafe(void)
{
	CUresult result = CUDA_SUCCESS;

	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	for (struct soft_capture *capture = captures; capture; capture = capture->next) {
		bool mine = capture->thread == &thread_mark;

		if (mine ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
			 : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
					thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
			result = soft_capture_spoil(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	return result;
}

CUresult soft_capture_any(void)
{
	for (struct soft_capture *capture = captures; capture; capture = capture->next)
		capture->invalid = true;
	return captures ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

static void spoil_blocking(struct soft_stream *stream, void *data)
{
	CUresult *result = data;

	if (!stream->capture || stream->flags & CU_STREAM_NON_BLOCKING)
		return;
	*result = soft_capture_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

CUresult soft_capture_implicit(void)
{
	CUresult result = CUDA_SUCCESS;

	if (captures)
		soft_stream_each(spoil_blocking, &result);
	return result;
}

struct soft_capture *soft_capture_find(unsigned long long id)
{
	struct soft_capture *capture;

	for (capture = captures; capture && capture->id != id; capture = capture->next)
		continue;
	return capture;
}

CUresult soft_capture_add(struct soft_stream *stream, struct soft_op *op)
{
	struct soft_node *node;

	if (stream->capture->invalid) {
		soft_op_finish(op);
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	node = soft_graph_add(stream->capture->graph, op, stream->frontier);
	if (!node)
		return soft_capture_spoil(stream->capture, CUDA_ERROR_OUT_OF_MEMORY);
	soft_nodes_finish(stream->frontier);
	if (!soft_nodes_add(stream->frontier, node))
		return soft_capture_spoil(stream->capture, CUDA_ERROR_OUT_OF_MEMORY);
	return CUDA_SUCCESS;
}

static bool enter(struct soft_stream *stream, struct soft_capture *capture)
{
	stream->frontier = calloc(1, sizeof(*stream->frontier));
	if (!stream->frontier)
		return false;
	stream->capture = capture;
	return true;
}

CUresult soft_capture_join(
	struct soft_stream *stream, struct soft_capture *capture, const struct soft_nodes *nodes)
{
	if (capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (soft_stream_legacy(stream))
		return soft_capture_spoil(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	if (stream->capture && stream->capture != capture) {
		capture->invalid = true;
		return soft_capture_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
	}
	if (!stream->capture && !enter(stream, capture))
		return soft_capture_spoil(capture, CUDA_ERROR_OUT_OF_MEMORY);
	for (unsigned i = 0; i < nodes->count; i++) {
		if (!soft_nodes_add(stream->frontier, nodes->list[i]))
			return soft_capture_spoil(capture, CUDA_ERROR_OUT_OF_MEMORY);
	}
	return CUDA_SUCCESS;
}

static CUresult begin(CUstream handle, struct soft_graph *graph, const struct soft_nodes *deps,
	CUstreamCaptureMode mode, bool per_thread)
{
	static unsigned long long id;
	struct soft_stream *stream = soft_stream_find(handle, per_thread);
	struct soft_capture *capture;

	if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (soft_stream_legacy(stream))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	capture = calloc(1, sizeof(*capture));
	if (!capture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	capture->to_graph = graph != NULL;
	capture->graph = graph ? graph : soft_graph_create();
	if (!capture->graph || !enter(stream, capture)) {
		if (!graph && capture->graph)
			soft_graph_destroy(capture->graph);
		free(capture);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	capture->id = ++id;
	capture->mode = mode;
	capture->thread = &thread_mark;
	capture->origin = stream;
	capture->next = captures;
	captures = capture;
	return deps ? soft_capture_join(stream, capture, deps) : CUDA_SUCCESS;
}

static CUresult begin_new(CUstream stream, CUstreamCaptureMode mode, bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT);
	return begin(stream, NULL, NULL, mode, per_thread);
}

static CUresult begin_to_graph(CUstream stream, CUgraph handle, const CUgraphNode *deps,
	const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode, bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_graph *graph = soft_graph_find(handle);
	struct soft_nodes nodes = {(struct soft_node **)deps, (unsigned)count};

	if (!graph || (count && !deps))
		return CUDA_ERROR_INVALID_VALUE;
	if (edges)
		return CUDA_ERROR_NOT_SUPPORTED;
	return begin(stream, graph, &nodes, mode, per_thread);
}

SOFT_BOTH(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode),
	begin_new(stream, mode, per_thread))
SOFT_BOTH(cuStreamBeginCaptureToGraph, _ptsz,
	(CUstream stream, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *edges,
		size_t count, CUstreamCaptureMode mode),
	begin_to_graph(stream, graph, deps, edges, count, mode, per_thread))

struct joined {
	struct soft_capture *capture;
	bool *reached; /* by node index: the origin stream comes after it */
	bool all;
};

static void check_joined(struct soft_stream *stream, void *data)
{
	struct joined *joined = data;

	if (stream->capture != joined->capture)
		return;
	for (unsigned i = 0; i < stream->frontier->count; i++)
		joined->all &= joined->reached[stream->frontier->list[i]->index];
}

static void detach(struct soft_stream *stream, void *data)
{
	if (stream->capture != data)
		return;
	soft_nodes_finish(stream->frontier);
	free(stream->frontier);
	stream->frontier = NULL;
	stream->capture = NULL;
}

static CUresult check(struct soft_capture *capture)
{
	const struct soft_nodes *nodes = &capture->graph->nodes;
	const struct soft_nodes *ends = capture->origin->frontier;
	struct joined joined = {capture, calloc(nodes->count + 1, sizeof(bool)), true};

	if (capture->invalid || !joined.reached) {
		free(joined.reached);
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	for (unsigned i = 0; i < ends->count; i++)
		joined.reached[ends->list[i]->index] = true;
	for (unsigned i = nodes->count; i--;) {
		for (unsigned j = 0; joined.reached[i] && j < nodes->list[i]->deps.count; j++)
			joined.reached[nodes->list[i]->deps.list[j]->index] = true;
	}
	soft_stream_each(check_joined, &joined);
	free(joined.reached);
	return joined.all ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

static CUresult end(CUstream handle, CUgraph *out, bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_stream *stream = soft_stream_find(handle, per_thread);
	struct soft_capture *capture = stream ? stream->capture : NULL, **link;
	CUresult result;

	if (!stream || !out)
		return stream ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->origin != stream)
		return soft_capture_spoil(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &thread_mark)
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	result = check(capture);
	soft_stream_each(detach, capture);
	for (link = &captures; *link != capture; link = &(*link)->next)
		continue;
	*link = capture->next;
	if (result && !capture->to_graph)
		soft_graph_destroy(capture->graph);
	*out = result ? NULL : (CUgraph)capture->graph;
	free(capture);
	return result;
}

SOFT_BOTH(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph *graph),
	end(stream, graph, per_thread))

static void find_blocking(struct soft_stream *stream, void *data)
{
	bool *found = data;

	*found |= stream->capture && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

static CUresult info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
	const CUgraphNode **deps, size_t *count, bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_stream *stream = soft_stream_find(handle, per_thread);
	bool implicit = false;

	if (!stream || !status)
		return stream ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	if (soft_stream_legacy(stream))
		soft_stream_each(find_blocking, &implicit);
	if (implicit)
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	if (!stream->capture)
		return CUDA_SUCCESS;
	*status = stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					   : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	if (id)
		*id = stream->capture->id;
	if (graph)
		*graph = (CUgraph)stream->capture->graph;
	if (deps)
		*deps = (const CUgraphNode *)stream->frontier->list;
	if (count)
		*count = stream->frontier->count;
	return CUDA_SUCCESS;
}

SOFT_BOTH(cuStreamIsCapturing, _ptsz, (CUstream stream, CUstreamCaptureStatus *status),
	info(stream, status, NULL, NULL, NULL, NULL, per_thread))
SOFT_BOTH(cuStreamGetCaptureInfo_v2, _ptsz,
	(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
		const CUgraphNode **deps, size_t *count),
	info(stream, status, id, graph, deps, count, per_thread))

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	SOFT_ENTER(0);
	CUstreamCaptureMode old = thread_mode;

	if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
