/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "tools/hisparse/replay.h"

enum { STEPS = 60, K = 24, CTX = 150, LAYERS = 3, BATCH = 2 };

/* Lists with a core that stays, a tail that wanders and some padding. */
static struct hs_dsat wander(unsigned seed)
{
	struct hs_dsat trace = {
		.layers = LAYERS, .steps = STEPS, .batch = BATCH, .k = K, .ctx = CTX};

	assert_int_equal(hs_dsat_init(&trace), 0);
	srand(seed);
	for (uint32_t s = 0; s < STEPS; s++)
		for (uint32_t l = 0; l < LAYERS; l++)
			for (uint32_t r = 0; r < BATCH; r++) {
				int32_t *list = hs_dsat_list(&trace, s, l, r);
				bool used[CTX] = {0};

				for (int i = 0; i < K; i++) {
					int p = rand() % 3   ? rand() % 30
						: rand() % 2 ? (int)(s * 2 + rand() % 20) % CTX
							     : rand() % CTX;

					if (used[p] || rand() % 40 == 0)
						p = -1;
					else
						used[p] = true;
					list[i] = p;
				}
			}
	return trace;
}

/* A cache as plain as can be: rows in an array, oldest first. */
struct plain {
	int rows[CTX * BATCH], count;
};

static int find(const struct plain *cache, int row)
{
	for (int i = 0; i < cache->count; i++)
		if (cache->rows[i] == row)
			return i;
	return -1;
}

static void take(struct plain *cache, int at)
{
	memmove(cache->rows + at, cache->rows + at + 1,
		sizeof(int) * (size_t)(cache->count - at - 1));
	cache->count--;
}

static bool selected(const struct hs_stream *stream, uint32_t step, int row)
{
	for (uint64_t i = stream->start[step]; i < stream->start[step + 1]; i++)
		if ((int)stream->rows[i] == row)
			return true;
	return false;
}

static uint32_t next_use(const struct hs_stream *stream, uint32_t step, int row)
{
	while (++step < stream->steps && !selected(stream, step, row))
		;
	return step;
}

/*
 * Misses of a cache of `slots`. LRU evicts the first row of the array that the
 * step does not select, and puts the step's rows at the end: misses, then hits
 * in their old order. FIFO leaves hits where they are. Belady evicts the row
 * whose next use is farthest.
 */
static uint64_t plainly(
	const struct hs_stream *stream, enum hs_replay_policy policy, int slots, uint32_t skip)
{
	struct plain cache = {.count = 0};
	uint64_t misses = 0;

	for (uint32_t step = 0; step < stream->steps; step++) {
		struct plain before = cache, missed = {.count = 0};

		for (uint64_t i = stream->start[step]; i < stream->start[step + 1]; i++)
			if (find(&cache, (int)stream->rows[i]) < 0)
				missed.rows[missed.count++] = (int)stream->rows[i];
		if (step >= skip)
			misses += (uint64_t)missed.count;
		for (int i = 0; i < missed.count; i++) {
			if (cache.count == slots) {
				int victim = -1;
				uint32_t farthest = 0;

				for (int j = 0; j < cache.count; j++) {
					uint32_t use = next_use(stream, step, cache.rows[j]);

					if (selected(stream, step, cache.rows[j]))
						continue;
					if (policy != HS_REPLAY_BELADY) {
						victim = j;
						break;
					}
					if (victim < 0 || use > farthest) {
						victim = j;
						farthest = use;
					}
				}
				assert_true(victim >= 0);
				take(&cache, victim);
			}
			cache.rows[cache.count++] = missed.rows[i];
		}
		for (int i = 0; policy == HS_REPLAY_LRU && i < before.count; i++)
			if (selected(stream, step, before.rows[i])) {
				take(&cache, find(&cache, before.rows[i]));
				cache.rows[cache.count++] = before.rows[i];
			}
	}
	return misses;
}

static void agrees_with_plain_caches(void **state)
{
	static const int sizes[] = {K, K + 1, 40, 64, 100, CTX};
	uint64_t lru_off = 0, lru_all = 0;

	(void)state;
	for (unsigned seed = 1; seed <= 4; seed++) {
		struct hs_dsat trace = wander(seed);

		for (int request = HS_ALL_REQUESTS; request < BATCH; request++) {
			int caches = request < 0 ? BATCH : 1;
			struct hs_stream stream;
			struct hs_reuse reuse;

			assert_int_equal(hs_stream_init(&stream, &trace, 1, request), 0);
			assert_int_equal(hs_reuse_init(&reuse, stream.ids), 0);
			assert_int_equal(hs_reuse_add(&reuse, &stream, 5, 0, NULL), 0);
			for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
				int slots = sizes[i] * caches;
				uint64_t misses, plain;

				assert_int_equal(hs_replay_run(&misses, &stream, HS_REPLAY_FIFO,
							 (uint64_t)slots, 5, 1),
					0);
				assert_int_equal(
					misses, plainly(&stream, HS_REPLAY_FIFO, slots, 5));
				assert_int_equal(hs_replay_run(&misses, &stream, HS_REPLAY_BELADY,
							 (uint64_t)slots, 5, 1),
					0);
				assert_int_equal(
					misses, plainly(&stream, HS_REPLAY_BELADY, slots, 5));
				/* The plain LRU orders a step's misses by their place in the
				 * list, ours by age: close, and equal where it cannot matter. */
				plain = plainly(&stream, HS_REPLAY_LRU, slots, 5);
				misses = hs_reuse_misses(&reuse, (uint64_t)slots);
				if (sizes[i] == CTX)
					assert_int_equal(misses, plain);
				lru_off += misses > plain ? misses - plain : plain - misses;
				lru_all += plain;
			}
			hs_reuse_finish(&reuse);
			hs_stream_finish(&stream);
		}
		hs_dsat_finish(&trace);
	}
	assert_true(lru_off * 50 < lru_all);
}

/* A stack: a row moves up only over rows that were above it or beside it. */
static void lru_of_a_hand_written_stream(void **state)
{
	static const int32_t lists[5][3] = {{0, 1, 2}, {2, 3, 4}, {0, 3, 5}, {1, 2, 0}, {0, 0, -1}};
	struct hs_dsat trace = {.layers = 1, .steps = 5, .batch = 1, .k = 3, .ctx = 6};
	struct hs_stream stream;
	struct hs_reuse reuse;
	uint32_t misses[5] = {0};

	(void)state;
	assert_int_equal(hs_dsat_init(&trace), 0);
	memcpy(trace.positions, lists, sizeof(lists));
	assert_int_equal(hs_stream_init(&stream, &trace, 0, 0), 0);
	assert_int_equal(hs_reuse_init(&reuse, stream.ids), 0);
	assert_int_equal(hs_reuse_add(&reuse, &stream, 0, 4, misses), 0);
	/*
	 * Stacks, top first: 2 1 0 | 2 4 3 1 0 | 3 0 5 2 4 1 | 0 2 1 3 5 4.
	 * Distances: - - - | 0 - - | 4 2 - | 5 3 1 | 0; the repeat does not count.
	 */
	assert_int_equal(reuse.total, 13);
	assert_int_equal(reuse.first, 6);
	assert_int_equal(reuse.counts[0], 2);
	assert_int_equal(reuse.counts[1], 1);
	assert_int_equal(reuse.counts[2], 1);
	assert_int_equal(reuse.counts[3], 1);
	assert_int_equal(reuse.counts[4], 1);
	assert_int_equal(reuse.counts[5], 1);
	/* Not in the step before: 3 + 2 + 2 + 2 + 0. */
	assert_int_equal(reuse.fresh, 9);
	assert_int_equal(misses[0], 3);
	assert_int_equal(misses[2], 2);
	assert_int_equal(misses[3], 1);
	assert_int_equal(misses[4], 0);
	hs_reuse_finish(&reuse);
	hs_stream_finish(&stream);
	hs_dsat_finish(&trace);
}

/* dsat's generator promises its misses for the engines' LRU. */
static void lru_of_a_generated_trace(void **state)
{
	struct hs_dsat trace = {.layers = 2, .steps = 60, .batch = 2, .k = 256, .ctx = 8192};
	struct hs_dsat_plan plan = {.hot = 512, .misses = 34, .churn = 150, .seed = 3};
	struct hs_replay_in in = {.slots = {512}, .sizes = 1, .requests = true, .skip = 4};
	struct hs_replay replay;
	double misses;

	(void)state;
	in.policies[HS_REPLAY_LRU] = true;
	assert_int_equal(hs_dsat_init(&trace), 0);
	assert_int_equal(hs_dsat_generate(&trace, &plan), 0);
	assert_int_equal(hs_replay_make(&replay, &trace, &in), 0);
	assert_int_equal(replay.request.selections, 2 * 2 * 56 * 256);
	misses = (double)replay.request.misses[HS_REPLAY_LRU][0] / (2 * 2 * 56);
	assert_true(misses > 33.5 && misses < 34.5);
	hs_replay_finish(&replay);
	hs_dsat_finish(&trace);
}

static void whole_trace(void **state)
{
	struct hs_dsat trace = wander(9);
	struct hs_replay_in in = {.slots = {K, 40},
		.sizes = 2,
		.requests = true,
		.shared = true,
		.skip = 4,
		.seed = 1};
	struct hs_replay replay, again;
	uint64_t heat = 0, lru = 0;

	(void)state;
	for (int policy = 0; policy < HS_REPLAY_POLICIES; policy++)
		in.policies[policy] = true;
	assert_int_equal(hs_replay_make(&replay, &trace, &in), 0);
	for (int policy = 0; policy < HS_REPLAY_POLICIES; policy++) {
		const uint64_t *misses = replay.request.misses[policy];

		/* Nothing beats Belady; what keeps only k rows is beaten by anything larger. */
		assert_true(misses[1] >= replay.request.misses[HS_REPLAY_BELADY][1]);
		assert_true(misses[1] <= misses[0]);
	}
	assert_int_equal(replay.request.fresh, replay.request.misses[HS_REPLAY_VANILLA][0]);
	assert_int_equal(replay.request.selections, replay.shared.selections);
	assert_int_equal(replay.points[0], K);
	assert_int_equal(replay.request.curve[0], replay.request.misses[HS_REPLAY_LRU][0]);

	/* The heat map is LRU at the second size; every step is in it. */
	assert_int_equal(replay.heat_slots, 40);
	for (uint32_t l = 0; l < LAYERS; l++)
		for (uint32_t s = in.skip; s < STEPS; s++)
			heat += replay.heat[l * STEPS + s];
	for (uint32_t l = 0; l < LAYERS; l++)
		lru += replay.request_layers[l].misses[HS_REPLAY_LRU][1];
	assert_int_equal(heat, lru);
	assert_int_equal(lru, replay.request.misses[HS_REPLAY_LRU][1]);

	assert_int_equal(hs_replay_make(&again, &trace, &in), 0);
	assert_memory_equal(&again.request, &replay.request, sizeof(again.request));
	assert_memory_equal(&again.shared, &replay.shared, sizeof(again.shared));
	hs_replay_finish(&again);
	hs_replay_finish(&replay);

	in.slots[0] = K - 1;
	assert_int_equal(hs_replay_make(&replay, &trace, &in), -EINVAL);
	in.slots[0] = K;
	hs_dsat_list(&trace, 7, 2, 1)[3] = CTX;
	assert_int_equal(hs_replay_make(&replay, &trace, &in), -EBADMSG);
	hs_dsat_finish(&trace);
}

/* All rows fit: each is missed once, whatever the policy (but vanilla). */
static void everything_fits(void **state)
{
	struct hs_dsat trace = wander(5);
	struct hs_stream stream;
	uint64_t misses;

	(void)state;
	assert_int_equal(hs_stream_init(&stream, &trace, 0, 0), 0);
	for (int policy = HS_REPLAY_FIFO; policy < HS_REPLAY_POLICIES; policy++) {
		if (policy == HS_REPLAY_LRU)
			continue;
		assert_int_equal(hs_replay_run(&misses, &stream, policy, 1u << 20, 0, 1), 0);
		assert_int_equal(misses, stream.ids);
	}
	assert_int_equal(hs_replay_run(&misses, &stream, HS_REPLAY_LRU, K, 0, 1), -EINVAL);
	hs_stream_finish(&stream);
	hs_dsat_finish(&trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agrees_with_plain_caches),
		cmocka_unit_test(lru_of_a_hand_written_stream),
		cmocka_unit_test(lru_of_a_generated_trace),
		cmocka_unit_test(whole_trace),
		cmocka_unit_test(everything_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
