/* SPDX-License-Identifier: MIT */
/* Decode: slots in, swap-in, indices out. One kernel on the critical path. */
#include "kernels/evict.h"
#include "kernels/fetch.h"
#include "kernels/journal.h"
#include "kernels/order.h"

/* What becomes of an entry: all is said, or this launch is to fetch it and this
 * thread, or another one, finds a row. Marks in the list stand for the latter. */
enum { ENTRY_DONE = -1, ENTRY_WON = -2, ENTRY_TWIN = -3 };

/* The other blocks have that long to look up; resident ones need microseconds. */
#define RESOLVE_PATIENCE 2048

struct resolve_shared {
	uint64_t journal;
	uint32_t clock, epoch, last, publish;
	uint32_t due, open, misses; /* open: there are entries to be done */
	uint32_t go, scan, sort;
	uint32_t count[HS_COUNTS];
	struct resolve_misses missed[HS_WARPS];
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

HS_DEVICE void resolve_count(uint32_t *count, uint32_t n)
{
	if (n && !(threadIdx.x & 31))
		hs_atomic_add(count, n);
}

HS_DEVICE bool resolve_ours(const struct hs_entry *entry, int32_t slot)
{
	return slot >= (int32_t)entry->first && slot < (int32_t)entry->slots;
}

HS_DEVICE int32_t resolve_peek(const struct hs_entry *entry, const struct resolve_tile *t)
{
	return resolve_ours(entry, t->slot) ? hs_load_relaxed(&entry->map[t->slot]) : HS_NONE;
}

/*
 * Looks up what the map said a moment ago, and claims what misses. A hit is an
 * index; what another launch fetches is not there yet and is read in place; for
 * what this launch fetches a mark is left.
 */
HS_DEVICE int32_t resolve_look(const struct hs_resolve_args *a, struct hs_entry *entry,
	const struct resolve_tile *t, int32_t v, uint32_t clock, uint32_t *hits, uint32_t *others)
{
	const int32_t slot = t->slot, claim = HS_PENDING(a->lane, HS_ROWS_MAX);
	const bool ours = resolve_ours(entry, slot);
	bool hit = slot >= 0 && slot < (int32_t)entry->first;
	int32_t index = slot, kind = ENTRY_DONE;

	if (ours && v == HS_NONE) {
		v = hs_atomic_cas(&entry->map[slot], (int32_t)HS_NONE, claim);
		if (v == HS_NONE || HS_PLANTED(HS_PLANT_TWICE))
			kind = ENTRY_WON;
	}
	if (ours && kind == ENTRY_DONE) {
		if (v >= 0) {
			hs_store_relaxed(&entry->stamp[v], clock);
			index = entry->hot_index + v;
			hit = true;
		} else if (HS_PENDING_LANE(v) == a->lane) {
			kind = ENTRY_TWIN;
		}
	}
	if (t->live)
		a->out[t->at] = kind == ENTRY_DONE ? index : kind;
	*hits += (uint32_t)__popc(__ballot_sync(0xffffffffu, hit));
	*others += (uint32_t)__popc(__ballot_sync(0xffffffffu, ours && !hit && kind == ENTRY_DONE));
	return kind;
}

/* The warp's misses of a tile. Rows are to be found yet. */
HS_DEVICE uint32_t resolve_list(const struct resolve_tile *t, bool won, struct resolve_misses *f)
{
	const unsigned mask = __ballot_sync(0xffffffffu, won);
	const uint32_t rank = (uint32_t)__popc(mask & ((1u << (threadIdx.x & 31)) - 1));

	if (won) {
		f->slot[rank] = t->slot;
		f->row[rank] = 0;
	}
	__syncwarp();
	return (uint32_t)__popc(mask);
}

/* Finds rows for the tile's misses, in the order of resolve_list. One that gets
 * none is read in place. */
HS_DEVICE void resolve_claim(const struct hs_resolve_args *a, struct hs_entry *entry,
	const struct resolve_tile *t, bool won, struct resolve_shared *s, struct resolve_misses *f)
{
	const unsigned mask = __ballot_sync(0xffffffffu, won);
	const uint32_t rank = (uint32_t)__popc(mask & ((1u << (threadIdx.x & 31)) - 1));
	uint32_t h = HS_ROWS_MAX, got;

	if (s->go)
		h = evict_take(a->table, a->layer, won, s->clock);
	got = (uint32_t)__popc(__ballot_sync(0xffffffffu, h != HS_ROWS_MAX));
	if (won) {
		f->row[rank] = h;
		if (h != HS_ROWS_MAX) {
			hs_store_relaxed(&entry->owner[h], t->slot);
			hs_store_relaxed(&entry->born[h], s->clock);
		}
		hs_store_relaxed(&entry->map[t->slot],
			h != HS_ROWS_MAX ? HS_PENDING(a->lane, h) : (int32_t)HS_NONE);
		a->out[t->at] = h != HS_ROWS_MAX ? entry->hot_index + (int32_t)h : t->slot;
	}
	resolve_count(&s->count[HS_COUNT_MISSES], got);
	resolve_count(&s->count[HS_COUNT_INPLACE], (uint32_t)__popc(mask) - got);
	__syncwarp();
}

/*
 * The index of what another thread of this launch fetches. A row that is ready
 * is only taken if it has a stamp of this launch, which protects it: the claim
 * may have come to nothing, and another lane fetched the slot since.
 */
HS_DEVICE void resolve_twin(const struct hs_resolve_args *a, struct hs_entry *entry,
	const struct resolve_tile *t, bool twin, struct resolve_shared *s)
{
	const int32_t slot = t->slot, claim = HS_PENDING(a->lane, HS_ROWS_MAX);
	bool found = false;
	int32_t v = HS_NONE;

	if (twin) {
		do
			v = hs_load_relaxed(&entry->map[slot]);
		while (v == claim);
		if (v >= 0)
			found = (int32_t)(hs_load_relaxed(&entry->stamp[v]) - s->clock) >= 0 &&
				hs_load_relaxed(&entry->map[slot]) == v;
		else
			found = v != HS_NONE && HS_PENDING_LANE(v) == a->lane;
		a->out[t->at] = found ? entry->hot_index + (int32_t)map_row(v) : slot;
	}
	resolve_count(&s->count[HS_COUNT_DUPLICATES],
		(uint32_t)__popc(__ballot_sync(0xffffffffu, found)));
	resolve_count(&s->count[HS_COUNT_INPLACE],
		(uint32_t)__popc(__ballot_sync(0xffffffffu, twin && !found)));
}

/* Whether the list is long enough for misses to be sorted. */
HS_DEVICE bool resolve_sorts(
	const struct hs_resolve_args *a, const struct hs_entry *entry, uint64_t misses)
{
	return (uint64_t)a->outer * a->inner * a->k >= entry->sort_from &&
	       misses >= entry->sort_from / 8;
}

/* Warp 0 of a block: fetches what was left to be sorted, if anything was. */
HS_DEVICE void resolve_ordered(const struct hs_resolve_args *a, struct hs_entry *entry,
	struct resolve_misses *f, uint32_t epoch)
{
	struct hs_order *o = &a->table->order;
	uint32_t wait = 0, node, count, groups = 0, each;

	if (!(threadIdx.x & 31))
		wait = order_wait(o, a->lane);
	if (!__shfl_sync(0xffffffffu, wait, 0))
		return;
	each = order_each(o);
	for (; order_take(o, each, &node); groups++) {
		while ((count = order_walk(o, &node, f)))
			resolve_fetch(a, entry, f, count, 0, epoch);
	}
	order_done(o, each, groups);
}

/* One thread: the launch enters its lane before any look at the map (see
 * evict.h). Nothing waits for what is loaded before it must. */
HS_DEVICE void resolve_begin(
	const struct hs_resolve_args *a, const struct hs_entry *entry, struct resolve_shared *s)
{
	uint32_t clock, epoch, due;

	hs_store_relaxed(&a->table->lanes[a->lane].word, (uint64_t)(2 * (1 + a->layer) + 1) << 32);
	clock = hs_load_relaxed(&entry->clock);
	epoch = hs_load_relaxed(&entry->epoch);
	due = hs_load_relaxed(&entry->evict.due);
	if (hs_load_relaxed(&a->table->top) <= a->lane)
		hs_atomic_max(&a->table->top, a->lane + 1);
	s->clock = clock;
	s->epoch = epoch;
	s->due = due;
	s->open = s->misses = 0;
	hs_fence();
}

HS_DEVICE void resolve_totals(struct hs_entry *entry, struct resolve_shared *s)
{
	for (uint32_t i = threadIdx.x; i < HS_COUNTS; i += 32) {
		if (s->count[i])
			hs_atomic_add(&entry->totals[i], (uint64_t)s->count[i]);
		s->count[i] = 0;
	}
	__syncwarp();
}

/* Warp 0: what the host sees. */
HS_DEVICE void resolve_publish(struct hs_entry *entry)
{
	if (threadIdx.x < HS_COUNTS && entry->counts)
		hs_store_relaxed(
			&entry->counts[threadIdx.x], hs_load_relaxed(&entry->totals[threadIdx.x]));
}

/*
 * Warp 0 of the block that looked up last: all rows that the launch reads are
 * stamped, so the lane is not busy any more and rows may be taken. `left` is
 * counted down by blocks that have given their misses rows, and up here by the
 * number of them: who brings it to zero publishes.
 */
HS_DEVICE void resolve_finish(const struct hs_resolve_args *a, struct hs_entry *entry,
	uint64_t arrived, struct resolve_shared *s)
{
	struct hs_lane *own = &a->table->lanes[a->lane];
	const uint32_t misses = (uint32_t)(arrived >> 32), blocks = (uint32_t)arrived >> 16;
	uint32_t early, now = 0, scan = 0, publish = 0;

	if (!threadIdx.x) {
		early = ~hs_load_relaxed(&own->early);
		now = hs_atomic_add(&entry->clock, 1u) + 1;
		hs_atomic_add(&entry->totals[HS_COUNT_LAUNCHES], (uint64_t)1);
		hs_store_relaxed(&own->early, 0u);
		hs_store_relaxed(&own->arrived, (uint64_t)0);
		scan = (misses || s->due) && evict_plan(entry, misses);
		hs_store_relaxed(&own->scan, scan);
		hs_store_relaxed(&own->sort, (uint32_t)resolve_sorts(a, entry, misses));
		publish = !blocks || hs_atomic_add(&own->left, (int32_t)blocks) == -(int32_t)blocks;
		s->publish = publish;
		s->due |= scan; /* a scan that was opened is helped by this block at least */
		hs_fence();
		hs_store_release(&own->word, (uint64_t)(2 * (1 + a->layer)) << 32 | early);
	}
	now = __shfl_sync(0xffffffffu, now, 0);
	if (__shfl_sync(0xffffffffu, scan, 0))
		evict_open(a->table, a->layer, now);
	if (__shfl_sync(0xffffffffu, publish, 0))
		resolve_publish(entry);
}

/* Warp 0: the block has looked up. */
HS_DEVICE void resolve_arrive(
	const struct hs_resolve_args *a, struct hs_entry *entry, struct resolve_shared *s)
{
	struct hs_lane *own = &a->table->lanes[a->lane];
	uint64_t arrived = 0;
	uint32_t last;

	resolve_totals(entry, s);
	if (!threadIdx.x) {
		hs_atomic_max(&own->early, ~s->clock);
		hs_fence();
		s->publish = 0;
		arrived = (uint64_t)s->misses << 32 | s->open << 16 | 1;
		arrived += hs_atomic_add(&own->arrived, arrived);
	}
	arrived = __shfl_sync(0xffffffffu, arrived, 0);
	last = ((uint32_t)arrived & 0xffff) == gridDim.x;
	if (!threadIdx.x)
		s->last = last;
	if (last) {
		hs_fence();
		resolve_finish(a, entry, arrived, s);
	}
}

/* One thread: waits until every block has looked up. */
HS_DEVICE void resolve_wait(const struct hs_resolve_args *a, struct resolve_shared *s)
{
	struct hs_lane *own = &a->table->lanes[a->lane];

	s->go = s->scan = s->sort = 0;
	for (uint32_t i = 0; i < RESOLVE_PATIENCE && !s->go; i++) {
		s->go = !(hs_load_acquire(&own->word) >> 32 & 1);
		if (!s->go)
			__nanosleep(20);
	}
	if (!s->go)
		return;
	s->scan = hs_load_relaxed(&own->scan);
	s->sort = hs_load_relaxed(&own->sort);
}

/* Warp 0, when all of the block's misses have rows. */
HS_DEVICE void resolve_gave(
	const struct hs_resolve_args *a, struct hs_entry *entry, struct resolve_shared *s)
{
	struct hs_lane *own = &a->table->lanes[a->lane];
	uint32_t publish = 0;

	resolve_totals(entry, s);
	if (!threadIdx.x) {
		hs_fence();
		publish = hs_atomic_add(&own->left, -1) == 1;
		hs_fence();
		s->publish = publish;
		/* Also if this block did not wait until that was decided. */
		if (publish)
			s->sort = hs_load_relaxed(&own->sort);
		if (publish && s->sort)
			order_ready(&a->table->order, a->lane);
	}
	if (__shfl_sync(0xffffffffu, publish, 0))
		resolve_publish(entry);
}

/* Tiles that a warp has left marks in: one bit for each of the first 31, and one
 * for all beyond. */
HS_DEVICE uint32_t tile_bit(uint32_t n)
{
	return 1u << (n < 31 ? n : 31);
}

/* All tiles of a warp but the last: rows for what misses, fetched one tile after
 * the other or left to be sorted. */
HS_DEVICE void resolve_tiles(const struct hs_resolve_args *a, struct hs_entry *entry,
	uint32_t marked, uint32_t count, struct resolve_shared *s, struct resolve_misses *f)
{
	const uint32_t warps = gridDim.x * HS_WARPS;
	uint32_t tile = blockIdx.x * HS_WARPS + threadIdx.x / 32, misses;

	for (uint32_t n = 0; n + 1 < count; n++, tile += warps) {
		struct resolve_tile t;
		bool won;

		if (!(marked & tile_bit(n)))
			continue;
		t = tile_load(a, tile);
		won = t.live && a->out[t.at] == ENTRY_WON;
		misses = resolve_list(&t, won, f);
		if (!misses)
			continue;
		resolve_claim(a, entry, &t, won, s, f);
		if (!s->sort || !order_add(&a->table->order, entry, a->lane, f, misses))
			resolve_fetch(a, entry, f, misses, 0, s->epoch);
	}
}

HS_DEVICE void resolve_twins(const struct hs_resolve_args *a, struct hs_entry *entry,
	uint32_t marked, uint32_t count, struct resolve_shared *s)
{
	const uint32_t warps = gridDim.x * HS_WARPS;
	uint32_t tile = blockIdx.x * HS_WARPS + threadIdx.x / 32;

	for (uint32_t n = 0; n < count && marked; n++, tile += warps) {
		struct resolve_tile t;

		if (!(marked & tile_bit(n)))
			continue;
		t = tile_load(a, tile);
		resolve_twin(a, entry, &t, t.live && a->out[t.at] == ENTRY_TWIN, s);
	}
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
	uint32_t tile = blockIdx.x * HS_WARPS + warp, n = 0, wons = 0, twins = 0, misses = 0;
	uint32_t hits = 0, others = 0, padding = 0, count;
	struct resolve_misses *f = &s->missed[warp];
	struct resolve_tile t = tile_load(&a, tile), next, after;
	int32_t kind, v, w;
	hs_u128 loaded[LOADS];
	bool early;

	if (entry->state != HS_ENTRY_ON) {
		for (; tile < tiles; t = tile_load(&a, tile += warps)) {
			if (t.live)
				a.out[t.at] = t.slot;
		}
		resolve_tell(&a, entry, &s->journal, !blockIdx.x);
		return;
	}
	next = tile_load(&a, tile + warps);
	if (threadIdx.x < HS_COUNTS)
		s->count[threadIdx.x] = 0;
	if (!threadIdx.x)
		resolve_begin(&a, entry, s);
	__syncthreads();
	v = resolve_peek(entry, &t);
	for (;; n++) {
		/* Two tiles ahead for slots, one for the map. */
		after = tile_load(&a, tile + 2 * warps);
		w = resolve_peek(entry, &next);
		kind = resolve_look(&a, entry, &t, v, s->clock, &hits, &others);
		count = (uint32_t)__popc(__ballot_sync(0xffffffffu, kind == ENTRY_WON));
		misses += count;
		wons |= count ? tile_bit(n) : 0;
		twins |= __ballot_sync(0xffffffffu, kind == ENTRY_TWIN) ? tile_bit(n) : 0;
		padding += (uint32_t)__popc(__ballot_sync(0xffffffffu, t.live && t.slot < 0));
		if (tile + warps >= tiles)
			break;
		tile += warps;
		t = next;
		next = after;
		v = w;
	}
	resolve_count(&s->count[HS_COUNT_HITS], hits);
	resolve_count(&s->count[HS_COUNT_INPLACE], others);
	resolve_count(&s->count[HS_COUNT_PADDING], padding);
	resolve_count(&s->misses, misses);
	if (wons | twins)
		s->open = 1;
	count = resolve_list(&t, kind == ENTRY_WON, f);
	/* What is fetched as it comes is loaded while rows are found. The guess
	 * is the warp's own, so it costs nothing; a wrong one costs only time. */
	early = count && !resolve_sorts(&a, entry, (uint64_t)count * tiles);
	if (early && warp)
		resolve_load(entry, f, count, 0, loaded);
	__syncthreads();
	if (!warp)
		resolve_arrive(&a, entry, s);
	if (early && !warp)
		resolve_load(entry, f, count, 0, loaded);
	__syncthreads();
	if (s->open | s->due) {
		if (!threadIdx.x)
			resolve_wait(&a, s);
		__syncthreads();
		if (s->scan)
			evict_help(entry, &s->evict);
	}
	if (s->open) {
		if (count)
			resolve_claim(&a, entry, &t, kind == ENTRY_WON, s, f);
		if (count && !early && s->sort &&
			order_add(&a.table->order, entry, a.lane, f, count))
			count = 0;
		if (early) {
			resolve_store(entry, f, count, 0, loaded);
			resolve_fetch(&a, entry, f, count, 32 * LOADS, s->epoch);
		} else {
			resolve_fetch(&a, entry, f, count, 0, s->epoch);
		}
		if (wons)
			resolve_tiles(&a, entry, wons, n + 1, s, f);
		resolve_twins(&a, entry, twins, n + 1, s);
		__syncthreads();
		if (!warp) {
			resolve_gave(&a, entry, s);
			__syncwarp();
			if (s->sort)
				resolve_ordered(&a, entry, f, s->epoch);
		}
	}
	__syncthreads();
	resolve_tell(&a, entry, &s->journal, s->publish);
}

HS_KERNEL(hs_release, struct hs_release_args)
{
	hs_store_release(&a.lane->word, (uint64_t)0);
}
