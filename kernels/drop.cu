/* SPDX-License-Identifier: MIT */
/* What is written is dropped from the hot rows; layers are made ready. */
#include "kernels/map.h"
#include "kernels/order.h" /* order_from */

HS_KERNEL(hs_invalidate, struct hs_invalidate_args)
{
	const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
	int64_t slot;

	if (i >= a.count || a.entry->state != HS_ENTRY_ON || HS_PLANTED(HS_PLANT_STALE))
		return;
	slot = a.width == 8 ? ((const int64_t *)a.slots)[i] : ((const int32_t *)a.slots)[i];
	if (slot < 0 || slot >= (int64_t)a.entry->slots)
		return;
	if (map_forget(a.entry, (int32_t)slot))
		hs_atomic_add(&a.entry->totals[HS_COUNT_INVALIDATED], (uint64_t)1);
}

/* The slots of the entry of which a byte lies in [start, end). */
HS_DEVICE void drop_slots(
	const struct hs_entry *entry, uint64_t start, uint64_t end, uint64_t *low, uint64_t *high)
{
	const uint64_t base = (uint64_t)(uintptr_t)entry->base;

	*low = start > base ? (start - base) / entry->row : 0;
	*high = end > base ? (end - base + entry->row - 1) / entry->row : 0;
	if (*high > entry->slots)
		*high = entry->slots;
}

/* By the slots, or if they are many by the rows' owners. Those are not to be
 * relied on while a launch is looking up: a row may be about to have one. */
HS_DEVICE void drop_range(struct hs_entry *entry, int64_t low, int64_t high, bool quiet)
{
	const uint64_t first = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
	const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
	uint32_t dropped = 0;

	if (!quiet || high - low < (int64_t)entry->rows) {
		for (int64_t slot = low + (int64_t)first; slot < high; slot += (int64_t)step)
			dropped += map_forget(entry, (int32_t)slot);
	} else {
		for (uint64_t h = first; h < entry->rows; h += step) {
			int32_t slot = hs_load_relaxed(&entry->owner[h]), v;

			if (slot < low || slot >= high)
				continue;
			v = hs_load_relaxed(&entry->map[slot]);
			/* Ready or not yet: the row may become ready between. */
			while (map_row(v) == h && !map_doomed(v)) {
				if (map_drop(entry, slot, v)) {
					dropped++;
					break;
				}
				v = hs_load_relaxed(&entry->map[slot]);
			}
		}
	}
	if (dropped)
		hs_atomic_add(&entry->totals[HS_COUNT_INVALIDATED], (uint64_t)dropped);
}

struct drop_shared {
	uint32_t count;
	uint16_t layers[HS_LAYERS];
	uint32_t used[HS_LAYERS / 32]; /* one bit a layer: some lane is there */
};

HS_KERNEL(hs_drop, struct hs_drop_args)
{
	HS_SHARED(struct drop_shared, s);
	uint64_t low, high;

	if (!threadIdx.x)
		s->count = 0;
	for (uint32_t i = threadIdx.x; i < HS_LAYERS / 32; i += blockDim.x)
		s->used[i] = 0;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < HS_LANES; i += blockDim.x) {
		const uint32_t layer = hs_load_relaxed(&a.table->words[i]) - 1;

		if (layer < HS_LAYERS)
			hs_atomic_or(&s->used[layer / 32], 1u << layer % 32);
	}
	for (uint32_t i = threadIdx.x; i < HS_LAYERS; i += blockDim.x) {
		const struct hs_entry *entry = &a.table->entries[i];

		if (entry->state != HS_ENTRY_ON)
			continue;
		drop_slots(entry, a.start, a.end, &low, &high);
		if (low < high)
			s->layers[hs_atomic_add(&s->count, 1u)] = (uint16_t)i;
	}
	__syncthreads();
	for (uint32_t i = 0; i < s->count; i++) {
		const uint32_t layer = s->layers[i];
		struct hs_entry *entry = &a.table->entries[layer];

		drop_slots(entry, a.start, a.end, &low, &high);
		drop_range(entry, (int64_t)low, (int64_t)high,
			!(s->used[layer / 32] >> layer % 32 & 1));
	}
}

HS_KERNEL(hs_prepare, struct hs_prepare_args)
{
	const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x;
	const uint32_t step = gridDim.x * blockDim.x;
	struct hs_entry *entry = a.entry;

	for (uint32_t i = first; i < entry->slots; i += step)
		entry->map[i] = HS_NONE;
	for (uint32_t i = first; i < (entry->slots + 31) / 32; i += step)
		entry->bits[i] = 0;
	for (uint32_t i = first; i < entry->rows; i += step) {
		entry->owner[i] = HS_NONE;
		entry->stamp[i] = entry->born[i] = HS_STAMP_SPARE;
		entry->ring[i] = HS_RING(HS_NONE, i);
	}
	if (first)
		return;
	entry->free = entry->spare_to = entry->rows;
	entry->keeper = entry->stale = entry->listing = entry->appended = 0;
	entry->claimed = entry->totals[HS_COUNT_MISSES] + entry->totals[HS_COUNT_INPLACE];
	entry->unserved = 0;
	entry->sort_from = a.any_order ? UINT32_MAX : order_from(entry);
	entry->clock = entry->recent = entry->kept.need = 0;
}
