/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_CLAIM_H
#define KERNELS_CLAIM_H

/* What a launch does with the entries of its lists that are not hot. */

#include "kernels/order.h"
#include "kernels/pop.h"

/* Launches that lately missed no more than this read a row before they know
 * that no other thread is about to. */
#ifndef RESOLVE_EAGER
#define RESOLVE_EAGER 1024u
#endif

/* What a launch knows from the start. */
struct resolve_launch {
	uint32_t state, clock;
	int32_t first, slots, hot_index;
	int32_t *map;
	uint32_t *stamp;
	struct fetch to;
	bool eager, walks;
};

HS_DEVICE bool resolve_ours(const struct resolve_launch *l, int32_t slot)
{
	return slot >= l->first && slot < l->slots;
}

/*
 * A claimed slot gets hot row h, or none: then it is read in place. Until the
 * lane's next pass the row is this lane's.
 */
HS_DEVICE void resolve_give(const struct hs_resolve_args *a, struct hs_entry *entry,
	const struct resolve_launch *l, int32_t slot, int64_t at, uint32_t h)
{
	if (h == HS_ROWS_MAX) {
		hs_store_relaxed(&l->map[slot], (int32_t)HS_NONE);
		a->out[at] = slot;
		return;
	}
	hs_store_relaxed(&l->map[slot], HS_PENDING(a->lane, h));
	a->out[at] = l->hot_index + (int32_t)h;
	hs_store_relaxed(&entry->owner[h], slot);
	hs_store_relaxed(&l->stamp[h], l->clock);
	hs_store_relaxed(&entry->born[h], l->clock);
}

/* What another thread of this launch fetches, or another lane: the claimer waits
 * for nothing, so neither does this for long. */
HS_DEVICE void resolve_twin(const struct hs_resolve_args *a, const struct resolve_launch *l,
	int32_t slot, int64_t at, int32_t v, bool open, uint32_t *count)
{
	bool found;

	while (open && v == HS_PENDING(a->lane, HS_ROWS_MAX))
		v = hs_load_relaxed(&l->map[slot]);
	/* One that was written since is read where it was written. */
	found = open && map_pending(v, a->lane) && !map_doomed(v);
	if (open)
		a->out[at] = found ? l->hot_index + (int32_t)map_row(v) : slot;
	resolve_tally(&count[HS_COUNT_DUPLICATES], found);
	resolve_count(&count[HS_COUNT_INPLACE], open && !found);
}

/* Those of the warp that won their slots take entries of the ring; the others fetch
 * nothing. Returns the ring's word from before. */
HS_DEVICE uint64_t resolve_take(struct hs_entry *entry, uint32_t won, struct resolve_misses *f)
{
	const uint32_t lane = threadIdx.x & 31;
	uint64_t word = 0;

	if (!(won >> lane & 1))
		f->row[lane] = HS_ROWS_MAX;
	if (!lane && won)
		word = hs_atomic_add(&entry->free, (uint64_t)__popc(won) << 32);
	return __shfl_sync(0xffffffffu, word, 0);
}

/* And they get rows, while their bytes are on the way. */
HS_DEVICE void resolve_own(const struct hs_resolve_args *a, struct hs_entry *entry,
	const struct resolve_launch *l, int32_t slot, int64_t at, uint32_t won, uint64_t word,
	struct resolve_misses *f, uint32_t *count)
{
	const bool mine = won >> (threadIdx.x & 31) & 1;
	const uint32_t row = resolve_pop(entry, l->map, slot, won, word, count);
	const bool got = mine && row != HS_ROWS_MAX;

	__syncwarp();
	if (mine) {
		resolve_give(a, entry, l, slot, at, row);
		if (l->walks && got)
			order_mark(entry, slot);
		f->row[threadIdx.x & 31] = row;
	}
	resolve_count(&count[HS_COUNT_MISSES], got);
	resolve_count(&count[HS_COUNT_INPLACE], mine && !got);
	__syncwarp();
}

/*
 * One warp: an entry a thread, of those that were neither hot nor listed when they
 * were looked up; v: the word that was found then. Claims their slots and fetches
 * what it got. There is one place that loads and one that stores: warps of a launch
 * with few misses wait for code, too (15 % of their waiting; ncu, H200).
 */
HS_DEVICE void resolve_claim(const struct hs_resolve_args *a, struct hs_entry *entry,
	const struct resolve_launch *l, int32_t slot, int64_t at, int32_t v, bool open,
	struct resolve_misses *f, uint32_t *count)
{
	const int32_t claim = HS_PENDING(a->lane, HS_ROWS_MAX);
	const uint32_t lane = threadIdx.x & 31, units = l->to.row / 16;
	const bool eager = l->eager && !l->walks;
	int32_t was;

	/* A second time for those whose listed row was taken in between. */
	for (;;) {
		const bool mine = open && v == HS_NONE, listed = open && map_listed(v);
		const uint32_t missed = __ballot_sync(0xffffffffu, mine);
		uint32_t rows = l->walks ? 0 : 32 - (uint32_t)__clz((int)missed);
		uint32_t won = 0, start = 0;
		uint64_t word = 0;
		bool hit;

		if (!missed && !__ballot_sync(0xffffffffu, listed))
			break;
		f->slot[lane] = slot;
		f->row[lane] = mine ? 0 : HS_ROWS_MAX;
		was = v;
		if (mine || listed)
			was = hs_atomic_cas(&l->map[slot], v, mine ? claim : (int32_t)map_row(v));
		__syncwarp();
		if (!eager) {
			won = __ballot_sync(0xffffffffu, mine && was == HS_NONE);
			word = resolve_take(entry, won, f);
			/* What gets no row is read in place, and not twice. */
			if ((int32_t)((uint32_t)word - (uint32_t)(word >> 32)) <= 0)
				rows = 0;
			__syncwarp();
		}
		do {
			hs_u128 loaded[LOADS];

			resolve_load(&l->to, f, rows, start, loaded);
			__syncwarp();
			if (!start) {
				if (eager) {
					won = __ballot_sync(0xffffffffu, mine && was == HS_NONE);
					word = resolve_take(entry, won, f);
				}
				if (won)
					resolve_own(a, entry, l, slot, at, won, word, f, count);
				else
					rows = 0;
			}
			resolve_store(&l->to, f, rows, start, loaded);
			start += 32 * LOADS;
		} while (start < rows * units);
		hit = (listed && was == v) || ((mine || listed) && map_plain(was));
		resolve_count(&count[RESOLVE_STALE], listed && was == v);
		resolve_tally(&count[HS_COUNT_HITS], hit);
		if (hit) {
			hs_store_relaxed(&l->stamp[map_row(was)], l->clock);
			a->out[at] = l->hot_index + (int32_t)map_row(was);
		}
		v = was;
		open &= !hit && !(won >> lane & 1);
		__syncwarp();
	}
	if (__ballot_sync(0xffffffffu, open))
		resolve_twin(a, l, slot, at, v, open, count);
}

#endif
