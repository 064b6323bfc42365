/* SPDX-License-Identifier: MIT */
#include "src/trace/timeline.h"

#include <stdlib.h>
#include <string.h>
#include "src/trace/clock.h"
#include "src/trace/lead.h"
#include "src/trace/step.h"

#define KERNELS_MOST ((size_t)1 << 20)
#define LAUNCHES_MOST 16384u /* told and not yet seen as kernels; a power of two */
#define STREAMS 128u
#define DEVICES 16u
#define HELD 8u	    /* writers and the like that wait for their layer */
#define KINDS 1024u /* names whose kind is known; a power of two */

struct launch {
	uint64_t stamp;
	uint32_t layer, lane, number;
	uint64_t hits, misses, inplace, bytes; /* of this launch */
};

struct device {
	struct launch queue[LAUNCHES_MOST];
	uint32_t head, tail;
	bool told; /* a launch was */
	uint32_t number;
	struct hs_clock clock;
	struct hs_step steps;
	struct hs_trace_step sum;
	struct hs_lead lead;
	uint64_t totals[HS_LAYERS][HS_COUNTS];
	bool counted[HS_LAYERS];
};

struct stream {
	uint32_t device, stream;
	uint64_t end;	 /* of what ran last */
	uint64_t before; /* end of what ran before the last swap-in */
	uint64_t begun;	 /* start of the swap-in or of what stages */
	uint64_t behind; /* so many kernels of the device */
	uint64_t staged; /* ns of kernels that belong to the next one */
	bool resolved;	 /* its attention has not been seen */
	int32_t layer;
	uint64_t step;
	struct hs_trace_event held[HELD];
	unsigned count;
};

struct hs_timeline {
	struct hs_export *export;
	bool timed;
	uint64_t since, latest, lost_kernels, lost_launches, unmatched;
	struct hs_cupti_kernel *kernels; /* not yet told */
	size_t count, room;
	struct device *devices[DEVICES];
	struct stream streams[STREAMS];
	unsigned nstreams;
	struct {
		const char *name;
		enum hs_trace_kind kind;
	} kinds[KINDS];
};

struct hs_timeline *hs_timeline_create(struct hs_export *export, bool timed)
{
	struct hs_timeline *timeline = calloc(1, sizeof(*timeline));

	if (timeline) {
		timeline->export = export;
		timeline->timed = timed;
	}
	return timeline;
}

void hs_timeline_destroy(struct hs_timeline *timeline)
{
	for (unsigned i = 0; i < DEVICES; i++)
		free(timeline->devices[i]);
	free(timeline->kernels);
	free(timeline);
}

void hs_timeline_since(struct hs_timeline *timeline, uint64_t start)
{
	timeline->since = start;
}

uint64_t hs_timeline_latest(const struct hs_timeline *timeline)
{
	return timeline->latest;
}

void hs_timeline_tail(const struct hs_timeline *timeline, struct hs_trace_tail *tail)
{
	*tail = (struct hs_trace_tail){
		timeline->lost_kernels, timeline->lost_launches, timeline->unmatched};
}

static struct device *device_of(struct hs_timeline *timeline, uint32_t device)
{
	if (device >= DEVICES)
		return NULL;
	if (!timeline->devices[device]) {
		timeline->devices[device] = calloc(1, sizeof(struct device));
		if (timeline->devices[device])
			timeline->devices[device]->sum.device = device;
	}
	return timeline->devices[device];
}

static void tell_step(struct hs_timeline *timeline, struct device *device)
{
	if (device->sum.step)
		hs_export_step(timeline->export, &device->sum);
}

/* The swap-in opens its step and is summed up there. */
static void sum(struct hs_timeline *timeline, struct device *device, struct hs_trace_event *event,
	uint32_t lane)
{
	struct hs_trace_step *step = &device->sum;

	event->step = hs_step_next(&device->steps, lane, (uint32_t)event->layer);
	if (event->step != step->step) {
		tell_step(timeline, device);
		device->lead.since = step->end;
		*step = (struct hs_trace_step){.step = event->step,
			.device = step->device,
			.start = event->name ? event->start : event->end};
	}
	step->launches++;
	step->hits += event->hits;
	step->misses += event->misses;
	step->inplace += event->inplace;
	step->bytes += event->bytes;
	if (event->name)
		step->swap_in += event->end - event->start;
	if (event->end > step->end)
		step->end = event->end;
}

static void fill(struct hs_trace_event *event, const struct launch *launch)
{
	event->layer = (int32_t)launch->layer;
	event->counted = true;
	event->hits = launch->hits;
	event->misses = launch->misses;
	event->inplace = launch->inplace;
	event->bytes = launch->bytes;
}

/* A launch whose kernel is not known: its end by the device's clock, put on
 * CUPTI's as far as that is known. */
static void tell_launch(
	struct hs_timeline *timeline, struct device *device, const struct launch *launch)
{
	struct hs_trace_event event = {.kind = HS_TRACE_SWAP_IN,
		.device = device->sum.device,
		.end = launch->stamp + (uint64_t)((device->clock.low + device->clock.high) / 2)};

	fill(&event, launch);
	sum(timeline, device, &event, launch->lane);
	hs_export_event(timeline->export, &event);
}

void hs_timeline_launch(struct hs_timeline *timeline, uint32_t id,
	const struct hs_journal_launch *told, uint32_t row, const uint64_t *base)
{
	const uint32_t layer = told->head.layer;
	struct device *device = device_of(timeline, id);
	struct launch launch = {told->head.stamp, layer, told->head.lane, told->head.number,
		.hits = told->totals[HS_COUNT_HITS], .misses = told->totals[HS_COUNT_MISSES],
		.inplace = told->totals[HS_COUNT_INPLACE]};
	uint64_t staged = told->totals[HS_COUNT_STAGED];
	const uint64_t *last;

	if (!device || layer >= HS_LAYERS)
		return;
	if (device->told)
		timeline->lost_launches += told->head.number - device->number - 1;
	device->told = true;
	device->number = told->head.number;
	last = device->counted[layer] ? device->totals[layer] : base;
	if (last) {
		launch.hits -= last[HS_COUNT_HITS];
		launch.misses -= last[HS_COUNT_MISSES];
		launch.inplace -= last[HS_COUNT_INPLACE];
		staged -= last[HS_COUNT_STAGED];
	}
	launch.bytes = (launch.misses + staged) * row;
	memcpy(device->totals[layer], told->totals, sizeof(told->totals));
	device->counted[layer] = true;
	if (!timeline->timed) {
		tell_launch(timeline, device, &launch);
		return;
	}
	if (device->tail - device->head == LAUNCHES_MOST) {
		device->head++;
		timeline->lost_launches++;
	}
	device->queue[device->tail++ % LAUNCHES_MOST] = launch;
}

void hs_timeline_kernels(
	struct hs_timeline *timeline, const struct hs_cupti_kernel *kernels, size_t count)
{
	size_t room = timeline->room ? timeline->room : 4096;
	struct hs_cupti_kernel *more;

	while (room < timeline->count + count && room < KERNELS_MOST)
		room *= 2;
	if (room > timeline->room) {
		more = realloc(timeline->kernels, room * sizeof(*more));
		if (more) {
			timeline->kernels = more;
			timeline->room = room;
		}
	}
	for (size_t i = 0; i < count; i++) {
		if (kernels[i].end > timeline->latest)
			timeline->latest = kernels[i].end;
		if (timeline->count < timeline->room)
			timeline->kernels[timeline->count++] = kernels[i];
		else
			timeline->lost_kernels++;
	}
}

static enum hs_trace_kind kind_of(struct hs_timeline *timeline, const char *name)
{
	const uint32_t h = (uint32_t)((uintptr_t)name * 0x9e3779b97f4a7c15u >> 40);

	for (unsigned i = 0; i < 8; i++) {
		unsigned at = (h + i) % KINDS;

		if (!timeline->kinds[at].name) {
			timeline->kinds[at].name = name;
			timeline->kinds[at].kind = hs_timeline_kind(name);
		}
		if (timeline->kinds[at].name == name)
			return timeline->kinds[at].kind;
	}
	return hs_timeline_kind(name);
}

/* Streams beyond the room share the last place. */
static struct stream *stream_of(struct hs_timeline *timeline, const struct hs_cupti_kernel *kernel)
{
	struct stream *stream = timeline->streams;

	for (unsigned i = 0; i < timeline->nstreams; i++, stream++)
		if (stream->device == kernel->device && stream->stream == kernel->stream)
			return stream;
	if (timeline->nstreams == STREAMS)
		return &timeline->streams[STREAMS - 1];
	timeline->nstreams++;
	*stream = (struct stream){.device = kernel->device, .stream = kernel->stream, .layer = -1};
	return stream;
}

static void tell_held(
	struct hs_timeline *timeline, struct stream *stream, int32_t layer, uint64_t step)
{
	for (unsigned i = 0; i < stream->count; i++) {
		stream->held[i].layer = layer;
		stream->held[i].step = step;
		hs_export_event(timeline->export, &stream->held[i]);
	}
	stream->count = 0;
}

static void hold(struct hs_timeline *timeline, struct stream *stream, struct hs_trace_event *event)
{
	if (stream->count == HELD)
		tell_held(timeline, stream, -1, 0);
	stream->held[stream->count++] = *event;
}

/* The resolve kernel after this one on its device, as far as they were told. */
static const struct hs_cupti_kernel *next_of(
	struct hs_timeline *timeline, const struct hs_cupti_kernel *kernel)
{
	const struct hs_cupti_kernel *end = timeline->kernels + timeline->count;

	for (const struct hs_cupti_kernel *next = kernel + 1; next < end; next++)
		if (next->device == kernel->device &&
			kind_of(timeline, next->name) == HS_TRACE_SWAP_IN)
			return next;
	return NULL;
}

static int64_t jump_of(
	struct device *device, const struct launch *launch, const struct hs_cupti_kernel *kernel)
{
	return hs_clock_jump(&device->clock,
		hs_clock_between(&device->clock, launch->stamp, kernel->start, kernel->end));
}

/*
 * The told launch that is this kernel, or NULL when its record was lost. Where the
 * clocks do not agree, they were set anew as long as neither the launch after this
 * one nor the kernel after this one fits better.
 */
static const struct launch *match(
	struct hs_timeline *timeline, struct device *device, const struct hs_cupti_kernel *kernel)
{
	const struct hs_cupti_kernel *next = NULL;
	const struct launch *launch, *after;
	int64_t jump;

	if (kernel->end < timeline->since)
		return NULL;
	for (; device->head != device->tail; device->head++) {
		launch = &device->queue[device->head % LAUNCHES_MOST];
		after = &device->queue[(device->head + 1) % LAUNCHES_MOST];
		jump = jump_of(device, launch, kernel);
		if (!hs_clock_may(&device->clock, launch->stamp, jump)) {
			if (jump < 0)
				next = next_of(timeline, kernel);
			if (jump < 0 && (!next || llabs(jump_of(device, launch, next)) < -jump))
				return NULL;
			if (jump > 0 && (device->tail - device->head == 1 ||
						llabs(jump_of(device, after, kernel)) < jump)) {
				/* The kernel of this one was lost. */
				tell_launch(timeline, device, launch);
				continue;
			}
		}
		hs_clock_follow(&device->clock, launch->stamp,
			hs_clock_between(
				&device->clock, launch->stamp, kernel->start, kernel->end));
		device->head++;
		return launch;
	}
	return NULL;
}

/* The first kernel of a swap-in. */
static void first(
	struct stream *stream, const struct device *device, const struct hs_trace_event *event)
{
	stream->before = stream->end ? stream->end : event->start;
	stream->begun = event->start;
	stream->behind = device ? device->lead.kernels : 0;
}

static void stage(struct hs_timeline *timeline, const struct device *device, struct stream *stream,
	struct hs_trace_event *event)
{
	if (!stream->staged)
		first(stream, device, event);
	stream->staged += event->end - event->start;
	hold(timeline, stream, event);
}

static void swap_in(struct hs_timeline *timeline, struct device *device, struct stream *stream,
	const struct hs_cupti_kernel *kernel, struct hs_trace_event *event)
{
	const struct launch *launch = device ? match(timeline, device, kernel) : NULL;

	if (!stream->staged)
		first(stream, device, event);
	if (launch) {
		fill(event, launch);
		sum(timeline, device, event, launch->lane);
		device->sum.swap_in += stream->staged;
		hs_lead_tell(&device->lead, stream->begun, stream->behind, event);
		hs_lead_sum(&device->sum, event, stream->staged + event->end - event->start);
	} else {
		timeline->unmatched++;
	}
	tell_held(timeline, stream, event->layer, event->step);
	stream->layer = event->layer;
	stream->step = event->step;
	stream->staged = 0;
	stream->resolved = true;
	hs_export_event(timeline->export, event);
}

static void attention(struct hs_timeline *timeline, struct device *device, struct stream *stream,
	struct hs_trace_event *event)
{
	event->layer = stream->layer;
	event->step = stream->step;
	if (stream->resolved) {
		event->stalled = true;
		event->stall = event->start > stream->before ? event->start - stream->before : 0;
		stream->resolved = false;
	}
	if (device && event->step && event->step == device->sum.step) {
		device->sum.attention += event->end - event->start;
		device->sum.stall += event->stall;
		if (event->end > device->sum.end)
			device->sum.end = event->end;
	}
	hs_export_event(timeline->export, event);
}

static void tell(struct hs_timeline *timeline, const struct hs_cupti_kernel *kernel)
{
	struct stream *stream = stream_of(timeline, kernel);
	struct device *device = device_of(timeline, kernel->device);
	struct hs_trace_event event = {.kind = kind_of(timeline, kernel->name),
		.name = kernel->name,
		.layer = -1,
		.device = kernel->device,
		.stream = kernel->stream,
		.graph = kernel->graph,
		.node = kernel->node,
		.start = kernel->start,
		.end = kernel->end};

	switch (event.kind) {
	case HS_TRACE_SWAP_IN:
		swap_in(timeline, device, stream, kernel, &event);
		break;
	case HS_TRACE_STAGE:
		stage(timeline, device, stream, &event);
		break;
	case HS_TRACE_ATTENTION:
		attention(timeline, device, stream, &event);
		break;
	case HS_TRACE_COMBINE:
		event.layer = stream->layer;
		event.step = stream->step;
		hs_export_event(timeline->export, &event);
		break;
	case HS_TRACE_TOPK:
	case HS_TRACE_LIST:
	case HS_TRACE_WRITER:
	case HS_TRACE_INVALIDATE:
		hold(timeline, stream, &event);
		break;
	case HS_TRACE_OTHER:
		break;
	default:
		hs_export_event(timeline->export, &event);
	}
	if (kernel->end > stream->end)
		stream->end = kernel->end;
	if (device)
		hs_lead_ran(&device->lead, event.kind, kernel->end);
}

static int by_start(const void *a, const void *b)
{
	const struct hs_cupti_kernel *left = a, *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

/* What still waits, and the last step. */
static void finish(struct hs_timeline *timeline)
{
	for (unsigned i = 0; i < timeline->nstreams; i++)
		tell_held(timeline, &timeline->streams[i], -1, 0);
	for (unsigned i = 0; i < DEVICES; i++) {
		struct device *device = timeline->devices[i];

		if (!device)
			continue;
		for (; device->head != device->tail; device->head++)
			tell_launch(timeline, device, &device->queue[device->head % LAUNCHES_MOST]);
		tell_step(timeline, device);
		device->sum = (struct hs_trace_step){.device = i};
	}
}

/* Kernels are told in the order of their starts. */
void hs_timeline_run(struct hs_timeline *timeline, uint64_t until)
{
	size_t n = 0;

	if (timeline->count)
		qsort(timeline->kernels, timeline->count, sizeof(*timeline->kernels), by_start);
	for (; n < timeline->count && timeline->kernels[n].start < until; n++)
		tell(timeline, &timeline->kernels[n]);
	timeline->count -= n;
	if (n)
		memmove(timeline->kernels, timeline->kernels + n,
			timeline->count * sizeof(*timeline->kernels));
	if (until == UINT64_MAX)
		finish(timeline);
}

void hs_timeline_untimed(struct hs_timeline *timeline)
{
	hs_timeline_run(timeline, UINT64_MAX);
	timeline->timed = false;
}
