/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_POP_H
#define KERNELS_POP_H

/* Misses take rows from the ring that kernels/list.h writes. */

#include "kernels/fetch.h"

/* Entries of the ring that a miss tries, until it finds one whose row nobody hit. */
#ifndef RESOLVE_POPS
#define RESOLVE_POPS 8u
#endif

/* The counts of a warp. */
struct resolve_counts {
	uint32_t hits, misses, duplicates, inplace, padding, evictions;
	uint32_t stale; /* entries of the ring that name nothing now; modulo 2^32 */
};

HS_DEVICE uint32_t resolve_votes(bool yes)
{
	return (uint32_t)__popc(__ballot_sync(0xffffffffu, yes));
}

/* What nothing but the host wants to know. */
HS_DEVICE uint32_t resolve_tally(bool yes)
{
	return RESOLVE_COUNTS ? resolve_votes(yes) : 0;
}

/*
 * So many of the warp's threads as won says need a row: each takes an entry of
 * the ring, and then the row from the map, where it may have been hit since. Host
 * loads are under way meanwhile. row: HS_ROWS_MAX for those who get none.
 */
HS_DEVICE void resolve_pop(struct hs_entry *entry, int32_t *map, const uint32_t *won, uint64_t word,
	uint32_t *row, struct resolve_counts *c)
{
	const uint32_t lane = threadIdx.x & 31, below = (1u << lane) - 1;
	uint32_t want[RESOLVE_TILES], wants, base;
	uint64_t e[RESOLVE_TILES];
	bool in[RESOLVE_TILES];

	HS_UNROLL
	for (uint32_t i = 0; i < RESOLVE_TILES; i++) {
		want[i] = won[i];
		row[i] = HS_ROWS_MAX;
	}
	for (uint32_t round = 1;; round++) {
		word = __shfl_sync(0xffffffffu, word, 0);
		base = (uint32_t)(word >> 32);
		HS_UNROLL
		for (uint32_t i = 0; i < RESOLVE_TILES; i++) {
			uint32_t head = base + (uint32_t)__popc(want[i] & below);

			base += (uint32_t)__popc(want[i]);
			if (HS_PLANTED(HS_PLANT_TWICE))
				head &= ~1u;
			in[i] = (want[i] >> lane & 1) && (int32_t)((uint32_t)word - head) > 0;
			e[i] = HS_RING_HOLE;
			if (in[i])
				e[i] = hs_load_relaxed(&entry->ring[head & entry->mask]);
		}
		HS_UNROLL
		for (uint32_t i = 0; i < RESOLVE_TILES; i++) {
			const int32_t slot = (int32_t)(e[i] >> 32), listed = (int32_t)e[i];

			if (slot >= 0 &&
				hs_atomic_cas(&map[slot], listed, (int32_t)HS_NONE) != listed &&
				!HS_PLANTED(HS_PLANT_TWICE))
				e[i] = HS_RING_HOLE;
		}
		wants = 0;
		HS_UNROLL
		for (uint32_t i = 0; i < RESOLVE_TILES; i++) {
			const bool got = in[i] && e[i] != HS_RING_HOLE;

			if (got) {
				row[i] = map_row((int32_t)e[i]);
#ifdef HS_PLANTS
				/* Whoever still reads the row shows it at once. */
				memset(entry->hot + (uint64_t)row[i] * entry->row, 0xee,
					entry->row);
#endif
			}
			c->evictions += resolve_tally(got && (int64_t)e[i] >= 0);
			want[i] = __ballot_sync(0xffffffffu, in[i] && !got);
			wants += (uint32_t)__popc(want[i]);
		}
		c->stale -= wants;
		if (!wants || round == RESOLVE_POPS)
			return;
		if (!lane)
			word = hs_atomic_add(&entry->free, (uint64_t)wants << 32);
	}
}

#endif
