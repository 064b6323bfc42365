/* SPDX-License-Identifier: MIT */
#include "tools/bench/swapin_cell.h"

#include <stdlib.h>
#include "src/cache/layer.h"
#include "tools/bench/memory.h"

/* swapin.cu, compiled. */
extern const unsigned char swapin_image[];

int hs_swapin_device(void)
{
	CUcontext context;
	CUdevice device;

	if (!hs_driver_open())
		return -ENODEV;
	HS_TRY(hs_driver.cuInit(0));
	HS_TRY(hs_driver.cuDeviceGet(&device, 0));
	HS_TRY(hs_driver.cuDevicePrimaryCtxRetain(&context, device));
	HS_TRY(hs_driver.cuCtxSetCurrent(context));
	return 0;
}

int hs_swapin_alive(void)
{
	return hs_driver.cuCtxSynchronize() == CUDA_SUCCESS ? 0 : -EIO;
}

void hs_swapin_table(const struct hs_swapin *cell, int64_t *slots)
{
	hs_places_table(&cell->places, slots);
}

size_t hs_swapin_list_bytes(const struct hs_swapin *cell)
{
	return (size_t)cell->plan.trace->batch * cell->plan.trace->k * sizeof(int32_t);
}

size_t hs_swapin_lists_bytes(const struct hs_swapin *cell)
{
	return cell->plan.trace->layers * (3 * hs_swapin_list_bytes(cell) + sizeof(uint32_t));
}

static int open_device(struct hs_swapin *cell)
{
	const struct hs_swapin_plan *plan = &cell->plan;
	size_t list = hs_swapin_list_bytes(cell), lists = hs_swapin_lists_bytes(cell);
	CUdriverProcAddressQueryResult found;
	void *record = NULL;

	HS_TRY(hs_driver.cuStreamCreate(&cell->stream, CU_STREAM_NON_BLOCKING));
	HS_TRY(hs_driver.cuModuleLoadData(&cell->module, swapin_image));
	HS_TRY(hs_driver.cuModuleGetFunction(&cell->gather, cell->module, "hs_swapin_gather"));
	HS_TRY(hs_driver.cuModuleGetFunction(&cell->check, cell->module, "hs_swapin_check"));
	HS_TRY(hs_driver.cuModuleGetFunction(&cell->empty, cell->module, "hs_swapin_empty"));
	HS_TRY(hs_driver.cuModuleGetFunction(&cell->sweep, cell->module, "hs_swapin_sweep"));
	HS_TRY(hs_driver.cuMemAlloc_v2(&cell->lists, lists));
	HS_TRY(hs_driver.cuMemAlloc_v2(&cell->kept, plan->trace->layers * list));
	if (plan->ordered) {
		HS_TRY(hs_driver.cuMemAlloc_v2(&cell->ordered, plan->trace->layers * list));
		HS_TRY(hs_driver.cuMemHostAlloc((void **)&cell->sorted, plan->trace->layers * list,
			CU_MEMHOSTALLOC_PORTABLE));
	}
	HS_TRY(hs_driver.cuMemHostAlloc((void **)&cell->host, lists, CU_MEMHOSTALLOC_PORTABLE));
	HS_TRY(hs_driver.cuMemAlloc_v2(&cell->staging, list / sizeof(int32_t) * plan->row));
	HS_TRY(hs_driver.cuMemAlloc_v2(&cell->flush, plan->flush));
	HS_TRY(hs_driver.cuMemsetD32Async(
		cell->flush, 0, plan->flush / sizeof(uint32_t), cell->stream));
	HS_TRY(hs_driver.cuMemAlloc_v2(&cell->result, HS_SWAPIN_RESULTS * sizeof(uint32_t)));
	for (uint32_t side = 0; side < HS_SWAPIN_SIDES; side++)
		HS_TRY(hs_driver.cuEventCreate(&cell->ends[side], CU_EVENT_DEFAULT));
	if (hs_driver.cuGetProcAddress_v2("cuEventRecordWithFlags", &record, 11010, 0, &found) ==
		CUDA_SUCCESS)
		cell->record = (record_with_flags *)record;
	return 0;
}

static int open_layer(struct hs_swapin *cell, uint32_t index)
{
	const struct hs_swapin_plan *plan = &cell->plan;
	struct hs_swapin_layer *layer = &cell->layers[index];
	uint64_t bytes = (cell->places.slot_count * plan->row + HS_GRANULE - 1) & ~(HS_GRANULE - 1);
	uint64_t layers = plan->trace->layers, list = hs_swapin_list_bytes(cell), spread = 0;
	/* Windows may overlap; those that begin at one address would be one layer. */
	uint64_t least = bytes + (layers - 1) * HS_GRANULE;
	struct hs_window *window;

	if (least > plan->rows.bytes) {
		fprintf(stderr, "swapin: %llu layers need a pool of %llu MiB\n",
			(unsigned long long)layers, (unsigned long long)(least >> 20));
		return -ENOSPC;
	}
	if (layers > 1)
		spread = (plan->rows.bytes - bytes) / (layers - 1) & ~(HS_GRANULE - 1);
	layer->window = (CUdeviceptr)(uintptr_t)plan->rows.start + index * spread;
	layer->positions = cell->lists + index * 3 * list;
	layer->slots = layer->positions + list;
	layer->missed = layer->slots + list;
	layer->kept = cell->kept + index * list;
	layer->ordered = cell->ordered ? cell->ordered + index * list : 0;
	layer->missed_count = cell->lists + layers * 3 * list + index * sizeof(uint32_t);
	for (uint32_t side = 0; side < HS_SWAPIN_SIDES; side++)
		for (uint32_t edge = 0; edge < 2; edge++)
			HS_TRY(hs_driver.cuEventCreate(
				&layer->marks[side][edge], CU_EVENT_DEFAULT));
	window = hs_bench_window(
		layer->window, bytes, plan->row, plan->rows.kind == HS_ROWS_MANAGED);
	layer->layer = window ? hs_layer_find(window, layer->window, plan->row, true) : NULL;
	return layer->layer ? 0 : -ENOSPC;
}

int hs_swapin_open(struct hs_swapin **out, const struct hs_swapin_plan *plan)
{
	const struct hs_dsat *trace = plan->trace;
	size_t lists = (size_t)trace->layers * trace->batch;
	struct hs_swapin *cell;
	int error;

	if (!plan->row || plan->row % 16 || !plan->flush || plan->padding > trace->batch)
		return -EINVAL;
	cell = calloc(1, sizeof(*cell));
	if (!cell)
		return -ENOMEM;
	cell->plan = *plan;
	cell->step = UINT32_MAX;
	cell->layers = calloc(trace->layers, sizeof(*cell->layers));
	cell->offsets = malloc(lists * sizeof(*cell->offsets));
	error = cell->layers && cell->offsets ? 0 : -ENOMEM;
	if (!error)
		error = hs_places_init(
			&cell->places, trace->batch, trace->ctx, plan->row, plan->seed);
	if (!error)
		error = hs_bench_memory_open(
			plan->own, plan->hot * (trace->batch - plan->padding), (int)plan->policy);
	if (!error)
		error = hs_cache_ready();
	if (!error)
		error = open_device(cell);
	for (uint32_t i = 0; i < trace->layers && !error; i++)
		error = open_layer(cell, i);
	if (error) {
		hs_swapin_close(cell);
		return error;
	}
	if (!plan->resident)
		hs_cache_settle();
	*out = cell;
	return 0;
}

static void forget(struct hs_window *window, void *data)
{
	(void)data;
	hs_cache_forget(window);
}

void hs_swapin_close(struct hs_swapin *cell)
{
	hs_driver.cuCtxSynchronize();
	hs_window_each(forget, NULL);
	for (uint32_t side = 0; side < HS_SWAPIN_SIDES; side++) {
		if (cell->graphs[side])
			hs_driver.cuGraphExecDestroy(cell->graphs[side]);
		if (cell->ends[side])
			hs_driver.cuEventDestroy_v2(cell->ends[side]);
		for (uint32_t i = 0; cell->layers && i < cell->plan.trace->layers; i++)
			for (uint32_t edge = 0; edge < 2; edge++)
				if (cell->layers[i].marks[side][edge])
					hs_driver.cuEventDestroy_v2(
						cell->layers[i].marks[side][edge]);
	}
	hs_driver.cuMemFree_v2(cell->lists);
	hs_driver.cuMemFree_v2(cell->kept);
	hs_driver.cuMemFree_v2(cell->ordered);
	hs_driver.cuMemFree_v2(cell->staging);
	hs_driver.cuMemFree_v2(cell->flush);
	hs_driver.cuMemFree_v2(cell->result);
	if (cell->host)
		hs_driver.cuMemFreeHost(cell->host);
	if (cell->sorted)
		hs_driver.cuMemFreeHost(cell->sorted);
	if (cell->module)
		hs_driver.cuModuleUnload(cell->module);
	if (cell->stream)
		hs_driver.cuStreamDestroy_v2(cell->stream);
	hs_bench_memory_close();
	free(cell->layers);
	free(cell->offsets);
	hs_places_finish(&cell->places);
	free(cell);
}

int hs_swapin_view(struct hs_swapin *cell, uint32_t layer, struct hs_swapin_view *view)
{
	const struct hs_swapin_plan *plan = &cell->plan;
	uint64_t window;

	if (layer >= plan->trace->layers)
		return -EINVAL;
	window = cell->layers[layer].window;
	if (plan->beside)
		window += (uint64_t)(uintptr_t)plan->beside - (uint64_t)(uintptr_t)plan->rows.start;
	*view = (struct hs_swapin_view){cell->layers[layer].positions, cell->layers[layer].slots,
		window, (uint64_t)(uintptr_t)cell->stream, cell->places.slot_count,
		cell->layers[layer].layer->any_order};
	return 0;
}

int hs_swapin_launch(struct hs_swapin *cell, CUfunction kernel, unsigned blocks, unsigned threads,
	void *arguments)
{
	void *params[] = {arguments};

	HS_TRY(hs_driver.cuLaunchKernel(
		kernel, blocks, 1, 1, threads, 1, 1, 0, cell->stream, params, NULL));
	return 0;
}
