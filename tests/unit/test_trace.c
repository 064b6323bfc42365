/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/bench/trace.h"

enum { LAYERS = 2, STEPS = 9, BATCH = 3, K = 64, CTX = 1000, HOT = 160, STREAMS = LAYERS * BATCH };

static struct hs_dsat make(uint32_t misses)
{
	struct hs_dsat trace = {
		.layers = LAYERS, .steps = STEPS, .batch = BATCH, .k = K, .ctx = CTX};
	struct hs_dsat_plan plan = {.hot = HOT, .misses = misses, .churn = 150, .seed = 7};

	assert_int_equal(hs_dsat_init(&trace), 0);
	assert_int_equal(hs_dsat_generate(&trace, &plan), 0);
	return trace;
}

/* The third opinion: a cache that looks for its oldest row by stamp. */
static uint32_t count_slowly(uint32_t *stamps, const int32_t *list, uint32_t step)
{
	uint32_t misses = 0, cached = 0;
	uint8_t missed[K] = {0};

	for (uint32_t i = 0; i < K; i++)
		missed[i] = stamps[list[i]] == 0;
	for (uint32_t i = 0; i < K; i++)
		misses += missed[i];
	for (uint32_t i = 0; i < K; i++)
		stamps[list[i]] = step + 1;
	for (uint32_t i = 0; i < CTX; i++)
		cached += stamps[i] != 0;
	for (; cached > HOT; cached--) {
		uint32_t oldest = UINT32_MAX, where = 0;

		for (uint32_t i = 0; i < CTX; i++) {
			if (stamps[i] && stamps[i] < oldest) {
				oldest = stamps[i];
				where = i;
			}
		}
		stamps[where] = 0;
	}
	return misses;
}

static void test_exact_misses(void **state)
{
	static const uint32_t rates[] = {0, 1, 9, K};
	uint32_t misses[STEPS * STREAMS];
	static int32_t missed[STEPS * STREAMS * K];

	(void)state;
	for (size_t r = 0; r < sizeof(rates) / sizeof(rates[0]); r++) {
		struct hs_dsat trace = make(rates[r]);

		assert_int_equal(hs_dsat_check(&trace, HOT, misses, missed), 0);
		for (uint32_t i = 0; i < STREAMS; i++)
			assert_memory_equal(
				missed + i * K, hs_dsat_list(&trace, 0, 0, i), K * sizeof(int32_t));
		for (uint32_t step = 0; step < STEPS; step++)
			for (uint32_t i = 0; i < STREAMS; i++)
				assert_int_equal(misses[step * STREAMS + i], step < 2 ? K
									     : step == 2
										     ? HOT - 2 * K
										     : rates[r]);
		hs_dsat_finish(&trace);
	}
}

/* Where every hit is of the step before, no tie can be broken differently. */
static void test_slow_reference_agrees(void **state)
{
	struct hs_dsat trace = {.layers = 1, .steps = STEPS, .batch = 1, .k = K, .ctx = CTX};
	struct hs_dsat_plan plan = {.hot = HOT, .misses = K / 2, .churn = 0, .seed = 3};
	uint32_t stamps[CTX] = {0}, misses[STEPS];

	(void)state;
	assert_int_equal(hs_dsat_init(&trace), 0);
	assert_int_equal(hs_dsat_generate(&trace, &plan), 0);
	assert_int_equal(hs_dsat_check(&trace, HOT, misses, NULL), 0);
	for (uint32_t step = 0; step < STEPS; step++)
		assert_int_equal(
			count_slowly(stamps, hs_dsat_list(&trace, step, 0, 0), step), misses[step]);
	hs_dsat_finish(&trace);
}

static void test_lists_differ(void **state)
{
	struct hs_dsat trace = make(9), again = make(9);
	size_t bytes = (size_t)STEPS * STREAMS * K * sizeof(int32_t);

	(void)state;
	assert_memory_equal(trace.positions, again.positions, bytes);
	assert_memory_not_equal(
		hs_dsat_list(&trace, 4, 0, 0), hs_dsat_list(&trace, 4, 0, 1), K * sizeof(int32_t));
	assert_memory_not_equal(
		hs_dsat_list(&trace, 4, 0, 0), hs_dsat_list(&trace, 4, 1, 0), K * sizeof(int32_t));
	hs_dsat_finish(&trace);
	hs_dsat_finish(&again);
}

/* The last steps miss nothing and name every row that is cached. */
static void test_sweep_names_all(void **state)
{
	enum { SWEEP = (HOT + K - 1) / K };
	struct hs_dsat trace = {
		.layers = LAYERS, .steps = STEPS + SWEEP, .batch = BATCH, .k = K, .ctx = CTX};
	struct hs_dsat_plan plan = {
		.hot = HOT, .misses = 9, .churn = 150, .seed = 7, .sweep = SWEEP};
	uint32_t misses[(STEPS + SWEEP) * STREAMS];

	(void)state;
	assert_int_equal(hs_dsat_init(&trace), 0);
	assert_int_equal(hs_dsat_generate(&trace, &plan), 0);
	assert_int_equal(hs_dsat_check(&trace, HOT, misses, NULL), 0);
	for (uint32_t i = 0; i < STREAMS; i++) {
		uint8_t named[CTX] = {0};
		uint32_t sum = 0;

		assert_int_equal(misses[(STEPS - 1) * STREAMS + i], 9);
		for (uint32_t step = STEPS; step < STEPS + SWEEP; step++) {
			const int32_t *list = hs_dsat_list(&trace, step, i / BATCH, i % BATCH);

			assert_int_equal(misses[step * STREAMS + i], 0);
			for (uint32_t j = 0; j < K; j++)
				named[list[j]] = 1;
		}
		for (uint32_t j = 0; j < CTX; j++)
			sum += named[j];
		assert_int_equal(sum, HOT);
	}
	plan.sweep = STEPS + SWEEP;
	assert_int_equal(hs_dsat_generate(&trace, &plan), -EINVAL);
	hs_dsat_finish(&trace);
}

/* So that a padded batch can be compared with a smaller one. */
static void test_batch_leaves_lists(void **state)
{
	struct hs_dsat trace = make(9);
	struct hs_dsat one = {.layers = LAYERS, .steps = STEPS, .batch = 1, .k = K, .ctx = CTX};
	struct hs_dsat_plan plan = {.hot = HOT, .misses = 9, .churn = 150, .seed = 7};

	(void)state;
	assert_int_equal(hs_dsat_init(&one), 0);
	assert_int_equal(hs_dsat_generate(&one, &plan), 0);
	for (uint32_t step = 0; step < STEPS; step++)
		for (uint32_t layer = 0; layer < LAYERS; layer++)
			assert_memory_equal(hs_dsat_list(&trace, step, layer, 0),
				hs_dsat_list(&one, step, layer, 0), K * sizeof(int32_t));
	hs_dsat_finish(&one);
	hs_dsat_finish(&trace);
}

static void test_lru_order(void **state)
{
	/* Hot 4, k 2. Step 3 hits 0, so 1 is the oldest of step 1 and leaves. */
	static const int32_t lists[][2] = {{0, 1}, {2, 3}, {4, 0}, {1, 5}, {2, 0}};
	static const uint32_t want[] = {2, 2, 1, 2, 1};
	struct hs_dsat_lru lru;
	int32_t missed[2];

	(void)state;
	assert_int_equal(hs_dsat_lru_init(&lru, 4, 8), 0);
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		uint32_t count = 99;

		assert_int_equal(hs_dsat_lru_step(&lru, lists[i], 2, missed, &count), 0);
		assert_int_equal(count, want[i]);
	}
	assert_int_equal(missed[0], 2);
	hs_dsat_lru_finish(&lru);
}

static void test_checker_sees_bad_lists(void **state)
{
	static const int32_t bad[] = {-1, CTX, INT32_MAX};
	uint32_t misses[STEPS * STREAMS];
	struct hs_dsat trace = make(9);
	int32_t *list = hs_dsat_list(&trace, 5, 1, 2), kept = list[3];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		list[3] = bad[i];
		assert_int_equal(hs_dsat_check(&trace, HOT, misses, NULL), -EBADMSG);
	}
	list[3] = list[60];
	assert_int_equal(hs_dsat_check(&trace, HOT, misses, NULL), -EBADMSG);
	list[3] = kept;
	assert_int_equal(hs_dsat_check(&trace, HOT, misses, NULL), 0);
	hs_dsat_finish(&trace);
}

static void test_plans_that_cannot_be_met(void **state)
{
	static const struct hs_dsat_plan plans[] = {{.hot = K - 1}, {.hot = HOT, .misses = K + 1},
		{.hot = CTX - K + 1}, {.hot = HOT, .churn = 1001}};
	struct hs_dsat trace = make(0), empty = {.layers = 1, .steps = 1, .batch = 1, .k = 8};

	(void)state;
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++)
		assert_int_equal(hs_dsat_generate(&trace, &plans[i]), -EINVAL);
	assert_int_equal(hs_dsat_init(&empty), -EINVAL);
	hs_dsat_finish(&trace);
}

static void test_file(void **state)
{
	size_t count = (size_t)STEPS * STREAMS * K;
	struct hs_dsat trace = make(9), read = {0};
	char path[] = "trace-XXXXXX";
	int file = mkstemp(path);
	FILE *stream;

	(void)state;
	assert_true(file >= 0);
	close(file);
	assert_int_equal(hs_dsat_write(&trace, path), 0);
	assert_int_equal(hs_dsat_read(&read, path), 0);
	assert_int_equal(read.layers, LAYERS);
	assert_int_equal(read.ctx, CTX);
	assert_memory_equal(read.positions, trace.positions, count * sizeof(int32_t));
	hs_dsat_finish(&read);

	/* Cut short, too long, another format: refused, nothing set. */
	assert_int_equal(truncate(path, (off_t)(32 + count * sizeof(int32_t) - 1)), 0);
	assert_int_equal(hs_dsat_read(&read, path), -EBADMSG);
	assert_int_equal(truncate(path, (off_t)(32 + count * sizeof(int32_t) + 1)), 0);
	assert_int_equal(hs_dsat_read(&read, path), -EBADMSG);
	assert_null(read.positions);
	stream = fopen(path, "r+b");
	assert_non_null(stream);
	fputc('X', stream);
	fclose(stream);
	assert_int_equal(hs_dsat_read(&read, path), -EBADMSG);
	unlink(path);
	assert_int_equal(hs_dsat_read(&read, path), -ENOENT);
	hs_dsat_finish(&trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact_misses),
		cmocka_unit_test(test_slow_reference_agrees),
		cmocka_unit_test(test_lists_differ),
		cmocka_unit_test(test_sweep_names_all),
		cmocka_unit_test(test_batch_leaves_lists),
		cmocka_unit_test(test_lru_order),
		cmocka_unit_test(test_checker_sees_bad_lists),
		cmocka_unit_test(test_plans_that_cannot_be_met),
		cmocka_unit_test(test_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
