/* SPDX-License-Identifier: MIT */
/*
 * Decode: slots in, swap-in, indices out. One kernel on the critical path, and
 * on it as few steps that wait for each other as can be: the list, the map; for
 * what misses a claim, while the row is on its way from the host a hot row to take.
 * What has to be done once a launch is left to the passes (kernels/keep.h).
 */
#include "kernels/claim.h"
#include "kernels/journal.h"
#include "kernels/list.h"

/* Blocks of a processor: those of the passes run beside the others. */
#ifndef RESOLVE_RESIDENT
#define RESOLVE_RESIDENT 3
#endif

/* Misses of a warp that wait until its lists are looked up: what is hit by then
 * cannot be taken by a miss of the same lists. */
#define RESOLVE_WAIT 256u

/* Entries of the ring that are warmed before misses take them, but for a quarter
 * more. */
#ifndef RESOLVE_WARM
#define RESOLVE_WARM 1024u
#endif

/* What is a warp's own. */
struct resolve_warp {
	int64_t at[RESOLVE_WAIT];			/* of an entry that waits, in both lists */
	int32_t slot[RESOLVE_WAIT], word[RESOLVE_WAIT]; /* of the map, as it was */
	struct resolve_misses missed;
};

/* And a block's. */
struct resolve_block {
	struct resolve_launch launch;
	uint64_t journal;
	uint32_t go, base, what;
	uint32_t count[RESOLVE_STALE + 1];
	struct resolve_warp warps[HS_WARPS];
};

union resolve_shared {
	struct resolve_block r;
	struct keep_shared keep;
};

/* A warp's share of a list row: up to span entries; HS_EACH a thread if the launch
 * is wide, else one. */
struct resolve_tile {
	int64_t at;	       /* of this thread's first entry in both lists */
	bool live;	       /* its entries exist */
	int32_t slot[HS_EACH]; /* HS_NONE past a row's length, or if it does not exist */
};

/* Of the entries that a thread may have: whether it has this one. */
#define TILE_HAS(a, e) (!(e) || (a)->wide)

/* One thread: for all of the block. */
HS_DEVICE void resolve_begin(const struct hs_resolve_args *a, const struct hs_entry *entry,
	bool ranked, struct resolve_block *s)
{
	const struct hs_lane *own = &a->table->lanes[a->lane];
	const uint64_t entries = (uint64_t)a->outer * a->inner * a->k;
	/* All of it is asked for before any is used. */
	const uint32_t clock = hs_load_relaxed(&entry->clock);
	const uint32_t recent = hs_load_relaxed(&entry->recent);
	const uint32_t many = hs_load_relaxed(&own->many[a->layer / 32]);
	const uint32_t go = hs_load_relaxed(&own->go);
	const uint32_t base = hs_load_relaxed(&own->next);
	const uint32_t what = hs_load_relaxed(&a->table->journal.what);
	const struct resolve_launch l = {
		entry->state,
		clock,
		(int32_t)entry->first,
		(int32_t)entry->slots,
		entry->hot_index,
		entry->map,
		entry->stamp,
		fetch_of(entry),
		recent <= RESOLVE_EAGER,
		!ranked && (many >> a->layer % 32 & 1) && entries >= entry->sort_from,
	};

	s->launch = l;
	s->go = go;
	s->base = base;
	s->what = ranked ? 0 : what;
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
	const uint32_t first = a->wide ? HS_EACH * lane : lane;
	const uint32_t n = (tile - list * a->tiles) * a->span + first;
	struct resolve_tile t = {0, false, {HS_NONE, HS_NONE, HS_NONE, HS_NONE}};
	int32_t length = INT32_MAX;

	t.live = i < a->outer && first < a->span && n < a->k;
	t.at = (int64_t)i * a->outer_stride + (int64_t)j * a->inner_stride + n;
	if (!t.live)
		return t;
	if (a->lengths)
		length = hs_load_relaxed(&a->lengths[i]);
	if (a->wide) {
		const hs_u128 v = hs_load16(a->indices + t.at);

		t.slot[0] = (int32_t)v.x;
		t.slot[1] = (int32_t)v.y;
		t.slot[2] = (int32_t)v.z;
		t.slot[3] = (int32_t)v.w;
	} else {
		t.slot[0] = hs_load_relaxed(&a->indices[t.at]);
	}
	HS_UNROLL
	for (uint32_t e = 0; e < HS_EACH; e++) {
		if ((int64_t)n + e >= length)
			t.slot[e] = HS_NONE;
	}
	return t;
}

/* The list that attention reads, of one thread's entries. */
HS_DEVICE void tile_store(
	const struct hs_resolve_args *a, const struct resolve_tile *t, const int32_t *index)
{
	if (!t->live)
		return;
	if (a->wide) {
		const hs_u128 v = {(uint32_t)index[0], (uint32_t)index[1], (uint32_t)index[2],
			(uint32_t)index[3]};

		hs_store16(a->out + t->at, v);
	} else {
		a->out[t->at] = index[0];
	}
}

/* One warp: those of its entries that wait. */
HS_DEVICE void resolve_miss(const struct hs_resolve_args *a, struct resolve_block *s,
	struct resolve_warp *w, uint32_t waiting)
{
	struct hs_entry *entry = &a->table->entries[a->layer];
	const uint32_t lane = threadIdx.x & 31;

	for (uint32_t first = 0; first < waiting; first += 32) {
		const uint32_t i = first + lane;
		const bool open = i < waiting;

		resolve_claim(a, entry, &s->launch, open ? w->slot[i] : HS_NONE,
			open ? w->at[i] : 0, open ? w->word[i] : HS_NONE, open, &w->missed,
			s->count);
	}
}

/* Takes the marks from listed rows that were hit: v says the rows then, or what
 * came between. */
HS_DEVICE void resolve_unlist(const struct hs_resolve_args *a, const struct resolve_launch *l,
	const struct resolve_tile *t, int32_t *v, uint32_t *count)
{
	int32_t was[HS_EACH];

	HS_UNROLL
	for (uint32_t e = 0; e < HS_EACH && TILE_HAS(a, e); e++) {
		was[e] = v[e];
		if (map_listed(v[e]))
			was[e] = hs_atomic_cas(&l->map[t->slot[e]], v[e], (int32_t)map_row(v[e]));
	}
	HS_UNROLL
	for (uint32_t e = 0; e < HS_EACH && TILE_HAS(a, e); e++) {
		const bool off = map_listed(v[e]) && was[e] == v[e];

		resolve_count(&count[RESOLVE_STALE], off);
		v[e] = off ? (int32_t)map_row(v[e]) : was[e];
	}
}

/* One warp looks up a tile; what is not hot joins what waits. Returns how many
 * wait now. */
HS_DEVICE uint32_t resolve_look(const struct hs_resolve_args *a, const struct resolve_launch *l,
	const struct resolve_tile *t, struct resolve_block *s, uint32_t waiting, uint32_t *hits,
	uint32_t *padding)
{
	const uint32_t below = (1u << (threadIdx.x & 31)) - 1;
	struct resolve_warp *w = &s->warps[threadIdx.x / 32];
	int32_t v[HS_EACH], index[HS_EACH];
	uint32_t odd = 0;

	HS_UNROLL
	for (uint32_t e = 0; e < HS_EACH && TILE_HAS(a, e); e++)
		v[e] = resolve_ours(l, t->slot[e]) ? hs_load_relaxed(&l->map[t->slot[e]]) : HS_NONE;
	HS_UNROLL
	for (uint32_t e = 0; e < HS_EACH && TILE_HAS(a, e); e++)
		odd |= resolve_ours(l, t->slot[e]) && !map_plain(v[e]);
	odd = __ballot_sync(0xffffffffu, odd);
	if (odd)
		resolve_unlist(a, l, t, v, s->count);
	HS_UNROLL
	for (uint32_t e = 0; e < HS_EACH && TILE_HAS(a, e); e++) {
		const int32_t slot = t->slot[e];
		const bool hit = resolve_ours(l, slot) && map_plain(v[e]);

		index[e] = hit ? l->hot_index + v[e] : slot;
		if (hit)
			hs_store_relaxed(&l->stamp[v[e]], l->clock);
		if (RESOLVE_COUNTS) {
			*hits += hit || (slot >= 0 && slot < l->first);
			*padding += t->live && slot < 0;
		}
	}
	/* Those that wait are overwritten, by other threads of the warp. */
	tile_store(a, t, index);
	if (!odd)
		return waiting;
	HS_UNROLL
	for (uint32_t e = 0; e < HS_EACH && TILE_HAS(a, e); e++) {
		const bool open = resolve_ours(l, t->slot[e]) && !map_plain(v[e]);
		const uint32_t wait = __ballot_sync(0xffffffffu, open);
		const uint32_t n = waiting + (uint32_t)__popc(wait & below);

		if (open) {
			w->slot[n] = t->slot[e];
			w->word[n] = v[e];
			w->at[n] = t->at + e;
		}
		waiting += (uint32_t)__popc(wait);
	}
	return waiting;
}

/* One block: what misses will take is in the L2 when they do (0.5 to 1.5 us of 20 at
 * batch 64 with 0.1 % misses). */
HS_DEVICE void resolve_warm(const struct hs_entry *entry)
{
	const uint64_t free = hs_load_relaxed(&entry->free);
	const uint32_t recent = hs_load_relaxed(&entry->recent);
	const uint32_t left = keep_left(free), most = recent < RESOLVE_WARM ? recent : RESOLVE_WARM;

	if (entry->state != HS_ENTRY_ON)
		return;
	for (uint32_t i = threadIdx.x; i < most + most / 4 && i < left; i += HS_THREADS) {
		const uint64_t e =
			hs_load_relaxed(&entry->ring[((uint32_t)(free >> 32) + i) & entry->mask]);

		if ((int64_t)e >= 0)
			hs_warm(&entry->map[e >> 32]);
	}
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

/* All of a launch. ranked: the list is a union in the order of its addresses, which
 * has no padding, reads nothing in place and is no launch of its own. */
HS_DEVICE void resolve_all(const struct hs_resolve_args *a, bool ranked, union resolve_shared *s)
{
	struct hs_entry *entry = &a->table->entries[a->layer];
	struct hs_lane *own = &a->table->lanes[a->lane];
	const uint32_t warp = threadIdx.x / 32, warps = a->blocks * HS_WARPS;
	const uint32_t tiles = a->outer * a->inner * a->tiles;
	uint32_t tile = blockIdx.x * HS_WARPS + warp, waiting = 0;
	struct resolve_warp *w = &s->r.warps[warp];
	uint32_t hits = 0, padding = 0;
	struct resolve_launch l;
	struct resolve_tile t;

	if (blockIdx.x == a->blocks) {
		resolve_warm(entry);
		return;
	}
	if (blockIdx.x > a->blocks) {
		const struct hs_keep_args passes = {a->table, a->keep, a->lane, 0, false};

		keep_block(&passes, blockIdx.x - a->blocks - 1, false, &s->keep);
		return;
	}
	/* All of this is under way at once: nothing that is loaded is used before
	 * the barrier. */
	t = tile_load(a, tile);
	if (threadIdx.x <= RESOLVE_STALE)
		s->r.count[threadIdx.x] = 0;
	if (!threadIdx.x)
		resolve_enter(a);
	else if (threadIdx.x == 32)
		resolve_begin(a, entry, ranked, &s->r);
	__syncthreads();
	l = s->r.launch;
	if (l.state != HS_ENTRY_ON) {
		for (; tile < tiles; tile += warps, t = tile_load(a, tile))
			tile_store(a, &t, t.slot);
		resolve_tell(a, entry, s->r.what, &s->r.journal);
		return;
	}
	for (;;) {
		waiting = resolve_look(a, &l, &t, &s->r, waiting, &hits, &padding);
		tile += warps;
		if (waiting && (tile >= tiles || waiting > RESOLVE_WAIT - 32 * HS_EACH)) {
			__syncwarp();
			resolve_miss(a, &s->r, w, waiting);
			waiting = 0;
		}
		if (tile >= tiles)
			break;
		t = tile_load(a, tile);
	}
	hits = hs_warp_sum(hits);
	padding = hs_warp_sum(padding);
	if (!(threadIdx.x & 31)) {
		hs_atomic_add(&s->r.count[HS_COUNT_HITS], hits);
		if (!ranked)
			hs_atomic_add(&s->r.count[HS_COUNT_PADDING], padding);
	}

	if (RESOLVE_COUNTS && !ranked && !blockIdx.x && !threadIdx.x)
		hs_atomic_add(&s->r.count[HS_COUNT_LAUNCHES], 1u);
	__syncthreads();
	if (!threadIdx.x && (s->r.count[HS_COUNT_MISSES] | s->r.count[HS_COUNT_INPLACE] |
				    s->r.count[RESOLVE_STALE])) {
		hs_store_relaxed(&own->missed[a->layer], 1u);
		if (s->r.count[RESOLVE_STALE])
			hs_atomic_add(&entry->stale, s->r.count[RESOLVE_STALE]);
	}
	if (threadIdx.x < HS_COUNTS && s->r.count[threadIdx.x])
		hs_atomic_add(ranked && threadIdx.x == HS_COUNT_INPLACE
				      ? &entry->unserved
				      : &entry->totals[threadIdx.x],
			(uint64_t)s->r.count[threadIdx.x]);
	if (l.walks) {
		const uint64_t entries = (uint64_t)a->outer * a->inner * a->k;

		if (!threadIdx.x)
			s->r.go = order_wait(own, a->blocks, s->r.go);
		__syncthreads();
		if (s->r.go && warp < ORDER_WARPS)
			order_walk(entry, own, a->lane, s->r.base, entries, &w->missed);
	}
	resolve_tell(a, entry, s->r.what, &s->r.journal);
}

HS_KERNEL_RESIDENT(hs_resolve, struct hs_resolve_args, HS_THREADS, RESOLVE_RESIDENT)
{
	HS_SHARED(union resolve_shared, s);

	resolve_all(&a, false, s);
}

HS_KERNEL_RESIDENT(hs_many_hot, struct hs_resolve_args, HS_THREADS, RESOLVE_RESIDENT)
{
	HS_SHARED(union resolve_shared, s);

	resolve_all(&a, true, s);
}

/* The passes alone. */
HS_KERNEL_BOUNDED(hs_keep, struct hs_keep_args, HS_THREADS)
{
	HS_SHARED(struct keep_shared, s);

	keep_block(&a, blockIdx.x, true, s);
}
