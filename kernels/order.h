/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_ORDER_H
#define KERNELS_ORDER_H

/*
 * Many misses at once are fetched in the order of their addresses: the GPU's
 * TLB reaches a gibibyte or so, and random rows over more of the host run at
 * less than half the link's speed. While blocks look up, each miss is chained
 * into the bucket of its address; once all have, warps take groups of buckets
 * in order, few warps, so that what is being read at one time lies close.
 *
 * One launch on the device may use the buckets, whichever comes first; another
 * fetches as it goes. Nobody depends on a block that waits: one that gives up
 * leaves its misses to the others, and the last to look up never waits.
 */

#include "kernels/map.h"

#define ORDER_ROWS 8u /* about so many a warp takes at once */
#define ORDER_PATIENCE 512
/* One H200: random rows over up to 1 GiB run at the link's speed, but layers take
 * turns and each finds the TLB without its own. Below some 2,000 misses (an
 * eighth of the list) latency counts for more. */
#define ORDER_BYTES ((uint64_t)1 << 28)
#define ORDER_FROM 16384u

/* What a warp has to fetch. */
struct resolve_misses {
	int32_t slot[32];
	uint32_t row[32];
};

HS_DEVICE uint32_t order_bucket(const struct hs_entry *entry, int32_t slot)
{
	const uint32_t bits = 32u - (uint32_t)__clz((int)(entry->slots - 1));

	return (uint32_t)slot >> (bits > HS_ORDER_BITS ? bits - HS_ORDER_BITS : 0);
}

HS_DEVICE uint32_t order_from(const struct hs_entry *entry)
{
	return (uint64_t)entry->slots * entry->row < ORDER_BYTES ? 0xffffffffu : ORDER_FROM;
}

/* One warp: chains its misses. False: it has to fetch them itself. */
HS_DEVICE bool order_add(struct hs_order *o, const struct hs_entry *entry, uint32_t lane_id,
	const struct resolve_misses *f, uint32_t count)
{
	const uint32_t lane = threadIdx.x & 31;
	uint32_t first = HS_ORDER_NODES, owner, n;

	if (!lane) {
		owner = hs_load_relaxed(&o->owner);
		if (!owner)
			owner = hs_atomic_cas(&o->owner, 0u, lane_id + 1);
		if (!owner || owner == lane_id + 1)
			first = hs_atomic_add(&o->count, count);
	}
	first = __shfl_sync(0xffffffffu, first, 0);
	if (first >= HS_ORDER_NODES || first + count > HS_ORDER_NODES)
		return false;
	if (lane < count && f->row[lane] != HS_ROWS_MAX) {
		n = first + lane;
		o->nodes[n].slot = f->slot[lane];
		o->nodes[n].row = f->row[lane];
		o->nodes[n].next =
			hs_atomic_exch(&o->heads[order_bucket(entry, f->slot[lane])], n + 1);
	}
	__syncwarp();
	return true;
}

/* All blocks of the launch have looked up. One thread. */
HS_DEVICE void order_ready(struct hs_order *o, uint32_t lane_id)
{
	if (hs_load_relaxed(&o->owner) == lane_id + 1)
		hs_store_release(&o->ready, lane_id + 1);
}

/* One thread: whether there are misses to be taken. */
HS_DEVICE bool order_wait(struct hs_order *o, uint32_t lane_id)
{
	for (uint32_t i = 0; i < ORDER_PATIENCE; i++) {
		if (hs_load_relaxed(&o->owner) != lane_id + 1)
			return false;
		if (hs_load_acquire(&o->ready) == lane_id + 1)
			return true;
		__nanosleep(200);
	}
	return false;
}

/* Buckets that a warp takes at once: a power of two, 32 at most. */
HS_DEVICE uint32_t order_each(const struct hs_order *o)
{
	const uint32_t count = hs_load_relaxed(&o->count) | 1;
	uint32_t each = 1;

	while (each < 32 && each * count < ORDER_ROWS / 2 * HS_ORDER_BUCKETS)
		each *= 2;
	return each;
}

/* One warp: the next group's chains, or false when all are taken. */
HS_DEVICE bool order_take(struct hs_order *o, uint32_t each, uint32_t *node)
{
	const uint32_t lane = threadIdx.x & 31;
	uint32_t group = 0;

	if (!lane)
		group = hs_atomic_add(&o->next, 1u);
	group = __shfl_sync(0xffffffffu, group, 0);
	*node = 0;
	if (group >= HS_ORDER_BUCKETS / each)
		return false;
	if (lane < each) {
		*node = hs_load_relaxed(&o->heads[group * each + lane]);
		if (*node)
			hs_store_relaxed(&o->heads[group * each + lane], 0u);
	}
	return true;
}

/* One warp: the first node of each chain becomes a miss in f. Returns how many. */
HS_DEVICE uint32_t order_walk(struct hs_order *o, uint32_t *node, struct resolve_misses *f)
{
	const uint32_t lane = threadIdx.x & 31;
	const unsigned mask = __ballot_sync(0xffffffffu, *node != 0);
	const uint32_t rank = (uint32_t)__popc(mask & ((1u << lane) - 1));

	if (*node) {
		struct hs_order_node *n = &o->nodes[*node - 1];

		f->slot[rank] = hs_load_relaxed(&n->slot);
		f->row[rank] = hs_load_relaxed(&n->row);
		*node = hs_load_relaxed(&n->next);
	}
	__syncwarp();
	return (uint32_t)__popc(mask);
}

/* One warp, after `groups` groups: the last one leaves all as it was found. */
HS_DEVICE void order_done(struct hs_order *o, uint32_t each, uint32_t groups)
{
	if ((threadIdx.x & 31) || !groups)
		return;
	hs_fence();
	if (hs_atomic_add(&o->done, groups) + groups != HS_ORDER_BUCKETS / each)
		return;
	hs_store_relaxed(&o->ready, 0u);
	hs_store_relaxed(&o->count, 0u);
	hs_store_relaxed(&o->next, 0u);
	hs_store_relaxed(&o->done, 0u);
	hs_store_release(&o->owner, 0u);
}

#endif
