/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_KEEP_H
#define KERNELS_KEEP_H

/*
 * Rows for misses are found off the critical path: a miss takes an entry of the
 * ring and asks nobody. After a launch over a layer, two passes go over the
 * layer's rows, by some blocks of the lane's next launches, which are over other
 * layers:
 *
 *	count   says of what the launch fetched that it is there; counts rows by
 *	        age, if fewer are listed than launches lately missed; the last
 *	        block finds from that where the rows of each age go in the ring
 *	list    marks the oldest rows in the map and writes the ring, the oldest
 *	        first, spare ones before them; the last block shows it to misses,
 *	        in place of what was left of the listing before; the clock of the
 *	        layer goes on
 *
 * A listed row is hot until a miss takes it from the map. Who hits it takes the
 * mark away, and its entry names nothing then: of the rows that were not used
 * since the listing, misses take the oldest. A mark has the listing's number: no
 * entry of an older listing takes a row that was marked again.
 *
 * Other lanes: one that is at the layer stops the pass. Lanes say where they are
 * before they look, and they are looked at again after rows were marked: either a
 * lane sees the marks, and hits clear them, or it is seen, and nobody is shown
 * the listing. Listings of two lanes exclude each other; nobody waits for that.
 */

#include "kernels/map.h"

#ifndef KEEP_LEAST
#define KEEP_LEAST 64u /* rows that are listed at least, if there are many */
#endif
#ifndef KEEP_TIMES
#define KEEP_TIMES 8u /* so many for each that launches lately missed: passes are long */
#endif
#define KEEP_SLICE (4 * HS_THREADS)
#define KEEP_APPENDED (HS_LISTINGS - 16)

struct keep_shared {
	uint32_t need, recent, last, held, holes, all;
	uint32_t sums[HS_WARPS];
	struct hs_kept kept;
	uint32_t bins[HS_AGES];
};

/* All threads of a block: whether another lane is at the layer. */
HS_DEVICE bool keep_seen(const struct hs_table *table, uint32_t layer, uint32_t lane)
{
	bool seen = false;

	for (uint32_t i = threadIdx.x; i < HS_LANES; i += HS_THREADS)
		seen |= i != lane && hs_load_relaxed(&table->words[i]) == layer + 1;
	return __syncthreads_or(seen) && !HS_PLANTED(HS_PLANT_FLIGHT);
}

/* Entries of the ring that were not taken, up to `end`. */
HS_DEVICE uint32_t keep_before(uint64_t free, uint32_t end)
{
	int32_t left = (int32_t)(end - (uint32_t)(free >> 32));

	return left > 0 ? (uint32_t)left : 0;
}

HS_DEVICE uint32_t keep_left(uint64_t free)
{
	return keep_before(free, (uint32_t)free);
}

/* About so many of them are of spare rows: all of these come first. */
HS_DEVICE uint32_t keep_spares(const struct hs_entry *entry, uint64_t free)
{
	return keep_before(free, hs_load_relaxed(&entry->spare_to));
}

/* Equal at HS_AGES - 2. Random: as good as any other hash. */
HS_DEVICE uint32_t keep_age(const struct hs_entry *entry, uint32_t h, uint32_t key, uint32_t now)
{
	int32_t age = (int32_t)(now - key);
	uint32_t mixed;

	if (entry->order == HS_ORDER_RANDOM) {
		mixed = (h ^ now * 0x9e3779b9u) * 0x85ebca6bu;
		mixed = (mixed ^ mixed >> 15) * 0xc2b2ae35u;
		return (mixed ^ mixed >> 16) % (HS_AGES - 1);
	}
	age = age < 0 ? 0 : age;
	return age < HS_AGES - 1 ? (uint32_t)age : HS_AGES - 2;
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

/* With many listings since, the ring does not say any more what was taken from
 * there on: all rows have to be looked at. */
HS_DEVICE bool keep_far(const struct hs_entry *entry, uint32_t from, uint64_t free)
{
	const uint32_t spares = keep_spares(entry, free), half = entry->rows / 2;

	return (uint32_t)free + (spares < half ? half - spares : 0) - from > entry->mask + 1;
}

/* What the lane's last launch over the layer fetched is there: ready for all.
 * Other lanes' rows are among those looked at. */
HS_DEVICE void keep_ready(struct hs_entry *entry, uint32_t from, uint64_t free, bool all,
	uint32_t lane, uint32_t first, uint32_t step)
{
	uint32_t to = (uint32_t)free - keep_left(free);

	if (all) {
		from = 0;
		to = entry->rows;
	}
	for (uint32_t at = from + first; (int32_t)(to - at) > 0; at += step) {
		/* One that gave no row names another slot, or the same once more: no harm. */
		const uint64_t e = all ? at : hs_load_relaxed(&entry->ring[at & entry->mask]);
		const uint32_t h = map_row((int32_t)e);
		const int32_t slot = all ? hs_load_relaxed(&entry->owner[h]) : (int32_t)(e >> 32);
		const int32_t pending = HS_PENDING(lane, h), doomed = HS_DOOMED(lane, h);

		if (slot < 0)
			continue;
		if (hs_atomic_cas(&entry->map[slot], pending, (int32_t)h) == doomed) {
			hs_store_relaxed(&entry->owner[h], (int32_t)HS_ORPHAN(slot));
			hs_atomic_cas(&entry->map[slot], doomed, (int32_t)HS_NONE);
		}
	}
}

/* What a count needs to know, asked for at once. */
struct keep_words {
	uint64_t claims;  /* misses, reads in place and unserved so far */
	uint64_t claimed; /* and until the last count */
	uint32_t recent, spare_to, stale, appended;
};

HS_DEVICE struct keep_words keep_words(const struct hs_entry *entry)
{
	const uint64_t misses = hs_load_relaxed(&entry->totals[HS_COUNT_MISSES]);
	const uint64_t inplace = hs_load_relaxed(&entry->totals[HS_COUNT_INPLACE]);
	const uint64_t unserved = hs_load_relaxed(&entry->unserved);
	const uint64_t claimed = hs_load_relaxed(&entry->claimed);
	const uint32_t recent = hs_load_relaxed(&entry->recent);
	const uint32_t spare_to = hs_load_relaxed(&entry->spare_to);
	const uint32_t stale = hs_load_relaxed(&entry->stale);
	const uint32_t appended = hs_load_relaxed(&entry->appended);
	const struct keep_words w = {
		misses + inplace + unserved, claimed, recent, spare_to, stale, appended};

	return w;
}

/* Since the last count; another lane's may have been since these were read. */
HS_DEVICE uint64_t keep_claims(const struct keep_words *w)
{
	return w->claims > w->claimed ? w->claims - w->claimed : 0;
}

HS_DEVICE uint32_t keep_decayed(uint32_t recent)
{
	return recent / 2;
}

/* How many rows must be listed. Blocks may differ while other lanes are at the
 * layer; the last one's word counts. */
HS_DEVICE uint32_t keep_need(const struct hs_entry *entry, const struct keep_words *w,
	uint64_t free, uint32_t least, uint32_t *recent)
{
	const uint64_t misses = keep_claims(w);
	const uint32_t decayed = keep_decayed(w->recent);
	const uint32_t left = keep_left(free), most = entry->rows / 2;
	const uint32_t spares = keep_before(free, w->spare_to);
	const uint32_t room = entry->mask + 1 - left;
	const int32_t live = (int32_t)(left - w->stale);
	uint32_t target, enough;

	*recent = misses > decayed ? (uint32_t)(misses < entry->rows ? misses : entry->rows)
				   : decayed;
	if (entry->order == HS_ORDER_ALL)
		return entry->rows - left;
	/* Launches that only hit would mark rows and clear the marks for nothing. */
	if (!*recent && !least)
		return 0;
	target = KEEP_TIMES * *recent + KEEP_LEAST;
	target = target > most ? most : target;
	enough = *recent + *recent / 4 + KEEP_LEAST / 2;
	enough = enough > most / 2 ? most / 2 : enough;
	if (least > enough) {
		enough = least;
		target = target < least ? least : target;
	}
	/* Few are left, or many entries name nothing. */
	if ((live >= (int32_t)enough && live >= (int32_t)(left / 2)) || spares >= target ||
		(spares && w->appended >= KEEP_APPENDED))
		return 0;
	target -= spares;
	return target < room ? target : room;
}

/* An orphan is older than all others once nobody reads it. */
HS_DEVICE uint32_t keep_age_of(const struct hs_entry *entry, uint32_t h, uint32_t key,
	uint32_t stamp, uint32_t owner, uint32_t now)
{
	if ((int32_t)owner < HS_NONE)
		return (int32_t)(now - stamp) > 0 ? HS_AGES - 1 : 0;
	return keep_age(entry, h, key, now);
}

/* All threads: a share of the rows by age, but for the newest: they are what is
 * left. */
HS_DEVICE void keep_histogram(struct hs_entry *entry, struct hs_lane *own, uint32_t now,
	uint32_t index, uint32_t blocks, struct keep_shared *s)
{
	const uint32_t *keys = entry->order == HS_ORDER_FETCH ? entry->born : entry->stamp;
	uint32_t stamp[4], key[4], owner[4], age;

	for (uint32_t i = threadIdx.x; i < HS_AGES; i += HS_THREADS)
		s->bins[i] = 0;
	__syncthreads();
	for (uint32_t h = (index * HS_THREADS + threadIdx.x) * 4; h < entry->rows;
		h += blocks * KEEP_SLICE) {
		keep_load(entry->stamp, h, stamp);
		keep_load(keys, h, key);
		keep_load((const uint32_t *)entry->owner, h, owner);
		HS_UNROLL
		for (uint32_t i = 0; i < 4; i++) {
			age = keep_age_of(entry, h + i, key[i], stamp[i], owner[i], now);
			if (h + i < entry->rows && stamp[i] != HS_STAMP_SPARE && age)
				hs_atomic_add(&s->bins[age], 1u);
		}
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < HS_AGES; i += HS_THREADS) {
		if (s->bins[i])
			hs_atomic_add(&own->bins[i], s->bins[i]);
	}
	hs_fence();
}

/* All threads of the last block: where the rows of each age go. The lane's bins
 * are as they were. */
HS_DEVICE void keep_places(struct hs_entry *entry, struct hs_lane *own, struct keep_shared *s,
	uint32_t need, bool some)
{
	enum { EACH = HS_AGES / HS_THREADS };
	const uint32_t first = HS_AGES - (threadIdx.x + 1) * EACH, lane = threadIdx.x & 31;
	uint32_t n[EACH], sum = 0, upto, other;

	HS_UNROLL
	for (uint32_t i = 0; i < EACH; i++)
		n[i] = some ? hs_load_relaxed(&own->bins[first + i]) : 0;
	/* Of the newest, or of all, as many as there is room. */
	if (first == 0)
		n[0] = need;
	if (entry->order == HS_ORDER_ALL && first + EACH == HS_AGES)
		n[EACH - 1] = need;
	HS_UNROLL
	for (uint32_t i = 0; i < EACH; i++) {
		sum += n[i];
		if (some)
			hs_store_relaxed(&own->bins[first + i], 0u);
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
	sum = upto - sum; /* rows that are older than this thread's ages */
	for (uint32_t i = EACH; need && i-- > 0; sum += n[i]) {
		const uint32_t end = sum + n[i] < need ? sum + n[i] : need;

		if (sum < need && end == need)
			s->kept.age = first + i;
		hs_store_relaxed(&entry->place[first + i], sum < need ? sum : need);
		hs_store_relaxed(&entry->place[HS_AGES + first + i], end);
	}
	__syncthreads();
}

/* All threads of the block that counted last; some: there are rows in the bins. */
HS_DEVICE void keep_counted(const struct hs_keep_args *a, const struct keep_words *w, uint64_t free,
	uint32_t now, bool some, bool tell, struct keep_shared *s)
{
	const uint32_t layer = a->keep.count - 1;
	struct hs_entry *entry = &a->table->entries[layer];
	struct hs_lane *own = &a->table->lanes[a->lane];
	const uint32_t bit = 1u << layer % 32;
	uint64_t total = 0;

	if (threadIdx.x < HS_COUNTS)
		total = hs_load_relaxed(&entry->totals[threadIdx.x]);
	if (!threadIdx.x) {
		s->held = 0;
		if (s->need)
			s->held = hs_atomic_cas(&entry->keeper, 0u, a->lane + 1) == 0;
		if (s->held)
			hs_fence();
		s->kept.need = s->need;
		s->kept.now = now;
		s->kept.base = (uint32_t)free;
		s->kept.lane = a->lane;
		s->kept.age = s->kept.spares = s->kept.holes = s->kept.marked = 0;
	}
	__syncthreads();
	if (some || s->held)
		keep_places(entry, own, s, s->held ? s->need : 0, some);
	if (!threadIdx.x) {
		if (s->held) {
			s->kept.listing = entry->listing % HS_LISTINGS + 1;
			entry->listing = s->kept.listing;
			entry->kept = s->kept;
		}
		own->lists[layer] = s->held;
		tell |= RESOLVE_COUNTS && (now % 32 == 0 || keep_claims(w));
		/* As the last launch was, so will the next be. `recent` stays high
		 * for long: a walk for nothing costs more than hits do. */
		if (keep_claims(w) >= entry->sort_from / 8)
			hs_atomic_or(&own->many[layer / 32], bit);
		else
			hs_atomic_and(&own->many[layer / 32], ~bit);
		entry->recent = s->recent;
		hs_atomic_max(&entry->claimed, w->claims);
		own->from[layer] = (uint32_t)free - keep_left(free);
		own->counted = 0;
		own->missed[layer] = 0;
	}
	if (s->held || a->release) {
		hs_fence();
		__syncthreads();
	}
	if (!threadIdx.x) {
		if (s->held)
			hs_store_release(&entry->keeper, 0u);
		/* Until here other lanes listed no rows. */
		if (a->release)
			hs_store_release(&a->table->words[a->lane], 0u);
	}
	/* Seldom where nothing was missed: the host is far away. */
	if (threadIdx.x < 32 && __ballot_sync(0xffffffffu, tell) && threadIdx.x < HS_COUNTS &&
		entry->counts)
		hs_store_relaxed(&entry->counts[threadIdx.x], total);
}

/* After a launch that only hit: one warp, and it waits for nothing more, since such
 * a launch is over before a pass that does. */
HS_DEVICE void keep_idle(const struct hs_keep_args *a, uint64_t free, uint32_t now, uint32_t recent,
	uint32_t many, bool tell)
{
	const uint32_t layer = a->keep.count - 1, bit = 1u << layer % 32;
	struct hs_entry *entry = &a->table->entries[layer];
	struct hs_lane *own = &a->table->lanes[a->lane];

	tell |= RESOLVE_COUNTS && now % 32 == 0;
	if (!threadIdx.x) {
		if (recent)
			hs_store_relaxed(&entry->recent, keep_decayed(recent));
		if (many & bit)
			hs_atomic_and(&own->many[layer / 32], ~bit);
		own->from[layer] = (uint32_t)free - keep_left(free);
		own->lists[layer] = 0;
		if (a->release)
			hs_store_release(&a->table->words[a->lane], 0u);
	}
	/* Seldom: the host is far away. */
	if (tell && threadIdx.x < HS_COUNTS && entry->counts)
		hs_store_relaxed(
			&entry->counts[threadIdx.x], hs_load_relaxed(&entry->totals[threadIdx.x]));
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
	const uint32_t many = hs_load_relaxed(&own->many[layer / 32]);
	const struct keep_words words = keep_words(entry);
	bool counts;

	/* The lane's own word, so all threads agree. */
	if (!missed && !a->least && entry->order != HS_ORDER_ALL) {
		if (!index && threadIdx.x < 32)
			keep_idle(a, free, now, words.recent, many, tell);
		return;
	}
	if (!threadIdx.x) {
		s->need = keep_need(entry, &words, free, a->least, &s->recent);
		s->all = keep_far(entry, from, free);
	}
	__syncthreads();
	keep_ready(entry, from, free, s->all, a->lane, index * HS_THREADS + threadIdx.x,
		blocks * HS_THREADS);
	__syncthreads();
	counts = s->need && entry->order != HS_ORDER_ALL;
	if (counts)
		keep_histogram(entry, own, now, index, blocks, s);
	__syncthreads();
	if (!threadIdx.x) {
		const uint32_t one = HS_COUNTED(1u, counts, s->all);

		s->last = hs_atomic_add(&own->counted, one) + one;
		if (HS_COUNTED_BLOCKS(s->last) == blocks) {
			hs_fence();
			s->all = HS_COUNTED_ALL(s->last) != blocks &&
				 keep_far(entry, from, hs_load_relaxed(&entry->free));
		}
	}
	__syncthreads();
	if (HS_COUNTED_BLOCKS(s->last) != blocks)
		return;
	/* Other lanes listed meanwhile, and not all blocks knew. */
	if (s->all)
		keep_ready(entry, from, free, true, a->lane, threadIdx.x, HS_THREADS);
	keep_counted(a, &words, free, now, HS_COUNTED_BINS(s->last), tell, s);
}

#endif
