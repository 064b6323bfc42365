/* SPDX-License-Identifier: MIT */
#include "src/trace/export.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "src/trace/perfetto.h"

const char *const hs_trace_kinds[] = {
	[HS_TRACE_SWAP_IN] = "swap-in",
	[HS_TRACE_STAGE] = "stage",
	[HS_TRACE_INVALIDATE] = "invalidate",
	[HS_TRACE_DROP] = "drop",
	[HS_TRACE_RELEASE] = "release",
	[HS_TRACE_VERIFY] = "verify",
	[HS_TRACE_TOPK] = "topk",
	[HS_TRACE_LIST] = "list",
	[HS_TRACE_WRITER] = "writer",
	[HS_TRACE_ATTENTION] = "attention",
	[HS_TRACE_COMBINE] = "combine",
	[HS_TRACE_READER] = "reader",
	[HS_TRACE_OTHER] = "other",
};

struct form {
	const char *end;
	void (*head)(FILE *file, const struct hs_trace_head *head);
	void (*event)(FILE *file, const struct hs_trace_event *event);
	void (*step)(FILE *file, const struct hs_trace_step *step);
	void (*tail)(FILE *file, const struct hs_trace_tail *tail);
};

struct hs_export {
	FILE *file;
	const struct form *form;
};

/* A JSON string, with its quotes. */
static void put_text(FILE *file, const char *text)
{
	fputc('"', file);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fprintf(file, "\\%c", *text);
		else if ((unsigned char)*text < ' ')
			fprintf(file, "\\u%04x", (unsigned)*text);
		else
			fputc(*text, file);
	}
	fputc('"', file);
}

static void put_counts(FILE *file, uint64_t hits, uint64_t misses, uint64_t inplace, uint64_t bytes)
{
	fprintf(file,
		"\"hits\":%" PRIu64 ",\"misses\":%" PRIu64 ",\"inplace\":%" PRIu64
		",\"bytes\":%" PRIu64,
		hits, misses, inplace, bytes);
}

static void put_lead(FILE *file, const char *of, const struct hs_trace_lead *lead)
{
	if (lead->known)
		fprintf(file, ",\"%s_lead\":%" PRIu64 ",\"%s_kernels\":%" PRIu32, of, lead->time,
			of, lead->kernels);
}

/* Layer, step and what only some events have: ',"layer":…'. */
static void put_details(FILE *file, const struct hs_trace_event *event)
{
	if (event->layer >= 0)
		fprintf(file, ",\"layer\":%" PRId32, event->layer);
	if (event->step)
		fprintf(file, ",\"step\":%" PRIu64, event->step);
	if (event->node)
		fprintf(file, ",\"graph\":%" PRIu32 ",\"node\":%" PRIu64, event->graph,
			event->node);
	if (event->counted) {
		fputc(',', file);
		put_counts(file, event->hits, event->misses, event->inplace, event->bytes);
	}
	put_lead(file, "topk", &event->topk);
	put_lead(file, "list", &event->list);
	if (event->stalled)
		fprintf(file, ",\"stall\":%" PRIu64, event->stall);
}

static void lines_head(FILE *file, const struct hs_trace_head *head)
{
	fprintf(file, "{\"type\":\"head\",\"version\":\"%s\",\"pid\":%d,\"clock\":\"%s\"",
		head->version, head->pid, head->clock);
	if (head->why) {
		fprintf(file, ",\"why\":");
		put_text(file, head->why);
	}
	fprintf(file, "}\n");
}

static void lines_event(FILE *file, const struct hs_trace_event *event)
{
	fprintf(file, "{\"type\":\"kernel\",\"kind\":\"%s\",\"device\":%" PRIu32,
		hs_trace_kinds[event->kind], event->device);
	if (event->name) {
		fprintf(file, ",\"name\":");
		put_text(file, event->name);
		fprintf(file, ",\"stream\":%" PRIu32 ",\"start\":%" PRIu64, event->stream,
			event->start);
	}
	fprintf(file, ",\"end\":%" PRIu64, event->end);
	put_details(file, event);
	fprintf(file, "}\n");
}

static void put_step(FILE *file, const struct hs_trace_step *step)
{
	fprintf(file,
		"\"step\":%" PRIu64 ",\"device\":%" PRIu32 ",\"launches\":%" PRIu32
		",\"swap_in\":%" PRIu64 ",\"attention\":%" PRIu64 ",\"stall\":%" PRIu64
		",\"topk_lead\":%" PRIu64 ",\"topk_hides\":%" PRIu64 ",\"list_lead\":%" PRIu64
		",\"list_hides\":%" PRIu64 ",",
		step->step, step->device, step->launches, step->swap_in, step->attention,
		step->stall, step->topk_lead, step->topk_hides, step->list_lead, step->list_hides);
	put_counts(file, step->hits, step->misses, step->inplace, step->bytes);
}

static void lines_step(FILE *file, const struct hs_trace_step *step)
{
	fprintf(file, "{\"type\":\"step\",\"start\":%" PRIu64 ",\"end\":%" PRIu64 ",", step->start,
		step->end);
	put_step(file, step);
	fprintf(file, "}\n");
}

static void put_tail(FILE *file, const struct hs_trace_tail *tail)
{
	fprintf(file,
		"\"lost_kernels\":%" PRIu64 ",\"lost_launches\":%" PRIu64 ",\"unmatched\":%" PRIu64,
		tail->lost_kernels, tail->lost_launches, tail->unmatched);
}

static void lines_tail(FILE *file, const struct hs_trace_tail *tail)
{
	fprintf(file, "{\"type\":\"end\",");
	put_tail(file, tail);
	fprintf(file, "}\n");
}

/* Chrome's: complete events in µs; a process a device, a thread a stream. */
static void chrome_head(FILE *file, const struct hs_trace_head *head)
{
	fprintf(file,
		"{\"displayTimeUnit\":\"ns\",\"otherData\":{\"version\":\"%s\",\"clock\":\"%s\"},"
		"\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"args\":{"
		"\"name\":\"hisparse %d\"}}",
		head->version, head->clock, head->pid);
}

static void chrome_span(FILE *file, uint32_t device, uint64_t start, uint64_t end)
{
	fprintf(file,
		",\"ph\":\"X\",\"pid\":%" PRIu32 ",\"ts\":%" PRIu64 ".%03" PRIu64
		",\"dur\":%" PRIu64 ".%03" PRIu64,
		device, start / 1000, start % 1000, (end - start) / 1000, (end - start) % 1000);
}

static void chrome_event(FILE *file, const struct hs_trace_event *event)
{
	fprintf(file, ",\n{\"name\":\"%s\"", hs_trace_kinds[event->kind]);
	chrome_span(file, event->device, event->name ? event->start : event->end, event->end);
	fprintf(file, ",\"tid\":%" PRIu32 ",\"args\":{\"kernel\":", event->stream);
	put_text(file, event->name ? event->name : "");
	put_details(file, event);
	fprintf(file, "}}");
}

static void chrome_step(FILE *file, const struct hs_trace_step *step)
{
	fprintf(file, ",\n{\"name\":\"step %" PRIu64 "\"", step->step);
	chrome_span(file, step->device, step->start, step->end);
	fprintf(file, ",\"tid\":\"steps\",\"args\":{");
	put_step(file, step);
	fprintf(file, "}}");
}

static void chrome_tail(FILE *file, const struct hs_trace_tail *tail)
{
	fprintf(file, "\n],\"hisparse\":{");
	put_tail(file, tail);
	fprintf(file, "}}\n");
}

static const struct form forms[] = {
	{".jsonl", lines_head, lines_event, lines_step, lines_tail},
	{".json", chrome_head, chrome_event, chrome_step, chrome_tail},
	{".pftrace", hs_perfetto_head, hs_perfetto_event, hs_perfetto_step, hs_perfetto_tail},
};

static const struct form *find(const char *path)
{
	const char *dot = strrchr(path, '.');

	for (size_t i = 0; dot && i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (!strcmp(dot, forms[i].end))
			return &forms[i];
	}
	return NULL;
}

bool hs_export_knows(const char *path)
{
	return find(path);
}

int hs_export_create(struct hs_export **out, const char *path, const struct hs_trace_head *head)
{
	const struct form *form = find(path);
	struct hs_export *export;
	int error;

	if (!form)
		return -EINVAL;
	export = calloc(1, sizeof(*export));
	if (!export)
		return -ENOMEM;
	export->form = form;
	export->file = fopen(path, "we");
	if (!export->file) {
		error = -errno;
		free(export);
		return error;
	}
	form->head(export->file, head);
	*out = export;
	return 0;
}

void hs_export_event(struct hs_export *export, const struct hs_trace_event *event)
{
	export->form->event(export->file, event);
}

void hs_export_step(struct hs_export *export, const struct hs_trace_step *step)
{
	export->form->step(export->file, step);
}

void hs_export_flush(struct hs_export *export)
{
	fflush(export->file);
}

int hs_export_close(struct hs_export *export, const struct hs_trace_tail *tail)
{
	bool failed;

	export->form->tail(export->file, tail);
	failed = ferror(export->file);
	errno = 0;
	failed |= fclose(export->file) != 0;
	free(export);
	return failed ? -(errno ? errno : EIO) : 0;
}
