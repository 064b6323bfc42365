/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_FETCH_H
#define KERNELS_FETCH_H

/*
 * A warp brings its rows from the window to their hot rows, 16 bytes a thread
 * and load, so many loads at once that they wait for the link only once. Loading
 * needs no hot row yet: it may begin while one is looked for. Nobody is told
 * that a row is there: the launch's own reader comes after it, and for others
 * the next pass of the lane says so (kernels/keep.h).
 */

#include "kernels/map.h"

#ifndef LOADS
#define LOADS 4 /* 16-byte loads that a thread has in flight */
#endif

/* What a warp has to fetch. */
struct resolve_misses {
	int32_t slot[32];
	uint32_t row[32]; /* HS_ROWS_MAX: this one is not */
};

/* From where to where, in registers. */
struct fetch {
	const unsigned char *base;
	unsigned char *hot;
	uint32_t row;
	uint64_t inverse;
};

HS_DEVICE struct fetch fetch_of(const struct hs_entry *entry)
{
	const struct fetch to = {entry->base, entry->hot, entry->row, entry->inverse};

	return to;
}

/* 16 bytes for each of a thread's loads, of the rows from unit `start` on. */
HS_DEVICE void resolve_load(const struct fetch *to, const struct resolve_misses *f, uint32_t count,
	uint32_t start, hs_u128 *v)
{
	const uint32_t units = to->row / 16, total = count * units;
	/* What a thread does not load is set all the same: else ptxas keeps registers
	 * for it all through the kernel. */
	const hs_u128 nothing = {0, 0, 0, 0};
	const unsigned char *from[LOADS];

	/* All addresses first: nothing lies between the loads. */
	HS_UNROLL
	for (uint32_t i = 0; i < LOADS; i++) {
		const uint32_t n = start + 32 * i + (threadIdx.x & 31);
		const uint32_t r = n < total ? (uint32_t)(n * to->inverse >> 32) : 0;
		const uint32_t row = f->row[r];
		const int32_t slot = f->slot[r];

		from[i] = to->base + (uint64_t)slot * to->row + (uint64_t)(n - r * units) * 16;
		if (n >= total || row == HS_ROWS_MAX)
			from[i] = NULL;
	}
	HS_UNROLL
	for (uint32_t i = 0; i < LOADS; i++) {
		v[i] = nothing;
		if (from[i])
			v[i] = hs_load16_stream(from[i]);
	}
}

HS_DEVICE void resolve_store(const struct fetch *to, const struct resolve_misses *f, uint32_t count,
	uint32_t start, const hs_u128 *v)
{
	/* Found anew: addresses of all loads at once would not fit in registers. */
	const uint32_t units = hs_opaque(to->row / 16), total = count * units;

	HS_UNROLL
	for (uint32_t i = 0; i < LOADS; i++) {
		const uint32_t n = start + 32 * i + (threadIdx.x & 31);
		const uint32_t r = (uint32_t)(n * to->inverse >> 32);

		if (n < total && f->row[r] != HS_ROWS_MAX)
			hs_store16(to->hot + (uint64_t)f->row[r] * to->row +
					   (uint64_t)(n - r * units) * 16,
				v[i]);
	}
}

/* Fetches the warp's rows from unit `start` on. */
HS_DEVICE void resolve_fetch(
	const struct fetch *to, const struct resolve_misses *f, uint32_t count, uint32_t start)
{
	const uint32_t total = count * (to->row / 16);
	hs_u128 v[LOADS];

	for (; start < total; start += 32 * LOADS) {
		resolve_load(to, f, count, start, v);
		resolve_store(to, f, count, start, v);
	}
}

#endif
