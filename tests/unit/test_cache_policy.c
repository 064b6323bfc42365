/* SPDX-License-Identifier: MIT */
/* What goes first: the evictions of each launch against a plain record. */
#include "tests/unit/cache_rig.h"

#include <stdlib.h>

static uint32_t state = 12345;

static uint32_t pick(uint32_t n)
{
	state = state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(state >> 4) * n >> 28);
}

static void attend(const struct hs_list *list)
{
	struct hs_site site = rig_site(0);

	assert_int_equal(rig_attend(list, &site, 0, NULL), 0);
	rig_run();
}

/*
 * The reference: what each launch used and fetched, and from the map before and
 * after what it evicted. `key` is the last use or the fetch.
 */
static uint32_t used[RIG_SLOTS], fetched[RIG_SLOTS];

static unsigned wrong_order(const int32_t *before, uint32_t now, const uint32_t *key)
{
	uint32_t newest_out = 0, oldest_in = UINT32_MAX;

	for (uint32_t slot = RIG_FIRST; slot < RIG_SLOTS; slot++) {
		if (used[slot] == now)
			continue;
		if (rig_map(slot) >= 0 && key[slot] < oldest_in)
			oldest_in = key[slot];
		if (rig_map(slot) < 0 && before[slot] >= 0 && key[slot] > newest_out)
			newest_out = key[slot];
	}
	return newest_out > oldest_in;
}

/* Returns the evictions seen. */
static uint64_t run_policy(int policy, const uint32_t *key)
{
	enum { K = 96, STEPS = 120 };
	int32_t list[K] = {0}, before[RIG_SLOTS];
	struct hs_cache_counts c;
	struct hs_list l = rig_list(list, 1, K);

	rig_start(320, policy, 0);
	for (uint32_t now = 1; now <= STEPS; now++) {
		for (uint32_t i = 0; i < K; i++) {
			/* Reuse with a long tail. */
			uint32_t far = pick(2) ? pick(64) : pick(900);

			list[i] = (int32_t)(RIG_FIRST + (now * 3 + far) % (RIG_SLOTS - RIG_FIRST));
		}
		for (uint32_t slot = 0; slot < RIG_SLOTS; slot++)
			before[slot] = rig_map(slot);
		attend(&l);
		for (uint32_t i = 0; i < K; i++) {
			used[list[i]] = now;
			if (before[list[i]] < 0 && rig_map((uint32_t)list[i]) >= 0)
				fetched[list[i]] = now;
		}
		/* In this launch's rows nothing is evicted. */
		for (uint32_t i = 0; i < K; i++)
			assert_true(before[list[i]] < 0 || rig_map((uint32_t)list[i]) >= 0);
		if (key)
			assert_int_equal(wrong_order(before, now, key), 0);
		if (policy == HS_POLICY_VANILLA) {
			for (uint32_t slot = RIG_FIRST; slot < RIG_SLOTS; slot++)
				assert_int_equal(rig_map(slot) >= 0, used[slot] == now);
		}
	}
	rig_counts(&c);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig_faults(), 0);
	assert_true(c.inplace < c.misses / 4);
	return c.evictions;
}

static void test_lru(void **s)
{
	(void)s;
	assert_true(run_policy(HS_POLICY_LRU, used) > 500);
}

static void test_fifo(void **s)
{
	(void)s;
	assert_true(run_policy(HS_POLICY_FIFO, fetched) > 500);
}

static void test_random(void **s)
{
	(void)s;
	assert_true(run_policy(HS_POLICY_RANDOM, NULL) > 500);
}

static void test_vanilla(void **s)
{
	(void)s;
	assert_true(run_policy(HS_POLICY_VANILLA, NULL) > 500);
}

/* Ages that need more than one level of bins. */
static void test_lru_old(void **s)
{
	int32_t list[64], before[RIG_SLOTS];
	struct hs_entry *entry;
	struct hs_cache_counts c;

	(void)s;
	rig_start(128, HS_POLICY_LRU, 0);
	struct hs_list l = rig_list(list, 1, 64);
	entry = rig_entry();
	for (uint32_t round = 0; round < 12; round++) {
		for (int i = 0; i < 64; i++)
			list[i] = (int32_t)(RIG_FIRST + pick(RIG_SLOTS - RIG_FIRST));
		/* As if so many launches had gone by. */
		entry->clock += 1 + pick(3000000);
		for (uint32_t slot = 0; slot < RIG_SLOTS; slot++)
			before[slot] = rig_map(slot);
		attend(&l);
		for (int i = 0; i < 64; i++)
			used[list[i]] = entry->clock;
		assert_int_equal(wrong_order(before, entry->clock, used), 0);
	}
	rig_counts(&c);
	assert_true(c.evictions > 200);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig_faults(), 0);
}

/* No row idles: a working set as large as the hot buffer always hits. */
static void test_none_idles(void **s)
{
	enum { ROWS = 512, K = 128 };
	int32_t list[K] = {0};
	struct hs_cache_counts c;
	struct hs_list l = rig_list(list, 1, K);

	(void)s;
	rig_start(ROWS, HS_POLICY_LRU, 0);
	for (uint32_t now = 0; now < 40; now++) {
		for (uint32_t i = 0; i < K; i++)
			list[i] = (int32_t)(RIG_FIRST + (now * K + i) % ROWS);
		attend(&l);
	}
	rig_counts(&c);
	assert_int_equal(c.misses, ROWS);
	assert_int_equal(c.evictions, 0);
	assert_int_equal(c.inplace, 0);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig_faults(), 0);
}

/* As many misses as an exact LRU has, launch by launch, and
 * hardly one of them finds no row. */
static void test_as_few_as_lru(void **s)
{
	enum { ROWS = 512, K = 96, NEW = 12 };
	static uint32_t last[RIG_SLOTS];
	int32_t list[K] = {0};
	struct hs_cache_counts c;
	struct hs_list l = rig_list(list, 1, K);
	uint32_t next = RIG_FIRST, held = 0;
	uint64_t misses = 0;

	(void)s;
	rig_start(ROWS, HS_POLICY_LRU, 0);
	for (uint32_t now = 1; now <= 300; now++) {
		for (uint32_t i = 0; i < K; i++) {
			next = i < NEW ? next + 1 : next;
			list[i] = (int32_t)(RIG_FIRST + (i < NEW ? next : next - pick(300)) %
								(RIG_SLOTS - RIG_FIRST));
		}
		attend(&l);
		for (uint32_t i = 0; i < K; i++) {
			held += !last[list[i]];
			misses += !last[list[i]];
			last[list[i]] = now;
		}
		while (held > ROWS) {
			uint32_t oldest = UINT32_MAX, which = 0;

			for (uint32_t slot = 0; slot < RIG_SLOTS; slot++) {
				if (last[slot] && last[slot] < oldest)
					oldest = last[which = slot];
			}
			last[which] = 0;
			held--;
		}
		rig_counts(&c);
		/* Ties may be broken the other way. */
		assert_in_range(c.misses, misses - misses / 50, misses + misses / 50);
	}
	assert_true(c.inplace <= c.misses / 200);
	assert_true(c.evictions > 2000);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig_faults(), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lru),
		cmocka_unit_test(test_lru_old),
		cmocka_unit_test(test_fifo),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_vanilla),
		cmocka_unit_test(test_none_idles),
		cmocka_unit_test(test_as_few_as_lru),
	};

	return rig_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
