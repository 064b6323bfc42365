/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_EVICT_H
#define KERNELS_EVICT_H

/*
 * Free rows for the next launch, made by the block that finished looking up
 * last while the others still fetch. Exact: of the rows that no launch in
 * flight may read, those of the greatest age go, and no other.
 *
 * Another lane may look up at the same time. It registers before it looks, and
 * we look at the lanes again after we took rows from the map: either it misses
 * what we took, or we see it and leave the rows to a later eviction.
 */

#include "kernels/map.h"

#define EVICT_BINS 1024

struct evict_shared {
	uint32_t now;
	uint32_t want;	 /* rows still to be chosen by age */
	uint32_t guard;	 /* rows of at most this age are protected */
	uint32_t busy;	 /* another launch is looking up in this layer */
	uint32_t oldest; /* greatest age seen */
	uint32_t orphans;
	uint32_t base, shift, width; /* the ages that are counted: base + [0, width) */
	uint32_t full, part, quota;  /* ages from full on go, and quota of age part */
	uint32_t taken, tail, done;
	uint64_t lanes[2]; /* sums over the lanes in this layer, before and after */
	uint32_t bins[EVICT_BINS];
};

/* Sums what the lanes in this layer say. */
HS_DEVICE void evict_lanes(
	struct hs_table *table, uint32_t layer, uint32_t now, uint64_t *sum, struct evict_shared *e)
{
	for (uint32_t i = threadIdx.x; i < HS_LANES; i += blockDim.x) {
		uint64_t word = hs_load_relaxed(&table->lanes[i].word);
		uint32_t high = (uint32_t)(word >> 32);

		if (high >> 1 != layer + 1)
			continue;
		hs_atomic_add(sum, (word ^ (uint64_t)i << 48) * 0x9e3779b97f4a7c15u);
		if (high & 1)
			hs_atomic_or(&e->busy, 1u);
		else if (!HS_PLANTED(HS_PLANT_FLIGHT))
			hs_atomic_max(&e->guard, now - (uint32_t)word);
	}
}

/* False for a free or protected row; else its age, and whether it is an orphan. */
HS_DEVICE bool evict_age(const struct hs_entry *entry, uint32_t h, uint32_t now,
	const struct evict_shared *e, uint32_t *age, bool *orphan)
{
	int32_t owner = hs_load_relaxed(&entry->owner[h]);
	uint32_t stamp = hs_load_relaxed(&entry->stamp[h]);
	uint32_t mixed;

	/* Signed: another lane's clock may have gone on. */
	if (owner == HS_NONE || (int32_t)(now - stamp) <= (int32_t)e->guard)
		return false;
	*orphan = owner < 0;
	if (entry->order == HS_ORDER_FETCH) {
		*age = now - hs_load_relaxed(&entry->born[h]);
	} else if (entry->order == HS_ORDER_RANDOM) {
		mixed = (h ^ now * 0x9e3779b9u) * 0x85ebca6bu;
		mixed = (mixed ^ mixed >> 15) * 0xc2b2ae35u;
		*age = (mixed ^ mixed >> 16) >> 12;
	} else {
		*age = now - stamp;
	}
	return true;
}

/* Warp 0: from the oldest bin down, the bin in which `want` is reached. */
HS_DEVICE void evict_cut(struct evict_shared *e)
{
	const uint32_t lane = threadIdx.x, per = EVICT_BINS / 32;
	uint32_t own = 0, above = 0, mask, bin;

	for (uint32_t i = 0; i < per; i++)
		own += e->bins[lane * per + i];
	for (uint32_t i = 31; i; i--) {
		uint32_t other = __shfl_sync(0xffffffffu, own, i);

		if (i > lane)
			above += other;
	}
	mask = __ballot_sync(0xffffffffu, above + own >= e->want);
	if (!mask) {
		/* Not that many: all of them. */
		if (!lane) {
			e->full = e->base;
			e->quota = 0;
			e->done = 1;
		}
		return;
	}
	if (lane != 31u - (uint32_t)__clz((int)mask))
		return;
	bin = lane * per + per;
	for (own = 0; above + own < e->want;) {
		above += own;
		own = e->bins[--bin];
	}
	e->full = e->base + ((bin + 1) << e->shift);
	e->want -= above;
	if (own == e->want || !e->shift) {
		e->part = e->base + (bin << e->shift);
		e->quota = e->want;
		if (own == e->want) {
			e->full = e->part;
			e->quota = 0;
		}
		e->done = 1;
		return;
	}
	e->base += bin << e->shift;
	e->width = 1u << e->shift;
	e->shift = e->shift > 10 ? e->shift - 10 : 0;
}

/* Sets full, part and quota so that exactly `want` rows go, or all there are. */
HS_DEVICE void evict_choose(const struct hs_entry *entry, uint32_t now, struct evict_shared *e)
{
	uint32_t age, oldest = 0, orphans = 0;
	bool orphan;

	for (uint32_t h = threadIdx.x; h < entry->rows; h += blockDim.x) {
		if (!evict_age(entry, h, now, e, &age, &orphan))
			continue;
		if (orphan)
			orphans++;
		else if (age > oldest)
			oldest = age;
	}
	hs_atomic_max(&e->oldest, oldest);
	hs_atomic_add(&e->orphans, orphans);
	__syncthreads();
	if (!threadIdx.x) {
		e->done = e->want <= e->orphans;
		e->want -= e->done ? e->want : e->orphans;
		e->full = 0xffffffffu; /* orphans alone */
		e->quota = 0;
		e->base = 0;
		e->shift = e->oldest < EVICT_BINS ? 0 : 22 - (uint32_t)__clz((int)e->oldest);
		e->width = 0xffffffffu;
		if (entry->order == HS_ORDER_ALL) {
			e->full = 0;
			e->done = 1;
		}
	}
	__syncthreads();
	while (!e->done) {
		for (uint32_t i = threadIdx.x; i < EVICT_BINS; i += blockDim.x)
			e->bins[i] = 0;
		__syncthreads();
		for (uint32_t h = threadIdx.x; h < entry->rows; h += blockDim.x) {
			if (!evict_age(entry, h, now, e, &age, &orphan) || orphan)
				continue;
			if (age - e->base < e->width && age <= e->oldest)
				hs_atomic_add(&e->bins[(age - e->base) >> e->shift], 1u);
		}
		__syncthreads();
		if (threadIdx.x < 32)
			evict_cut(e);
		__syncthreads();
	}
}

/* Takes the chosen rows from the map and puts them behind the ring's end. */
HS_DEVICE void evict_take(struct hs_entry *entry, uint32_t now, struct evict_shared *e)
{
	for (uint32_t h = threadIdx.x; h < entry->rows; h += blockDim.x) {
		uint32_t age, left;
		int32_t owner, slot, v;
		bool orphan;

		if (!evict_age(entry, h, now, e, &age, &orphan))
			continue;
		if (!orphan && age < e->full) {
			if (!e->quota || age != e->part)
				continue;
			do {
				left = hs_load_relaxed(&e->quota);
			} while (left && hs_atomic_cas(&e->quota, left, left - 1) != left);
			if (!left)
				continue;
		}
		owner = hs_load_relaxed(&entry->owner[h]);
		slot = owner >= 0 ? owner : HS_ORPHAN(owner);
		v = hs_load_relaxed(&entry->map[slot]);
		/* An orphan whose mark was late may be found again through the
		 * map: what the map says counts. */
		if (map_row(v) == h) {
			if (v < 0 || hs_atomic_cas(&entry->map[slot], v, (int32_t)HS_NONE) != v)
				continue;
			hs_atomic_add(&entry->totals[HS_COUNT_EVICTIONS], (uint64_t)1);
		}
		hs_store_relaxed(&entry->owner[h], (int32_t)HS_ORPHAN(slot));
		entry->ring[(e->tail + hs_atomic_add(&e->taken, 1u)) & entry->mask] = h;
	}
}

/* How many rows to free: none until fewer are left than one more launch like
 * the latest takes, then a little beyond, so that little of the buffer idles. */
HS_DEVICE uint32_t evict_want(struct hs_entry *entry, uint32_t free)
{
	uint64_t total = hs_load_relaxed(&entry->totals[HS_COUNT_MISSES]) +
			 hs_load_relaxed(&entry->totals[HS_COUNT_INPLACE]);
	uint32_t misses = (uint32_t)(total - entry->before);
	uint32_t recent = entry->recent - (entry->recent >> 3), low, high;

	entry->before = total;
	entry->recent = recent = misses > recent ? misses : recent;
	if (entry->order == HS_ORDER_ALL)
		return entry->rows;
	low = recent + (recent >> 3) + 8;
	if (low > entry->rows / 2)
		low = entry->rows / 2;
	high = low + (entry->rows >> 7);
	return free < low ? high - free : 0;
}

/* All threads of one block, after every block of the launch has looked up. */
HS_DEVICE void evict(struct hs_table *table, uint32_t layer, struct evict_shared *e)
{
	struct hs_entry *entry = &table->entries[layer];
	uint64_t word, next;
	uint32_t head, now;
	int32_t left;

	if (!threadIdx.x) {
		/* One for all threads: other lanes move it. */
		e->now = hs_load_relaxed(&entry->clock);
		word = hs_load_relaxed(&entry->free);
		head = (uint32_t)(word >> 32);
		e->tail = (uint32_t)word;
		left = (int32_t)(e->tail - head);
		e->want = evict_want(entry, left > 0 ? (uint32_t)left : 0);
		e->guard = e->busy = e->oldest = e->orphans = e->taken = 0;
		e->lanes[0] = e->lanes[1] = 0;
		e->done = (!e->want && left >= 0) || hs_atomic_cas(&entry->evicting, 0u, 1u);
	}
	__syncthreads();
	if (e->done)
		return;
	now = e->now;
	evict_lanes(table, layer, now, &e->lanes[0], e);
	__syncthreads();
	if (e->want && !e->busy) {
		/* Another lane may have moved the ring's end until we had the lock. */
		if (!threadIdx.x)
			e->tail = (uint32_t)hs_load_relaxed(&entry->free);
		evict_choose(entry, now, e);
		evict_take(entry, now, e);
		hs_fence();
		__syncthreads();
		e->guard = 0;
		evict_lanes(table, layer, now, &e->lanes[1], e);
		__syncthreads();
		for (uint32_t i = threadIdx.x; i < e->taken; i += blockDim.x) {
			uint32_t h = entry->ring[(e->tail + i) & entry->mask];

			if (e->lanes[0] == e->lanes[1])
				hs_store_relaxed(&entry->owner[h], (int32_t)HS_NONE);
			else
				hs_store_relaxed(&entry->stamp[h], hs_load_relaxed(&entry->clock));
		}
		hs_fence();
		__syncthreads();
	}
	if (threadIdx.x)
		return;
	/* Pops beyond the end took nothing: they are forgotten here. */
	do {
		word = hs_load_relaxed(&entry->free);
		head = (uint32_t)(word >> 32);
		if ((int32_t)((uint32_t)word - head) < 0)
			head = (uint32_t)word;
		next = (uint64_t)head << 32 |
		       ((uint32_t)word + (e->lanes[0] == e->lanes[1] ? e->taken : 0));
	} while (hs_atomic_cas(&entry->free, word, next) != word);
	hs_store_release(&entry->evicting, 0u);
}

#endif
