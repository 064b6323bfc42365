/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>
#include "softgpu/capture.h"
#include "softgpu/graph.h"
#include "softgpu/soft.h"

struct event {
	unsigned flags;
	CUcontext context;
	struct soft_task *task;	    /* the marker, once recorded */
	unsigned long long capture; /* or the capture it was recorded in */
	struct soft_nodes nodes;
	struct event *next;
};

static struct soft_stream legacy;
static struct soft_stream *streams = &legacy;
static __thread struct soft_stream *own; /* this thread's default stream */
static struct event *events;

static struct soft_stream *add(unsigned flags, int priority)
{
	struct soft_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->flags = flags;
	stream->priority = priority;
	stream->context = soft_context();
	stream->next = streams;
	streams = stream;
	return stream;
}

struct soft_stream *soft_stream_find(CUstream handle, bool per_thread)
{
	if (handle == CU_STREAM_PER_THREAD || (!handle && per_thread)) {
		if (!own)
			own = add(0, 0);
		return own;
	}
	if (!handle || handle == CU_STREAM_LEGACY)
		return &legacy;
	for (struct soft_stream *stream = streams; stream; stream = stream->next) {
		if (stream == (struct soft_stream *)handle)
			return stream;
	}
	return NULL;
}

bool soft_stream_legacy(const struct soft_stream *stream)
{
	return stream == &legacy;
}

void soft_stream_each(void (*visit)(struct soft_stream *stream, void *data), void *data)
{
	for (struct soft_stream *stream = streams; stream; stream = stream->next)
		visit(stream, data);
}

/* The legacy stream waits for every blocking one, and they for it. */
CUresult soft_enqueue(struct soft_stream *stream, struct soft_op *op, struct soft_task *const *deps,
	unsigned count, struct soft_task **out)
{
	struct soft_task **all, *task;
	unsigned n = 0, others = 2;

	for (struct soft_stream *other = streams; other; other = other->next)
		others++;
	all = calloc(count + others, sizeof(*all));
	if (!all) {
		soft_op_finish(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (count)
		memcpy(all, deps, count * sizeof(*all));
	n = count;
	all[n++] = stream->last;
	if (stream == &legacy) {
		for (struct soft_stream *other = streams; other; other = other->next) {
			if (!(other->flags & CU_STREAM_NON_BLOCKING))
				all[n++] = other->last;
		}
	} else if (!(stream->flags & CU_STREAM_NON_BLOCKING)) {
		all[n++] = legacy.last;
	}
	task = soft_task_submit(op, all, n);
	free(all);
	if (!task)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_task_unref(stream->last);
	stream->last = task;
	if (out)
		*out = soft_task_ref(task);
	return soft.error;
}

CUresult soft_submit(struct soft_stream *stream, struct soft_op *op)
{
	CUresult result = CUDA_SUCCESS;

	if (stream->capture)
		return soft_capture_add(stream, op);
	if (stream == &legacy)
		result = soft_capture_implicit();
	if (result) {
		soft_op_finish(op);
		return result;
	}
	return soft_enqueue(stream, op, NULL, 0, NULL);
}

CUresult soft_stream_wait(struct soft_stream *stream)
{
	CUresult result;

	if (stream->capture)
		return soft_capture_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (stream == &legacy && (result = soft_capture_implicit()))
		return result;
	soft_run(stream->last);
	return soft.error;
}

CUresult soft_device_wait(void)
{
	CUresult result = soft_capture_any();

	if (result)
		return result;
	soft_run_all();
	return soft.error;
}

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_stream *stream;

	if (!out || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	stream = add(flags, priority);
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = (CUstream)stream;
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
	return cuStreamCreateWithPriority(out, flags, 0);
}

/* Its work goes on. */
CUresult cuStreamDestroy_v2(CUstream handle)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_stream *stream = soft_stream_find(handle, false), **link;

	if (!stream || stream == &legacy || handle == CU_STREAM_PER_THREAD)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capture)
		return soft_capture_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	for (link = &streams; *link != stream; link = &(*link)->next)
		continue;
	*link = stream->next;
	soft_task_unref(stream->last);
	free(stream);
	return CUDA_SUCCESS;
}

static CUresult synchronise(CUstream handle, bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	struct soft_stream *stream = soft_stream_find(handle, per_thread);

	return stream ? soft_stream_wait(stream) : CUDA_ERROR_INVALID_HANDLE;
}

SOFT_BOTH(cuStreamSynchronize, _ptsz, (CUstream stream), synchronise(stream, per_thread))

static CUresult get_context(CUstream handle, CUcontext *context, bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_stream *stream = soft_stream_find(handle, per_thread);

	if (!context || !stream)
		return context ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
	*context = stream->context ? stream->context : soft_context();
	return CUDA_SUCCESS;
}

SOFT_BOTH(cuStreamGetCtx, _ptsz, (CUstream stream, CUcontext *context),
	get_context(stream, context, per_thread))

/* Polling makes progress, or a loop around it would never end. */
static CUresult query(struct soft_task *task)
{
	if (task && !task->done)
		soft_run_some(1 + (soft_fuzzing() ? soft_random(256) : 0));
	if (soft.error)
		return soft.error;
	return !task || task->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamQuery(CUstream handle)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	struct soft_stream *stream = soft_stream_find(handle, false);

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capture)
		return soft_capture_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	return query(stream->last);
}

static struct event *event_of(CUevent handle)
{
	struct event *event;

	for (event = events; event; event = event->next) {
		if (event == (struct event *)handle)
			break;
	}
	return event;
}

static void event_clear(struct event *event)
{
	soft_task_unref(event->task);
	event->task = NULL;
	event->capture = 0;
	soft_nodes_finish(&event->nodes);
}

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct event *event = out ? calloc(1, sizeof(*event)) : NULL;

	if (!event)
		return out ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	event->flags = flags;
	event->context = soft_context();
	event->next = events;
	events = event;
	*out = (CUevent)event;
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct event *event = event_of(handle), **link;

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	for (link = &events; *link != event; link = &(*link)->next)
		continue;
	*link = event->next;
	event_clear(event);
	free(event);
	return CUDA_SUCCESS;
}

static CUresult record(CUevent handle, CUstream stream_handle, bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_stream *stream = soft_stream_find(stream_handle, per_thread);
	struct event *event = event_of(handle);
	struct soft_op nothing = {.kind = SOFT_OP_NOTHING};
	CUresult result;

	if (!stream || !event ||
		event->context != (stream->context ? stream->context : soft_context()))
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capture) {
		if (stream->capture->invalid)
			return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		event_clear(event);
		event->capture = stream->capture->id;
		return soft_nodes_copy(&event->nodes, stream->frontier) ? CUDA_SUCCESS
									: CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (stream == &legacy && (result = soft_capture_implicit()))
		return result;
	event_clear(event);
	return soft_enqueue(stream, &nothing, NULL, 0, &event->task);
}

SOFT_BOTH(cuEventRecord, _ptsz, (CUevent event, CUstream stream), record(event, stream, per_thread))

CUresult cuCtxRecordEvent(CUcontext context, CUevent handle)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct event *event = event_of(handle);
	CUresult result = soft_capture_any();

	if (result)
		return result;
	if (!event || context != soft_context())
		return CUDA_ERROR_INVALID_HANDLE;
	event_clear(event);
	event->task = soft_task_barrier();
	return event->task ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult captured(struct event *event)
{
	struct soft_capture *capture = soft_capture_find(event->capture);

	return capture ? soft_capture_spoil(capture, CUDA_ERROR_CAPTURED_EVENT)
		       : CUDA_ERROR_CAPTURED_EVENT;
}

CUresult cuEventQuery(CUevent handle)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	struct event *event = event_of(handle);

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	return event->capture ? captured(event) : query(event->task);
}

CUresult cuEventSynchronize(CUevent handle)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	struct event *event = event_of(handle);

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->capture)
		return captured(event);
	soft_run(event->task);
	return soft.error;
}

CUresult cuEventElapsedTime(float *ms, CUevent from_handle, CUevent to_handle)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct event *from = event_of(from_handle), *to = event_of(to_handle);

	if (!ms)
		return CUDA_ERROR_INVALID_VALUE;
	if (!from || !to || !from->task || !to->task ||
		(from->flags | to->flags) & CU_EVENT_DISABLE_TIMING)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!from->task->done || !to->task->done)
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(int64_t)(to->task->when - from->task->when) * 1e-6);
	return CUDA_SUCCESS;
}

static CUresult wait_event(CUstream stream_handle, CUevent handle, unsigned flags, bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_stream *stream = soft_stream_find(stream_handle, per_thread);
	struct event *event = event_of(handle);
	struct soft_op nothing = {.kind = SOFT_OP_NOTHING};
	struct soft_capture *capture;
	CUresult result;

	if (!stream || !event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (flags)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (event->capture) {
		capture = soft_capture_find(event->capture);
		return capture ? soft_capture_join(stream, capture, &event->nodes)
			       : CUDA_ERROR_CAPTURED_EVENT;
	}
	if (stream->capture)
		return soft_capture_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	if (stream == &legacy && (result = soft_capture_implicit()))
		return result;
	if (!event->task)
		return CUDA_SUCCESS;
	return soft_enqueue(stream, &nothing, &event->task, 1, NULL);
}

SOFT_BOTH(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned flags),
	wait_event(stream, event, flags, per_thread))

static CUresult host_function(CUstream handle, CUhostFn call, void *data, bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_stream *stream = soft_stream_find(handle, per_thread);
	struct soft_op op = {.kind = SOFT_OP_HOST, .host = {call, data}};

	if (!call || !stream)
		return call ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
	return soft_submit(stream, &op);
}

SOFT_BOTH(cuLaunchHostFunc, _ptsz, (CUstream stream, CUhostFn call, void *data),
	host_function(stream, call, data, per_thread))
