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

static void look(int32_t *map)
{
	for (uint32_t slot = 0; slot < RIG_SLOTS; slot++)
		map[slot] = rig_entry()->map[slot];
}

/* Since `before`: whether a row went that was newer than one that stayed, of those
 * that the launch `now` did not use. FIFO: than one that stayed listed; a row that
 * was hit goes back there with the next listing. *gone: rows that went. */
static unsigned wrong_order(
	const int32_t *before, const uint32_t *key, uint32_t now, uint32_t *gone)
{
	uint32_t newest_out = 0, oldest_in = UINT32_MAX;

	*gone = 0;
	for (uint32_t slot = RIG_FIRST; slot < RIG_SLOTS; slot++) {
		const bool there = rig_map(slot) >= 0;

		if (before[slot] < 0 || used[slot] == now)
			continue;
		*gone += !there;
		if (there && key[slot] < oldest_in &&
			(key == used || before[slot] >= (int32_t)HS_ROWS_MAX))
			oldest_in = key[slot];
		if (!there && key[slot] > newest_out)
			newest_out = key[slot];
	}
	return newest_out > oldest_in;
}

/* Returns the evictions seen. */
static uint64_t run_policy(int policy, const uint32_t *key)
{
	enum { K = 96, STEPS = 120, ROWS = 320 };
	int32_t list[K] = {0}, before[RIG_SLOTS], after[RIG_SLOTS];
	struct hs_cache_counts c;
	struct hs_list l = rig_list(list, 1, K);
	uint64_t evictions = 0;

	rig_start(ROWS, policy, 0);
	for (uint32_t now = 1; now <= STEPS; now++) {
		uint32_t gone;

		for (uint32_t i = 0; i < K; i++) {
			/* Reuse with a long tail. */
			uint32_t far = pick(2) ? pick(64) : pick(900);

			list[i] = (int32_t)(RIG_FIRST + (now * 3 + far) % (RIG_SLOTS - RIG_FIRST));
		}
		look(before);
		attend(&l);
		look(after);
		for (uint32_t i = 0; i < K; i++) {
			used[list[i]] = now;
			if (after[list[i]] < HS_NONE)
				fetched[list[i]] = now;
		}
		rig_settle();
		if (key)
			assert_int_equal(wrong_order(before, key, now, &gone), 0);
		if (policy == HS_POLICY_VANILLA) {
			for (uint32_t slot = RIG_FIRST; slot < RIG_SLOTS; slot++)
				assert_int_equal(rig_map(slot) >= 0, used[slot] == now);
		}
		if (key)
			evictions += gone;
	}
	rig_counts(&c);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig_faults(), 0);
	assert_true(c.inplace < c.misses / 4);
	/* Some were missed again at once. */
	if (key)
		assert_in_range(c.evictions, evictions, evictions + evictions / 4);
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

/* Launches of other lanes go by: old rows are as good as others only from
 * HS_AGES launches on. */
static void test_lru_old(void **s)
{
	int32_t list[64], before[RIG_SLOTS];
	struct hs_entry *entry;
	struct hs_cache_counts c;
	uint32_t gone;

	(void)s;
	rig_start(256, HS_POLICY_LRU, 0);
	struct hs_list l = rig_list(list, 1, 64);
	entry = rig_entry();
	for (uint32_t round = 0; round < 24; round++) {
		for (int i = 0; i < 64; i++)
			list[i] = (int32_t)(RIG_FIRST + pick(RIG_SLOTS - RIG_FIRST));
		entry->clock += 1 + pick(HS_AGES / 6);
		for (int i = 0; i < 64; i++)
			used[list[i]] = entry->clock;
		look(before);
		attend(&l);
		rig_settle();
		assert_int_equal(wrong_order(before, used, used[list[0]], &gone), 0);
	}
	/* The last launch's rows stay, however old all others are. */
	entry->clock += 3000000;
	for (uint32_t round = 0; round < 2; round++) {
		const uint32_t last = entry->clock - 1;

		for (int i = 0; i < 64; i++)
			list[i] = (int32_t)(RIG_FIRST + pick(RIG_SLOTS - RIG_FIRST));
		look(before);
		attend(&l);
		rig_settle();
		for (uint32_t slot = RIG_FIRST; slot < RIG_SLOTS && round; slot++)
			assert_true(used[slot] != last || before[slot] < 0 || rig_map(slot) >= 0);
		for (int i = 0; i < 64; i++)
			used[list[i]] = entry->clock - 1;
	}
	rig_counts(&c);
	assert_true(c.evictions > 500);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig_faults(), 0);
}

/* A working set as large as the hot buffer always hits. */
static void test_none_idles(void **s)
{
	enum { ROWS = 512, K = 128, SET = ROWS };
	int32_t list[K] = {0};
	struct hs_cache_counts c;
	struct hs_list l = rig_list(list, 1, K);

	(void)s;
	rig_start(ROWS, HS_POLICY_LRU, 0);
	for (uint32_t now = 0; now < 40; now++) {
		for (uint32_t i = 0; i < K; i++)
			list[i] = (int32_t)(RIG_FIRST + (now * K + i) % SET);
		attend(&l);
	}
	rig_counts(&c);
	assert_int_equal(c.misses, SET);
	assert_int_equal(c.evictions, 0);
	assert_int_equal(c.inplace, 0);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig_faults(), 0);
}

/*
 * Exactly the misses of an LRU by step over all rows, launch by launch, while no
 * launch hits rows that it also takes. Of rows that were last used in the same
 * step any may go: which did is looked up.
 */
static void exact(uint64_t seed, uint32_t rows, uint32_t k, uint32_t fresh, uint32_t reach)
{
	static uint32_t last[RIG_SLOTS];
	int32_t list[RIG_SLOTS] = {0}, before[RIG_SLOTS];
	struct hs_cache_counts c;
	struct hs_list l = rig_list(list, 1, k);
	uint32_t next = RIG_FIRST, gone, held;
	uint64_t misses = 0;

	rig_start(rows, HS_POLICY_LRU, seed);
	for (uint32_t now = 1; now <= 200; now++) {
		for (uint32_t i = 0; i < k; i++) {
			next = i < fresh ? next + 1 : next;
			list[i] = (int32_t)(RIG_FIRST + (i < fresh ? next : next - pick(reach)) %
								(RIG_SLOTS - RIG_FIRST));
		}
		look(before);
		attend(&l);
		for (uint32_t i = 0; i < k; i++) {
			misses += !last[list[i]];
			last[list[i]] = used[list[i]] = now;
		}
		rig_settle();
		assert_int_equal(wrong_order(before, used, now, &gone), 0);
		held = 0;
		for (uint32_t slot = 0; slot < RIG_SLOTS; slot++) {
			last[slot] = rig_map(slot) >= 0 ? last[slot] : 0;
			held += last[slot] != 0;
		}
		assert_int_equal(held, misses < rows ? misses : rows);
		rig_counts(&c);
		assert_int_equal(c.misses, misses);
		assert_int_equal(c.evictions, misses - held);
		assert_int_equal(c.inplace, 0);
	}
	assert_true(c.evictions > 1000);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig_faults(), 0);
}

static void test_exact(void **s)
{
	(void)s;
	exact(0, 512, 96, 12, 300);
}

static void test_exact_many(void **s)
{
	(void)s;
	exact(7, 700, 300, 60, 400);
}

/* A launch whose every entry is a miss, with the lane told that much misses here:
 * rows are fetched by address if the list has sort_from entries. */
static void miss_many(bool walks)
{
	struct hs_lane *lane = rig_lane(0);
	int32_t list[900];
	struct hs_list l = rig_list(list, 3, 300);
	const uint32_t go = lane->go;

	for (uint32_t i = 0; i < 900; i++)
		list[i] = (int32_t)(RIG_FIRST + i);
	lane->many[0] = 1;
	rig.read = rig.hot = 0;
	attend(&l);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig.read, 900);
	assert_true(rig.hot > 0);
	assert_int_equal(lane->go - go, walks);
	rig_settle();
	assert_int_equal(rig_faults(), 0);
}

/* The window's memory may change its kind whenever it moves. Of a layer that is large
 * enough for an order to matter; only its first slots are there to be read. */
static void test_any_order(void **s)
{
	(void)s;
	rig_start(1000, HS_POLICY_LRU, 0);
	rig.window.requested = (size_t)300 << 20;
	hs_cache_settle();
	assert_int_not_equal(rig_entry()->sort_from, UINT32_MAX);
	rig_entry()->sort_from = 900;
	miss_many(true);
	hs_cache_settle(); /* goes on as it is */
	assert_int_equal(rig_entry()->sort_from, 900);
	rig.window.any_order = true;
	hs_cache_settle();
	assert_int_equal(rig_entry()->sort_from, UINT32_MAX);
	miss_many(false);
	rig.window.any_order = false;
	hs_cache_settle();
	assert_int_not_equal(rig_entry()->sort_from, UINT32_MAX);
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
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_exact_many),
		cmocka_unit_test(test_any_order),
	};

	return rig_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
