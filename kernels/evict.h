/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_EVICT_H
#define KERNELS_EVICT_H

/*
 * Which hot row a miss gets. The ring lists rows from the oldest on, each with
 * the key (the stamp, or the birth) that it had when it was listed. A row in the
 * ring is as hot as any other: a miss takes the next one that still has its key
 * and that nobody may be reading, so no row idles and a hit costs nothing more.
 *
 * A launch takes rows when all of its blocks have looked up, so it never takes
 * one that it reads itself. When the ring has run low, or old, the launch's
 * blocks first list all rows anew: they count the rows of each key, then put
 * every row behind those of lesser keys. Exact, since within HS_EVICT_BINS keys
 * each has a bin; another round lists keys beyond while rows are wanted.
 *
 * Another lane may look up at the same time. It registers before it looks, and
 * the lanes are looked at again after a row was taken from the map: either it
 * misses what we took, or we see it and leave the row alone.
 */

#include "kernels/map.h"

#define EVICT_SLICE (4 * HS_THREADS)
#define EVICT_TRIES 24
#define EVICT_PATIENCE 64

struct evict_shared {
	uint32_t ticket, last, ripe, newer;
	uint32_t bins[HS_EVICT_BINS];
	uint32_t start[HS_EVICT_BINS];
};

/* What the lanes in this layer say. */
struct evict_lanes {
	uint64_t sum;
	uint32_t now, guard; /* rows of at most this age, seen from `now`, are protected */
	bool busy;	     /* one of them is looking up */
};

/* One warp. */
HS_DEVICE struct evict_lanes evict_lanes(const struct hs_table *table, uint32_t layer, uint32_t now)
{
	struct evict_lanes l = {0, now, 0, false};
	uint32_t top = 32; /* known when the first words are there */

	for (uint32_t i = 0; i < top; i += 32) {
		const uint32_t n = i + (threadIdx.x & 31);
		uint64_t word = hs_load_relaxed(&table->lanes[n].word);
		uint32_t high = (uint32_t)(word >> 32), age = now - (uint32_t)word;

		if (!i)
			top = hs_load_relaxed(&table->top);
		if (high >> 1 != layer + 1)
			continue;
		l.sum += (word ^ (uint64_t)n << 48) * 0x9e3779b97f4a7c15u;
		if (high & 1)
			l.busy = true;
		else if ((int32_t)age > (int32_t)l.guard && !HS_PLANTED(HS_PLANT_FLIGHT))
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

/* One warp: the same when nobody is looking up, if that comes soon. */
HS_DEVICE struct evict_lanes evict_quiet(const struct hs_table *table, uint32_t layer, uint32_t now)
{
	struct evict_lanes l = evict_lanes(table, layer, now);

	for (uint32_t i = 0; l.busy && i < EVICT_PATIENCE; i++) {
		__nanosleep(200);
		l = evict_lanes(table, layer, now);
	}
	return l;
}

/* Signed: other lanes' clocks may have gone on. */
HS_DEVICE bool evict_protected(const struct evict_lanes *l, uint32_t stamp)
{
	return (int32_t)(l->now - stamp) <= (int32_t)l->guard;
}

/* Rows that the ring still names. */
HS_DEVICE uint32_t evict_left(uint64_t word)
{
	int32_t left = (int32_t)((uint32_t)word - (uint32_t)(word >> 32));

	return left > 0 ? (uint32_t)left : 0;
}

/*
 * One thread takes the row of a ring entry from whoever has it: whose it is
 * afterwards is the caller's. *slot: whose it was; HS_NONE if nobody's ever.
 */
HS_DEVICE bool evict_row(struct hs_entry *entry, const struct evict_lanes *l, uint64_t listed,
	uint32_t clock, int32_t *slot)
{
	const uint32_t h = (uint32_t)listed, key = (uint32_t)(listed >> 32);
	uint32_t stamp = key;
	int32_t owner, v;

	if (entry->order == HS_ORDER_FETCH || entry->order == HS_ORDER_RANDOM) {
		if (hs_load_relaxed(&entry->born[h]) != key)
			return false;
		stamp = hs_load_relaxed(&entry->stamp[h]);
	}
	owner = hs_load_relaxed(&entry->owner[h]);
	if (evict_protected(l, stamp))
		return false;
	/* Used, or taken by another miss, since it was listed. */
	if (hs_atomic_cas(&entry->stamp[h], stamp, clock) != stamp && !HS_PLANTED(HS_PLANT_TWICE))
		return false;
	*slot = owner < HS_NONE ? HS_ORPHAN(owner) : owner;
	if (owner == HS_NONE)
		return true;
	/* An orphan whose mark was late may be found again through the map:
	 * what the map says counts. */
	v = hs_atomic_cas(&entry->map[*slot], (int32_t)h, (int32_t)HS_NONE);
	if (v == (int32_t)h)
		hs_atomic_add(&entry->totals[HS_COUNT_EVICTIONS], (uint64_t)1);
	return v >= 0 || map_row(v) != h;
}

/* One warp: a hot row for each thread that needs one, or HS_ROWS_MAX. */
HS_DEVICE uint32_t evict_take(struct hs_table *table, uint32_t layer, bool need, uint32_t clock)
{
	struct hs_entry *entry = &table->entries[layer];
	const struct evict_lanes l = evict_quiet(table, layer, clock + 1);
	uint32_t h = HS_ROWS_MAX, head = 0;
	int32_t slot = HS_NONE;
	uint64_t word = 0, listed;
	unsigned mask;

	for (uint32_t i = 0; i < EVICT_TRIES && !l.busy; i++) {
		mask = __ballot_sync(0xffffffffu, need);
		if (!mask)
			break;
		if (!(threadIdx.x & 31))
			word = hs_atomic_add(&entry->free, (uint64_t)__popc(mask) << 32);
		word = __shfl_sync(0xffffffffu, word, 0);
		head = (uint32_t)(word >> 32) +
		       (uint32_t)__popc(mask & ((1u << (threadIdx.x & 31)) - 1));
		if (need && (int32_t)((uint32_t)word - head) > 0) {
			listed = hs_load_relaxed(&entry->ring[head & entry->mask]);
			if (evict_row(entry, &l, listed, clock, &slot)) {
				h = (uint32_t)listed;
				need = false;
			}
		}
		if (!evict_left(word))
			break;
	}
	if (l.busy)
		return h;
	hs_fence();
	if (evict_lanes(table, layer, clock + 1).sum != l.sum && h != HS_ROWS_MAX &&
		slot != HS_NONE) {
		/* Someone may have seen it: it stays, as if used just now. */
		hs_store_relaxed(&entry->owner[h], (int32_t)HS_ORPHAN(slot));
		h = HS_ROWS_MAX;
	}
	return h;
}

HS_DEVICE uint32_t evict_slices(const struct hs_entry *entry)
{
	return (entry->rows + EVICT_SLICE - 1) / EVICT_SLICE;
}

/*
 * One thread, when all blocks have looked up and `misses` rows are to be found:
 * whether to scan before they are. Else, or if another lane does, they are taken
 * from the ring as it is. Also says whether the next launch is likely to scan.
 */
HS_DEVICE bool evict_plan(struct hs_entry *entry, uint32_t misses)
{
	struct hs_evict *e = &entry->evict;
	const uint64_t word = hs_load_relaxed(&entry->free);
	const uint32_t decayed = entry->recent - (entry->recent >> 3);
	const uint32_t popped = (uint32_t)(word >> 32) - e->pops;
	const uint64_t claimed = hs_load_relaxed(&entry->totals[HS_COUNT_MISSES]) - e->claimed;
	const uint32_t recent = misses > decayed ? misses : decayed;
	/* The part of what was popped that had not been used since it was listed;
	 * of what is left that part is smaller. */
	const float good = claimed < popped ? (float)claimed / (float)popped : 1;
	const float left = (float)evict_left(word) * good * good;
	const float most = (float)misses * 1.25f + 16;
	const bool scan = e->due || left < most || popped > 2 * claimed + 64 ||
			  entry->order == HS_ORDER_FETCH;

	entry->recent = recent;
	e->due = entry->order == HS_ORDER_ALL ||
		 (misses && !scan && left < most + 1.25f * (float)recent);
	if (!scan || hs_atomic_cas(&entry->evicting, 0u, 1u))
		return false;
	e->need = misses;
	e->rounds = 16;
	e->ripe = e->listed = 0;
	e->tail = (uint32_t)hs_load_relaxed(&entry->free);
	e->from = e->base;
	return true;
}

/* One thread, which holds `evicting`. */
HS_DEVICE void evict_round(struct hs_evict *e)
{
	e->newer = e->counted = 0;
	hs_store_relaxed(&e->done, 0u);
	hs_fence();
	hs_store_release(&e->next, 0u);
}

/* One warp of the block that looked up last, after evict_plan. */
HS_DEVICE void evict_open(struct hs_table *table, uint32_t layer, uint32_t now)
{
	struct hs_evict *e = &table->entries[layer].evict;
	const struct evict_lanes l = evict_lanes(table, layer, now);

	for (uint32_t i = threadIdx.x & 31; i < HS_EVICT_BINS; i += 32)
		e->bins[i] = 0;
	__syncwarp();
	hs_fence();
	if (threadIdx.x & 31)
		return;
	e->now = now;
	e->guard = l.guard;
	evict_round(e);
}

/* Where the key lies in this round; HS_EVICT_BINS or more: beyond it. */
HS_DEVICE uint32_t evict_key(
	const struct hs_entry *entry, uint32_t h, uint32_t *key, uint32_t *stamp)
{
	const struct hs_evict *e = &entry->evict;
	uint32_t mixed;

	*key = *stamp = hs_load_relaxed(&entry->stamp[h]);
	if (entry->order == HS_ORDER_FETCH || entry->order == HS_ORDER_RANDOM)
		*key = hs_load_relaxed(&entry->born[h]);
	if (entry->order != HS_ORDER_RANDOM)
		return *key - e->from;
	mixed = (h ^ e->now * 0x9e3779b9u) * 0x85ebca6bu;
	mixed = (mixed ^ mixed >> 15) * 0xc2b2ae35u;
	return (mixed ^ mixed >> 16) % HS_EVICT_BINS;
}

/* Counts a slice's rows (count), or lists them. */
HS_DEVICE void evict_slice(
	struct hs_entry *entry, uint32_t first, bool count, struct evict_shared *s)
{
	struct hs_evict *e = &entry->evict;
	uint32_t bin[4], key[4], rank[4], stamp, ripe = 0, newer = 0;
	bool old;

	for (uint32_t i = threadIdx.x; i < HS_EVICT_BINS; i += HS_THREADS)
		s->bins[i] = 0;
	if (!threadIdx.x)
		s->ripe = s->newer = 0;
	__syncthreads();
	HS_UNROLL
	for (uint32_t i = 0; i < 4; i++) {
		const uint32_t h = first + i * HS_THREADS + threadIdx.x;

		bin[i] = HS_EVICT_BINS;
		if (h >= entry->rows)
			continue;
		bin[i] = evict_key(entry, h, &key[i], &stamp);
		old = (int32_t)(e->now - stamp) > (int32_t)e->guard;
		/* By use, what is protected now is newer than all that is not. */
		if (!old && entry->order == HS_ORDER_USE)
			bin[i] = HS_EVICT_BINS;
		else if (bin[i] >= HS_EVICT_BINS)
			newer = ~bin[i] > newer ? ~bin[i] : newer;
		if (bin[i] >= HS_EVICT_BINS) {
			bin[i] = HS_EVICT_BINS;
			continue;
		}
		rank[i] = hs_atomic_add(&s->bins[bin[i]], 1u);
		ripe += old;
		if (!count && entry->order == HS_ORDER_ALL && old) {
			const int32_t slot = hs_load_relaxed(&entry->owner[h]);

			if (slot >= 0 && map_drop(entry, slot, (int32_t)h))
				hs_atomic_add(&entry->totals[HS_COUNT_EVICTIONS], (uint64_t)1);
		}
	}
	if (count && newer)
		hs_atomic_max(&s->newer, newer);
	if (count && ripe)
		hs_atomic_add(&s->ripe, ripe);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < HS_EVICT_BINS; i += HS_THREADS) {
		if (s->bins[i])
			s->start[i] = hs_atomic_add(&e->bins[i], s->bins[i]);
	}
	if (count && !threadIdx.x) {
		if (s->newer)
			hs_atomic_max(&e->newer, s->newer);
		if (s->ripe)
			hs_atomic_add(&e->ripe, s->ripe);
	}
	if (count)
		return;
	__syncthreads();
	HS_UNROLL
	for (uint32_t i = 0; i < 4; i++) {
		const uint32_t h = first + i * HS_THREADS + threadIdx.x;

		if (bin[i] < HS_EVICT_BINS)
			hs_store_relaxed(&entry->ring[(s->start[bin[i]] + rank[i]) & entry->mask],
				HS_RING(key[i], h));
	}
}

/* Warp 0, all rows counted: each bin becomes where its rows begin in the ring. */
HS_DEVICE void evict_count(struct hs_entry *entry)
{
	struct hs_evict *e = &entry->evict;
	const uint32_t lane = threadIdx.x, per = HS_EVICT_BINS / 32;
	uint32_t own = 0, below = 0, other, n;
	unsigned mask;

	for (uint32_t i = 0; i < per; i++)
		own += hs_load_relaxed(&e->bins[lane * per + i]);
	for (uint32_t i = 0; i < 32; i++) {
		other = __shfl_sync(0xffffffffu, own, i);
		below += i < lane ? other : 0;
	}
	mask = __ballot_sync(0xffffffffu, own != 0);
	below += e->tail + e->listed;
	__syncwarp();
	for (uint32_t i = 0; i < per; i++) {
		n = hs_load_relaxed(&e->bins[lane * per + i]);
		hs_store_relaxed(&e->bins[lane * per + i], below);
		below += n;
	}
	if (lane == 31)
		e->listed = below - e->tail;
	/* The first round tells where the next scan may begin. */
	if (!lane && e->from == e->base && entry->order != HS_ORDER_RANDOM) {
		if (mask)
			e->base += ((uint32_t)__ffs((int)mask) - 1) * per;
		else if (e->newer)
			e->base += ~e->newer;
	}
	__syncwarp();
}

/* One thread, all rows listed. */
HS_DEVICE void evict_end(struct hs_entry *entry)
{
	struct hs_evict *e = &entry->evict;

	if ((hs_load_relaxed(&e->ripe) < e->need || entry->order == HS_ORDER_ALL) && e->newer &&
		--e->rounds) {
		e->from += ~e->newer;
		for (uint32_t i = 0; i < HS_EVICT_BINS; i++)
			e->bins[i] = 0;
		evict_round(e);
		return;
	}
	e->pops = e->tail;
	e->claimed = hs_load_relaxed(&entry->totals[HS_COUNT_MISSES]);
	hs_store_relaxed(&entry->free, (uint64_t)e->tail << 32 | (e->tail + e->listed));
	hs_fence();
	hs_store_release(&entry->evicting, 0u);
}

/* One thread: a ticket, or 2 * slices once the scan is over or takes too long. */
HS_DEVICE uint32_t evict_ticket(struct hs_entry *entry, uint32_t slices)
{
	struct hs_evict *e = &entry->evict;
	uint32_t ticket;

	for (uint32_t i = 0; i < 16 * EVICT_PATIENCE; i++) {
		if (hs_load_acquire(&e->next) < 2 * slices) {
			ticket = hs_atomic_add(&e->next, 1u);
			hs_fence();
			if (ticket < 2 * slices)
				return ticket;
		}
		if (!hs_load_acquire(&entry->evicting))
			break;
		__nanosleep(100);
	}
	return 2 * slices;
}

/* All threads of a block: lists rows until the scan is over. */
HS_DEVICE void evict_help(struct hs_entry *entry, struct evict_shared *s)
{
	struct hs_evict *e = &entry->evict;
	const uint32_t slices = evict_slices(entry);
	bool count;

	for (;;) {
		if (!threadIdx.x)
			s->ticket = evict_ticket(entry, slices);
		__syncthreads();
		if (s->ticket >= 2 * slices)
			return;
		count = s->ticket < slices;
		/* Whoever counts waits for nobody. */
		if (!count && !threadIdx.x) {
			while (!hs_load_acquire(&e->counted))
				__nanosleep(50);
		}
		__syncthreads();
		evict_slice(
			entry, (count ? s->ticket : s->ticket - slices) * EVICT_SLICE, count, s);
		hs_fence();
		__syncthreads();
		if (!threadIdx.x) {
			s->last = hs_atomic_add(&e->done, 1u) + 1;
			hs_fence();
		}
		__syncthreads();
		if (s->last == slices && threadIdx.x < 32) {
			evict_count(entry);
			hs_fence();
			__syncwarp();
			if (!threadIdx.x)
				hs_store_release(&e->counted, 1u);
		} else if (s->last == 2 * slices && !threadIdx.x) {
			evict_end(entry);
		}
		__syncthreads();
	}
}

#endif
