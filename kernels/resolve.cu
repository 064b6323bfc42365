/* SPDX-License-Identifier: MIT */
/*
 * Decode: slots in, swap-in, indices out. One kernel on the critical path, and
 * on it as few steps that wait for each other as can be: the list, the map; for
 * what misses a claim, while the row is on its way from the host a hot row to take.
 * What has to be done once a launch is left to the passes (kernels/keep.h).
 */
#include "kernels/fetch.h"
#include "kernels/journal.h"
#include "kernels/list.h"
#include "kernels/order.h"
#include "kernels/pop.h"

/* Launches that lately missed no more than this read a row before they know
 * that no other thread is about to. */
#ifndef RESOLVE_EAGER
#define RESOLVE_EAGER 1024u
#endif

/* Blocks of a processor: those of the passes run beside the others. */
#ifndef RESOLVE_RESIDENT
#define RESOLVE_RESIDENT 3
#endif

union resolve_shared {
	struct {
		uint64_t journal;
		uint32_t eager, walks, go, base, what;
		uint32_t count[HS_COUNTS], stale;
		struct resolve_misses missed[HS_WARPS];
	} r;
	struct keep_shared keep;
};

/* A warp's share of a list row: up to span entries, one a thread. */
struct resolve_tile {
	int64_t at;   /* of this thread's entry in both lists */
	int32_t slot; /* HS_NONE past a row's length */
	bool live;    /* the entry exists */
};

/* What a launch knows from the start, in registers. */
struct resolve_launch {
	uint32_t state, clock;
	int32_t first, slots, hot_index;
	int32_t *map;
	uint32_t *stamp;
	struct fetch to;
	bool eager, walks;
};

HS_DEVICE struct resolve_launch resolve_launch(const struct hs_entry *entry)
{
	struct resolve_launch l;

	l.state = entry->state;
	l.first = (int32_t)entry->first;
	l.slots = (int32_t)entry->slots;
	l.hot_index = entry->hot_index;
	l.map = entry->map;
	l.stamp = entry->stamp;
	l.to = fetch_of(entry);
	l.clock = hs_load_relaxed(&entry->clock);
	l.eager = l.walks = false;
	return l;
}

/* A long list's rows are not numbered by a multiplication. */
HS_SELDOM uint32_t tile_divide(uint32_t tile, uint32_t by)
{
	return tile / by;
}

HS_DEVICE struct resolve_tile tile_load(const struct hs_resolve_args *a, uint32_t tile)
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t list =
		a->inverse ? (uint32_t)(tile * a->inverse >> 32) : tile_divide(tile, a->tiles);
	const uint32_t i = a->inner == 1 ? list : tile_divide(list, a->inner),
		       j = list - i * a->inner;
	const uint32_t n = (tile - list * a->tiles) * a->span + lane;
	struct resolve_tile t = {0, HS_NONE, false};
	int32_t length = INT32_MAX;

	t.live = i < a->outer && lane < a->span && n < a->k;
	t.at = (int64_t)i * a->outer_stride + (int64_t)j * a->inner_stride + n;
	if (t.live) {
		t.slot = hs_load_relaxed(&a->indices[t.at]);
		if (a->lengths)
			length = hs_load_relaxed(&a->lengths[i]);
	}
	if ((int64_t)n >= length)
		t.slot = HS_NONE;
	return t;
}

HS_DEVICE bool resolve_ours(const struct resolve_launch *l, int32_t slot)
{
	return slot >= l->first && slot < l->slots;
}

/*
 * A claimed slot gets hot row h, or none: then it is read in place. Until the
 * lane's next pass the row is this lane's.
 */
HS_DEVICE void resolve_give(const struct hs_resolve_args *a, struct hs_entry *entry,
	const struct resolve_launch *l, const struct resolve_tile *t, uint32_t h)
{
	if (h == HS_ROWS_MAX) {
		hs_store_relaxed(&l->map[t->slot], (int32_t)HS_NONE);
		a->out[t->at] = t->slot;
		return;
	}
	hs_store_relaxed(&l->map[t->slot], HS_PENDING(a->lane, h));
	a->out[t->at] = l->hot_index + (int32_t)h;
	hs_store_relaxed(&entry->owner[h], t->slot);
	hs_store_relaxed(&l->stamp[h], l->clock);
	hs_store_relaxed(&entry->born[h], l->clock);
}

/*
 * The warp's open entries that miss, `count` of them, and those that hit a listed
 * row: claims the former and fetches them, takes the latter from the list.
 * missed: who misses. Those whose word was another one then are left with that;
 * returns the entries that are still open.
 */
HS_DEVICE uint32_t resolve_miss(const struct hs_resolve_args *a, struct hs_entry *entry,
	const struct resolve_launch *l, const struct resolve_tile *t, const uint32_t *missed,
	int32_t *v, uint32_t open, uint32_t count, struct resolve_misses *f,
	struct resolve_counts *c)
{
	const int32_t claim = HS_PENDING(a->lane, HS_ROWS_MAX);
	const uint32_t lane = threadIdx.x & 31, below = (1u << lane) - 1;
	const bool eager = l->eager && !l->walks;
	uint32_t won[RESOLVE_TILES], at[RESOLVE_TILES], row[RESOLVE_TILES], wins = 0, base = 0;
	int32_t was[RESOLVE_TILES];
	hs_u128 loaded[LOADS];
	uint64_t word = 0;

	HS_UNROLL
	for (uint32_t i = 0; i < RESOLVE_TILES; i++) {
		at[i] = base + (uint32_t)__popc(missed[i] & below);
		base += (uint32_t)__popc(missed[i]);
		was[i] = HS_NONE;
		if (missed[i] >> lane & 1) {
			f->slot[at[i]] = t[i].slot;
			f->row[at[i]] = 0;
		}
		if ((missed[i] >> lane & 1) || ((open >> i & 1) && v[i] >= 0))
			was[i] = hs_atomic_cas(&l->map[t[i].slot], v[i],
				v[i] >= 0 ? (int32_t)map_row(v[i]) : claim);
	}
	__syncwarp();
	if (eager)
		resolve_load(&l->to, f, count, 0, loaded);
	__syncwarp();
	HS_UNROLL
	for (uint32_t i = 0; i < RESOLVE_TILES; i++) {
		const bool mine = missed[i] >> lane & 1, listed = (open >> i & 1) && v[i] >= 0;
		const bool hit = listed && (was[i] == v[i] || map_plain(was[i]));

		won[i] = __ballot_sync(0xffffffffu, mine && was[i] == HS_NONE);
		if (mine && was[i] != HS_NONE)
			f->row[at[i]] = HS_ROWS_MAX;
		wins += (uint32_t)__popc(won[i]);
		c->stale += resolve_votes(listed && was[i] == v[i]);
		c->hits += resolve_tally(hit);
		if (hit) {
			hs_store_relaxed(&l->stamp[map_row(was[i])], l->clock);
			a->out[t[i].at] = l->hot_index + (int32_t)map_row(was[i]);
		}
		if (mine || listed)
			v[i] = was[i];
		if (hit || (won[i] >> lane & 1))
			open &= ~(1u << i);
	}
	if (!wins) {
		__syncwarp();
		return open;
	}
	if (!lane)
		word = hs_atomic_add(&entry->free, (uint64_t)wins << 32);
	word = __shfl_sync(0xffffffffu, word, 0);
	__syncwarp();
	/* What gets no row is read in place, and not twice. */
	if (!eager && !l->walks && (int32_t)((uint32_t)word - (uint32_t)(word >> 32)) > 0)
		resolve_load(&l->to, f, count, 0, loaded);
	resolve_pop(entry, l->map, won, word, row, c);
	__syncwarp();
	HS_UNROLL
	for (uint32_t i = 0; i < RESOLVE_TILES; i++) {
		const bool mine = won[i] >> lane & 1, got = mine && row[i] != HS_ROWS_MAX;

		if (mine) {
			resolve_give(a, entry, l, &t[i], row[i]);
			if (l->walks && got)
				order_mark(entry, t[i].slot);
			f->row[at[i]] = row[i];
		}
		c->misses += resolve_votes(got);
		c->inplace += resolve_votes(mine && !got);
	}
	__syncwarp();
	if (l->walks)
		return open;
	resolve_store(&l->to, f, count, 0, loaded);
	resolve_fetch(&l->to, f, count, 32 * LOADS);
	__syncwarp();
	return open;
}

/* What another thread of this launch fetches, or another lane: the claimer waits
 * for nothing, so neither does this for long. */
HS_DEVICE void resolve_twin(const struct hs_resolve_args *a, const struct resolve_launch *l,
	const struct resolve_tile *t, int32_t v, bool open, struct resolve_counts *c)
{
	bool found;

	while (open && v == HS_PENDING(a->lane, HS_ROWS_MAX))
		v = hs_load_relaxed(&l->map[t->slot]);
	/* One that was written since is read where it was written. */
	found = open && map_pending(v, a->lane) && !map_doomed(v);
	if (open)
		a->out[t->at] = found ? l->hot_index + (int32_t)map_row(v) : t->slot;
	c->duplicates += resolve_tally(found);
	c->inplace += resolve_votes(open && !found);
}

/* One warp: a tile or some. */
HS_DEVICE void resolve_look(const struct hs_resolve_args *a, struct hs_entry *entry,
	const struct resolve_launch *l, const struct resolve_tile *t, struct resolve_misses *f,
	struct resolve_counts *c)
{
	uint32_t missed[RESOLVE_TILES], count = 0, open = 0;
	int32_t v[RESOLVE_TILES];

	HS_UNROLL
	for (uint32_t i = 0; i < RESOLVE_TILES; i++)
		v[i] = resolve_ours(l, t[i].slot) ? hs_load_relaxed(&l->map[t[i].slot]) : 0;
	HS_UNROLL
	for (uint32_t i = 0; i < RESOLVE_TILES; i++) {
		const int32_t slot = t[i].slot;
		const bool ours = resolve_ours(l, slot), hit = ours && map_plain(v[i]);

		if (hit)
			hs_store_relaxed(&l->stamp[v[i]], l->clock);
		if (t[i].live && (!ours || hit))
			a->out[t[i].at] = hit ? l->hot_index + v[i] : slot;
		open |= ours && !hit ? 1u << i : 0;
		c->hits += resolve_tally(hit || (slot >= 0 && slot < l->first));
		c->padding += resolve_tally(t[i].live && slot < 0);
	}
	if (!__ballot_sync(0xffffffffu, open != 0))
		return;
	/* A second time for those whose listed row was taken in between. */
	for (;;) {
		bool listed = false;

		count = 0;
		HS_UNROLL
		for (uint32_t i = 0; i < RESOLVE_TILES; i++) {
			missed[i] = __ballot_sync(0xffffffffu, (open >> i & 1) && v[i] == HS_NONE);
			count += (uint32_t)__popc(missed[i]);
			listed |= (open >> i & 1) && v[i] >= 0;
		}
		if (!count && !__ballot_sync(0xffffffffu, listed))
			break;
		open = resolve_miss(a, entry, l, t, missed, v, open, count, f, c);
	}
	if (!__ballot_sync(0xffffffffu, open != 0))
		return;
	HS_UNROLL
	for (uint32_t i = 0; i < RESOLVE_TILES; i++)
		resolve_twin(a, l, &t[i], v[i], open >> i & 1, c);
}

/* What somebody asked to be told. The last block to be done tells of the launch,
 * and the first its lists. */
HS_DEVICE void resolve_tell(
	const struct hs_resolve_args *a, struct hs_entry *entry, uint32_t what, uint64_t *shared)
{
	struct hs_journal *journal = &a->table->journal;
	uint32_t *told = &a->table->lanes[a->lane].told;

	if (what & HS_JOURNAL_LAUNCHES) {
		hs_fence();
		__syncthreads();
		if (!threadIdx.x && hs_atomic_add(told, 1u) + 1 == a->blocks) {
			hs_store_relaxed(told, 0u);
			hs_fence();
			journal_launch(journal, entry, a->layer, a->lane);
		}
	}
	if (what & HS_JOURNAL_LISTS && !blockIdx.x)
		journal_lists(a, shared);
}

/* The lane says where it is before any look at the map. */
HS_DEVICE void resolve_enter(const struct hs_resolve_args *a)
{
	hs_store_relaxed(&a->table->words[a->lane], a->layer + 1);
	hs_fence();
}

HS_DEVICE void resolve_count(uint32_t *count, uint32_t n)
{
	if (n && !(threadIdx.x & 31))
		hs_atomic_add(count, n);
}

HS_KERNEL_RESIDENT(hs_resolve, struct hs_resolve_args, HS_THREADS, RESOLVE_RESIDENT)
{
	HS_SHARED(union resolve_shared, s);
	struct hs_entry *entry = &a.table->entries[a.layer];
	struct hs_lane *own = &a.table->lanes[a.lane];
	const uint32_t warp = threadIdx.x / 32, warps = a.blocks * HS_WARPS;
	const uint32_t tiles = a.outer * a.inner * a.tiles;
	const uint64_t entries = (uint64_t)a.outer * a.inner * a.k;
	uint32_t tile = blockIdx.x * HS_WARPS + warp;
	struct resolve_counts c = {0, 0, 0, 0, 0, 0, 0};
	struct resolve_tile t[RESOLVE_TILES];
	struct resolve_launch l;

	if (blockIdx.x >= a.blocks) {
		const struct hs_keep_args passes = {a.table, a.keep, a.lane, 0, false};

		keep_block(&passes, blockIdx.x - a.blocks, false, &s->keep);
		return;
	}
	/* All of this is under way at once: nothing that is loaded is used before
	 * the barrier. */
	l = resolve_launch(entry);
	HS_UNROLL
	for (uint32_t i = 0; i < RESOLVE_TILES; i++)
		t[i] = tile_load(&a, tile + i * warps);
	if (threadIdx.x < HS_COUNTS)
		s->r.count[threadIdx.x] = 0;
	if (!threadIdx.x) {
		s->r.stale = 0;
		resolve_enter(&a);
	} else if (threadIdx.x == 32) {
		const uint32_t recent = hs_load_relaxed(&entry->recent);
		const uint32_t many = hs_load_relaxed(&own->many[a.layer / 32]);
		const uint32_t go = hs_load_relaxed(&own->go);
		const uint32_t base = hs_load_relaxed(&own->next);
		const uint32_t what = hs_load_relaxed(&a.table->journal.what);

		s->r.eager = recent <= RESOLVE_EAGER;
		s->r.walks = (many >> a.layer % 32 & 1) && entries >= entry->sort_from;
		s->r.go = go;
		s->r.base = base;
		s->r.what = what;
	}
	__syncthreads();
	if (l.state != HS_ENTRY_ON) {
		for (;; tile += RESOLVE_TILES * warps) {
			HS_UNROLL
			for (uint32_t i = 0; i < RESOLVE_TILES; i++) {
				if (t[i].live)
					a.out[t[i].at] = t[i].slot;
				t[i] = tile_load(&a, tile + (i + RESOLVE_TILES) * warps);
			}
			if (tile + RESOLVE_TILES * warps >= tiles)
				break;
		}
		resolve_tell(&a, entry, s->r.what, &s->r.journal);
		return;
	}
	l.eager = s->r.eager;
	l.walks = s->r.walks;
	for (;;) {
		resolve_look(&a, entry, &l, t, &s->r.missed[warp], &c);
		tile += RESOLVE_TILES * warps;
		if (tile >= tiles)
			break;
		HS_UNROLL
		for (uint32_t i = 0; i < RESOLVE_TILES; i++)
			t[i] = tile_load(&a, tile + i * warps);
	}
	resolve_count(&s->r.count[HS_COUNT_HITS], c.hits);
	resolve_count(&s->r.count[HS_COUNT_MISSES], c.misses);
	resolve_count(&s->r.count[HS_COUNT_DUPLICATES], c.duplicates);
	resolve_count(&s->r.count[HS_COUNT_INPLACE], c.inplace);
	resolve_count(&s->r.count[HS_COUNT_PADDING], c.padding);
	resolve_count(&s->r.count[HS_COUNT_EVICTIONS], c.evictions);
	resolve_count(&s->r.stale, c.stale);
	if (RESOLVE_COUNTS && !blockIdx.x && !threadIdx.x)
		hs_atomic_add(&s->r.count[HS_COUNT_LAUNCHES], 1u);
	__syncthreads();
	if (!threadIdx.x &&
		(s->r.count[HS_COUNT_MISSES] | s->r.count[HS_COUNT_INPLACE] | s->r.stale)) {
		hs_store_relaxed(&own->missed[a.layer], 1u);
		if (s->r.stale)
			hs_atomic_add(&entry->stale, s->r.stale);
	}
	if (threadIdx.x < HS_COUNTS && s->r.count[threadIdx.x])
		hs_atomic_add(&entry->totals[threadIdx.x], (uint64_t)s->r.count[threadIdx.x]);
	if (l.walks) {
		if (!threadIdx.x)
			s->r.go = order_wait(own, a.blocks, s->r.go);
		__syncthreads();
		if (s->r.go && warp < ORDER_WARPS)
			order_walk(entry, own, a.lane, s->r.base, entries, &s->r.missed[warp]);
	}
	resolve_tell(&a, entry, s->r.what, &s->r.journal);
}

/* The passes alone. */
HS_KERNEL_BOUNDED(hs_keep, struct hs_keep_args, HS_THREADS)
{
	HS_SHARED(struct keep_shared, s);

	keep_block(&a, blockIdx.x, true, s);
}
