/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_KEEP_H
#define KERNELS_KEEP_H

/*
 * Rows are made spare off the critical path: a miss takes one from the ring and
 * asks nobody. After a launch over a layer, two passes go over the layer's rows,
 * by some blocks of the lane's next launches, which are over other layers:
 *
 *	count   says of what the launch fetched that it is there; counts rows by
 *	        age, if fewer are spare than launches lately missed; the last
 *	        block finds the age from which rows go
 *	evict   takes these from the map and puts them in the ring; the clock of
 *	        the layer goes on
 *
 * So at the start of every launch of a lane the layer is an exact LRU (by step)
 * of the rows that are not spare.
 *
 * Other lanes: one that is at the layer stops the pass, which takes nothing
 * then. Lanes say where they are before they look, and they are looked at again
 * after rows were taken from the map: either a lane misses what was taken, or it
 * is seen, and the rows are left as orphans for the next pass to find.
 */

#include "kernels/map.h"

#ifndef KEEP_LEAST
#define KEEP_LEAST 64u /* rows that are kept spare at least, if there are many */
#endif
#ifndef KEEP_SLACK
#define KEEP_SLACK 128u /* more than that, so that not every launch needs a pass */
#endif
#define KEEP_SLICE (4 * HS_THREADS)
#define KEEP_LIST (2 * KEEP_SLICE)

struct keep_shared {
	uint32_t need, recent, last, count;
	uint32_t sums[HS_WARPS];
	struct hs_kept kept;
	union {
		uint32_t bins[HS_AGES];
		struct {
			uint32_t row[KEEP_LIST], stamp[KEEP_LIST];
			int32_t slot[KEEP_LIST];
		} list;
	} u;
};

/* All threads of a block: whether another lane is at the layer. */
HS_DEVICE bool keep_seen(const struct hs_table *table, uint32_t layer, uint32_t lane)
{
	bool seen = false;

	for (uint32_t i = threadIdx.x; i < HS_LANES; i += HS_THREADS)
		seen |= i != lane && hs_load_relaxed(&table->words[i]) == layer + 1;
	return __syncthreads_or(seen) && !HS_PLANTED(HS_PLANT_FLIGHT);
}

/* Rows that the ring still names. */
HS_DEVICE uint32_t keep_left(uint64_t free)
{
	int32_t left = (int32_t)((uint32_t)free - (uint32_t)(free >> 32));

	return left > 0 ? (uint32_t)left : 0;
}

/* Equal at HS_AGES - 1. Random: as good as any other hash. */
HS_DEVICE uint32_t keep_age(const struct hs_entry *entry, uint32_t h, uint32_t key, uint32_t now)
{
	int32_t age = (int32_t)(now - key);
	uint32_t mixed;

	if (entry->order == HS_ORDER_RANDOM) {
		mixed = (h ^ now * 0x9e3779b9u) * 0x85ebca6bu;
		mixed = (mixed ^ mixed >> 15) * 0xc2b2ae35u;
		return (mixed ^ mixed >> 16) % HS_AGES;
	}
	age = age < 0 ? 0 : age;
	return age < HS_AGES ? (uint32_t)age : HS_AGES - 1;
}

/* Four rows' words, from h on. */
HS_DEVICE void keep_load(const uint32_t *p, uint32_t h, uint32_t *out)
{
	hs_u128 v = hs_load16(p + h);

	out[0] = v.x;
	out[1] = v.y;
	out[2] = v.z;
	out[3] = v.w;
}

/* What the lane's last launch over the layer fetched is there: ready for all. */
HS_DEVICE void keep_ready(struct hs_entry *entry, uint32_t from, uint64_t free, uint32_t lane,
	uint32_t first, uint32_t step)
{
	uint32_t to = (uint32_t)free - keep_left(free);

	/* Other lanes' rows are among them; with many of those, all are looked at
	 * (threads may differ in where it ends). */
	if (to - from > entry->mask) {
		from = 0;
		to = entry->mask + 1;
	}
	for (uint32_t at = from + first; (int32_t)(to - at) > 0; at += step) {
		const uint32_t h = hs_load_relaxed(&entry->ring[at & entry->mask]);
		const int32_t slot = h < entry->rows ? hs_load_relaxed(&entry->owner[h]) : HS_NONE;
		const int32_t pending = HS_PENDING(lane, h), doomed = HS_DOOMED(lane, h);

		if (slot < 0)
			continue;
		if (hs_atomic_cas(&entry->map[slot], pending, (int32_t)h) == doomed) {
			hs_store_relaxed(&entry->owner[h], (int32_t)HS_ORPHAN(slot));
			hs_store_relaxed(&entry->map[slot], (int32_t)HS_NONE);
		}
	}
}

HS_DEVICE uint32_t keep_decayed(uint32_t recent)
{
	return recent - (recent + 7) / 8;
}

/* How many rows must become spare. Blocks may differ while other lanes are at
 * the layer; the last one's word counts. */
HS_DEVICE uint32_t keep_need(
	const struct hs_entry *entry, uint64_t free, uint32_t least, uint32_t *recent)
{
	const uint64_t claimed = hs_load_relaxed(&entry->totals[HS_COUNT_MISSES]) +
				 hs_load_relaxed(&entry->totals[HS_COUNT_INPLACE]);
	const uint64_t misses = claimed - hs_load_relaxed(&entry->claimed);
	const uint32_t decayed = keep_decayed(hs_load_relaxed(&entry->recent));
	const uint32_t left = keep_left(free), most = entry->rows / 4;
	uint32_t target;

	*recent = misses > decayed ? (uint32_t)(misses < entry->rows ? misses : entry->rows)
				   : decayed;
	if (entry->order == HS_ORDER_ALL)
		return entry->rows;
	target = *recent + *recent / 4;
	target = target < KEEP_LEAST ? KEEP_LEAST : target;
	target = target > most ? most : target;
	if (least > target)
		return least > left ? least - left : 0;
	if (left >= target)
		return 0;
	target += entry->rows / 16 < KEEP_SLACK ? entry->rows / 16 : KEEP_SLACK;
	return target - left;
}

/* All threads: a share of the rows by age, but for the newest: they are what is
 * left. */
HS_DEVICE void keep_histogram(struct hs_entry *entry, struct hs_lane *own, uint32_t now,
	uint32_t index, uint32_t blocks, struct keep_shared *s)
{
	const uint32_t *keys = entry->order == HS_ORDER_FETCH ? entry->born : entry->stamp;
	uint32_t stamp[4], key[4], age;

	for (uint32_t i = threadIdx.x; i < HS_AGES; i += HS_THREADS)
		s->u.bins[i] = 0;
	__syncthreads();
	for (uint32_t h = (index * HS_THREADS + threadIdx.x) * 4; h < entry->rows;
		h += blocks * KEEP_SLICE) {
		keep_load(entry->stamp, h, stamp);
		keep_load(keys, h, key);
		HS_UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			age = keep_age(entry, h + i, key[i], now);
			if (h + i < entry->rows && stamp[i] != HS_STAMP_SPARE && age)
				hs_atomic_add(&s->u.bins[age], 1u);
		}
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < HS_AGES; i += HS_THREADS) {
		if (s->u.bins[i])
			hs_atomic_add(&own->bins[i], s->u.bins[i]);
	}
	hs_fence();
}

/* All threads of the last block: the age from which rows go. The lane's bins are
 * as they were. */
HS_DEVICE void keep_cut(struct hs_lane *own, struct keep_shared *s, uint32_t need)
{
	enum { EACH = HS_AGES / HS_THREADS };
	uint32_t *bins = &own->bins[HS_AGES - (threadIdx.x + 1) * EACH];
	const uint32_t lane = threadIdx.x & 31;
	uint32_t n[EACH], sum = 0, upto, other;

	HS_UNROLL
	for (uint32_t i = 0; i < EACH; i++)
		n[i] = hs_load_relaxed(&bins[i]);
	HS_UNROLL
	for (uint32_t i = 0; i < EACH; i++) {
		sum += n[i];
		hs_store_relaxed(&bins[i], 0u);
	}
	upto = sum;
	for (uint32_t i = 1; i < 32; i *= 2) {
		other = __shfl_up_sync(0xffffffffu, upto, i);
		upto += lane >= i ? other : 0;
	}
	if (lane == 31)
		s->sums[threadIdx.x / 32] = upto;
	__syncthreads();
	for (uint32_t i = 0; i < threadIdx.x / 32; i++)
		upto += s->sums[i];
	/* upto: rows of this thread's ages and older. */
	if (threadIdx.x == HS_THREADS - 1 && upto < need) {
		s->kept.age = 0;
		s->kept.rest = need - upto;
	}
	sum = upto - sum;
	for (uint32_t i = EACH; i-- > 0 && sum < need; sum += n[i]) {
		if (sum + n[i] < need)
			continue;
		s->kept.age = HS_AGES - (threadIdx.x + 1) * EACH + i;
		s->kept.rest = need - sum;
		break;
	}
	__syncthreads();
}

/* All threads of the block that counted last; some: there are rows in the bins. */
HS_DEVICE void keep_counted(const struct hs_keep_args *a, uint64_t free, uint32_t now, bool some,
	bool tell, struct keep_shared *s)
{
	const uint32_t layer = a->keep.count - 1;
	struct hs_entry *entry = &a->table->entries[layer];
	struct hs_lane *own = &a->table->lanes[a->lane];
	const uint32_t bit = 1u << layer % 32;
	const uint64_t claimed = hs_load_relaxed(&entry->totals[HS_COUNT_MISSES]) +
				 hs_load_relaxed(&entry->totals[HS_COUNT_INPLACE]);
	uint64_t total = 0;

	if (threadIdx.x < HS_COUNTS)
		total = hs_load_relaxed(&entry->totals[threadIdx.x]);
	if (!threadIdx.x)
		s->kept.age = s->kept.rest = 0;
	__syncthreads();
	if (some)
		keep_cut(own, s, s->need);
	if (!threadIdx.x) {
		s->kept.need = s->need;
		s->kept.now = now;
		s->kept.ties = 0;
		entry->kept = s->kept;
		tell |= now % 32 == 0 || claimed != entry->claimed;
		entry->recent = s->recent;
		entry->claimed = claimed;
		own->from[layer] = (uint32_t)free - keep_left(free);
		own->counted = 0;
		own->missed[layer] = 0;
		if (s->recent >= entry->sort_from / 8)
			hs_atomic_or(&own->many[layer / 32], bit);
		else
			hs_atomic_and(&own->many[layer / 32], ~bit);
		/* Until here other lanes put no rows in the ring. */
		if (a->release)
			hs_store_release(&a->table->words[a->lane], 0u);
	}
	/* Seldom for launches that only hit: the host is far away. */
	if (threadIdx.x < 32 && __ballot_sync(0xffffffffu, tell) && threadIdx.x < HS_COUNTS &&
		entry->counts)
		hs_store_relaxed(&entry->counts[threadIdx.x], total);
}

/* One block. tell: the host wants to see the counts. */
HS_SELDOM void keep_count(
	const struct hs_keep_args *a, uint32_t index, bool tell, struct keep_shared *s)
{
	const uint32_t layer = a->keep.count - 1, blocks = a->keep.count_blocks;
	struct hs_entry *entry = &a->table->entries[layer];
	struct hs_lane *own = &a->table->lanes[a->lane];
	const uint64_t free = hs_load_relaxed(&entry->free);
	const uint32_t now = hs_load_relaxed(&entry->clock);
	const uint32_t from = hs_load_relaxed(&own->from[layer]);
	const uint32_t missed = hs_load_relaxed(&own->missed[layer]);
	bool counts;

	/* The lane's own word, so all blocks agree. */
	if (!missed && !a->least && entry->order != HS_ORDER_ALL) {
		if (index)
			return;
		if (!threadIdx.x) {
			s->need = 0;
			s->recent = keep_decayed(hs_load_relaxed(&entry->recent));
		}
		keep_counted(a, free, now, false, tell, s);
		return;
	}
	if (!threadIdx.x)
		s->need = keep_need(entry, free, a->least, &s->recent);
	keep_ready(
		entry, from, free, a->lane, index * HS_THREADS + threadIdx.x, blocks * HS_THREADS);
	__syncthreads();
	counts = s->need && entry->order != HS_ORDER_ALL;
	if (counts)
		keep_histogram(entry, own, now, index, blocks, s);
	__syncthreads();
	if (!threadIdx.x) {
		s->last = hs_atomic_add(&own->counted, counts ? 0x10001u : 1u);
		s->last += counts ? 0x10001u : 1u;
		if ((s->last & 0xffff) == blocks)
			hs_fence();
	}
	__syncthreads();
	if ((s->last & 0xffff) == blocks)
		keep_counted(a, free, now, s->last >> 16, tell, s);
}

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
	if (!*evicted && ((v < HS_NONE && (map_row(v) == h || map_claimed(v))) ||
				 (int32_t)(now - stamp) < 1))
		return false;
	if (hs_atomic_cas(&entry->stamp[h], stamp, HS_STAMP_SPARE) == stamp)
		return true;
	/* Another lane used it in between: an orphan. */
	if (*evicted)
		hs_atomic_cas(&entry->owner[h], slot, (int32_t)HS_ORPHAN(slot));
	return false;
}

/* One warp: puts each thread's row in the ring. The ring is as long as the layer
 * has rows; what is written is told when all that was begun before is written. */
HS_DEVICE void keep_push(struct hs_entry *entry, uint32_t h, bool some)
{
	const unsigned mask = __ballot_sync(0xffffffffu, some);
	const uint32_t lane = threadIdx.x & 31, count = (uint32_t)__popc(mask);
	uint32_t at = 0, written;
	uint64_t free, told;

	if (!mask)
		return;
	if (!lane)
		at = hs_atomic_add(&entry->reserved, count);
	at = __shfl_sync(0xffffffffu, at, 0) + (uint32_t)__popc(mask & ((1u << lane) - 1));
	if (some) {
#ifdef HS_PLANTS
		/* Whoever still reads a spare row shows it at once. */
		memset(entry->hot + (uint64_t)h * entry->row, 0xee, entry->row);
#endif
		hs_store_relaxed(&entry->owner[h], (int32_t)HS_NONE);
		hs_store_relaxed(&entry->stamp[h], HS_STAMP_SPARE);
		hs_store_relaxed(&entry->ring[at & entry->mask], h);
		hs_fence();
	}
	__syncwarp();
	if (lane)
		return;
	written = hs_atomic_add(&entry->written, count) + count;
	hs_fence();
	if (hs_load_relaxed(&entry->reserved) != written)
		return;
	told = hs_load_relaxed(&entry->free);
	do {
		uint32_t pops = (uint32_t)(told >> 32), pushes = (uint32_t)told;

		free = told;
		if ((int32_t)(written - pushes) <= 0)
			break;
		/* Who popped beyond the end got nothing. */
		pops = (int32_t)(pops - pushes) > 0 ? pushes : pops;
		told = hs_atomic_cas(&entry->free, free, (uint64_t)pops << 32 | written);
	} while (told != free);
}

/* All threads: takes the listed rows. */
HS_DEVICE void keep_listed(
	struct hs_table *table, uint32_t layer, uint32_t lane, struct keep_shared *s)
{
	struct hs_entry *entry = &table->entries[layer];
	const uint32_t count = s->count, now = s->kept.now;
	bool seen, taken, evicted;

	for (uint32_t i = threadIdx.x; i < count; i += HS_THREADS) {
		evicted = false;
		taken = keep_take(entry, s->u.list.row[i], s->u.list.slot[i], s->u.list.stamp[i],
			now, &evicted);
		if (evicted)
			hs_atomic_add(&entry->totals[HS_COUNT_EVICTIONS], (uint64_t)1);
		if (!taken)
			s->u.list.row[i] = HS_ROWS_MAX;
	}
	hs_fence();
	__syncthreads();
	seen = keep_seen(table, layer, lane);
	for (uint32_t i = threadIdx.x; i - threadIdx.x < count; i += HS_THREADS) {
		const uint32_t h = i < count ? s->u.list.row[i] : HS_ROWS_MAX;

		if (h != HS_ROWS_MAX && seen) {
			const int32_t owner = s->u.list.slot[i];

			/* Someone may have seen it: an orphan, as if used just now. */
			hs_store_relaxed(&entry->owner[h],
				owner < HS_NONE ? owner : (int32_t)HS_ORPHAN(owner));
			hs_store_relaxed(&entry->stamp[h], now);
		}
		keep_push(entry, h, h != HS_ROWS_MAX && !seen);
	}
	__syncthreads();
}

/* One thread: whether a row that a pass sees is to go. */
HS_DEVICE bool keep_goes(struct hs_entry *entry, const struct hs_kept *kept, uint32_t age,
	int32_t owner, uint32_t stamp)
{
	if (owner == HS_NONE || stamp == HS_STAMP_SPARE)
		return false;
	/* Nobody would hit an orphan. */
	if (age > kept->age || (owner < HS_NONE && (int32_t)(kept->now - stamp) > 0))
		return true;
	return age == kept->age && hs_load_relaxed(&entry->kept.ties) < kept->rest &&
	       hs_atomic_add(&entry->kept.ties, 1u) < kept->rest;
}

/* One block. */
HS_SELDOM void keep_evict(const struct hs_keep_args *a, uint32_t index, struct keep_shared *s)
{
	const uint32_t layer = a->keep.evict - 1, blocks = a->keep.evict_blocks;
	struct hs_entry *entry = &a->table->entries[layer];
	const uint32_t *keys = entry->order == HS_ORDER_FETCH ? entry->born : entry->stamp;
	uint32_t stamp[4], key[4], owner[4], at, left;

	if (!index && !threadIdx.x)
		hs_atomic_add(&entry->clock, 1u);
	if (!threadIdx.x) {
		s->kept = entry->kept;
		s->count = 0;
	}
	__syncthreads();
	if (!s->kept.need || keep_seen(a->table, layer, a->lane))
		return;
	for (uint32_t first = index * KEEP_SLICE; first < entry->rows;
		first += blocks * KEEP_SLICE) {
		const uint32_t h = first + threadIdx.x * 4;

		if (h < entry->rows) {
			keep_load(entry->stamp, h, stamp);
			keep_load(keys, h, key);
			keep_load((const uint32_t *)entry->owner, h, owner);
			HS_UNROLL
			for (uint32_t i = 0; i < 4; i++) {
				if (h + i >= entry->rows ||
					!keep_goes(entry, &s->kept,
						keep_age(entry, h + i, key[i], s->kept.now),
						(int32_t)owner[i], stamp[i]))
					continue;
				at = hs_atomic_add(&s->count, 1u);
				s->u.list.row[at] = h + i;
				s->u.list.stamp[at] = stamp[i];
				s->u.list.slot[at] = (int32_t)owner[i];
			}
		}
		__syncthreads();
		left = s->count;
		__syncthreads();
		if (left && (left + KEEP_SLICE > KEEP_LIST ||
				    first + blocks * KEEP_SLICE >= entry->rows)) {
			keep_listed(a->table, layer, a->lane, s);
			if (!threadIdx.x)
				s->count = 0;
			__syncthreads();
		}
	}
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
		keep_evict(a, index - a->keep.count_blocks, s);
	}
}

#endif
