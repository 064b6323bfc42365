/* SPDX-License-Identifier: MIT */
/* A writer, attention that tells exactly what it read, and a kernel that no
 * profile knows; for the GPU and for the stand-in driver. */

#include "kernels/port.h"
#include "model.h"

#ifdef __CUDACC__
#define KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)
#define SLOW 0
#else
#define SLOW 600 /* schedule points */
#define KERNEL(name, ...) static void name(__VA_ARGS__)
#endif

/* grid (count): one row a block; a negative slot is skipped */
KERNEL(coherence_write, unsigned char *kv, const long long *slots, const unsigned *values,
	int count, int row_bytes)
{
	int i = (int)blockIdx.x;
	unsigned *row;

	if (i >= count || slots[i] < 0)
		return;
	row = (unsigned *)(kv + slots[i] * row_bytes);
	for (int w = (int)threadIdx.x; w < row_bytes / 4; w += (int)blockDim.x)
		hs_store_relaxed(row + w, coherence_word(values[i], (unsigned)w));
}

KERNEL(coherence_attend, const struct coherence_attend_args a)
{
	const int *list = (const int *)a.list;
	unsigned long long *out = (unsigned long long *)a.out;

	/* On the stand-in some launches are long in flight. */
	for (int n = 0; n < (list[0] % 4 == 1 ? SLOW : 0); n++)
		hs_fence();
	for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < a.rows * a.k;
		i += (int)(gridDim.x * blockDim.x)) {
		int slot = hs_load_relaxed(list + i / a.k * a.stride + i % a.k);
		const unsigned long long *row =
			(const unsigned long long *)(a.kv + (long long)slot * a.row_bytes);
		unsigned long long hash = 1;

		for (int w = 0; slot >= 0 && w < a.row_bytes / 8; w++)
			hash = coherence_mix(hash, row[w]);
		out[i] = slot >= 0 ? hash : 0;
	}
}

/* grid (count): `bytes` of a key for each slot, as coherence_write stores rows */
KERNEL(coherence_keys, unsigned char *keys, const long long *slots, const unsigned *values,
	int count, int bytes)
{
	int i = (int)blockIdx.x;

	if (i >= count || slots[i] < 0)
		return;
	for (int w = (int)threadIdx.x; w < bytes / 4; w += (int)blockDim.x)
		hs_store_relaxed((unsigned *)(keys + slots[i] * bytes) + w,
			coherence_word(values[i] + 1, (unsigned)w));
}

/* Blocks of 64 rows in every layer, through a table of addresses. */
KERNEL(coherence_transfer, const unsigned long long *bases, const long long *blocks,
	const unsigned *values, int count, int layers, int row_bytes)
{
	for (int layer = 0; (int)blockIdx.x < count && layer < layers; layer++) {
		unsigned *to = (unsigned *)(bases[layer] + blocks[blockIdx.x] * 64 * row_bytes);

		for (int w = (int)threadIdx.x; w < 64 * row_bytes / 4; w += (int)blockDim.x)
			hs_store_relaxed(to + w, coherence_word(values[blockIdx.x] + (unsigned)layer,
							 (unsigned)(w % (row_bytes / 4))));
	}
}

/* The same; no profile tells of it. */
KERNEL(coherence_silent, const unsigned long long *bases, const long long *blocks,
	const unsigned *values, int count, int layers, int row_bytes)
{
	for (int layer = 0; (int)blockIdx.x < count && layer < layers; layer++) {
		unsigned *to = (unsigned *)(bases[layer] + blocks[blockIdx.x] * 64 * row_bytes);

		for (int w = (int)threadIdx.x; w < 64 * row_bytes / 4; w += (int)blockDim.x)
			hs_store_relaxed(to + w, coherence_word(values[blockIdx.x] + (unsigned)layer,
							 (unsigned)(w % (row_bytes / 4))));
	}
}

/* Carries a block table and does nothing. */
KERNEL(coherence_blocks, const int *ids, const int *table, const int *lengths, int rows, int stride)
{
	(void)ids, (void)table, (void)lengths, (void)rows, (void)stride;
}

KERNEL(coherence_scribble, unsigned *dst, unsigned value, int bytes)
{
	for (int w = (int)threadIdx.x; w < bytes / 4; w += (int)blockDim.x)
		hs_store_relaxed(dst + w, coherence_word(value, (unsigned)w));
}

#ifndef __CUDACC__
SOFT_KERNEL(coherence_write, unsigned char *, const long long *, const unsigned *, int, int)
SOFT_KERNEL(coherence_attend, const struct coherence_attend_args)
SOFT_KERNEL(coherence_keys, unsigned char *, const long long *, const unsigned *, int, int)
SOFT_KERNEL(coherence_transfer, const unsigned long long *, const long long *, const unsigned *, int,
	int, int)
SOFT_KERNEL_NAMED(coherence_silent, "coherence_silent", const unsigned long long *, const long long *,
	const unsigned *, int, int, int)
SOFT_KERNEL(coherence_blocks, const int *, const int *, const int *, int, int)
SOFT_KERNEL(coherence_scribble, unsigned *, unsigned, int)
#endif
