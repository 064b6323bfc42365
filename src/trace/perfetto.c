/* SPDX-License-Identifier: MIT */
#include "src/trace/perfetto.h"

#include <string.h>

/* Field numbers. */
enum {
	TRACE_PACKET = 1,

	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE = 10, /* trusted_packet_sequence_id */
	PACKET_EVENT = 11,
	PACKET_FLAGS = 13, /* sequence_flags: 1, the state is cleared */
	PACKET_TRACK = 60,

	EVENT_ANNOTATION = 4,
	EVENT_TYPE = 9,
	EVENT_TRACK = 11,
	EVENT_CATEGORY = 22,
	EVENT_NAME = 23,
	EVENT_COUNTER = 30,

	TRACK_UUID = 1,
	TRACK_NAME = 2,
	TRACK_PROCESS = 3,
	TRACK_PARENT = 5,
	TRACK_COUNTER = 8,

	PROCESS_PID = 1,
	PROCESS_NAME = 6,

	ANNOTATION_UINT = 3,
	ANNOTATION_STRING = 6,
	ANNOTATION_NAME = 10,
};
enum { BEGIN = 1, END = 2, COUNTER = 4 };

#define SEQUENCE 0x4853u /* any number but 0: we write alone */
#define TRACKS 64u	 /* streams that get a track of their own */
#define BYTES 4096

/* A message that is being built. What does not fit is left out whole. */
struct message {
	unsigned char bytes[BYTES];
	size_t count;
};

enum { PROCESS_ROOT = 1, STEPS, MISSES, FETCHED, FIRST_STREAM };

/* Tracks are told when they are first used. One trace at a time. */
static struct {
	uint64_t stream[TRACKS]; /* 1 + device << 32 | stream */
	uint64_t end[TRACKS];	 /* of the last slice there */
} told;

static void put_varint(struct message *m, uint64_t v)
{
	while (m->count < BYTES) {
		m->bytes[m->count++] = (unsigned char)(v >> 7 ? v | 0x80 : v);
		v >>= 7;
		if (!v)
			return;
	}
}

static void put_number(struct message *m, unsigned field, uint64_t v)
{
	if (m->count + 16 > BYTES)
		return;
	put_varint(m, field << 3);
	put_varint(m, v);
}

static void put_bytes(struct message *m, unsigned field, const void *bytes, size_t count)
{
	if (m->count + count + 16 > BYTES)
		return;
	put_varint(m, field << 3 | 2);
	put_varint(m, count);
	memcpy(m->bytes + m->count, bytes, count);
	m->count += count;
}

static void put_text(struct message *m, unsigned field, const char *text)
{
	size_t length = strlen(text);

	put_bytes(m, field, text, length < BYTES / 4 ? length : BYTES / 4);
}

static void put_message(struct message *m, unsigned field, const struct message *inner)
{
	put_bytes(m, field, inner->bytes, inner->count);
}

static void write_packet(FILE *file, struct message *packet)
{
	struct message out = {.count = 0};

	put_number(packet, PACKET_SEQUENCE, SEQUENCE);
	put_varint(&out, TRACE_PACKET << 3 | 2);
	put_varint(&out, packet->count);
	fwrite(out.bytes, 1, out.count, file);
	fwrite(packet->bytes, 1, packet->count, file);
}

static void write_track(FILE *file, uint64_t uuid, uint64_t parent, const char *name, bool counter)
{
	struct message packet = {.count = 0}, track = {.count = 0};

	put_number(&track, TRACK_UUID, uuid);
	put_number(&track, TRACK_PARENT, parent);
	put_text(&track, TRACK_NAME, name);
	if (counter)
		put_bytes(&track, TRACK_COUNTER, "", 0);
	put_message(&packet, PACKET_TRACK, &track);
	write_packet(file, &packet);
}

void hs_perfetto_head(FILE *file, const struct hs_trace_head *head)
{
	struct message packet = {.count = 0}, track = {.count = 0}, process = {.count = 0};
	char name[64];

	memset(&told, 0, sizeof(told));
	snprintf(name, sizeof(name), "hisparse %s, %s clock", head->version, head->clock);
	put_number(&process, PROCESS_PID, (uint64_t)head->pid);
	put_text(&process, PROCESS_NAME, name);
	put_number(&track, TRACK_UUID, PROCESS_ROOT);
	put_message(&track, TRACK_PROCESS, &process);
	put_message(&packet, PACKET_TRACK, &track);
	put_number(&packet, PACKET_FLAGS, 1);
	write_packet(file, &packet);
	write_track(file, STEPS, PROCESS_ROOT, "steps", false);
	write_track(file, MISSES, PROCESS_ROOT, "misses", true);
	write_track(file, FETCHED, PROCESS_ROOT, "bytes fetched", true);
}

/* The stream's track; streams beyond the room share the last one. */
static unsigned track_of(FILE *file, const struct hs_trace_event *event)
{
	const uint64_t key = 1 + ((uint64_t)event->device << 32 | event->stream);
	char name[64];
	unsigned i = 0;

	while (i < TRACKS - 1 && told.stream[i] && told.stream[i] != key)
		i++;
	if (!told.stream[i]) {
		told.stream[i] = key;
		snprintf(name, sizeof(name), "device %u stream %u", event->device, event->stream);
		write_track(file, FIRST_STREAM + i, PROCESS_ROOT, name, false);
	}
	return i;
}

static void annotate(struct message *event, const char *name, uint64_t v)
{
	struct message annotation = {.count = 0};

	put_text(&annotation, ANNOTATION_NAME, name);
	put_number(&annotation, ANNOTATION_UINT, v);
	put_message(event, EVENT_ANNOTATION, &annotation);
}

static void annotate_text(struct message *event, const char *name, const char *text)
{
	struct message annotation = {.count = 0};

	put_text(&annotation, ANNOTATION_NAME, name);
	put_text(&annotation, ANNOTATION_STRING, text);
	put_message(event, EVENT_ANNOTATION, &annotation);
}

static void annotate_lead(struct message *event, const char *time, const char *kernels,
	const struct hs_trace_lead *lead)
{
	if (lead->known)
		annotate(event, time, lead->time), annotate(event, kernels, lead->kernels);
}

static void write_event(
	FILE *file, uint64_t time, struct message *event, unsigned type, uint64_t track)
{
	struct message packet = {.count = 0};

	put_number(event, EVENT_TYPE, type);
	put_number(event, EVENT_TRACK, track);
	put_number(&packet, PACKET_TIMESTAMP, time);
	put_message(&packet, PACKET_EVENT, event);
	write_packet(file, &packet);
}

static void write_end(FILE *file, uint64_t time, uint64_t track)
{
	struct message event = {.count = 0};

	write_event(file, time, &event, END, track);
}

static void write_counter(FILE *file, uint64_t time, uint64_t track, uint64_t v)
{
	struct message event = {.count = 0};

	put_number(&event, EVENT_COUNTER, v);
	write_event(file, time, &event, COUNTER, track);
}

void hs_perfetto_event(FILE *file, const struct hs_trace_event *e)
{
	struct message event = {.count = 0};
	const unsigned i = track_of(file, e);
	uint64_t start = e->name ? e->start : e->end, end = e->end;

	/* Slices of a track do not overlap; dependent launches may, a little. */
	if (start < told.end[i])
		start = told.end[i];
	if (end < start)
		end = start;
	told.end[i] = end;
	put_text(&event, EVENT_NAME, hs_trace_kinds[e->kind]);
	put_text(&event, EVENT_CATEGORY, "hisparse");
	if (e->name)
		annotate_text(&event, "kernel", e->name);
	if (e->layer >= 0)
		annotate(&event, "layer", (uint64_t)e->layer);
	if (e->step)
		annotate(&event, "step", e->step);
	if (e->node)
		annotate(&event, "graph", e->graph), annotate(&event, "node", e->node);
	if (e->counted) {
		annotate(&event, "hits", e->hits);
		annotate(&event, "misses", e->misses);
		annotate(&event, "inplace", e->inplace);
		annotate(&event, "bytes", e->bytes);
	}
	annotate_lead(&event, "topk_lead", "topk_kernels", &e->topk);
	annotate_lead(&event, "list_lead", "list_kernels", &e->list);
	if (e->stalled)
		annotate(&event, "stall", e->stall);
	write_event(file, start, &event, BEGIN, FIRST_STREAM + i);
	write_end(file, end, FIRST_STREAM + i);
	if (e->counted) {
		write_counter(file, end, MISSES, e->misses);
		write_counter(file, end, FETCHED, e->bytes);
	}
}

void hs_perfetto_step(FILE *file, const struct hs_trace_step *step)
{
	struct message event = {.count = 0};
	char name[32];

	snprintf(name, sizeof(name), "step %llu", (unsigned long long)step->step);
	put_text(&event, EVENT_NAME, name);
	put_text(&event, EVENT_CATEGORY, "hisparse");
	annotate(&event, "launches", step->launches);
	annotate(&event, "swap_in", step->swap_in);
	annotate(&event, "attention", step->attention);
	annotate(&event, "stall", step->stall);
	annotate(&event, "topk_lead", step->topk_lead);
	annotate(&event, "topk_hides", step->topk_hides);
	annotate(&event, "list_lead", step->list_lead);
	annotate(&event, "list_hides", step->list_hides);
	annotate(&event, "hits", step->hits);
	annotate(&event, "misses", step->misses);
	annotate(&event, "inplace", step->inplace);
	annotate(&event, "bytes", step->bytes);
	write_event(file, step->start, &event, BEGIN, STEPS);
	write_end(file, step->end, STEPS);
}

void hs_perfetto_tail(FILE *file, const struct hs_trace_tail *tail)
{
	(void)file;
	(void)tail;
}
