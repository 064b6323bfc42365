/* SPDX-License-Identifier: MIT */
/* Decode: slots in, swap-in, indices out. One kernel on the critical path. */
#include "kernels/evict.h"
#include "kernels/journal.h"
#include "kernels/order.h"

#define LOADS 8 /* 16-byte loads that a thread has in flight */

struct resolve_shared {
	uint64_t journal;
	uint32_t clock, epoch, last, open;
	uint32_t count[HS_COUNTS];
	struct resolve_misses misses[HS_WARPS];
	struct evict_shared evict;
};

/* A warp's share of a list row: up to span entries, one a thread. */
struct resolve_tile {
	int64_t at;   /* of this thread's entry in both lists */
	int32_t slot; /* HS_NONE past a row's length */
	bool live;    /* the entry exists */
};

HS_DEVICE struct resolve_tile tile_load(const struct hs_resolve_args *a, uint32_t tile)
{
	const uint32_t lane = threadIdx.x & 31, list = tile / a->tiles;
	const uint32_t i = list / a->inner, j = list - i * a->inner;
	const uint32_t n = (tile - list * a->tiles) * a->span + lane;
	struct resolve_tile t = {0, HS_NONE, false};

	t.live = i < a->outer && lane < a->span && n < a->k;
	t.at = (int64_t)i * a->outer_stride + (int64_t)j * a->inner_stride + n;
	if (t.live && (!a->lengths || (int64_t)n < a->lengths[i]))
		t.slot = a->indices[t.at];
	return t;
}

HS_DEVICE void resolve_count(uint32_t *count, bool one)
{
	unsigned mask = __ballot_sync(0xffffffffu, one);

	if (mask && !(threadIdx.x & 31))
		hs_atomic_add(count, (uint32_t)__popc(mask));
}

/*
 * Reads a map word as the launch of `lane` may: a row that is ready, or that
 * this launch fetches itself (attention runs after all of it), is an index; one
 * that another launch fetches is not there yet and is read in place.
 */
HS_DEVICE bool resolve_word(
	const struct hs_entry *entry, int32_t v, uint32_t lane, uint32_t clock, int32_t *index)
{
	if (v >= 0)
		hs_store_relaxed(&entry->stamp[v], clock);
	else if (v == HS_NONE || map_claimed(v) || HS_PENDING_LANE(v) != lane)
		return false;
	*index = entry->hot_index + (int32_t)map_row(v);
	return true;
}

/*
 * Looks the tile up, claims what misses, gives it free rows and leaves (slot,
 * row) of each in f; writes the list. Returns how many the warp has to fetch.
 */
HS_DEVICE uint32_t resolve_look(const struct hs_resolve_args *a, struct hs_entry *entry,
	const struct resolve_tile *t, struct resolve_shared *s, struct resolve_misses *f)
{
	const uint32_t lane = threadIdx.x & 31;
	const int32_t slot = t->slot, claim = HS_PENDING(a->lane, HS_ROWS_MAX);
	const bool ours = slot >= (int32_t)entry->first && slot < (int32_t)entry->slots;
	bool hit = slot >= 0 && slot < (int32_t)entry->first, miss = false, twin = false;
	bool won = false;
	int32_t index = slot, v = HS_NONE;
	unsigned misses, gets;
	uint64_t word = 0;
	uint32_t h = 0, rank;

	if (ours) {
		v = hs_load_relaxed(&entry->map[slot]);
		if (v == HS_NONE) {
			v = hs_atomic_cas(&entry->map[slot], (int32_t)HS_NONE, claim);
			won = miss = v == HS_NONE || HS_PLANTED(HS_PLANT_TWICE);
		}
	}
	misses = __ballot_sync(0xffffffffu, miss);
	if (misses) {
		rank = (uint32_t)__popc(misses & ((1u << lane) - 1));
		if (!lane)
			word = hs_atomic_add(&entry->free, (uint64_t)__popc(misses) << 32);
		word = __shfl_sync(0xffffffffu, word, 0);
		if (miss) {
			h = (uint32_t)(word >> 32) + rank;
			miss = (int32_t)((uint32_t)word - h) > 0;
			if (miss) {
				h = hs_load_relaxed(&entry->ring[h & entry->mask]);
				hs_store_relaxed(&entry->owner[h], slot);
				hs_store_relaxed(&entry->stamp[h], s->clock);
				hs_store_relaxed(&entry->born[h], s->clock);
				index = entry->hot_index + (int32_t)h;
			}
			hs_store_relaxed(&entry->map[slot],
				miss ? HS_PENDING(a->lane, h) : (int32_t)HS_NONE);
		}
	}
	if (ours && !won) {
		/* Another thread of this launch looks for a row for the slot. It
		 * waits for nobody. Before the block arrives, so that the row is
		 * stamped while the lane is busy. */
		while (v == claim)
			v = hs_load_relaxed(&entry->map[slot]);
		if (resolve_word(entry, v, a->lane, s->clock, &index)) {
			hit = v >= 0;
			twin = !hit;
		}
	}
	gets = __ballot_sync(0xffffffffu, miss);
	if (miss) {
		rank = (uint32_t)__popc(gets & ((1u << lane) - 1));
		f->slot[rank] = slot;
		f->row[rank] = h;
	}
	if (t->live)
		a->out[t->at] = index;
	resolve_count(&s->count[HS_COUNT_HITS], hit);
	resolve_count(&s->count[HS_COUNT_DUPLICATES], twin);
	resolve_count(&s->count[HS_COUNT_INPLACE], ours && !hit && !twin && !miss);
	resolve_count(&s->count[HS_COUNT_PADDING], t->live && slot < 0);
	if (gets && !lane)
		hs_atomic_add(&s->count[HS_COUNT_MISSES], (uint32_t)__popc(gets));
	__syncwarp();
	return (uint32_t)__popc(gets);
}

/* Fetches the warp's rows and makes them ready for other lanes. */
HS_DEVICE void resolve_fetch(const struct hs_resolve_args *a, struct hs_entry *entry,
	const struct resolve_misses *f, uint32_t count, uint32_t epoch)
{
	const uint32_t lane = threadIdx.x & 31, units = entry->row / 16, total = count * units;
	const uint64_t inverse = (0xffffffffu / units) + (uint64_t)1;

	for (uint32_t start = lane; start < total; start += 32 * LOADS) {
		unsigned char *to[LOADS];
		hs_u128 v[LOADS];

		HS_UNROLL
		for (uint32_t i = 0; i < LOADS; i++) {
			uint32_t n = start + 32 * i, r;
			uint64_t within;

			to[i] = 0;
			if (n >= total)
				continue;
			/* n / units: exact while n * units < 2^32 */
			r = (uint32_t)(n * inverse >> 32);
			within = (uint64_t)(n - r * units) * 16;
			v[i] = hs_load16_stream(
				entry->base + (uint64_t)f->slot[r] * entry->row + within);
			to[i] = entry->hot + (uint64_t)f->row[r] * entry->row + within;
		}
		HS_UNROLL
		for (uint32_t i = 0; i < LOADS; i++) {
			if (to[i])
				hs_store16(to[i], v[i]);
		}
	}
	if (!count)
		return;
	__syncwarp();
	hs_fence();
	if (lane < count) {
		const int32_t slot = f->slot[lane], h = (int32_t)f->row[lane];
		const int32_t pending = HS_PENDING(a->lane, h);

		/* A drop of a range that began since may have looked at the owners
		 * before this row had one. */
		if (hs_load_relaxed(&entry->epoch) != epoch)
			map_drop(entry, slot, pending);
		else
			hs_atomic_cas(&entry->map[slot], pending, h);
	}
	__syncwarp();
}

/* Whether the list is long enough for misses to be sorted. */
HS_DEVICE bool resolve_sorts(const struct hs_resolve_args *a, const struct hs_entry *entry)
{
	return (uint64_t)a->outer * a->inner * a->k >= entry->sort_from;
}

/* Leaves many misses to the end of the launch. The estimate is the warp's own,
 * so it costs nothing; a wrong one costs only time. */
HS_DEVICE uint32_t resolve_defer(const struct hs_resolve_args *a, struct hs_entry *entry,
	uint32_t tiles, const struct resolve_misses *f, uint32_t count)
{
	if (!resolve_sorts(a, entry) || (uint64_t)count * tiles < entry->sort_from / 16)
		return count;
	return order_add(&a->table->order, entry, a->lane, f, count) ? 0 : count;
}

/* Warp 0 of a block: fetches what was left, if anything was. */
HS_DEVICE void resolve_ordered(const struct hs_resolve_args *a, struct hs_entry *entry,
	struct resolve_misses *f, uint32_t epoch)
{
	struct hs_order *o = &a->table->order;
	uint32_t wait = 0, node, count, groups = 0;

	if (!(threadIdx.x & 31))
		wait = order_wait(o, a->lane);
	if (!__shfl_sync(0xffffffffu, wait, 0))
		return;
	for (; order_take(o, &node); groups++) {
		while ((count = order_walk(o, &node, f)))
			resolve_fetch(a, entry, f, count, epoch);
	}
	order_done(o, groups);
}

/* The block has looked up. True in the block that is the last of the launch. */
HS_DEVICE bool resolve_arrive(
	const struct hs_resolve_args *a, struct hs_entry *entry, struct resolve_shared *s)
{
	struct hs_lane *own = &a->table->lanes[a->lane];

	__syncthreads();
	if (threadIdx.x < 32) {
		for (uint32_t i = threadIdx.x; i < HS_COUNTS; i += 32) {
			if (s->count[i])
				hs_atomic_add(&entry->totals[i], (uint64_t)s->count[i]);
		}
		__syncwarp();
		if (!threadIdx.x) {
			hs_atomic_max(&own->early, ~s->clock);
			hs_fence();
			s->last = hs_atomic_add(&own->arrived, 1u) + 1 == gridDim.x;
			hs_fence();
		}
	}
	__syncthreads();
	return s->last;
}

/* Warp 0 of the last block: the launch's rows are known, so the lane is not busy
 * any more, and free rows are made for the next launch. True when there is
 * something to do for that. */
HS_DEVICE bool resolve_finish(const struct hs_resolve_args *a, struct hs_entry *entry)
{
	struct hs_lane *own = &a->table->lanes[a->lane];
	uint32_t early, now = 0;

	if (!threadIdx.x) {
		early = ~hs_load_relaxed(&own->early);
		hs_atomic_add(&entry->totals[HS_COUNT_LAUNCHES], (uint64_t)1);
		now = hs_atomic_add(&entry->clock, 1u) + 1;
		hs_store_relaxed(&own->early, 0u);
		hs_store_relaxed(&own->arrived, 0u);
		hs_store_release(&own->word, (uint64_t)(2 * (1 + a->layer)) << 32 | early);
	}
	__syncwarp();
	if (threadIdx.x < HS_COUNTS && entry->counts)
		hs_store_relaxed(
			&entry->counts[threadIdx.x], hs_load_relaxed(&entry->totals[threadIdx.x]));
	if (!threadIdx.x && resolve_sorts(a, entry))
		order_ready(&a->table->order, a->lane);
	return evict_open(a->table, a->layer, __shfl_sync(0xffffffffu, now, 0));
}

/* What somebody asked to be told. One block of a launch finishes it, and the
 * first tells its lists. */
HS_DEVICE void resolve_tell(
	const struct hs_resolve_args *a, struct hs_entry *entry, uint64_t *shared, bool finished)
{
	struct hs_journal *journal = &a->table->journal;
	const uint32_t what = journal->what;

	if (what & HS_JOURNAL_LAUNCHES && finished && !threadIdx.x)
		journal_launch(journal, entry, a->layer, a->lane);
	if (what & HS_JOURNAL_LISTS && !blockIdx.x)
		journal_lists(a, shared);
}

HS_KERNEL_BOUNDED(hs_resolve, struct hs_resolve_args, HS_THREADS)
{
	HS_SHARED(struct resolve_shared, s);
	struct hs_entry *entry = &a.table->entries[a.layer];
	const uint32_t warp = threadIdx.x / 32, warps = gridDim.x * HS_WARPS;
	const uint32_t tiles = a.outer * a.inner * a.tiles;
	uint32_t tile = blockIdx.x * HS_WARPS + warp, count = 0;
	struct resolve_misses *f = &s->misses[warp];
	struct resolve_tile t = tile_load(&a, tile);
	bool last;

	if (entry->state != HS_ENTRY_ON) {
		for (; tile < tiles; t = tile_load(&a, tile += warps)) {
			if (t.live)
				a.out[t.at] = t.slot;
		}
		resolve_tell(&a, entry, &s->journal, !blockIdx.x);
		return;
	}
	if (threadIdx.x < HS_COUNTS)
		s->count[threadIdx.x] = 0;
	if (!threadIdx.x) {
		s->clock = hs_load_relaxed(&entry->clock);
		s->epoch = hs_load_relaxed(&entry->epoch);
		/* Before any look at the map: see evict.h. */
		hs_store_relaxed(
			&a.table->lanes[a.lane].word, (uint64_t)(2 * (1 + a.layer) + 1) << 32);
		hs_fence();
	}
	__syncthreads();
	for (; tile < tiles; tile += warps) {
		/* The last tile is fetched after the block has said that it looked. */
		if (tile >= warps) {
			resolve_fetch(&a, entry, f, count, s->epoch);
			t = tile_load(&a, tile);
		}
		count = resolve_look(&a, entry, &t, s, f);
		if (count)
			count = resolve_defer(&a, entry, tiles, f, count);
	}
	last = resolve_arrive(&a, entry, s);
	if (last && !warp) {
		bool open = resolve_finish(&a, entry);

		if (!threadIdx.x)
			s->open = open;
	}
	resolve_fetch(&a, entry, f, count, s->epoch);
	if (!warp && resolve_sorts(&a, entry))
		resolve_ordered(&a, entry, f, s->epoch);
	__syncthreads();
	if (!last || s->open)
		evict_help(a.table, a.layer, &s->evict);
	resolve_tell(&a, entry, &s->journal, last);
}

HS_KERNEL(hs_release, struct hs_release_args)
{
	hs_store_release(&a.lane->word, (uint64_t)0);
}
