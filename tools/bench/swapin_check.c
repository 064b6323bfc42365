/* SPDX-License-Identifier: MIT */
#include "tools/bench/swapin_cell.h"

#include "tools/bench/memory.h"

static int check(
	struct hs_swapin *cell, uint32_t layer, struct hs_swapin_check_args *args, uint32_t *result)
{
	const struct hs_dsat *trace = cell->plan.trace;
	uint64_t start = (uint64_t)(uintptr_t)cell->plan.rows.start;
	int error;

	if (!args->slots) {
		args->slots = (const int32_t *)(uintptr_t)cell->layers[layer].slots;
		args->count = trace->batch * trace->k;
	}
	args->word = (cell->layers[layer].window - start) / sizeof(uint64_t);
	args->row = cell->plan.row;
	args->result = (uint32_t *)(uintptr_t)cell->result;
	HS_TRY(hs_driver.cuMemsetD8_v2(cell->result, 0, HS_SWAPIN_RESULTS * sizeof(uint32_t)));
	error = hs_swapin_launch(cell, cell->check, HS_SWAPIN_BLOCKS, HS_SWAPIN_THREADS, args);
	if (error)
		return error;
	HS_TRY(hs_driver.cuStreamSynchronize(cell->stream));
	HS_TRY(hs_driver.cuMemcpyDtoH_v2(
		result, cell->result, HS_SWAPIN_RESULTS * sizeof(uint32_t)));
	return 0;
}

int hs_swapin_check_gather(struct hs_swapin *cell, uint32_t *result)
{
	const struct hs_dsat *trace = cell->plan.trace;
	uint32_t layer = trace->layers - 1, last = trace->layers * trace->batch - 1;
	struct hs_swapin_check_args args = {.base = cell->staging,
		.slots = (const int32_t *)(uintptr_t)cell->layers[layer].missed};

	args.count = cell->offsets[last] + hs_swapin_missed(cell, cell->step, last);
	args.hot_count = args.count;
	return check(cell, layer, &args, result);
}

int hs_swapin_check(struct hs_swapin *cell, uint32_t layer, uint32_t *result)
{
	struct hs_swapin_check_args args = {
		.indices = (const int32_t *)(uintptr_t)cell->layers[layer].remapped,
		.base = cell->layers[layer].window,
		.in_place = 1};

	hs_bench_hot(args.base, cell->plan.row, &args.hot_low, &args.hot_count);
	return check(cell, layer, &args, result);
}

int hs_swapin_check_other(struct hs_swapin *cell, uint32_t layer, uint64_t indices, uint64_t base,
	uint32_t count, uint32_t *result)
{
	struct hs_swapin_check_args args = {
		.indices = (const int32_t *)(uintptr_t)indices, .base = base, .hot_count = count};

	return check(cell, layer, &args, result);
}
