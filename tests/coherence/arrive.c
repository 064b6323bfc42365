/* SPDX-License-Identifier: MIT */
/*
 * Description: rows that arrive without a launch that names their window. Blocks
 * are filled through a table of addresses, by a kernel that a profile knows or by
 * one that nobody does (as RDMA would), and handed from request to request within
 * a step; what attention reads is compared. With a BUG planted (enum hs_plant),
 * 0 is returned when it shows.
 *
 * usage: arrive lengths|ids STEPS [BUG]: whether the table tells lengths of rows,
 * or which rows are used
 */
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model.h"

enum {
	LAYERS = 2,
	BLOCKS = 96,
	ROW = 656,
	REQUESTS = 4,
	COLUMNS = 12,
	K = 192,
};

int hs_plant;
extern const unsigned char coherence_image[];

static CUfunction transfer, silent, carry, attend;
static CUstream stream;
static CUdeviceptr windows[LAYERS], bases, list, out, filled, fill_values, table_d, lengths_d,
	ids_d;
static uint32_t model[BLOCKS]; /* what the rows of a block were filled with */
static int32_t table[REQUESTS][COLUMNS], lengths[REQUESTS], ids[REQUESTS];
static bool used[BLOCKS];
static uint64_t state = 7;

#define CHECK(call)                                                                                \
	do {                                                                                       \
		CUresult result_ = (call);                                                         \
		if (result_ != CUDA_SUCCESS) {                                                     \
			fprintf(stderr, "%s: error %d\n", #call, result_);                         \
			exit(2);                                                                   \
		}                                                                                  \
	} while (0)

static uint32_t below(uint32_t n)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(((state >> 33) * (uint64_t)n) >> 31);
}

static uint64_t row_hash(uint32_t value)
{
	uint64_t hash = 1;

	for (uint32_t i = 0; i < ROW / 8; i++)
		hash = coherence_mix(hash,
			coherence_word(value, 2 * i) | (uint64_t)coherence_word(value, 2 * i + 1)
							       << 32);
	return hash;
}

static void fill(CUfunction kernel, const int32_t *blocks, int count)
{
	int64_t wide[COLUMNS];
	uint32_t values[COLUMNS];
	int layers = LAYERS, row = ROW;
	void *params[] = {&bases, &filled, &fill_values, &count, &layers, &row};

	for (int i = 0; i < count; i++) {
		wide[i] = blocks[i];
		values[i] = model[blocks[i]] = 1 + below(1u << 30);
	}
	CHECK(cuMemcpyHtoDAsync(filled, wide, (size_t)count * 8, stream));
	CHECK(cuMemcpyHtoDAsync(fill_values, values, (size_t)count * 4, stream));
	CHECK(cuLaunchKernel(kernel, (unsigned)count, 1, 1, 32, 1, 1, 0, stream, params, NULL));
	CHECK(cuStreamSynchronize(stream));
}

static int32_t take(void)
{
	int32_t block;

	do
		block = 1 + (int32_t)below(BLOCKS - 1);
	while (used[block]);
	used[block] = true;
	return block;
}

/* The request of a row ends and another takes its place, and of its blocks, in
 * the same step. */
static void replace(int row)
{
	const int before = (lengths[row] + 63) / 64, count = 2 + (int)below(COLUMNS - 3);
	int32_t old[COLUMNS];

	memcpy(old, table[row], sizeof(old));
	for (int i = 0; i < count; i++)
		table[row][i] = i && i < before ? old[before - i] : take();
	for (int i = 0; i < before; i++)
		used[old[i]] = false;
	for (int i = 0; i < count; i++)
		used[table[row][i]] = true;
	lengths[row] = 64 * count - (int32_t)below(63);
	fill(silent, table[row], count);
}

static void grow(int row)
{
	const int count = (lengths[row] + 63) / 64;

	if (count == COLUMNS)
		return;
	table[row][count] = take();
	lengths[row] = 64 * count + 1 + (int32_t)below(63);
	fill(silent, &table[row][count], 1);
}

static void swap(int a, int b)
{
	int32_t row[COLUMNS], length = lengths[a];

	memcpy(row, table[a], sizeof(row));
	memcpy(table[a], table[b], sizeof(row));
	memcpy(table[b], row, sizeof(row));
	lengths[a] = lengths[b];
	lengths[b] = length;
}

/* One step: the table, then every layer's attention over rows of all requests. */
static bool step(bool tells_lengths, long number)
{
	int rows = REQUESTS, stride = COLUMNS;
	CUdeviceptr no = 0;
	void *params[] = {tells_lengths ? &no : &ids_d, &table_d, tells_lengths ? &lengths_d : &no,
		&rows, &stride};
	int32_t slots[K];
	uint64_t got[K];

	CHECK(cuMemcpyHtoDAsync(table_d, table, sizeof(table), stream));
	CHECK(cuMemcpyHtoDAsync(lengths_d, lengths, sizeof(lengths), stream));
	for (int layer = 0; layer < LAYERS; layer++) {
		struct coherence_attend_args args = {.kv = windows[layer],
			.list = list,
			.out = out,
			.rows = 1,
			.k = K,
			.stride = K,
			.row_bytes = ROW,
			.block_stride = 64 * ROW};
		void *attend_params[] = {&args};

		for (int i = 0; i < K; i++) {
			const int row = (int)below(REQUESTS);
			const int32_t at = (int32_t)below((uint32_t)lengths[row]);

			slots[i] = table[row][at / 64] * 64 + at % 64;
		}
		CHECK(cuMemcpyHtoDAsync(list, slots, sizeof(slots), stream));
		CHECK(cuLaunchKernel(carry, REQUESTS, 1, 1, 32, 1, 1, 0, stream, params, NULL));
		CHECK(cuLaunchKernel(attend, 4, 1, 1, 32, 1, 1, 0, stream, attend_params, NULL));
		CHECK(cuMemcpyDtoHAsync(got, out, sizeof(got), stream));
		CHECK(cuStreamSynchronize(stream));
		for (int i = 0; i < K; i++) {
			if (got[i] == row_hash(model[slots[i] / 64] + (uint32_t)layer))
				continue;
			fprintf(stderr, "STALE in step %ld, layer %d, slot %d\n", number, layer,
				slots[i]);
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	const bool tells_lengths = !strcmp(argv[1], "lengths");
	CUdevice device;
	CUcontext context;
	CUmodule module;

	hs_plant = argc > 3 ? atoi(argv[3]) : 0;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuModuleLoadData(&module, coherence_image));
	CHECK(cuModuleGetFunction(&transfer, module, "coherence_transfer"));
	CHECK(cuModuleGetFunction(&silent, module, "coherence_silent"));
	CHECK(cuModuleGetFunction(&carry, module, "coherence_blocks"));
	CHECK(cuModuleGetFunction(&attend, module, "coherence_attend"));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc(&bases, sizeof(windows)));
	CHECK(cuMemAlloc(&list, K * 4));
	CHECK(cuMemAlloc(&out, K * 8));
	CHECK(cuMemAlloc(&filled, COLUMNS * 8));
	CHECK(cuMemAlloc(&fill_values, COLUMNS * 4));
	CHECK(cuMemAlloc(&table_d, sizeof(table)));
	CHECK(cuMemAlloc(&lengths_d, sizeof(lengths)));
	CHECK(cuMemAlloc(&ids_d, sizeof(ids)));
	for (int i = 0; i < LAYERS; i++)
		CHECK(cuMemAlloc(&windows[i], (size_t)BLOCKS * 64 * ROW));
	CHECK(cuMemcpyHtoD(bases, windows, sizeof(windows)));
	for (int i = 0; i < REQUESTS; i++)
		ids[i] = i;
	CHECK(cuMemcpyHtoD(ids_d, ids, sizeof(ids)));
	for (int i = 0; i < REQUESTS; i++)
		replace(i);
	for (long i = 0; i < atol(argv[2]); i++) {
		const int row = (int)below(REQUESTS);

		/* a planted bug in transfers must show in them */
		switch (hs_plant == 1 ? 3 : below(5)) {
		case 0:
			replace(row);
			break;
		case 1:
			grow(row);
			break;
		case 2:
			swap(row, (row + 1) % REQUESTS);
			break;
		case 3: /* of a request that stays: only the transfer tells */
			fill(transfer, table[row], 2);
			break;
		}
		if (!step(tells_lengths, i))
			return hs_plant ? 0 : 1;
	}
	CHECK(cuCtxSynchronize());
	if (hs_plant)
		fprintf(stderr, "the planted bug did not show\n");
	return hs_plant ? 1 : 0;
}
