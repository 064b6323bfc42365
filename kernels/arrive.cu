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

/* Entries of a row that are read: none of what lies past its length. */
HS_DEVICE uint32_t row_blocks(const struct hs_blocks_args *a, uint32_t row)
{
	const uint32_t blocks =
		a->lengths ? ((uint32_t)a->lengths[row] + a->unit - 1) / a->unit : a->columns;

	return blocks < a->columns ? blocks : a->columns;
}

struct blocks_shared {
	uint64_t best; /* entries that a row before has from the start, too << 32 | row */
};

/* A block of threads a row. */
HS_KERNEL(hs_blocks, struct hs_blocks_args)
{
	HS_SHARED(struct blocks_shared, s);
	const uint32_t current = a.head->current;
	const uint64_t copy = (uint64_t)HS_BLOCKS_ROWS * a.columns;
	const int32_t *before = a.saved + current * copy;
	const uint32_t row = a.ids ? (uint32_t)a.ids[blockIdx.x] : blockIdx.x;
	const bool fits = row < HS_BLOCKS_ROWS;
	const int32_t *now = a.blocks + (uint64_t)row * a.stride, *old;
	uint32_t blocks, held;

	/* Tokens of one request stand side by side. */
	if (a.ids && blockIdx.x && (uint32_t)a.ids[blockIdx.x - 1] == row)
		return;
	blocks = row_blocks(&a, row);
	if (!threadIdx.x)
		s->best = 0;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < HS_BLOCKS_ROWS; i += blockDim.x) {
		const uint32_t least =
			a.head->blocks[current][i] < blocks ? a.head->blocks[current][i] : blocks;
		uint32_t n = 0;

		while (n < least && before[(uint64_t)i * a.columns + n] == now[n])
			n++;
		if (n)
			hs_atomic_max(&s->best, (uint64_t)n << 32 | i);
	}
	__syncthreads();
	held = (uint32_t)(s->best >> 32);
	old = before + (s->best & 0xffffffffu) * a.columns;
	for (uint32_t i = threadIdx.x; i < blocks; i += blockDim.x) {
		if (fits)
			a.saved[!current * copy + (uint64_t)row * a.columns + i] = now[i];
		/* What lies past an unknown length stays as it was. */
		if (i < held || now[i] < 0 || (!a.lengths && held && old[i] == now[i]) ||
			HS_PLANTED(HS_PLANT_BLOCKS))
			continue;
		for (uint32_t n = 0; n < a.unit; n++)
			forget_slot(a.table, (uint64_t)now[i] * a.unit + n);
	}
	if (!threadIdx.x && fits)
		a.head->blocks[!current][row] = blocks;
}

/* What was seen now is what was before. One block. */
HS_KERNEL(hs_blocks_done, struct hs_blocks_done_args)
{
	const uint32_t current = a.head->current;

	__syncthreads();
	for (uint32_t i = threadIdx.x; i < HS_BLOCKS_ROWS; i += blockDim.x)
		a.head->blocks[current][i] = 0;
	if (!threadIdx.x)
		a.head->current = !current;
}
