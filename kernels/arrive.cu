/* SPDX-License-Identifier: MIT */
/* Rows that arrive without a launch that names their window. */
#include "kernels/map.h"

/* In every layer. */
HS_DEVICE void forget_slot(struct hs_table *table, uint64_t slot)
{
	for (uint32_t i = 0; i < HS_LAYERS; i++) {
		struct hs_entry *entry = &table->entries[i];

		if (entry->state == HS_ENTRY_ON && slot < entry->slots &&
			map_forget(entry, (int32_t)slot))
			hs_atomic_add(&entry->totals[HS_COUNT_INVALIDATED], (uint64_t)1);
	}
}

HS_KERNEL(hs_forget, struct hs_forget_args)
{
	const uint64_t total = (uint64_t)a.count * a.unit;

	if (HS_PLANTED(HS_PLANT_STALE))
		return;
	for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total;
		i += (uint64_t)gridDim.x * blockDim.x) {
		const uint64_t at = i / a.unit;
		const int64_t first = a.width == 8 ? ((const int64_t *)a.list)[at]
						   : ((const int32_t *)a.list)[at];

		if (first >= 0)
			forget_slot(a.table, (uint64_t)first * a.unit + i % a.unit);
	}
}

/* What a block of threads has of the table: every a->parts-th tile of a row, from
 * `part`. */
struct blocks_share {
	const int32_t *now;
	uint32_t row, part;
	uint32_t blocks; /* entries of the row that are read: none past its length */
};

/* False: the row is that of the blocks before, which look at it. */
HS_DEVICE bool blocks_share(const struct hs_blocks_args *a, struct blocks_share *share)
{
	const uint32_t at = blockIdx.x / a->parts;
	uint32_t row = at, blocks = a->columns;

	if (a->ids) {
		row = (uint32_t)a->ids[at];
		/* Tokens of one request stand side by side. */
		if (at && (uint32_t)a->ids[at - 1] == row)
			return false;
	}
	if (a->lengths)
		blocks = ((uint32_t)a->lengths[row] + a->unit - 1) / a->unit;
	share->now = a->blocks + (uint64_t)row * a->stride;
	share->row = row;
	share->part = blockIdx.x - at * a->parts;
	share->blocks = blocks < a->columns ? blocks : a->columns;
	return true;
}

/* A row in the copy that the launch of a turn saved. */
HS_DEVICE int32_t *blocks_saved(const struct hs_blocks_args *a, uint32_t turn, uint32_t row)
{
	return a->saved +
	       ((uint64_t)(turn % 2) * HS_BLOCKS_ROWS + row) * HS_BLOCKS_STRIDE(a->columns);
}

/* Entries of a thread, of two rows: 4 and again 4 after those of the whole block. */
struct blocks_tile {
	hs_u128 now[HS_BLOCKS_LOADS], old[HS_BLOCKS_LOADS];
};

HS_DEVICE uint32_t blocks_at(uint32_t tile, uint32_t u)
{
	return tile * HS_BLOCKS_TILE + (u * HS_THREADS + threadIdx.x) * 4;
}

/* Entries from `at` on, none from `end` on. The engine aligns rows as it likes. */
HS_DEVICE hs_u128 blocks_load(const int32_t *row, uint32_t at, uint32_t end)
{
	const uint32_t none = (uint32_t)HS_NONE;
	hs_u128 v = {none, none, none, none};

	if (at + 4 <= end && !((uintptr_t)row & 15))
		return hs_load16(row + at);
	if (at < end)
		v.x = (uint32_t)row[at];
	if (at + 1 < end)
		v.y = (uint32_t)row[at + 1];
	if (at + 2 < end)
		v.z = (uint32_t)row[at + 2];
	if (at + 3 < end)
		v.w = (uint32_t)row[at + 3];
	return v;
}

/* Of `old`, which we saved, what is loaded past the end means nothing. */
HS_DEVICE struct blocks_tile blocks_load_tile(
	uint32_t tile, const int32_t *now, uint32_t end, const int32_t *old, uint32_t old_end)
{
	struct blocks_tile t = {0};

	HS_UNROLL
	for (uint32_t u = 0; u < HS_BLOCKS_LOADS; u++) {
		const uint32_t at = blocks_at(tile, u);

		t.now[u] = blocks_load(now, at, end);
		if (at < old_end)
			t.old[u] = hs_load16(old + at);
	}
	return t;
}

/* UINT32_MAX less the first entry of the thread below `least` that differs, or 0. */
HS_DEVICE uint32_t blocks_differ(const struct blocks_tile *t, uint32_t tile, uint32_t least)
{
	uint32_t differs = 0;

	HS_UNROLL
	for (uint32_t u = 0; u < HS_BLOCKS_LOADS; u++) {
		const hs_u128 now = t->now[u], old = t->old[u];
		const uint32_t bits = (uint32_t)(now.x != old.x) | (uint32_t)(now.y != old.y) << 1 |
				      (uint32_t)(now.z != old.z) << 2 |
				      (uint32_t)(now.w != old.w) << 3;
		const uint32_t first = blocks_at(tile, u) + (uint32_t)__ffs((int)bits) - 1;

		if (!differs && bits && first < least)
			differs = UINT32_MAX - first;
	}
	return differs;
}

struct blocks_owned {
	uint32_t owned;
};

HS_KERNEL_BOUNDED(hs_blocks, struct hs_blocks_args, HS_THREADS)
{
	HS_SHARED(struct blocks_owned, s);
	struct blocks_share share = {0};
	const bool ours = blocks_share(&a, &share);
	uint32_t turn, least, differs = 0;
	struct hs_blocks_row *after;
	const int32_t *old;
	int32_t *to;

	if (!threadIdx.x) {
		const uint32_t was = hs_atomic_cas(&a.head->owner, 0u, a.lane + 1);

		s->owned = !was || was == a.lane + 1;
		if (!was)
			hs_store_relaxed(&a.head->finished, 0u);
		hs_fence();
	}
	__syncthreads();
	if (!s->owned || !ours || share.row >= HS_BLOCKS_ROWS)
		return;
	turn = hs_load_relaxed(&a.head->turn);
	after = &a.head->rows[(turn + 1) % 3][share.row];
	old = blocks_saved(&a, turn, share.row);
	to = blocks_saved(&a, turn + 1, share.row);
	least = hs_load_relaxed(&a.head->rows[turn % 3][share.row].blocks);
	for (uint32_t tile = share.part; tile * HS_BLOCKS_TILE < share.blocks; tile += a.parts) {
		/* Not as far as the row was: that would have to be known first. */
		const struct blocks_tile t =
			blocks_load_tile(tile, share.now, share.blocks, old, share.blocks);
		const uint32_t first = blocks_differ(&t, tile, least);

		if (!differs)
			differs = first;
		HS_UNROLL
		for (uint32_t u = 0; u < HS_BLOCKS_LOADS; u++) {
			if (blocks_at(tile, u) < share.blocks)
				hs_store16(to + blocks_at(tile, u), t.now[u]);
		}
	}
	if (differs)
		hs_atomic_max(&after->differs, differs);
	__syncthreads();
	if (threadIdx.x)
		return;
	if (least < share.blocks)
		hs_atomic_max(&after->differs, UINT32_MAX - least);
	hs_fence();
	if (hs_atomic_add(&after->parts, 1u) + 1 == a.parts)
		hs_store_relaxed(&after->blocks, share.blocks);
}

struct blocks_shared {
	uint32_t maybe[HS_BLOCKS_ROWS / 32]; /* rows that may have had more of the entries */
	uint32_t differs;
	uint32_t layers[HS_LAYERS], on; /* those that are on */
	uint32_t list[HS_BLOCKS_TILE], count;
	uint32_t owned;
};

/* How many of `least` entries are the same in both rows. */
HS_DEVICE uint32_t blocks_common(
	const int32_t *now, const int32_t *old, uint32_t least, struct blocks_shared *s)
{
	uint32_t common;

	if (!threadIdx.x)
		s->differs = 0;
	__syncthreads();
	for (uint32_t tile = 0; tile * HS_BLOCKS_TILE < least; tile++) {
		const struct blocks_tile t = blocks_load_tile(tile, now, least, old, least);
		const uint32_t differs = blocks_differ(&t, tile, least);

		if (differs)
			hs_atomic_max(&s->differs, differs);
		if (__syncthreads_or(differs != 0))
			break;
	}
	common = s->differs ? UINT32_MAX - s->differs : least;
	__syncthreads();
	return common;
}

/* Which layers are on. */
HS_DEVICE void blocks_layers(const struct hs_blocks_args *a, struct blocks_shared *s)
{
	uint32_t state[HS_LAYERS / HS_THREADS];

	HS_UNROLL
	for (uint32_t u = 0; u < HS_LAYERS / HS_THREADS; u++)
		state[u] = a->table->entries[u * HS_THREADS + threadIdx.x].state;
	if (!threadIdx.x)
		s->on = s->count = 0;
	__syncthreads();
	HS_UNROLL
	for (uint32_t u = 0; u < HS_LAYERS / HS_THREADS; u++) {
		if (state[u] == HS_ENTRY_ON)
			s->layers[hs_atomic_add(&s->on, 1u)] = u * HS_THREADS + threadIdx.x;
	}
	__syncthreads();
}

/* The row of the launch before that begins with most of the entries, of which its
 * own row has `held`; how many those are in *held. */
HS_DEVICE uint32_t blocks_find(const struct hs_blocks_args *a, const struct blocks_share *share,
	uint32_t turn, uint32_t *held, struct blocks_shared *s)
{
	const struct hs_blocks_row *before = a->head->rows[turn % 3];
	const int32_t wanted = share->now[*held];
	uint32_t blocks[HS_BLOCKS_ROWS / HS_THREADS];
	uint32_t best = share->row;

	HS_UNROLL
	for (uint32_t u = 0; u < HS_BLOCKS_ROWS / HS_THREADS; u++)
		blocks[u] = before[u * HS_THREADS + threadIdx.x].blocks;
	HS_UNROLL
	for (uint32_t u = 0; u < HS_BLOCKS_ROWS / HS_THREADS; u++) {
		const uint32_t i = u * HS_THREADS + threadIdx.x;
		const uint32_t bits = __ballot_sync(0xffffffffu,
			blocks[u] > *held && blocks_saved(a, turn, i)[*held] == wanted);

		if (!(threadIdx.x & 31))
			s->maybe[i / 32] = bits;
	}
	__syncthreads();
	for (uint32_t w = 0; w < HS_BLOCKS_ROWS / 32; w++) {
		for (uint32_t bits = s->maybe[w]; bits && *held < share->blocks; bits &= bits - 1) {
			const uint32_t i = w * 32 + (uint32_t)__ffs((int)bits) - 1;
			const uint32_t had = before[i].blocks;
			const int32_t *old = blocks_saved(a, turn, i);
			uint32_t common;

			if (had <= *held || old[*held] != share->now[*held])
				continue;
			common = blocks_common(
				share->now, old, had < share->blocks ? had : share->blocks, s);
			if (common > *held) {
				*held = common;
				best = i;
			}
		}
	}
	return best;
}

#define BLOCKS_AHEAD 4u /* map words of a thread in flight */

/* The listed blocks, in every layer. Most have no hot rows. */
HS_DEVICE void blocks_forget(const struct hs_blocks_args *a, const struct blocks_shared *s)
{
	const uint32_t slots = s->count * a->unit, total = slots * s->on;

	for (uint32_t start = threadIdx.x; start < total; start += BLOCKS_AHEAD * HS_THREADS) {
		struct hs_entry *entry[BLOCKS_AHEAD];
		int32_t slot[BLOCKS_AHEAD], word[BLOCKS_AHEAD];

		HS_UNROLL
		for (uint32_t u = 0; u < BLOCKS_AHEAD; u++) {
			const uint32_t n = start + u * HS_THREADS, layer = n / slots;
			const uint32_t at = n - layer * slots, block = at / a->unit;
			uint64_t i;

			word[u] = HS_NONE;
			if (n >= total)
				continue;
			i = (uint64_t)s->list[block] * a->unit + (at - block * a->unit);
			entry[u] = &a->table->entries[s->layers[layer]];
			slot[u] = (int32_t)i;
			if (i < entry[u]->slots)
				word[u] = hs_load_relaxed(&entry[u]->map[i]);
		}
		HS_UNROLL
		for (uint32_t u = 0; u < BLOCKS_AHEAD; u++) {
			if (word[u] != HS_NONE && map_forget(entry[u], slot[u]))
				hs_atomic_add(&entry[u]->totals[HS_COUNT_INVALIDATED], (uint64_t)1);
		}
	}
}

/* An entry is listed, unless it stays. */
HS_DEVICE void blocks_list(struct blocks_shared *s, uint32_t now, bool stays)
{
	if ((int32_t)now >= 0 && !stays)
		s->list[hs_atomic_add(&s->count, 1u)] = now;
}

/* A row's share of a block of threads. owned: it was compared. */
HS_DEVICE void blocks_drop(const struct hs_blocks_args *a, const struct blocks_share *share,
	uint32_t turn, bool owned, struct blocks_shared *s)
{
	uint32_t held = 0, best = share->row, tile, known = 0;
	const int32_t *old;

	if (owned && share->row < HS_BLOCKS_ROWS) {
		const struct hs_blocks_row row = a->head->rows[(turn + 1) % 3][share->row];

		if (row.blocks == share->blocks)
			held = row.differs ? UINT32_MAX - row.differs : share->blocks;
	}
	/* From the first one that is not all held. */
	tile = held / HS_BLOCKS_TILE + share->part;
	if (held >= share->blocks || tile * HS_BLOCKS_TILE >= share->blocks)
		return;
	blocks_layers(a, s);
	if (owned)
		best = blocks_find(a, share, turn, &held, s);
	old = blocks_saved(a, turn, best);
	/* What lies past an unknown length stays as it was. */
	if (!a->lengths && held)
		known = a->head->rows[turn % 3][best].blocks;
	for (; tile * HS_BLOCKS_TILE < share->blocks; tile += a->parts) {
		const struct blocks_tile t =
			blocks_load_tile(tile, share->now, share->blocks, old, known);

		HS_UNROLL
		for (uint32_t u = 0; u < HS_BLOCKS_LOADS; u++) {
			const uint32_t at = blocks_at(tile, u);
			const hs_u128 now = t.now[u], was = t.old[u];

			blocks_list(s, now.x, at < held || (at < known && now.x == was.x));
			blocks_list(s, now.y, at + 1 < held || (at + 1 < known && now.y == was.y));
			blocks_list(s, now.z, at + 2 < held || (at + 2 < known && now.z == was.z));
			blocks_list(s, now.w, at + 3 < held || (at + 3 < known && now.w == was.w));
		}
		__syncthreads();
		blocks_forget(a, s);
		__syncthreads();
		if (!threadIdx.x)
			s->count = 0;
		__syncthreads();
	}
}

HS_KERNEL_BOUNDED(hs_blocks_done, struct hs_blocks_args, HS_THREADS)
{
	HS_SHARED(struct blocks_shared, s);
	const uint32_t total = gridDim.x * HS_THREADS;
	struct blocks_share share = {0};
	const bool ours = blocks_share(&a, &share) && !HS_PLANTED(HS_PLANT_BLOCKS);
	struct hs_blocks_row *next;
	uint32_t turn;
	bool owned;

	if (!threadIdx.x)
		s->owned = hs_load_acquire(&a.head->owner) == a.lane + 1;
	__syncthreads();
	owned = s->owned;
	turn = hs_load_relaxed(&a.head->turn);
	if (ours)
		blocks_drop(&a, &share, turn, owned, s);
	if (!owned)
		return;
	next = a.head->rows[(turn + 2) % 3];
	for (uint32_t i = blockIdx.x * HS_THREADS + threadIdx.x; i < HS_BLOCKS_ROWS; i += total)
		next[i] = (struct hs_blocks_row){0, 0, 0};
	hs_fence();
	__syncthreads();
	/* The last block ends the lane's turn. */
	if (threadIdx.x || hs_atomic_add(&a.head->finished, 1u) + 1 < gridDim.x)
		return;
	hs_store_relaxed(&a.head->turn, (turn + 1) % HS_BLOCKS_TURNS);
	hs_fence();
	hs_store_release(&a.head->owner, 0u);
}
