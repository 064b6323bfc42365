/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int hs_stream_init(
	struct hs_stream *stream, const struct hs_dsat *trace, uint32_t layer, int request)
{
	uint32_t first = request < 0 ? 0 : (uint32_t)request;
	uint32_t requests = request < 0 ? trace->batch : 1;
	struct hs_stream made = {.steps = trace->steps};
	uint64_t count = 0, universe = requests * trace->ctx;
	uint32_t *id = calloc(universe, sizeof(*id)), *seen = calloc(universe, sizeof(*seen));
	int err = -ENOMEM;

	made.rows = malloc((size_t)trace->steps * requests * trace->k * sizeof(*made.rows));
	made.start = malloc(((size_t)trace->steps + 1) * sizeof(*made.start));
	if (!id || !seen || !made.rows || !made.start)
		goto fail;
	for (uint32_t step = 0; step < trace->steps; step++) {
		made.start[step] = count;
		for (uint32_t r = 0; r < requests; r++) {
			const int32_t *list = hs_dsat_list(trace, step, layer, first + r);

			for (uint32_t i = 0; i < trace->k; i++) {
				uint64_t key = r * trace->ctx + (uint32_t)list[i];

				if (list[i] < 0)
					continue;
				if ((uint64_t)list[i] >= trace->ctx) {
					err = -EBADMSG;
					goto fail;
				}
				if (seen[key] == step + 1)
					continue;
				seen[key] = step + 1;
				if (!id[key])
					id[key] = ++made.ids;
				made.rows[count++] = id[key] - 1;
			}
		}
	}
	made.start[trace->steps] = count;
	free(id);
	free(seen);
	*stream = made;
	return 0;
fail:
	free(id);
	free(seen);
	hs_stream_finish(&made);
	return err;
}

void hs_stream_finish(struct hs_stream *stream)
{
	free(stream->rows);
	free(stream->start);
	stream->rows = NULL;
	stream->start = NULL;
}

int hs_reuse_init(struct hs_reuse *reuse, uint32_t bound)
{
	uint64_t *counts = calloc(bound ? bound : 1, sizeof(*counts));

	if (!counts)
		return -ENOMEM;
	*reuse = (struct hs_reuse){.bound = bound, .counts = counts};
	return 0;
}

void hs_reuse_finish(struct hs_reuse *reuse)
{
	free(reuse->counts);
	reuse->counts = NULL;
}

uint64_t hs_reuse_misses(const struct hs_reuse *reuse, uint64_t slots)
{
	uint64_t hits = 0;

	for (uint64_t d = 0; d < reuse->bound && d < slots; d++)
		hits += reuse->counts[d];
	return reuse->total - hits;
}

/*
 * Which entries of a step's list have not been selected again since: a bit
 * each, and a Fenwick tree over the words' counts, so that "how many of them
 * stand after this one" takes a few steps however long the list is.
 */
struct left {
	uint64_t *bits;
	uint32_t *tree, *total; /* total: per step */
	uint64_t *word;		/* per step: its first word */
};

static void remove_entry(struct left *left, uint32_t step, uint32_t at)
{
	uint64_t base = left->word[step], words = left->word[step + 1] - base;

	left->bits[base + at / 64] &= ~(UINT64_C(1) << at % 64);
	for (uint64_t i = at / 64 + 1; i <= words; i += i & -i)
		left->tree[base + i - 1]--;
	left->total[step]--;
}

static uint32_t entries_after(const struct left *left, uint32_t step, uint32_t at)
{
	uint64_t base = left->word[step];
	uint32_t before = (uint32_t)__builtin_popcountll(
		left->bits[base + at / 64] & (~UINT64_C(0) >> (63 - at % 64)));

	for (uint64_t i = at / 64; i; i -= i & -i)
		before += left->tree[base + i - 1];
	return left->total[step] - before;
}

static void fill_step(struct left *left, uint32_t step, uint32_t count)
{
	uint64_t base = left->word[step], words = left->word[step + 1] - base;

	for (uint32_t w = 0; w < words; w++) {
		uint32_t n = count - w * 64 < 64 ? count - w * 64 : 64;

		left->bits[base + w] = n == 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
		left->tree[base + w] = n;
	}
	for (uint64_t i = 1; i <= words; i++)
		if (i + (i & -i) <= words)
			left->tree[base + i + (i & -i) - 1] += left->tree[base + i - 1];
	left->total[step] = count;
}

struct place {
	uint32_t step, at; /* step + 1 of the last selection, and its rank there */
};

/* A step's rows by distance, so that they can be read from far to near. */
struct rank {
	uint64_t *bits; /* per distance */
	uint32_t *row;	/* per distance */
};

/* Moves a step's rows to the top: those never selected before lowest, then from
 * the longest distance to the shortest. */
static void restack(struct left *left, struct place *last, struct rank *rank, uint32_t ids,
	const uint32_t *rows, uint32_t count, uint32_t step)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < count; i++)
		if (!last[rows[i]].step)
			last[rows[i]] = (struct place){step + 1, at++};
	for (uint32_t word = ids / 64 + 1; word-- > 0;)
		while (rank->bits[word]) {
			uint32_t bit = 63 - (uint32_t)__builtin_clzll(rank->bits[word]);
			uint32_t row = rank->row[word * 64 + bit];

			rank->bits[word] &= ~(UINT64_C(1) << bit);
			remove_entry(left, last[row].step - 1, last[row].at);
			last[row] = (struct place){step + 1, at++};
		}
	fill_step(left, step, count);
}

int hs_reuse_add(struct hs_reuse *reuse, const struct hs_stream *stream, uint32_t skip,
	uint64_t slots, uint32_t *misses)
{
	struct place *last = calloc(stream->ids ? stream->ids : 1, sizeof(*last));
	uint64_t *newer = calloc(stream->steps + 1, sizeof(*newer));
	struct left left = {.word = malloc((stream->steps + 1) * sizeof(*left.word)),
		.total = calloc(stream->steps + 1, sizeof(*left.total))};
	struct rank rank = {.bits = calloc(stream->ids / 64 + 1, sizeof(*rank.bits)),
		.row = malloc((stream->ids + 1ull) * sizeof(*rank.row))};
	uint64_t words = 0;
	int err = -ENOMEM;

	if (!last || !newer || !left.word || !left.total || !rank.bits || !rank.row)
		goto out;
	for (uint32_t step = 0; step < stream->steps; step++) {
		left.word[step] = words;
		words += (stream->start[step + 1] - stream->start[step] + 63) / 64;
	}
	left.word[stream->steps] = words;
	left.bits = malloc((words + 1) * sizeof(*left.bits));
	left.tree = malloc((words + 1) * sizeof(*left.tree));
	if (!left.bits || !left.tree)
		goto out;

	for (uint32_t step = 0; step < stream->steps; step++) {
		const uint32_t *rows = stream->rows + stream->start[step];
		uint32_t count = (uint32_t)(stream->start[step + 1] - stream->start[step]);
		uint64_t sum = 0;

		/* newer[t]: rows whose last selection came after step t. All rows of
		 * this step are looked up before any of them moves to the top. */
		for (uint32_t t = step; t-- > 0;) {
			newer[t] = sum;
			sum += left.total[t];
		}
		for (uint32_t i = 0; i < count; i++) {
			struct place was = last[rows[i]];
			uint64_t distance = UINT64_MAX;

			if (was.step) {
				distance = newer[was.step - 1] +
					   entries_after(&left, was.step - 1, was.at);
				rank.bits[distance / 64] |= UINT64_C(1) << distance % 64;
				rank.row[distance] = rows[i];
			}
			if (misses && distance >= slots)
				misses[step]++;
			if (step < skip)
				continue;
			reuse->total++;
			if (!was.step)
				reuse->first++;
			else if (distance < reuse->bound)
				reuse->counts[distance]++;
			if (!was.step || was.step != step)
				reuse->fresh++;
		}
		restack(&left, last, &rank, stream->ids, rows, count, step);
	}
	err = 0;
out:
	free(last);
	free(newer);
	free(rank.bits);
	free(rank.row);
	free(left.word);
	free(left.total);
	free(left.bits);
	free(left.tree);
	return err;
}
