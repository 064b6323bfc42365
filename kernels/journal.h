/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_JOURNAL_H
#define KERNELS_JOURNAL_H

/*
 * Records of resolve launches for the host (struct hs_journal). Costs a load
 * for each launch while nobody asks. Nobody waits for the host.
 */

#include "kernels/abi.h"
#include "kernels/port.h"

#define HEAD_WORDS ((uint32_t)(sizeof(struct hs_journal_head) / sizeof(uint32_t)))
#define JOURNAL_FULL UINT64_MAX

/* Where so many words may go, or JOURNAL_FULL. */
HS_DEVICE uint64_t journal_reserve(struct hs_journal *journal, uint32_t words)
{
	uint64_t at = hs_load_relaxed(&journal->given), seen;

	for (;; at = seen) {
		if (at + words - hs_load_system(journal->taken) > (uint64_t)journal->mask + 1)
			return JOURNAL_FULL;
		seen = hs_atomic_cas(&journal->given, at, at + words);
		if (seen == at)
			return at;
	}
}

HS_DEVICE void journal_put(const struct hs_journal *journal, uint64_t at, uint32_t v)
{
	hs_store_system(&journal->ring[at & journal->mask], v);
}

/* All but the first word, which makes the record whole, of `count` words. */
HS_DEVICE void journal_put_all(
	const struct hs_journal *journal, uint64_t at, const void *record, uint32_t count)
{
	const uint32_t *words = (const uint32_t *)record;

	for (uint32_t i = 1; i < count; i++)
		journal_put(journal, at + i, words[i]);
	hs_fence_system();
	journal_put(journal, at, words[0]);
}

/* One thread, when the launch's counts stand in the totals. */
HS_SELDOM void journal_launch(
	struct hs_journal *journal, const struct hs_entry *entry, uint32_t layer, uint32_t lane)
{
	const uint32_t words = sizeof(struct hs_journal_launch) / sizeof(uint32_t);
	struct hs_journal_launch record = {
		{words, HS_JOURNAL_LAUNCHES, 0, layer, lane, 0, 0, 0, 0}, {0}};
	uint64_t at;

	record.head.number = hs_atomic_add(&journal->number[0], 1u);
	record.head.stamp = hs_clock();
	for (uint32_t i = 0; i < HS_COUNTS; i++)
		record.totals[i] = hs_load_relaxed(&entry->totals[i]);
	at = journal_reserve(journal, words);
	if (at != JOURNAL_FULL)
		journal_put_all(journal, at, &record, words);
}

/* One block; *shared is the block's. */
HS_SELDOM void journal_lists(const struct hs_resolve_args *a, uint64_t *shared)
{
	struct hs_journal *journal = &a->table->journal;
	const uint32_t rows = a->outer * a->inner, lane = threadIdx.x & 31;
	struct hs_journal_head head = {0, HS_JOURNAL_LISTS, 0, a->layer, a->lane, rows, a->k, 0, 0};
	uint64_t at;

	if (rows > HS_JOURNAL_ROWS)
		return;
	head.words = HEAD_WORDS + rows * a->k;
	if (!threadIdx.x) {
		at = JOURNAL_FULL;
		if (hs_atomic_add(&journal->turns[a->layer], 1u) % journal->every == 0) {
			head.number = hs_atomic_add(&journal->number[1], 1u);
			if (head.words <= journal->mask / 4)
				at = journal_reserve(journal, head.words);
		}
		*shared = at;
	}
	__syncthreads();
	at = *shared;
	if (at == JOURNAL_FULL)
		return;
	for (uint32_t row = threadIdx.x / 32; row < rows; row += HS_WARPS) {
		const uint32_t i = row / a->inner, j = row - i * a->inner;
		const int32_t *list =
			a->indices + (int64_t)i * a->outer_stride + (int64_t)j * a->inner_stride;
		const uint32_t length = !a->lengths || a->lengths[i] > (int64_t)a->k ? a->k
					: a->lengths[i] < 0			     ? 0
							    : (uint32_t)a->lengths[i];

		for (uint32_t n = lane; n < a->k; n += 32)
			journal_put(journal, at + HEAD_WORDS + (uint64_t)row * a->k + n,
				n < length ? (uint32_t)list[n] : (uint32_t)HS_NONE);
	}
	hs_fence_system();
	__syncthreads();
	if (!threadIdx.x) {
		head.stamp = hs_clock();
		journal_put_all(journal, at, &head, HEAD_WORDS);
	}
}

#endif
