/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_MAP_H
#define KERNELS_MAP_H

/*
 * The words of the map and what changes them. Every change of a map word but
 * the claimer's own is one compare-and-swap, so that of a fetch, an eviction
 * and an invalidation of one slot exactly one wins.
 */

#include "kernels/abi.h"
#include "kernels/port.h"

/* 0: only what the passes go by is counted, and the host sees less of it. For
 * the benchmark, which measures what counting costs. */
#ifndef RESOLVE_COUNTS
#define RESOLVE_COUNTS 1
#endif

/* Bugs that the tests plant to see that they would be caught. */
enum hs_plant {
	HS_PLANT_NONE,
	HS_PLANT_STALE,	 /* written slots are not invalidated */
	HS_PLANT_TWICE,	 /* a spare row is given to two misses */
	HS_PLANT_FLIGHT, /* rows that a launch in flight reads are evicted */
	HS_PLANT_BLOCKS, /* blocks that enter a table keep their hot rows */
};

#ifdef HS_PLANTS
extern int hs_plant;
#define HS_PLANTED(bug) (hs_plant == (bug))
#else
#define HS_PLANTED(bug) false
#endif

HS_DEVICE bool map_claimed(int32_t v)
{
	return v < HS_NONE && HS_PENDING_ROW(v) == HS_ROWS_MAX;
}

HS_DEVICE bool map_doomed(int32_t v)
{
	return v < 0 && !((uint32_t)v & HS_SOUND);
}

/* What is being fetched by a launch of the lane, or was by its last one. */
HS_DEVICE bool map_pending(int32_t v, uint32_t lane)
{
	return v < HS_NONE && HS_PENDING_LANE(v) == lane && HS_PENDING_ROW(v) != HS_ROWS_MAX;
}

/* The hot row that a word names, ready or not; HS_ROWS_MAX when none. */
HS_DEVICE uint32_t map_row(int32_t v)
{
	return HS_PENDING_ROW(v);
}

/* A hot row that no miss may take. */
HS_DEVICE bool map_plain(int32_t v)
{
	return (uint32_t)v < HS_ROWS_MAX;
}

HS_DEVICE bool map_listed(int32_t v)
{
	return v >= (int32_t)HS_ROWS_MAX;
}

/* Takes a row from the slot: what v says now must be so still. A row that is
 * pending stays its fetcher's, which may be about to write it. The row keeps its
 * stamp: whoever may still read it is safe until a pass finds it. */
HS_DEVICE bool map_drop(struct hs_entry *entry, int32_t slot, int32_t v)
{
	const int32_t to = v >= 0 ? HS_NONE : (int32_t)((uint32_t)v & ~HS_SOUND);

	if (hs_atomic_cas(&entry->map[slot], v, to) != v)
		return false;
	if (v >= 0)
		hs_atomic_cas(&entry->owner[map_row(v)], slot, (int32_t)HS_ORPHAN(slot));
	if (map_listed(v))
		hs_atomic_add(&entry->stale, 1u);
	return true;
}

/* Nobody finds the slot's bytes in a hot row after this. A claim is waited for:
 * its fetch may have begun before the bytes were written. The claimer waits for
 * nothing, so the wait is short. */
HS_DEVICE bool map_forget(struct hs_entry *entry, int32_t slot)
{
	for (;;) {
		int32_t v = hs_load_relaxed(&entry->map[slot]);

		if (v == HS_NONE || map_doomed(v))
			return false;
		if (!map_claimed(v) && map_drop(entry, slot, v))
			return true;
	}
}

#endif
