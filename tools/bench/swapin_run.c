/* SPDX-License-Identifier: MIT */
#include "tools/bench/swapin_cell.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "src/cache/device.h"
#include "src/cache/layer.h"
#include "tools/bench/workers.h"

int hs_swapin_begin(struct hs_swapin *cell)
{
	HS_TRY(hs_driver.cuStreamBeginCapture_v2(cell->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	return 0;
}

static int record_event(struct hs_swapin *cell, CUevent event)
{
	if (cell->record)
		HS_TRY(cell->record(event, cell->stream,
			cell->plan.eager ? CU_EVENT_RECORD_DEFAULT : CU_EVENT_RECORD_EXTERNAL));
	return 0;
}

static int flush(struct hs_swapin *cell)
{
	struct hs_swapin_sweep_args sweep = {(const void *)(uintptr_t)cell->flush, cell->plan.flush,
		(uint32_t *)(uintptr_t)cell->result};

	if (cell->plan.reads)
		return hs_swapin_launch(
			cell, cell->sweep, HS_SWAPIN_BLOCKS, HS_SWAPIN_THREADS, &sweep);
	HS_TRY(hs_driver.cuMemsetD32Async(
		cell->flush, 0, cell->plan.flush / sizeof(uint32_t), cell->stream));
	return 0;
}

int hs_swapin_mark(struct hs_swapin *cell, uint32_t side, uint32_t layer, uint32_t edge)
{
	if (edge == 0 && flush(cell))
		return -EIO;
	return record_event(cell, cell->layers[layer].marks[side][edge]);
}

int hs_swapin_end(struct hs_swapin *cell, uint32_t side)
{
	CUgraph graph;
	CUresult result;
	int error = record_event(cell, cell->ends[side]);

	if (error)
		return error;
	HS_TRY(hs_driver.cuStreamEndCapture(cell->stream, &graph));
	result = hs_driver.cuGraphInstantiateWithFlags(&cell->graphs[side], graph, 0);
	hs_driver.cuGraphDestroy(graph);
	HS_TRY(result);
	return 0;
}

static int resolve(struct hs_swapin *cell, struct hs_swapin_layer *layer,
	const struct hs_site *site, CUdeviceptr *remapped)
{
	struct hs_list list = {.indices = layer->slots,
		.outer = cell->plan.trace->batch,
		.inner = 1,
		.k = cell->plan.trace->k,
		.outer_stride = cell->plan.trace->k,
		.inner_stride = cell->plan.trace->k};

	return hs_cache_resolve(layer->layer, &list, site, remapped);
}

static int call(struct hs_swapin *cell, uint32_t side, uint32_t index, const struct hs_site *site)
{
	struct hs_swapin_layer *layer = &cell->layers[index];
	struct hs_swapin_empty_args nothing = {0};
	struct hs_swapin_gather_args gather = {.window = (const void *)(uintptr_t)layer->window,
		.out = (void *)(uintptr_t)cell->staging,
		.slots = (const int32_t *)(uintptr_t)layer->missed,
		.count = (const uint32_t *)(uintptr_t)layer->missed_count,
		.row = cell->plan.row};

	switch (side) {
	case HS_SWAPIN_OURS:
		return resolve(cell, layer, site, &layer->remapped);
	case HS_SWAPIN_ORDERED:
		if (!layer->ordered)
			return -EINVAL;
		gather.slots = (const int32_t *)(uintptr_t)layer->ordered;
		/* fall through */
	case HS_SWAPIN_GATHER:
		return hs_swapin_launch(
			cell, cell->gather, HS_SWAPIN_BLOCKS, HS_SWAPIN_THREADS, &gather);
	case HS_SWAPIN_EMPTY:
		return hs_swapin_launch(cell, cell->empty, 1, 32, &nothing);
	}
	return -EINVAL;
}

/* An eager call's list lies where the next layer's will; what looks at it later
 * needs its own. */
static int keep(struct hs_swapin *cell, struct hs_swapin_layer *layer)
{
	HS_TRY(hs_driver.cuMemcpyDtoDAsync_v2(
		layer->kept, layer->remapped, hs_swapin_list_bytes(cell), cell->stream));
	layer->remapped = layer->kept;
	return 0;
}

static int calls(struct hs_swapin *cell, uint32_t side, const struct hs_site *site)
{
	int error = 0;

	for (uint32_t i = 0; i < cell->plan.trace->layers && !error; i++) {
		error = hs_swapin_mark(cell, side, i, 0);
		if (!error)
			error = call(cell, side, i, site);
		if (!error)
			error = hs_swapin_mark(cell, side, i, 1);
		if (!error && side == HS_SWAPIN_OURS && cell->plan.eager)
			error = keep(cell, &cell->layers[i]);
		if (!error && side == HS_SWAPIN_OURS)
			hs_cache_attended(cell->layers[i].layer, site);
	}
	return error;
}

int hs_swapin_record(struct hs_swapin *cell, uint32_t side)
{
	struct hs_site site = {.stream = cell->stream, .capturing = true};
	CUstreamCaptureStatus status;
	cuuint64_t id = 0;
	int error;

	if (cell->plan.eager)
		return 0;
	error = hs_swapin_begin(cell);
	if (error)
		return error;
	if (hs_driver.cuStreamGetCaptureInfo_v2(cell->stream, &status, &id, NULL, NULL, NULL) !=
		CUDA_SUCCESS)
		error = -EIO;
	site.capture_id = id;
	if (!error)
		error = calls(cell, side, &site);
	if (side == HS_SWAPIN_OURS)
		hs_cache_capture_end(&site);
	if (error) {
		CUgraph graph = NULL;

		hs_driver.cuStreamEndCapture(cell->stream, &graph);
		if (graph)
			hs_driver.cuGraphDestroy(graph);
		return error;
	}
	return hs_swapin_end(cell, side);
}

static bool padded(const struct hs_swapin *cell, uint32_t which)
{
	uint32_t batch = cell->plan.trace->batch;

	return which % batch >= batch - cell->plan.padding;
}

uint32_t hs_swapin_missed(const struct hs_swapin *cell, uint32_t step, uint32_t which)
{
	const struct hs_dsat *trace = cell->plan.trace;

	if (padded(cell, which))
		return 0;
	return cell->plan.misses[(size_t)step * trace->layers * trace->batch + which];
}

static void load_list(void *data, uint32_t which)
{
	struct hs_swapin *cell = data;
	const struct hs_dsat *trace = cell->plan.trace;
	uint32_t layer = which / trace->batch, request = which % trace->batch, k = trace->k;
	size_t list = (size_t)cell->step * trace->layers * trace->batch + which;
	const int32_t *positions = trace->positions + list * k;
	const int32_t *missed = cell->plan.missed + list * k;
	int32_t *to = cell->host + (size_t)layer * 3 * trace->batch * k;
	int32_t *slots = to + ((size_t)trace->batch + request) * k;
	int32_t *absent = to + 2 * (size_t)trace->batch * k + cell->offsets[which];

	memcpy(to + (size_t)request * k, positions, k * sizeof(*positions));
	for (uint32_t i = 0; i < k; i++)
		slots[i] = padded(cell, which)
				   ? -1
				   : hs_places_slot(&cell->places, request, positions[i]);
	for (uint32_t i = 0; i < hs_swapin_missed(cell, cell->step, which); i++)
		absent[i] = hs_places_slot(&cell->places, request, missed[i]);
}

static int by_slot(const void *a, const void *b)
{
	int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;

	return (left > right) - (left < right);
}

/* Slots of one window: their order is the order of their addresses. */
static void sort_layer(void *data, uint32_t layer)
{
	struct hs_swapin *cell = data;
	const struct hs_dsat *trace = cell->plan.trace;
	size_t entries = (size_t)trace->batch * trace->k;
	const int32_t *counts = cell->host + 3 * trace->layers * entries;
	int32_t *to = cell->sorted + layer * entries;
	size_t count = (size_t)counts[layer];

	memcpy(to, cell->host + (3 * (size_t)layer + 2) * entries, count * sizeof(*to));
	qsort(to, count, sizeof(*to), by_slot);
}

int hs_swapin_load(struct hs_swapin *cell, uint32_t step)
{
	const struct hs_dsat *trace = cell->plan.trace;
	uint32_t lists = trace->layers * trace->batch;
	int32_t *counts = cell->host + (size_t)3 * lists * trace->k;

	if (step >= trace->steps)
		return -EINVAL;
	cell->step = step;
	for (uint32_t i = 0, sum = 0; i < lists; i++) {
		sum = i % trace->batch ? sum : 0;
		cell->offsets[i] = sum;
		sum += hs_swapin_missed(cell, step, i);
		counts[i / trace->batch] = (int32_t)sum;
	}
	hs_workers_run(lists, load_list, cell);
	HS_TRY(hs_driver.cuMemcpyHtoDAsync_v2(
		cell->lists, cell->host, hs_swapin_lists_bytes(cell), cell->stream));
	if (cell->sorted) {
		hs_workers_run(trace->layers, sort_layer, cell);
		HS_TRY(hs_driver.cuMemcpyHtoDAsync_v2(cell->ordered, cell->sorted,
			trace->layers * hs_swapin_list_bytes(cell), cell->stream));
	}
	HS_TRY(hs_driver.cuStreamSynchronize(cell->stream));
	return 0;
}

static int elapsed(const struct hs_swapin *cell, CUevent from, CUevent to, float *us)
{
	float ms = -1e-3f;

	if (cell->record)
		HS_TRY(hs_driver.cuEventElapsedTime(&ms, from, to));
	*us = ms * 1e3f;
	return 0;
}

int hs_swapin_replay(struct hs_swapin *cell, uint32_t side, float *us)
{
	struct hs_site site = {.stream = cell->stream};
	uint32_t layers = cell->plan.trace->layers;
	int error = 0;

	if (side < HS_SWAPIN_SIDES && cell->graphs[side])
		HS_TRY(hs_driver.cuGraphLaunch(cell->graphs[side], cell->stream));
	else if (cell->plan.eager)
		error = calls(cell, side, &site);
	else
		error = -EINVAL;
	if (!error && !cell->graphs[side])
		error = record_event(cell, cell->ends[side]);
	if (error)
		return error;
	HS_TRY(hs_driver.cuStreamSynchronize(cell->stream));
	for (uint32_t i = 0; i < layers && !error; i++)
		error = elapsed(cell, cell->layers[i].marks[side][0],
			cell->layers[i].marks[side][1], us + i);
	if (!error)
		error = elapsed(
			cell, cell->layers[0].marks[side][0], cell->ends[side], us + layers);
	return error;
}

int hs_swapin_counts(struct hs_swapin *cell, struct hs_cache_counts *counts)
{
	uint64_t totals[HS_COUNTS], misses = 0;
	struct hs_device *device = NULL;

	HS_TRY(hs_driver.cuStreamSynchronize(cell->stream));
	hs_cache_read(NULL, counts);
	/* The host is told late, and by a variant that does not count, not at all. */
	for (uint32_t i = 0; i < cell->plan.trace->layers; i++) {
		const struct hs_layer *layer = cell->layers[i].layer;

		device = hs_device_get(layer->device);
		if (!device)
			return -ENODEV;
		HS_TRY(hs_driver.cuMemcpyDtoH_v2(totals,
			hs_device_entry(device, layer->id) + offsetof(struct hs_entry, totals),
			sizeof(totals)));
		misses += totals[HS_COUNT_MISSES];
	}
	counts->misses = misses;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

/* Every 32 calls the queue is drained, or the launches would wait for it. */
static int host_call(struct hs_swapin *cell, uint32_t i, bool empty, uint64_t *ns)
{
	struct hs_swapin_layer *layer = &cell->layers[i % cell->plan.trace->layers];
	struct hs_site site = {.stream = cell->stream};
	struct hs_swapin_empty_args nothing = {0};
	struct timespec before, after;
	CUdeviceptr remapped;
	int error;

	if (i % 32 == 0)
		hs_driver.cuStreamSynchronize(cell->stream);
	clock_gettime(CLOCK_MONOTONIC, &before);
	error = empty ? hs_swapin_launch(cell, cell->empty, 1, 32, &nothing)
		      : resolve(cell, layer, &site, &remapped);
	clock_gettime(CLOCK_MONOTONIC, &after);
	if (!error && !empty)
		hs_cache_attended(layer->layer, &site);
	*ns = (uint64_t)(after.tv_sec - before.tv_sec) * 1000000000u + (uint64_t)after.tv_nsec -
	      (uint64_t)before.tv_nsec;
	return error;
}

int hs_swapin_host(struct hs_swapin *cell, uint32_t calls, bool empty, double *ns)
{
	uint64_t *times = malloc(calls * sizeof(*times));
	int error = times && calls ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < calls && !error; i++)
		error = host_call(cell, i, empty, times + i);
	hs_driver.cuStreamSynchronize(cell->stream);
	if (!error) {
		qsort(times, calls, sizeof(*times), by_value);
		*ns = (double)times[calls / 2];
	}
	free(times);
	return error;
}
