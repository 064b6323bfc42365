/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_ORDER_H
#define KERNELS_ORDER_H

/*
 * Many misses at once are fetched in the order of their addresses: the GPU's
 * TLB reaches a gibibyte or so, and random rows over more of the host run at
 * less than half the link's speed. While blocks look up, each miss sets its
 * slot's bit; once all have, warps take pieces of the bitmap in order, so that
 * what is being read at one time lies close. The map says which row a slot has.
 *
 * Whether a launch does so is known before it (the list's length, and a bit that
 * the lane's last pass over the layer left), so all of its blocks agree. Nobody
 * depends on a block that waits: one that gives up leaves the bits to the
 * others, and the last to look up never waits. Another lane's bits in the same
 * layer are left alone.
 */

#include "kernels/fetch.h"

#ifndef ORDER_ROWS
#define ORDER_ROWS 4u /* about so many a warp takes at once */
#endif
#ifndef ORDER_WARPS
#define ORDER_WARPS 1u /* of each block; more would read from far apart */
#endif
#ifndef ORDER_FROM
#define ORDER_FROM 16384u
#endif
#define ORDER_PATIENCE 8192
/* One H200: random rows over up to 1 GiB run at the link's speed, but layers take
 * turns and each finds the TLB without its own. Below some 2,000 misses (an
 * eighth of the list) latency counts for more. */
#define ORDER_BYTES ((uint64_t)1 << 28)

HS_DEVICE uint32_t order_from(const struct hs_entry *entry)
{
	return (uint64_t)entry->slots * entry->row < ORDER_BYTES ? 0xffffffffu : ORDER_FROM;
}

HS_DEVICE void order_mark(struct hs_entry *entry, int32_t slot)
{
	hs_atomic_or(&entry->bits[slot / 32], 1u << slot % 32);
}

/* One thread of a block that has looked up: whether all blocks have. */
HS_DEVICE bool order_wait(struct hs_lane *own, uint32_t blocks, uint32_t go)
{
	hs_fence();
	if (hs_atomic_add(&own->arrived, 1u) + 1 == blocks) {
		hs_store_relaxed(&own->arrived, 0u);
		hs_fence();
		hs_store_release(&own->go, go + 1);
		return true;
	}
	for (uint32_t i = 0; i < ORDER_PATIENCE; i++) {
		if (hs_load_acquire(&own->go) != go)
			return true;
		__nanosleep(20);
	}
	return false;
}

/* Words of the bitmap that a warp takes at once: 32, or a power of two of them. */
HS_DEVICE uint32_t order_each(const struct hs_entry *entry, uint64_t entries)
{
	const uint64_t pieces = entries / 8 / ORDER_ROWS + 1;
	uint32_t each = 32;

	while (each * 2 * pieces <= entry->slots / 32)
		each *= 2;
	return each;
}

HS_DEVICE uint32_t order_ticket(struct hs_lane *own, uint32_t base)
{
	return threadIdx.x & 31 ? 0 : hs_atomic_add(&own->next, 1u) - base;
}

HS_DEVICE uint32_t order_word(const struct hs_entry *entry, uint32_t word)
{
	return word < (entry->slots + 31) / 32 ? hs_load_relaxed(&entry->bits[word]) : 0;
}

/* One warp: some of its bits become misses in f, behind `count` ones, up to 32.
 * Returns how many there are then. */
HS_DEVICE uint32_t order_list(
	uint32_t *bits, uint32_t word, uint32_t count, struct resolve_misses *f)
{
	const uint32_t lane = threadIdx.x & 31, own = (uint32_t)__popc(*bits);
	uint32_t upto = own, other, at;

	for (uint32_t i = 1; i < 32; i *= 2) {
		other = __shfl_up_sync(0xffffffffu, upto, i);
		upto += lane >= i ? other : 0;
	}
	for (at = count + upto - own; *bits && at < 32; at++, *bits &= *bits - 1)
		f->slot[at] = (int32_t)(word * 32 + (uint32_t)__ffs((int)*bits) - 1);
	count += __shfl_sync(0xffffffffu, upto, 31);
	return count < 32 ? count : 32;
}

/* One warp: fetches those of the listed slots that are the lane's. */
HS_DEVICE void order_fetch(struct hs_entry *entry, const struct fetch *to, uint32_t lane_id,
	struct resolve_misses *f, uint32_t count)
{
	const uint32_t lane = threadIdx.x & 31;
	uint32_t row = HS_ROWS_MAX;

	__syncwarp();
	if (lane < count) {
		const int32_t slot = f->slot[lane], v = hs_load_relaxed(&entry->map[slot]);

		if (map_pending(v, lane_id)) {
			row = map_row(v);
			hs_atomic_and(&entry->bits[slot / 32], ~(1u << slot % 32));
		}
		f->row[lane] = row;
	}
	__syncwarp();
	resolve_fetch(to, f, count, 0);
	__syncwarp();
}

/* One warp, after order_wait: fetches until all pieces are taken. base: tickets
 * before this launch. */
HS_SELDOM void order_walk(struct hs_entry *entry, struct hs_lane *own, uint32_t lane_id,
	uint32_t base, uint64_t entries, struct resolve_misses *f)
{
	const uint32_t each = order_each(entry, entries), words = (entry->slots + 31) / 32;
	const uint32_t pieces = (words + each - 1) / each, lane = threadIdx.x & 31;
	const struct fetch to = fetch_of(entry);
	uint32_t ticket = __shfl_sync(0xffffffffu, order_ticket(own, base), 0), taken;

	while (ticket < pieces) {
		uint32_t count = 0, word = ticket * each + lane, next = order_word(entry, word);

		taken = order_ticket(own, base); /* the next; it is on its way meanwhile */
		for (uint32_t i = 0; i < each; i += 32, word += 32) {
			uint32_t bits = next;

			next = i + 32 < each ? order_word(entry, word + 32) : 0;
			while (__ballot_sync(0xffffffffu, bits != 0)) {
				count = order_list(&bits, word, count, f);
				if (count < 32)
					continue;
				order_fetch(entry, &to, lane_id, f, count);
				count = 0;
			}
		}
		if (count)
			order_fetch(entry, &to, lane_id, f, count);
		ticket = __shfl_sync(0xffffffffu, taken, 0);
	}
}

#endif
