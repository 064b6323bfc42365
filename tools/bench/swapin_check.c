/* SPDX-License-Identifier: MIT */
#include "tools/bench/swapin_cell.h"

#include "tools/bench/memory.h"

static int clear(struct hs_swapin *cell)
{
	HS_TRY(hs_driver.cuMemsetD32Async(cell->result, 0, HS_SWAPIN_RESULTS, cell->stream));
	return 0;
}

/* Adds one layer's entries to the sums. */
static int enqueue(struct hs_swapin *cell, uint32_t layer, struct hs_swapin_check_args *args)
{
	const struct hs_dsat *trace = cell->plan.trace;
	uint64_t start = (uint64_t)(uintptr_t)cell->plan.rows.start;

	if (!args->slots) {
		args->slots = (const int32_t *)(uintptr_t)cell->layers[layer].slots;
		args->count = trace->batch * trace->k;
	}
	args->word = (cell->layers[layer].window - start) / sizeof(uint64_t);
	args->row = cell->plan.row;
	args->result = (uint32_t *)(uintptr_t)cell->result;
	return hs_swapin_launch(cell, cell->check, HS_SWAPIN_BLOCKS, HS_SWAPIN_THREADS, args);
}

static int sums(struct hs_swapin *cell, uint32_t *result)
{
	HS_TRY(hs_driver.cuStreamSynchronize(cell->stream));
	HS_TRY(hs_driver.cuMemcpyDtoH_v2(
		result, cell->result, HS_SWAPIN_RESULTS * sizeof(uint32_t)));
	return 0;
}

/* Whether the last layer's list by address holds its misses, upwards. */
static bool in_order(const struct hs_swapin *cell, uint32_t count)
{
	const struct hs_dsat *trace = cell->plan.trace;
	size_t entries = (size_t)trace->batch * trace->k, layer = trace->layers - 1;
	const int32_t *missed = cell->host + (3 * layer + 2) * entries;
	const int32_t *ordered = cell->sorted + layer * entries;
	int64_t sum = 0;
	bool upwards = true;

	for (uint32_t i = 0; i < count; i++) {
		sum += missed[i] - ordered[i];
		upwards = upwards && (i == 0 || ordered[i - 1] < ordered[i]);
	}
	return upwards && sum == 0;
}

int hs_swapin_check_gather(struct hs_swapin *cell, uint32_t side, uint32_t *result)
{
	const struct hs_dsat *trace = cell->plan.trace;
	uint32_t layer = trace->layers - 1, last = trace->layers * trace->batch - 1;
	CUdeviceptr slots = side == HS_SWAPIN_ORDERED ? cell->layers[layer].ordered
						      : cell->layers[layer].missed;
	struct hs_swapin_check_args args = {
		.base = cell->staging, .slots = (const int32_t *)(uintptr_t)slots};
	int error = clear(cell);

	args.count = cell->offsets[last] + hs_swapin_missed(cell, cell->step, last);
	args.hot_count = args.count;
	if (!error)
		error = enqueue(cell, layer, &args);
	if (!error)
		error = sums(cell, result);
	if (!error && side == HS_SWAPIN_ORDERED && !in_order(cell, args.count))
		result[HS_SWAPIN_BAD_INDEX]++;
	return error;
}

int hs_swapin_check(struct hs_swapin *cell, uint32_t *result)
{
	int error = clear(cell);

	for (uint32_t i = 0; i < cell->plan.trace->layers && !error; i++) {
		struct hs_swapin_check_args args = {
			.indices = (const int32_t *)(uintptr_t)cell->layers[i].remapped,
			.base = cell->layers[i].window,
			.in_place = 1};

		hs_bench_hot(args.base, cell->plan.row, &args.hot_low, &args.hot_count);
		error = enqueue(cell, i, &args);
	}
	return error ? error : sums(cell, result);
}

int hs_swapin_check_other(struct hs_swapin *cell, const uint64_t *indices, const uint64_t *bases,
	uint32_t count, uint32_t *result)
{
	int error = clear(cell);

	for (uint32_t i = 0; i < cell->plan.trace->layers && !error; i++) {
		struct hs_swapin_check_args args = {
			.indices = (const int32_t *)(uintptr_t)indices[i],
			.base = bases[i],
			.hot_count = count};

		error = enqueue(cell, i, &args);
	}
	return error ? error : sums(cell, result);
}
