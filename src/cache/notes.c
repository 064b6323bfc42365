/* SPDX-License-Identifier: MIT */
#include "src/cache/notes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define NODES 8192  /* of one capture: with more, nothing rests in its graph */
#define FIELDS 4096 /* of them all */
#define OPEN 16	    /* captures at a time */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct hs_notes *opened[OPEN];
static unsigned next;
static atomic_bool any; /* was ever opened */

static CUresult ask(
	CUstream stream, bool per_thread, cuuint64_t *id, const CUgraphNode **after, size_t *count)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const CUresult result = (per_thread ? hs_driver.cuStreamGetCaptureInfo_v2_ptsz
					    : hs_driver.cuStreamGetCaptureInfo_v2)(
		stream, &status, id, NULL, after, count);

	return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_ACTIVE
		       ? CUDA_ERROR_ILLEGAL_STATE
		       : result;
}

void hs_notes_free(struct hs_notes *notes)
{
	if (!notes)
		return;
	free(notes->list);
	free(notes->fields);
	free(notes->params);
	free(notes);
}

void hs_notes_begin(CUstream stream, bool per_thread)
{
	struct hs_notes *notes = calloc(1, sizeof(*notes)), *old;

	if (!notes)
		return;
	notes->list = malloc(NODES * sizeof(*notes->list));
	notes->fields = malloc(FIELDS * sizeof(*notes->fields));
	if (!notes->list || !notes->fields ||
		ask(stream, per_thread, &notes->capture, NULL, NULL) != CUDA_SUCCESS ||
		!notes->capture || hs_driver.cuCtxGetCurrent(&notes->context) != CUDA_SUCCESS) {
		hs_notes_free(notes);
		return;
	}
	pthread_mutex_lock(&lock);
	/* The oldest may have been left without an end. */
	old = opened[next % OPEN];
	opened[next++ % OPEN] = notes;
	atomic_store_explicit(&any, true, memory_order_relaxed);
	pthread_mutex_unlock(&lock);
	hs_notes_free(old);
}

static struct hs_notes **find(cuuint64_t capture)
{
	for (unsigned i = 0; i < OPEN; i++)
		if (opened[i] && opened[i]->capture == capture)
			return &opened[i];
	return NULL;
}

static bool add(struct hs_notes *notes, CUgraphNode node, const struct hs_notes_launch *launch)
{
	struct hs_note *note = &notes->list[notes->count];

	if (notes->count == NODES || notes->nfields + HS_NOTES_FIELDS > FIELDS ||
		(launch && (!launch->count || !launch->params || launch->params > HS_NOTES_PARAMS)))
		return false;
	*note = (struct hs_note){.node = node, .first = notes->nfields};
	if (launch) {
		note->params = (uint16_t)launch->params;
		note->count = (uint16_t)launch->count;
		for (unsigned i = 0; i < launch->count; i++)
			notes->fields[notes->nfields++] = launch->fields[i];
		notes->theirs++;
	}
	notes->count++;
	return true;
}

/* What a stream's next node comes after is the last one, alone. */
void hs_notes_add(const struct hs_site *site, const struct hs_notes_launch *launch)
{
	const CUgraphNode *after = NULL;
	struct hs_notes **found;
	cuuint64_t id = 0;
	size_t count = 0;

	if (!site->capturing || !atomic_load_explicit(&any, memory_order_relaxed))
		return;
	pthread_mutex_lock(&lock);
	found = find(site->capture_id);
	if (found &&
		(ask(site->stream, site->per_thread, &id, &after, &count) != CUDA_SUCCESS ||
			id != site->capture_id || count != 1 || !add(*found, after[0], launch)))
		(*found)->spoilt = true;
	pthread_mutex_unlock(&lock);
}

/* In order and to their size, with what the engine's nodes have. */
static bool finish(struct hs_notes *notes)
{
	unsigned at[2] = {0, notes->theirs};
	struct hs_note *list;
	struct hs_notes_field *fields;

	if (notes->spoilt || notes->count == notes->theirs)
		return false;
	list = malloc(notes->count * sizeof(*list));
	if (!list)
		return false;
	for (unsigned i = 0; i < notes->count; i++)
		list[at[!notes->list[i].count]++] = notes->list[i];
	free(notes->list);
	notes->list = list;
	fields = realloc(notes->fields, (notes->nfields + 1) * sizeof(*fields));
	notes->fields = fields ? fields : notes->fields;
	notes->params = calloc(notes->theirs + 1, sizeof(*notes->params));
	for (unsigned i = 0; notes->params && i < notes->theirs; i++)
		if (hs_driver.cuGraphKernelNodeGetParams_v2(list[i].node, &notes->params[i]) !=
				CUDA_SUCCESS ||
			!notes->params[i].kernelParams)
			return false;
	return notes->params != NULL;
}

struct hs_notes *hs_notes_end(cuuint64_t capture, bool keep)
{
	struct hs_notes *notes = NULL, **found;

	if (!atomic_load_explicit(&any, memory_order_relaxed))
		return NULL;
	pthread_mutex_lock(&lock);
	found = find(capture);
	if (found) {
		notes = *found;
		*found = NULL;
	}
	pthread_mutex_unlock(&lock);
	if (notes && keep && finish(notes))
		return notes;
	hs_notes_free(notes);
	return NULL;
}
