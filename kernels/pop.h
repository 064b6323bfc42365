/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_POP_H
#define KERNELS_POP_H

/* Misses take rows from the ring that kernels/list.h writes. */

#include "kernels/fetch.h"

/* Entries of the ring that a miss tries, until it finds one whose row nobody hit. */
#ifndef RESOLVE_POPS
#define RESOLVE_POPS 8u
#endif

/* Counts of a block, one behind those of enum hs_count: entries of the ring that
 * name nothing now, modulo 2^32. */
#define RESOLVE_STALE HS_COUNTS

/* One warp: so many of its threads. */
HS_DEVICE void resolve_count(uint32_t *count, bool yes)
{
	const uint32_t n = (uint32_t)__popc(__ballot_sync(0xffffffffu, yes));

	if (n && !(threadIdx.x & 31))
		hs_atomic_add(count, n);
}

/* What nothing but the host wants to know. */
HS_DEVICE void resolve_tally(uint32_t *count, bool yes)
{
	if (RESOLVE_COUNTS)
		resolve_count(count, yes);
}

/*
 * The warp's threads that won says need a row: each takes an entry of the ring, and
 * then the row from the map, where it may have been hit since. word: the ring's,
 * when the warp took its entries. The entry names the thread's slot then, for the
 * lane's next pass. Host loads are under way meanwhile. Returns HS_ROWS_MAX to
 * those who get none.
 */
HS_DEVICE uint32_t resolve_pop(struct hs_entry *entry, int32_t *map, int32_t slot, uint32_t won,
	uint64_t word, uint32_t *count)
{
	const uint32_t lane = threadIdx.x & 31, below = (1u << lane) - 1;
	uint32_t row = HS_ROWS_MAX, want = won, head, wants;

	for (uint32_t round = 1;; round++) {
		uint64_t e = HS_RING_HOLE;
		int32_t from;
		bool in, got;

		word = __shfl_sync(0xffffffffu, word, 0);
		head = (uint32_t)(word >> 32) + (uint32_t)__popc(want & below);
		if (HS_PLANTED(HS_PLANT_TWICE))
			head &= ~1u;
		in = (want >> lane & 1) && (int32_t)((uint32_t)word - head) > 0;
		if (in)
			e = hs_load_relaxed(&entry->ring[head & entry->mask]);
		from = (int32_t)(e >> 32);
		if (from >= 0 &&
			hs_atomic_cas(&map[from], (int32_t)e, (int32_t)HS_NONE) != (int32_t)e &&
			!HS_PLANTED(HS_PLANT_TWICE))
			e = HS_RING_HOLE;
		got = in && e != HS_RING_HOLE;
		if (got) {
			row = map_row((int32_t)e);
			hs_store_relaxed(&entry->ring[head & entry->mask], HS_RING(slot, row));
#ifdef HS_PLANTS
			/* Whoever still reads the row shows it at once. */
			memset(entry->hot + (uint64_t)row * entry->row, 0xee, entry->row);
#endif
		}
		resolve_tally(&count[HS_COUNT_EVICTIONS], got && (int64_t)e >= 0);
		want = __ballot_sync(0xffffffffu, in && !got);
		wants = (uint32_t)__popc(want);
		if (wants && !lane)
			hs_atomic_add(&count[RESOLVE_STALE], 0u - wants);
		if (!wants || round == RESOLVE_POPS)
			return row;
		if (!lane)
			word = hs_atomic_add(&entry->free, (uint64_t)wants << 32);
	}
}

#endif
