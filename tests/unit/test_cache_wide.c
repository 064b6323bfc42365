/* SPDX-License-Identifier: MIT */
/* Lists of more than a round for all warps: several entries a thread, several tiles
 * a warp. (The rig has two processors: 32 warps.) */
#include "tests/unit/cache_rig.h"

#include <string.h>

enum { LISTS = 64, K = 128, ENTRIES = LISTS * K };

static uint32_t state = 12345;

static uint32_t pick(uint32_t n)
{
	state = state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(state >> 4) * n >> 28);
}

static int32_t list[ENTRIES + 4] __attribute__((aligned(16)));

static void attend(const struct hs_list *l, CUdeviceptr *out)
{
	struct hs_site site = rig_site(0);

	assert_int_equal(rig_attend(l, &site, 0, out), 0);
	rig_run();
}

/* Every slot that can be asked for, -1, and what lies past a row's length. */
static void mixed(const int32_t *entries, uint32_t k, int64_t stride)
{
	int32_t lengths[LISTS];
	uint64_t hits = 0, padding = 0;
	struct hs_cache_counts c;
	CUdeviceptr out;

	rig_start(RIG_SLOTS, HS_POLICY_LRU, 77);
	for (uint32_t i = 0; i < ENTRIES + 4; i++)
		list[i] = pick(32) ? (int32_t)pick(RIG_SLOTS) : -1;
	for (uint32_t i = 0; i < LISTS; i++) {
		lengths[i] = i % 3 ? (int32_t)pick(K + 1) : K;
		for (uint32_t n = 0; n < k; n++) {
			const int32_t slot = entries[i * stride + n];
			const bool none = slot < 0 || (int32_t)n >= lengths[i];

			padding += none;
			hits += !none && slot < RIG_FIRST;
		}
	}
	struct hs_list l = rig_list(entries, LISTS, k);
	l.outer_stride = stride;
	l.lengths = (CUdeviceptr)(uintptr_t)lengths;
	attend(&l, &out);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig.read, LISTS * k);
	/* All but what is on the device anyway. */
	assert_int_equal(rig.hot, LISTS * k - padding - hits);
	rig_counts(&c);
	assert_int_equal(c.padding, padding);
	assert_int_equal(c.inplace, 0);
	assert_int_equal(c.hits + c.misses + c.duplicates, LISTS * k - padding);
	assert_true(c.misses > 900);
	rig_settle();
	attend(&l, &out);
	assert_int_equal(rig.wrong, 0);
	rig_counts(&c);
	assert_true(c.misses <= RIG_SLOTS - RIG_FIRST);
	assert_int_equal(rig_faults(), 0);
}

static void test_aligned(void **s)
{
	(void)s;
	mixed(list, K, K);
}

/* One entry a thread, whatever it is that four do not fit. */
static void test_start(void **s)
{
	(void)s;
	mixed(list + 1, K, K);
}

static void test_length(void **s)
{
	(void)s;
	mixed(list, K - 2, K);
}

static void test_stride(void **s)
{
	(void)s;
	mixed(list, K - 4, K - 2);
}

/* Listed rows that a warp hits in its second tile are not taken by the misses of
 * its first. */
static void test_misses_wait(void **s)
{
	struct hs_cache_counts c;
	struct hs_list l;

	(void)s;
	rig_start(2 * K, HS_POLICY_LRU, 0);
	for (int round = 0; round < 3; round++) {
		memset(list, 0xff, sizeof(list));
		for (int i = 0; i < K; i++) {
			list[i] = RIG_FIRST + round * K + i;
			if (round == 2)
				list[32 * K + i] = RIG_FIRST + i;
		}
		l = rig_list(list, LISTS, K);
		attend(&l, NULL);
		rig_settle();
		if (round == 1)
			assert_int_equal(rig_listed(), K);
	}
	assert_int_equal(rig.wrong, 0);
	rig_counts(&c);
	assert_int_equal(c.hits, K);
	assert_int_equal(c.misses, 2 * K);
	assert_int_equal(c.inplace, K); /* nothing was left for them to take */
	assert_int_equal(rig_faults(), 0);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_aligned),
		cmocka_unit_test(test_start),
		cmocka_unit_test(test_length),
		cmocka_unit_test(test_stride),
		cmocka_unit_test(test_misses_wait),
	};

	return rig_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
