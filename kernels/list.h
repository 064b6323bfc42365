/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_LIST_H
#define KERNELS_LIST_H

/* The second pass, which lists rows where the first said; and both, as blocks. */

#include "kernels/keep.h"

#ifdef HS_PLANTS
#define KEEP_SPOILS 1
#else
#define KEEP_SPOILS 0
#endif

/*
 * One thread takes row h from whoever has it. Whose stamp is no more what it was
 * is not ours: who makes a row spare, or takes it from the ring, changes it.
 * (Without a word in the map, only if it has not been used in the last step:
 * then nobody can give it the same stamp again.)
 */
HS_DEVICE bool keep_take(struct hs_entry *entry, uint32_t h, int32_t owner, uint32_t stamp,
	uint32_t now, bool *evicted)
{
	const int32_t slot = owner < HS_NONE ? HS_ORPHAN(owner) : owner;
	const int32_t v = hs_atomic_cas(&entry->map[slot], (int32_t)h, (int32_t)HS_NONE);

	*evicted = v == (int32_t)h;
	if (!*evicted && ((v != HS_NONE && (map_row(v) == h || map_claimed(v))) ||
				 (int32_t)(now - stamp) < 1))
		return false;
	if (hs_atomic_cas(&entry->stamp[h], stamp, HS_STAMP_SPARE) == stamp) {
		hs_store_relaxed(&entry->owner[h], (int32_t)HS_NONE);
		return true;
	}
	/* Another lane used it in between: an orphan. */
	if (*evicted)
		hs_atomic_cas(&entry->owner[h], slot, (int32_t)HS_ORPHAN(slot));
	return false;
}

/* One thread: what the ring says of a row that goes. */
HS_DEVICE uint64_t keep_entry(struct hs_entry *entry, const struct hs_kept *kept, uint32_t h,
	int32_t owner, uint32_t stamp)
{
	const int32_t word = HS_LISTED(h, kept->listing);
	bool evicted = false;
	int32_t v, was;

	if (owner < HS_NONE || entry->order == HS_ORDER_ALL) {
		const bool taken = keep_take(entry, h, owner, stamp, kept->now, &evicted);

		if (evicted)
			hs_atomic_add(&entry->totals[HS_COUNT_EVICTIONS], (uint64_t)1);
		if (!taken)
			return HS_RING_HOLE;
		hs_atomic_add(&entry->kept.spares, 1u);
		return HS_RING(owner < HS_NONE ? owner : (int32_t)HS_ORPHAN(owner), h);
	}
	v = hs_atomic_cas(&entry->map[owner], (int32_t)h, word);
	for (was = (int32_t)h; v != was && v >= 0 && map_row(v) == h;) {
		was = v;
		v = hs_atomic_cas(&entry->map[owner], was, word);
	}
	return v == was ? HS_RING(owner, word) : HS_RING_HOLE;
}

/* Where in the listing the rows of an age end. */
HS_DEVICE uint32_t keep_end(const struct hs_entry *entry, uint32_t age)
{
	const uint32_t at = hs_load_relaxed(&entry->place[age]);
	const uint32_t end = hs_load_relaxed(&entry->place[HS_AGES + age]);

	return at < end ? at : end;
}

/* All threads of the last block: shows what was listed, or if another lane came
 * meanwhile nothing. */
HS_DEVICE void keep_show(
	struct hs_table *table, uint32_t layer, uint32_t lane, struct keep_shared *s)
{
	enum { EACH = HS_AGES / HS_THREADS };
	struct hs_entry *entry = &table->entries[layer];
	const uint32_t base = s->kept.base, mask = entry->mask;
	const uint32_t *place = entry->place, *ends = entry->place + HS_AGES;
	const bool seen = keep_seen(table, layer, lane);
	/* What the spare rows take, and all: not what is free after the newest. */
	const uint32_t spare = keep_end(entry, HS_AGES - 1), span = keep_end(entry, s->kept.age);
	uint32_t at[EACH], end[EACH];
	uint64_t free, told;

	if (!threadIdx.x)
		s->holes = 0;
	__syncthreads();
	HS_UNROLL
	for (uint32_t i = 0; i < EACH; i++) {
		at[i] = hs_load_relaxed(&place[i * HS_THREADS + threadIdx.x]);
		end[i] = hs_load_relaxed(&ends[i * HS_THREADS + threadIdx.x]);
	}
	HS_UNROLL
	for (uint32_t i = 0; i < EACH; i++) {
		if (i * HS_THREADS + threadIdx.x <= s->kept.age || seen || at[i] >= end[i])
			continue;
		hs_atomic_add(&s->holes, end[i] - at[i]);
		for (; at[i] < end[i]; at[i]++)
			hs_store_relaxed(&entry->ring[(base + at[i]) & mask], HS_RING_HOLE);
	}
	/* Someone may have seen them: orphans, as if used just now. (Where bugs are
	 * planted, spare rows are spoilt: whoever still reads one shows it.) */
	for (uint32_t i = threadIdx.x; i < spare && (seen || KEEP_SPOILS); i += HS_THREADS) {
		const uint64_t e = hs_load_relaxed(&entry->ring[(base + i) & mask]);
		const uint32_t h = (uint32_t)e;

		if ((int64_t)e >= 0 || e == HS_RING_HOLE)
			continue;
#if KEEP_SPOILS
		if (!seen) {
			memset(entry->hot + (uint64_t)h * entry->row, 0xee, entry->row);
			continue;
		}
#endif
		hs_store_relaxed(&entry->owner[h], (int32_t)(e >> 32));
		hs_store_relaxed(&entry->stamp[h], s->kept.now);
	}
	hs_fence();
	__syncthreads();
	if (threadIdx.x)
		return;
	told = hs_load_relaxed(&entry->free);
	do {
		uint32_t pops = (uint32_t)(told >> 32);

		free = told;
		/* Who popped beyond the end got nothing. What is left of older
		 * listings goes, unless spare rows are among it. */
		if (!keep_spares(entry, free) || (int32_t)(pops - base) > 0)
			pops = base;
		told = hs_atomic_cas(
			&entry->free, free, (uint64_t)pops << 32 | (base + (seen ? 0 : span)));
		s->last = pops;
	} while (told != free);
	entry->appended = s->last == base ? 0 : entry->appended + 1;
	hs_store_relaxed(
		&entry->stale, (s->last == base ? 0 : base - s->last - keep_spares(entry, told)) +
				       (seen ? 0 : s->holes + s->kept.holes));
	if (!seen && s->kept.spares)
		hs_store_relaxed(&entry->spare_to, base + spare);
}

/* One block: marks rows and writes their entries. What several threads wait for
 * is asked for at once: a pass is a chain of memory's latencies. */
HS_DEVICE void keep_mark(
	struct hs_entry *entry, uint32_t index, uint32_t blocks, struct keep_shared *s)
{
	const struct hs_kept *kept = &s->kept;
	const uint32_t *keys = entry->order == HS_ORDER_FETCH ? entry->born : entry->stamp;
	const bool all = entry->order == HS_ORDER_ALL;
	uint32_t stamp[4], key[4], owner[4], age[4], at[4], taken;
	uint64_t e[4];

	if (!threadIdx.x)
		hs_store_relaxed(&entry->kept.marked, 1u);
	for (uint32_t i = threadIdx.x; i < HS_AGES; i += HS_THREADS)
		s->bins[i] = hs_load_relaxed(&entry->place[HS_AGES + i]);
	__syncthreads();
	for (uint32_t h = (index * HS_THREADS + threadIdx.x) * 4; h < entry->rows;
		h += blocks * KEEP_SLICE) {
		keep_load(entry->stamp, h, stamp);
		keep_load(keys, h, key);
		keep_load((const uint32_t *)entry->owner, h, owner);
		taken = hs_load_relaxed(&entry->place[kept->age]);
		HS_UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			age[i] = keep_age_of(entry, h + i, key[i], stamp[i], owner[i], kept->now);
			if (all)
				age[i] = (int32_t)(kept->now - stamp[i]) > 0 ? HS_AGES - 1 : 0;
			/* So many rows of the youngest age do not all ask. */
			if (h + i >= entry->rows || (int32_t)owner[i] == HS_NONE ||
				stamp[i] == HS_STAMP_SPARE || age[i] < kept->age ||
				((all || (int32_t)owner[i] < HS_NONE) && !age[i]) ||
				(age[i] == kept->age && taken >= s->bins[kept->age]))
				age[i] = HS_AGES;
		}
		HS_UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			at[i] = kept->need;
			if (age[i] < HS_AGES)
				at[i] = hs_atomic_add(&entry->place[age[i]], 1u);
		}
		HS_UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			if (age[i] < HS_AGES && at[i] >= s->bins[age[i]])
				at[i] = kept->need;
		}
		HS_UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			if (at[i] < kept->need)
				e[i] = keep_entry(entry, kept, h + i, (int32_t)owner[i], stamp[i]);
		}
		HS_UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			if (at[i] >= kept->need)
				continue;
			hs_store_relaxed(&entry->ring[(kept->base + at[i]) & entry->mask], e[i]);
			if (e[i] == HS_RING_HOLE)
				hs_atomic_add(&entry->kept.holes, 1u);
		}
	}
}

/* One block. */
HS_SELDOM void keep_list(const struct hs_keep_args *a, uint32_t index, struct keep_shared *s)
{
	const uint32_t layer = a->keep.evict - 1, blocks = a->keep.evict_blocks;
	struct hs_entry *entry = &a->table->entries[layer];
	struct hs_lane *own = &a->table->lanes[a->lane];

	if (!index && !threadIdx.x)
		hs_atomic_add(&entry->clock, 1u);
	if (!hs_load_relaxed(&own->lists[layer]))
		return;
	/* Another lane's pass may list: then this one does not, or a part of it. */
	if (!threadIdx.x) {
		const uint32_t keeper = hs_atomic_cas(&entry->keeper, 0u, a->lane + 1);

		hs_fence();
		s->kept = entry->kept;
		s->held = (!keeper || keeper == a->lane + 1) && s->kept.lane == a->lane &&
			  s->kept.base == (uint32_t)hs_load_relaxed(&entry->free);
	}
	__syncthreads();
	if (!keep_seen(a->table, layer, a->lane) && s->held)
		keep_mark(entry, index, blocks, s);
	hs_fence();
	__syncthreads();
	if (!threadIdx.x) {
		s->last = hs_atomic_add(&own->listed, 1u) + 1;
		hs_fence();
		s->held = hs_load_relaxed(&entry->keeper) == a->lane + 1;
	}
	__syncthreads();
	if (s->last != blocks)
		return;
	if (!threadIdx.x) {
		own->listed = own->lists[layer] = 0;
		s->kept = entry->kept;
	}
	__syncthreads();
	if (!s->held)
		return;
	if (s->kept.lane == a->lane && s->kept.marked)
		keep_show(a->table, layer, a->lane, s);
	hs_fence();
	if (!threadIdx.x)
		hs_store_release(&entry->keeper, 0u);
}

/* Block `index` of those of the passes. */
HS_DEVICE void keep_block(
	const struct hs_keep_args *a, uint32_t index, bool tell, struct keep_shared *s)
{
	const struct hs_entry *entries = a->table->entries;
	const bool counts = a->keep.count && entries[a->keep.count - 1].state == HS_ENTRY_ON;

	if (a->release && !counts && !index && !threadIdx.x)
		hs_store_release(&a->table->words[a->lane], 0u);
	if (index < a->keep.count_blocks) {
		if (counts)
			keep_count(a, index, tell, s);
	} else if (a->keep.evict && entries[a->keep.evict - 1].state == HS_ENTRY_ON) {
		keep_list(a, index - a->keep.count_blocks, s);
	}
}

#endif
