/* SPDX-License-Identifier: MIT */
/* Prefill: lists of so many entries that their union is worth a copy of its own. */
#include "kernels/journal.h"
#include "kernels/map.h"

#define MANY_AHEAD 8 /* entries of a thread in flight */
#ifndef MANY_SEEN
#define MANY_SEEN 4096u /* words of the bitmap that a block sees; a power of two */
#endif
#define MANY_LOADS 8 /* 16-byte loads that a thread has in flight */

#define MANY_TILE (32u * MANY_AHEAD)

/* A warp's share of a list row: MANY_AHEAD entries a thread, 32 apart. */
struct many_tile {
	int64_t at;    /* of the thread's first entry in both lists */
	uint32_t live; /* a bit for each entry that exists */
	int32_t slot[MANY_AHEAD];
};

HS_DEVICE uint32_t many_tiles(const struct hs_resolve_args *list)
{
	return (list->k + MANY_TILE - 1) / MANY_TILE;
}

HS_DEVICE uint32_t many_warp(void)
{
	return (blockIdx.x * blockDim.x + threadIdx.x) / 32;
}

HS_DEVICE uint32_t many_warps(void)
{
	return gridDim.x * (blockDim.x / 32);
}

HS_DEVICE struct many_tile many_load(const struct hs_resolve_args *list, uint32_t tile)
{
	const uint32_t tiles = many_tiles(list), row = tile / tiles;
	const uint32_t i = row / list->inner, j = row - i * list->inner;
	const uint32_t first = (tile - row * tiles) * MANY_TILE + (threadIdx.x & 31);
	int64_t length = list->k;
	struct many_tile t;

	t.at = (int64_t)i * list->outer_stride + (int64_t)j * list->inner_stride + first;
	t.live = 0;
	if (list->lengths && list->lengths[i] < length)
		length = list->lengths[i];
	HS_UNROLL
	for (uint32_t u = 0; u < MANY_AHEAD; u++) {
		const uint32_t n = first + 32 * u;

		t.slot[u] = HS_NONE;
		if (n < list->k)
			t.live |= 1u << u;
		if ((int64_t)n < length)
			t.slot[u] = list->indices[t.at + 32 * u];
	}
	return t;
}

/* The sum of a value over the warp. */
HS_DEVICE uint32_t many_sum(uint32_t n)
{
	for (uint32_t i = 16; i; i >>= 1)
		n += __shfl_xor_sync(0xffffffffu, n, i);
	return n;
}

HS_DEVICE void many_count(uint64_t *total, uint32_t n)
{
	if (n)
		hs_atomic_add(total, (uint64_t)n);
}

/*
 * One thread: from here on no other lane takes a hot row of the layer from its
 * slot, since the gather copies some. The lane is let go by the remap where all that
 * attention reads lies in the staging area.
 */
HS_DEVICE void many_enter(const struct hs_resolve_args *list)
{
	hs_store_relaxed(&list->table->words[list->lane], list->layer + 1);
	hs_fence();
}

/* What a block has seen: bits of words of the bitmap, of words with the same last bits
 * one. They are told all blocks once a block has seen all of its entries: by then most of
 * what it has to tell is known, and no word is asked for by every thread at once (264
 * blocks at 640 words: 60 to 422 us for a chunk of 2,048 query rows; H200). */
struct many_mark_shared {
	uint32_t word[MANY_SEEN]; /* 0: none; else 1 more */
	uint32_t bits[MANY_SEEN];
};

/* Bits of a word, in all blocks' bitmap. */
HS_DEVICE void many_tell(const struct hs_many_args *a, uint32_t w, uint32_t bits)
{
	const uint32_t known = hs_load_relaxed(&a->bits[w]);

	if (!(bits & ~known))
		return;
	bits &= ~hs_atomic_or(&a->bits[w], bits);
	if (bits)
		hs_atomic_add(&a->chunks[w / (HS_MANY_CHUNK / 32)], (uint32_t)__popc(bits));
}

HS_DEVICE void many_mark(const struct hs_many_args *a, uint32_t slot, struct many_mark_shared *s)
{
	const uint32_t w = slot / 32, bit = 1u << (slot & 31);

	/* Two places: as far as the block knows of a word it is in one of them. */
	for (uint32_t n = 0; n < 2; n++) {
		const uint32_t at = (n ? w * 0x9e3779b1u >> 12 : w) % MANY_SEEN;
		uint32_t holds = *(volatile uint32_t *)&s->word[at];

		if (!holds)
			holds = hs_atomic_cas(&s->word[at], 0u, w + 1);
		if (holds && holds != w + 1)
			continue;
		if (!(*(volatile uint32_t *)&s->bits[at] & bit))
			hs_atomic_or(&s->bits[at], bit);
		return;
	}
	many_tell(a, w, bit);
}

HS_KERNEL_BOUNDED(hs_many_mark, struct hs_many_args, 1024)
{
	HS_SHARED(struct many_mark_shared, s);
	const struct hs_resolve_args *list = &a.list;
	struct hs_entry *entry = &list->table->entries[list->layer];
	const uint32_t tiles = list->outer * list->inner * many_tiles(list);
	const int32_t first = (int32_t)entry->first, end = (int32_t)entry->slots;

	if (entry->state != HS_ENTRY_ON)
		return;
	if (!blockIdx.x && !threadIdx.x)
		many_enter(list);
	for (uint32_t i = threadIdx.x; i < MANY_SEEN; i += blockDim.x)
		s->word[i] = s->bits[i] = 0;
	__syncthreads();
	for (uint32_t tile = many_warp(); tile < tiles; tile += many_warps()) {
		const struct many_tile t = many_load(list, tile);

		HS_UNROLL
		for (uint32_t u = 0; u < MANY_AHEAD; u++) {
			if (t.slot[u] >= first && t.slot[u] < end)
				many_mark(&a, (uint32_t)t.slot[u], s);
		}
	}
	__syncthreads();
	/* Each block from a place of its own. */
	for (uint32_t i = threadIdx.x; i < MANY_SEEN; i += blockDim.x) {
		const uint32_t at = (i + blockIdx.x * 64) % MANY_SEEN;

		if (s->word[at])
			many_tell(&a, s->word[at] - 1, s->bits[at]);
	}
}

struct many_rank_shared {
	uint32_t before; /* marked in the chunks before the block's */
};

/* A warp: the ranks of a chunk of which `rank` slots come before. */
HS_DEVICE void many_rank(const struct hs_many_args *a, uint32_t chunk, uint32_t rank)
{
	const uint32_t lane = threadIdx.x & 31, w = chunk * (HS_MANY_CHUNK / 32) + lane;
	uint32_t bits = hs_load_relaxed(&a->bits[w]), sum = (uint32_t)__popc(bits), other;

	rank -= sum;
	for (uint32_t i = 1; i < 32; i <<= 1) {
		other = __shfl_up_sync(0xffffffffu, sum, i);
		sum += lane >= i ? other : 0;
	}
	rank += sum;
	if (!bits)
		return;
	hs_store_relaxed(&a->bits[w], 0u);
	a->ranked[w] = (uint64_t)rank << 32 | bits;
	for (; bits && rank < a->rows; rank++, bits &= bits - 1)
		a->slots[rank] = (int32_t)(w * 32 + (uint32_t)__ffs((int)bits) - 1);
}

HS_KERNEL_BOUNDED(hs_many_rank, struct hs_many_args, HS_THREADS)
{
	HS_SHARED(struct many_rank_shared, s);
	struct hs_entry *entry = &a.list.table->entries[a.list.layer];
	const uint32_t chunks = (entry->slots + HS_MANY_CHUNK - 1) / HS_MANY_CHUNK;
	const uint32_t each = (chunks + gridDim.x - 1) / gridDim.x, lane = threadIdx.x & 31;
	const uint32_t first = blockIdx.x * each, most = first + each;
	const uint32_t end = most < chunks ? most : chunks;
	uint32_t sum = 0, own;

	if (entry->state != HS_ENTRY_ON || first >= chunks)
		return;
	if (!threadIdx.x)
		s->before = 0;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < first; i += blockDim.x)
		sum += a.chunks[i];
	sum = many_sum(sum);
	if (!lane && sum)
		hs_atomic_add(&s->before, sum);
	__syncthreads();
	for (uint32_t chunk = first + threadIdx.x / 32; chunk < end; chunk += blockDim.x / 32) {
		sum = 0;
		for (uint32_t i = first + lane; i < chunk; i += 32)
			sum += a.chunks[i];
		sum = s->before + many_sum(sum);
		own = a.chunks[chunk];
		if (own)
			many_rank(&a, chunk, sum);
		if (chunk + 1 == chunks && !lane) {
			const uint32_t all = sum + own, most = entry->rows / HS_MANY_PART;

			a.state[0] = all;
			a.state[2] = all <= a.rows && all <= most ? all : 0;
		}
	}
}

/* Where the slot's bytes are; the last bit says that it is a hot row. One that a
 * miss might take is taken from the list: with the lane at the layer it does not
 * come back there. */
HS_DEVICE uint64_t many_from(struct hs_entry *entry, int32_t slot)
{
	int32_t h = hs_load_acquire(&entry->map[slot]), was;

	while (map_listed(h)) {
		was = hs_atomic_cas(&entry->map[slot], h, (int32_t)map_row(h));
		if (was == h)
			hs_atomic_add(&entry->stale, 1u);
		h = was == h ? (int32_t)map_row(h) : was;
	}
	if (h >= 0)
		return ((uint64_t)(uintptr_t)entry->hot + (uint64_t)h * entry->row) | 1;
	return (uint64_t)(uintptr_t)entry->base + (uint64_t)slot * entry->row;
}

/* A warp copies `count` rows that lie one after the other in the staging area;
 * each thread knows where one of them comes from. 0: there is none. */
HS_DEVICE void many_copy(unsigned char *to, uint64_t from, uint32_t row, uint32_t count)
{
	const uint32_t units = row / 16, total = count * units;
	const uint64_t inverse = (0xffffffffu / units) + (uint64_t)1;
	hs_u128 v[MANY_LOADS];

	for (uint32_t start = 0; start < total; start += 32 * MANY_LOADS) {
		HS_UNROLL
		for (uint32_t i = 0; i < MANY_LOADS; i++) {
			const uint32_t n = start + 32 * i + (threadIdx.x & 31);
			/* n / units: exact while n * units < 2^32 */
			const uint32_t r = (uint32_t)(n * inverse >> 32);
			const uint64_t at = __shfl_sync(0xffffffffu, from, r & 31);
			const unsigned char *p =
				(const unsigned char *)(uintptr_t)(at & ~(uint64_t)1) +
				(uint64_t)(n - r * units) * 16;

			/* Another lane may have just made the row hot. */
			if (n < total && at)
				v[i] = at & 1 ? hs_load16(p) : hs_load16_stream(p);
		}
		HS_UNROLL
		for (uint32_t i = 0; i < MANY_LOADS; i++) {
			const uint32_t n = start + 32 * i + (threadIdx.x & 31);
			const uint32_t r = (uint32_t)(n * inverse >> 32);

			if (__shfl_sync(0xffffffffu, from, r & 31) && n < total)
				hs_store16(to + (uint64_t)n * 16, v[i]);
		}
	}
}

/* Rows that a warp takes at once: all of their loads are in flight together, and
 * what all warps take lies close together, which the GPU's TLB wants. */
HS_DEVICE uint32_t many_batch(const struct hs_entry *entry)
{
	const uint32_t rows = 32 * MANY_LOADS * 16 / entry->row;

	return rows > 32 ? 32 : rows ? rows : 1;
}

HS_KERNEL_BOUNDED(hs_many_gather, struct hs_many_args, HS_THREADS)
{
	struct hs_entry *entry = &a.list.table->entries[a.list.layer];
	const uint32_t chunks = (entry->slots + HS_MANY_CHUNK - 1) / HS_MANY_CHUNK;
	const uint32_t lane = threadIdx.x & 31, batch = many_batch(entry);
	const bool made_hot = a.state[2] != 0;
	uint32_t total, hits = 0, staged = 0;

	if (entry->state != HS_ENTRY_ON)
		return;
	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < chunks;
		i += gridDim.x * blockDim.x)
		a.chunks[i] = 0;
	total = a.state[0] < a.rows ? a.state[0] : a.rows;
	for (uint32_t first = many_warp() * batch; first < total; first += many_warps() * batch) {
		const uint32_t left = total - first, count = left < batch ? left : batch;
		uint32_t cold = lane < count, hot;
		uint64_t from = 0;

		if (cold) {
			const int32_t slot = a.slots[first + lane];

			cold = !made_hot || a.indices[first + lane] == slot;
			if (cold)
				from = many_from(entry, slot);
			if (cold && made_hot)
				a.indices[first + lane] = a.stage_index + (int32_t)(first + lane);
		}
		cold = (uint32_t)__popc(__ballot_sync(0xffffffffu, (int)cold));
		hot = (uint32_t)__popc(__ballot_sync(0xffffffffu, (int)(from & 1)));
		hits += hot;
		staged += cold - hot;
		if (cold)
			many_copy(a.stage + (uint64_t)first * entry->row, from, entry->row, count);
	}
	if (lane)
		return;
	many_count(&entry->totals[HS_COUNT_HITS], hits);
	many_count(&entry->totals[HS_COUNT_STAGED], staged);
}

/* One block has remapped its part; the last one ends the launch. */
HS_DEVICE void many_done(const struct hs_many_args *a, struct hs_entry *entry)
{
	struct hs_table *table = a->list.table;

	hs_fence();
	if (hs_atomic_add(&a->state[1], 1u) + 1 != gridDim.x)
		return;
	hs_fence();
	a->state[1] = 0;
	hs_atomic_add(&entry->totals[HS_COUNT_LAUNCHES], (uint64_t)1);
	if (a->state[0] > a->rows)
		many_count(&entry->totals[HS_COUNT_UNSTAGED], a->state[0] - a->rows);
	for (uint32_t i = 0; i < HS_COUNTS && entry->counts; i++)
		hs_store_relaxed(&entry->counts[i], hs_load_relaxed(&entry->totals[i]));
	if (table->journal.what & HS_JOURNAL_LAUNCHES)
		journal_launch(&table->journal, entry, a->list.layer, a->list.lane);
	if (!a->state[2])
		hs_store_release(&table->words[a->list.lane], 0u);
}

struct many_remap_shared {
	uint64_t journal;
	uint32_t padding, inplace;
};

HS_KERNEL_BOUNDED(hs_many_remap, struct hs_many_args, 1024)
{
	HS_SHARED(struct many_remap_shared, s);
	const struct hs_resolve_args *list = &a.list;
	struct hs_entry *entry = &list->table->entries[list->layer];
	const uint32_t tiles = list->outer * list->inner * many_tiles(list);
	const int32_t first = (int32_t)entry->first, end = (int32_t)entry->slots;
	const bool on = entry->state == HS_ENTRY_ON, made_hot = a.state[2] != 0;
	uint32_t padding = 0, inplace = 0;

	if (!threadIdx.x)
		s->padding = s->inplace = 0;
	__syncthreads();
	for (uint32_t tile = many_warp(); tile < tiles; tile += many_warps()) {
		const struct many_tile t = many_load(list, tile);
		uint64_t words[MANY_AHEAD]; /* all asked for before the first is waited for */

		HS_UNROLL
		for (uint32_t u = 0; u < MANY_AHEAD; u++) {
			words[u] = 0;
			if (on && t.slot[u] >= first && t.slot[u] < end)
				words[u] = a.ranked[t.slot[u] / 32];
		}
		HS_UNROLL
		for (uint32_t u = 0; u < MANY_AHEAD; u++) {
			const uint64_t word = words[u];
			const int32_t slot = t.slot[u];
			int32_t index = slot;

			if (word) {
				const uint32_t below = (1u << (slot & 31)) - 1;
				const uint32_t rank = (uint32_t)(word >> 32) +
						      (uint32_t)__popc((uint32_t)word & below);

				if (rank >= a.rows)
					inplace++;
				else if (made_hot)
					index = a.indices[rank];
				else
					index = a.stage_index + (int32_t)rank;
			}
			if (t.live >> u & 1) {
				list->out[t.at + 32 * u] = index;
				padding += slot < 0;
			}
		}
	}
	padding = many_sum(padding);
	inplace = many_sum(inplace);
	if (!(threadIdx.x & 31)) {
		hs_atomic_add(&s->padding, padding);
		hs_atomic_add(&s->inplace, inplace);
	}
	__syncthreads();
	if (!on)
		return;
	if (!threadIdx.x) {
		many_count(&entry->totals[HS_COUNT_PADDING], s->padding);
		many_count(&entry->totals[HS_COUNT_INPLACE], s->inplace);
		many_done(&a, entry);
	}
	if (list->table->journal.what & HS_JOURNAL_LISTS && !blockIdx.x)
		journal_lists(list, &s->journal);
}
