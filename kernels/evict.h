/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_EVICT_H
#define KERNELS_EVICT_H

/*
 * Free rows for the next launch. When all blocks of a launch have looked up,
 * the last one opens a scan over the hot rows, and whichever block has nothing
 * left to fetch takes slices of it. One scan does two things: rows with a key
 * (the stamp, or the birth) below the cut go to the ring, the rest is counted
 * by key. From the counts comes the cut for the next scan, so nobody waits.
 *
 * Exact: a scan takes every unprotected row below its cut, and rows at the cut
 * only as its quota says; a launch in between can only have made keys newer.
 *
 * Another lane may look up at the same time. It registers before it looks, and
 * the lanes are looked at again after the rows were taken from the map: either
 * it misses what we took, or we see it and leave the rows to a later scan.
 */

#include "kernels/map.h"

#define EVICT_SLICE (4 * HS_THREADS)

struct evict_shared {
	uint32_t slice, last, base, free;
	uint32_t count, ties, grant, taken;
	uint32_t newer;
	uint32_t bins[HS_EVICT_BINS];
	uint32_t chosen[EVICT_SLICE]; /* from the front; ties with the cut from the end */
	uint32_t rows[EVICT_SLICE];   /* taken */
};

/* One warp: what the lanes in this layer say. */
struct evict_lanes {
	uint64_t sum;
	uint32_t guard; /* rows of at most this age are protected */
	bool busy;	/* one of them is looking up */
};

HS_DEVICE struct evict_lanes evict_lanes(const struct hs_table *table, uint32_t layer, uint32_t now)
{
	struct evict_lanes l = {0, 0, false};

	HS_UNROLL
	for (uint32_t i = 0; i < (HS_LANES + 1) / 32; i++) {
		const uint32_t n = i * 32 + (threadIdx.x & 31);
		uint64_t word = hs_load_relaxed(&table->lanes[n].word);
		uint32_t high = (uint32_t)(word >> 32), age = now - (uint32_t)word;

		if (high >> 1 != layer + 1)
			continue;
		l.sum += (word ^ (uint64_t)n << 48) * 0x9e3779b97f4a7c15u;
		if (high & 1)
			l.busy = true;
		else if (age > l.guard && !HS_PLANTED(HS_PLANT_FLIGHT))
			l.guard = age;
	}
	for (uint32_t i = 16; i; i >>= 1) {
		uint32_t guard = __shfl_xor_sync(0xffffffffu, l.guard, i);

		l.sum += __shfl_xor_sync(0xffffffffu, l.sum, i);
		l.guard = guard > l.guard ? guard : l.guard;
	}
	l.busy = __ballot_sync(0xffffffffu, l.busy) != 0;
	return l;
}

HS_DEVICE uint32_t evict_slices(const struct hs_entry *entry)
{
	return (entry->rows + EVICT_SLICE - 1) / EVICT_SLICE;
}

HS_DEVICE uint32_t evict_free(const struct hs_entry *entry)
{
	uint64_t word = hs_load_relaxed(&entry->free);
	int32_t left = (int32_t)((uint32_t)word - (uint32_t)(word >> 32));

	return left > 0 ? (uint32_t)left : 0;
}

/* How many rows to free in the next scan, when so many are free before the
 * launch that it belongs to: enough for the launch after that, and a little. */
HS_DEVICE uint32_t evict_want(const struct hs_entry *entry, uint32_t free)
{
	const uint32_t recent = hs_load_relaxed(&entry->recent);
	uint32_t high = 2 * recent + (recent >> 3) + 8 + (entry->rows >> 7);

	if (high > entry->rows / 2)
		high = entry->rows / 2;
	return free < high ? high - free : 0;
}

/* Begins a scan; the caller holds `evicting`. */
HS_DEVICE void evict_begin(struct hs_entry *entry)
{
	entry->evict.tail = (uint32_t)hs_load_relaxed(&entry->free);
	entry->evict.taken = 0;
	entry->evict.newer = 0;
	hs_store_relaxed(&entry->evict.done, 0u);
	hs_fence();
	hs_store_release(&entry->evict.next, 0u);
}

/* Warp 0 of the block that looked up last. `now` is the clock after this launch.
 * True when a scan is open. */
HS_DEVICE bool evict_open(struct hs_table *table, uint32_t layer, uint32_t now)
{
	struct hs_entry *entry = &table->entries[layer];
	struct hs_evict *e = &entry->evict;
	struct evict_lanes l;
	uint32_t open = 0, free, misses, recent;
	uint64_t total;

	if (!(threadIdx.x & 31)) {
		free = evict_free(entry);
		total = hs_load_relaxed(&entry->totals[HS_COUNT_MISSES]) +
			hs_load_relaxed(&entry->totals[HS_COUNT_INPLACE]);
		recent = entry->recent - (entry->recent >> 3);
		misses = (uint32_t)(total - entry->before);
		entry->before = total;
		entry->recent = recent = misses > recent ? misses : recent;
		open = entry->order == HS_ORDER_ALL || e->want ||
		       free < 2 * recent + (recent >> 3) + 8 + (entry->rows >> 8);
		if (open)
			open = !hs_atomic_cas(&entry->evicting, 0u, 1u);
	}
	if (!__shfl_sync(0xffffffffu, open, 0))
		return false;
	l = evict_lanes(table, layer, now);
	if (!(threadIdx.x & 31)) {
		if (l.busy) {
			hs_store_release(&entry->evicting, 0u);
		} else {
			e->now = now;
			e->guard = l.guard;
			e->lanes = l.sum;
			e->again = 1;
			evict_begin(entry);
		}
	}
	return !l.busy;
}

/* Sorts the slice's rows into chosen, ties and bins. */
HS_DEVICE void evict_look(const struct hs_entry *entry, uint32_t first, struct evict_shared *s)
{
	const struct hs_evict *e = &entry->evict;
	const uint32_t order = entry->order;
	uint32_t stamp[4], key[4], newer = 0;

	HS_UNROLL
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t h = first + i * HS_THREADS + threadIdx.x;

		stamp[i] = key[i] = HS_STAMP_FREE(e->now);
		if (h >= entry->rows)
			continue;
		stamp[i] = key[i] = hs_load_relaxed(&entry->stamp[h]);
		if (order == HS_ORDER_FETCH)
			key[i] = hs_load_relaxed(&entry->born[h]);
	}
	HS_UNROLL
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t h = first + i * HS_THREADS + threadIdx.x, mixed, away;
		int32_t over = (int32_t)(key[i] - e->cut);

		/* Signed: other lanes' clocks may have gone on. */
		if ((int32_t)(e->now - stamp[i]) <= (int32_t)e->guard)
			continue;
		if (order == HS_ORDER_RANDOM) {
			mixed = (h ^ e->now * 0x9e3779b9u) * 0x85ebca6bu;
			mixed = (mixed ^ mixed >> 15) * 0xc2b2ae35u;
			over = e->want && (mixed ^ mixed >> 16) < e->cut ? -1 : 1;
		} else if (order == HS_ORDER_ALL) {
			over = -1;
		} else if (!e->want) {
			over = 1;
		}
		if (over < 0) {
			s->chosen[hs_atomic_add(&s->count, 1u)] = h;
			continue;
		}
		if (!over && e->quota)
			s->chosen[EVICT_SLICE - 1 - hs_atomic_add(&s->ties, 1u)] = h;
		away = (int32_t)(key[i] - e->base) > 0 ? key[i] - e->base : 0;
		newer = ~away > newer ? ~away : newer;
		away >>= e->shift;
		hs_atomic_add(&s->bins[away < HS_EVICT_BINS ? away : HS_EVICT_BINS - 1], 1u);
	}
	if (newer)
		hs_atomic_max(&s->newer, newer);
}

/* Takes one row from the map. False if it is in use after all. */
HS_DEVICE bool evict_row(struct hs_entry *entry, uint32_t h)
{
	const int32_t owner = hs_load_relaxed(&entry->owner[h]);
	const int32_t slot = owner >= 0 ? owner : HS_ORPHAN(owner);
	const int32_t v = owner == HS_NONE ? HS_NONE : hs_load_relaxed(&entry->map[slot]);

	if (owner == HS_NONE)
		return false;
	/* An orphan whose mark was late may be found again through the map:
	 * what the map says counts. */
	if (map_row(v) == h) {
		if (v < 0 || hs_atomic_cas(&entry->map[slot], v, (int32_t)HS_NONE) != v)
			return false;
		hs_atomic_add(&entry->totals[HS_COUNT_EVICTIONS], (uint64_t)1);
	}
	hs_store_relaxed(&entry->owner[h], (int32_t)HS_NONE);
	hs_store_relaxed(&entry->stamp[h], HS_STAMP_FREE(entry->evict.now));
	return true;
}

HS_DEVICE void evict_slice(struct hs_entry *entry, uint32_t first, struct evict_shared *s)
{
	struct hs_evict *e = &entry->evict;
	uint32_t left, total;

	for (uint32_t i = threadIdx.x; i < HS_EVICT_BINS; i += HS_THREADS)
		s->bins[i] = 0;
	if (!threadIdx.x)
		s->count = s->ties = s->grant = s->taken = s->newer = 0;
	__syncthreads();
	evict_look(entry, first, s);
	__syncthreads();
	if (!threadIdx.x && s->ties) {
		do {
			left = hs_load_relaxed(&e->quota);
			s->grant = s->ties < left ? s->ties : left;
		} while (s->grant && hs_atomic_cas(&e->quota, left, left - s->grant) != left);
	}
	if (!threadIdx.x && s->newer)
		hs_atomic_max(&e->newer, s->newer);
	for (uint32_t i = threadIdx.x; i < HS_EVICT_BINS; i += HS_THREADS) {
		if (s->bins[i])
			hs_atomic_add(&e->bins[i], s->bins[i]);
	}
	__syncthreads();
	total = s->count + s->grant;
	for (uint32_t i = threadIdx.x; i < total; i += HS_THREADS) {
		uint32_t h = s->chosen[i < s->count ? i : EVICT_SLICE - 1 - (i - s->count)];

		if (evict_row(entry, h))
			s->rows[hs_atomic_add(&s->taken, 1u)] = h;
	}
	__syncthreads();
	if (!s->taken)
		return;
	if (!threadIdx.x)
		s->base = e->tail + hs_atomic_add(&e->taken, s->taken);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < s->taken; i += HS_THREADS)
		hs_store_relaxed(&entry->ring[(s->base + i) & entry->mask], s->rows[i]);
}

/* Warp 0, all rows counted: the cut at which the next scan frees e->want rows. */
HS_DEVICE void evict_cut(struct hs_entry *entry)
{
	struct hs_evict *e = &entry->evict;
	const uint32_t lane = threadIdx.x, per = HS_EVICT_BINS / 32;
	uint32_t own = 0, below = 0, total, other, bin, last = 0;
	unsigned mask;

	for (uint32_t i = 0; i < per; i++)
		own += hs_load_relaxed(&e->bins[lane * per + i]);
	for (uint32_t i = 0; i < 31; i++) {
		other = __shfl_sync(0xffffffffu, own, i);
		below += i < lane ? other : 0;
	}
	total = __shfl_sync(0xffffffffu, below + own, 31);
	if (lane == 31)
		last = hs_load_relaxed(&e->bins[HS_EVICT_BINS - 1]);
	/* Where the count reaches what is wanted, the last bin apart. */
	mask = __ballot_sync(0xffffffffu, below + own - last >= e->want);
	if (entry->order == HS_ORDER_RANDOM) {
		if (!lane)
			e->cut = total > e->want ? (uint32_t)(((uint64_t)e->want << 32) / total)
						 : 0xffffffffu;
		return;
	}
	if (!mask) {
		if (lane != 31)
			return;
		/* Too few: all that were counted, and coarser from there on. */
		e->quota = 0;
		if (total == last) {
			e->cut = e->base = e->base + ~e->newer;
			e->shift = 0;
			return;
		}
		e->cut = e->base = e->base + ((HS_EVICT_BINS - 1) << e->shift);
		e->shift = e->shift < 20 ? e->shift + 2 : e->shift;
		return;
	}
	if (lane != (uint32_t)__ffs((int)mask) - 1)
		return;
	for (bin = lane * per; below + (own = hs_load_relaxed(&e->bins[bin])) < e->want; bin++)
		below += own;
	if (!e->shift) {
		e->cut = e->base = e->base + bin;
		e->quota = e->want - below;
		return;
	}
	e->quota = 0;
	if (below + own > 2 * e->want) {
		e->cut = e->base = e->base + (bin << e->shift);
		e->shift = e->shift > 4 ? e->shift - 4 : 0;
	} else {
		e->cut = e->base = e->base + ((bin + 1) << e->shift);
		e->shift -= bin < HS_EVICT_BINS / 16;
	}
}

/* The block that did the last slice. */
HS_DEVICE void evict_end(struct hs_table *table, uint32_t layer, struct evict_shared *s)
{
	struct hs_entry *entry = &table->entries[layer];
	struct hs_evict *e = &entry->evict;
	const uint32_t taken = hs_load_relaxed(&e->taken);
	uint64_t word, next;
	uint32_t head;

	if (threadIdx.x < 32) {
		struct evict_lanes l = evict_lanes(table, layer, e->now);

		if (!threadIdx.x)
			s->last = l.sum == e->lanes;
	}
	__syncthreads();
	/* Someone may have seen them: they stay, as if used just now. */
	for (uint32_t i = threadIdx.x; i < taken && !s->last; i += HS_THREADS) {
		uint32_t h = hs_load_relaxed(&entry->ring[(e->tail + i) & entry->mask]);

		hs_store_relaxed(&entry->owner[h], (int32_t)HS_ORPHAN(0));
		hs_store_relaxed(&entry->stamp[h], hs_load_relaxed(&entry->clock));
	}
	hs_fence();
	__syncthreads();
	if (!threadIdx.x) {
		/* Pops beyond the end took nothing: they are forgotten here. */
		do {
			word = hs_load_relaxed(&entry->free);
			head = (uint32_t)(word >> 32);
			if ((int32_t)((uint32_t)word - head) < 0)
				head = (uint32_t)word;
			next = (uint64_t)head << 32 | ((uint32_t)word + (s->last ? taken : 0));
		} while (hs_atomic_cas(&entry->free, word, next) != word);
		s->free = (uint32_t)next - head;
		e->want = evict_want(entry, s->free);
	}
	__syncthreads();
	if (threadIdx.x < 32 && e->want)
		evict_cut(entry);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < HS_EVICT_BINS; i += HS_THREADS)
		e->bins[i] = 0;
	hs_fence();
	__syncthreads();
	if (threadIdx.x)
		return;
	if (entry->counts)
		hs_store_relaxed(&entry->counts[HS_COUNT_EVICTIONS],
			hs_load_relaxed(&entry->totals[HS_COUNT_EVICTIONS]));
	if (e->want && s->free < hs_load_relaxed(&entry->recent) && e->again && s->last &&
		entry->order != HS_ORDER_ALL) {
		/* Not enough for one launch like the latest: with the cut at once. */
		e->again = 0;
		evict_begin(entry);
	} else {
		hs_store_release(&entry->evicting, 0u);
	}
}

/* All threads of a block that has nothing else to do. */
HS_DEVICE void evict_help(struct hs_table *table, uint32_t layer, struct evict_shared *s)
{
	struct hs_entry *entry = &table->entries[layer];
	const uint32_t slices = evict_slices(entry);

	for (;;) {
		if (!threadIdx.x) {
			s->slice = slices;
			if (hs_load_acquire(&entry->evict.next) < slices)
				s->slice = hs_atomic_add(&entry->evict.next, 1u);
			hs_fence();
		}
		__syncthreads();
		if (s->slice >= slices)
			return;
		evict_slice(entry, s->slice * EVICT_SLICE, s);
		__syncthreads();
		if (!threadIdx.x) {
			hs_fence();
			s->last = hs_atomic_add(&entry->evict.done, 1u) + 1 == slices;
			hs_fence();
		}
		__syncthreads();
		if (s->last)
			evict_end(table, layer, s);
		__syncthreads();
	}
}

#endif
