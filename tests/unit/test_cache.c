/* SPDX-License-Identifier: MIT */
/* One launch after the other: lists, bytes, policies, what is dropped. */
#include "tests/unit/cache_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* Zero is a legal answer of a broken cache, so what was hot counts too. */
static void assert_read(uint64_t read, uint64_t hot)
{
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig.read, read);
	assert_int_equal(rig.hot, hot);
	assert_int_equal(rig_faults(), 0);
}

static void test_hit_and_miss(void **s)
{
	int32_t list[64], again[64];
	struct hs_cache_counts c;

	(void)s;
	rig_start(256, HS_POLICY_LRU, 0);
	for (int i = 0; i < 64; i++) {
		list[i] = 100 + 3 * i;
		again[i] = 100 + 3 * (63 - i);
	}
	struct hs_list l = rig_list(list, 1, 64), m = rig_list(again, 1, 64);
	attend(&l);
	assert_read(64, 64);
	attend(&m);
	assert_read(128, 128);
	rig_counts(&c);
	assert_int_equal(c.launches, 2);
	assert_int_equal(c.misses, 64);
	assert_int_equal(c.hits, 64);
	assert_int_equal(c.bytes, 64 * RIG_ROW);
	assert_int_equal(c.inplace, 0);
}

static void test_none_and_resident(void **s)
{
	/* The first part of the window, -1, what lies beyond the window. */
	int32_t list[8] = {-1, 0, 7, 8, -1, RIG_SLOTS - 1, 5, -1};
	struct hs_cache_counts c;
	CUdeviceptr out;
	struct hs_site site;

	(void)s;
	rig_start(256, HS_POLICY_LRU, 0);
	site = rig_site(0);
	struct hs_list l = rig_list(list, 2, 4);
	assert_int_equal(rig_attend(&l, &site, 0, &out), 0);
	rig_run();
	assert_read(8, 2);
	assert_int_equal(((int32_t *)(uintptr_t)out)[1], 0);
	assert_int_equal(((int32_t *)(uintptr_t)out)[6], 5);
	rig_counts(&c);
	assert_int_equal(c.padding, 3);
	assert_int_equal(c.hits, 3);
	assert_int_equal(c.misses, 2);
}

static void test_strides_and_lengths(void **s)
{
	enum { OUTER = 3, INNER = 2, K = 37 };
	int32_t list[OUTER * 300 + 100], lengths[OUTER] = {37, 5, 0};
	struct hs_cache_counts c;
	struct hs_site site;
	CUdeviceptr out;

	(void)s;
	rig_start(512, HS_POLICY_LRU, 0);
	site = rig_site(0);
	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++)
		list[i] = (int32_t)(8 + pick(RIG_SLOTS - 8));
	struct hs_list l = {.indices = (CUdeviceptr)(uintptr_t)list,
		.outer = OUTER,
		.inner = INNER,
		.k = K,
		.outer_stride = 300,
		.inner_stride = 100,
		.lengths = (CUdeviceptr)(uintptr_t)lengths};
	assert_int_equal(rig_attend(&l, &site, 0, &out), 0);
	rig_run();
	assert_read(OUTER * INNER * K, 2 * 42);
	rig_counts(&c);
	assert_int_equal(c.padding, 2 * (32 + 37));
	/* Between the list rows nothing is written. */
	assert_int_equal(((int32_t *)(uintptr_t)out)[K], 0);
}

static void test_duplicates(void **s)
{
	int32_t list[512];
	struct hs_cache_counts c;

	(void)s;
	rig_start(256, HS_POLICY_LRU, 99);
	for (int i = 0; i < 512; i++)
		list[i] = 100 + (int32_t)pick(40);
	struct hs_list l = rig_list(list, 4, 128);
	attend(&l);
	rig_counts(&c);
	assert_int_equal(c.misses, 40);
	assert_int_equal(c.misses + c.duplicates + c.hits, 512);
	assert_read(512, 512);
}

/* Every miss goes through the bitmap. */
static void test_ordered(void **s)
{
	int32_t list[900];
	struct hs_cache_counts c;
	struct hs_entry *entry;
	struct hs_lane *lane;

	(void)s;
	rig_start(1000, HS_POLICY_LRU, 31337);
	entry = rig_entry();
	entry->sort_from = 1;
	lane = rig_lane(0);
	lane->many[0] = 1;
	for (int i = 0; i < 900; i++)
		list[i] = RIG_FIRST + (int32_t)pick(RIG_SLOTS - RIG_FIRST);
	struct hs_list l = rig_list(list, 3, 300);
	attend(&l);
	assert_int_equal(lane->go, 1);
	assert_int_not_equal(lane->next, 0);
	assert_read(900, 900);
	attend(&l);
	assert_int_equal(lane->go, 2);
	assert_read(1800, 1800);
	rig_counts(&c);
	assert_true(c.misses > 500);
	assert_int_equal(c.misses + c.duplicates + c.hits, 1800);
	/* What another lane has marked is left to it. */
	hs_cache_wrote(&rig.window, 0, 0, &(struct hs_site){.stream = (CUstream)1});
	rig_settle();
	entry->bits[0] = 1;
	attend(&l);
	assert_int_equal(rig.wrong, 0);
	assert_true(rig.hot > 2000); /* dropped rows are spare after the next pass */
	assert_int_equal(entry->bits[0], 1);
	entry->bits[0] = 0;
	assert_int_equal(rig_faults(), 0);
}

static void test_no_room(void **s)
{
	int32_t list[256];
	struct hs_cache_counts c;

	(void)s;
	rig_start(64, HS_POLICY_LRU, 0);
	for (int i = 0; i < 256; i++)
		list[i] = 100 + i;
	struct hs_list l = rig_list(list, 1, 256);
	attend(&l);
	rig_counts(&c);
	assert_int_equal(c.misses, 64);
	assert_int_equal(c.inplace, 192);
	assert_read(256, 64);
	/* Half of them may be taken by the next launch, and are there until then. */
	assert_int_equal(c.evictions, 0);
	assert_int_equal(rig_spare(), 0);
	assert_int_equal(rig_listed(), 64 / 2);
	for (int i = 0; i < 256; i++)
		list[i] = 600 + i;
	l.k = 16;
	attend(&l);
	attend(&l);
	rig_counts(&c);
	assert_int_equal(c.misses, 64 + 16);
	assert_int_equal(c.evictions, 16);
	assert_int_equal(rig.wrong, 0);
}

static void write_then_read(void)
{
	int32_t list[64], lists[64];
	int64_t slots[20];
	struct hs_site site = rig_site(0);
	struct hs_list l = rig_list(list, 1, 64), m = rig_list(lists, 1, 64);

	for (int i = 0; i < 64; i++)
		list[i] = lists[i] = 200 + i;
	attend(&l);
	for (int i = 0; i < 20; i++)
		slots[i] = i % 5 ? 200 + 2 * i : -1;
	rig_write(slots, 20, 77, &site);
	assert_int_equal(rig_attend(&m, &site, 0, NULL), 0);
	rig_run();
}

static void test_written(void **s)
{
	struct hs_cache_counts c;

	(void)s;
	rig_start(256, HS_POLICY_LRU, 0);
	write_then_read();
	assert_read(128, 128);
	rig_counts(&c);
	assert_int_equal(c.invalidated, 16);
	assert_int_equal(c.misses, 64 + 16);
}

static void test_wrote(void **s)
{
	int32_t list[200];
	struct hs_site site;
	struct hs_cache_counts c;

	(void)s;
	rig_start(128, HS_POLICY_LRU, 0);
	site = rig_site(0);
	for (int i = 0; i < 200; i++)
		list[i] = RIG_FIRST + 5 * i;
	struct hs_list l = rig_list(list, 1, 50);
	attend(&l);
	/* The last byte of slot 18 to the first byte of 28: 18, 23 and 28 are hot. */
	for (uint32_t i = 18; i <= 28; i++)
		rig_fill(i, 5);
	hs_cache_wrote(&rig.window, rig.base + 19 * RIG_ROW - 1, 9 * RIG_ROW + 2, &site);
	attend(&l);
	rig_counts(&c);
	assert_int_equal(c.invalidated, 3);
	assert_int_equal(rig.wrong, 0);
	/* All of it, by an unknown writer. */
	for (uint32_t i = 0; i < RIG_SLOTS; i++)
		rig_fill(i, 6);
	hs_cache_wrote(&rig.window, rig.window.start, 0, &site);
	attend(&l);
	rig_counts(&c);
	assert_int_equal(c.invalidated, 3 + 50);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig_faults(), 0);
}

/* Captured while the layer is off, replayed when it is on, then off again. */
static void test_captured_early(void **s)
{
	int32_t list[64];
	struct hs_cache_counts c;
	struct hs_site site;
	CUdeviceptr out;

	(void)s;
	rig_start(256, HS_POLICY_LRU, 0);
	rig.window.place = HS_PLACE_DEVICE;
	hs_cache_settle();
	for (int i = 0; i < 64; i++)
		list[i] = i % 9 ? 300 + i : -1;
	struct hs_list l = rig_list(list, 1, 64);
	site = rig_site(1);
	assert_int_equal(rig_attend(&l, &site, 0, &out), 0);
	assert_int_equal(out, l.indices); /* eager: nothing to enqueue */
	site = rig_capture(0, 0);
	assert_int_equal(rig_attend(&l, &site, 0, &out), 0);
	assert_int_not_equal(out, l.indices);
	rig_capture_end(&site);
	rig_replay(0, 0);
	rig_run();
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig.hot, 0);
	rig.window.place = HS_PLACE_HOST;
	hs_cache_settle();
	rig_replay(0, 0);
	rig_replay(0, 0);
	rig_run();
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig.hot, 2 * 56);
	rig.window.place = HS_PLACE_DEVICE;
	hs_cache_settle();
	rig_replay(0, 0);
	rig_run();
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig.hot, 2 * 56);
	rig_counts(&c);
	assert_int_equal(c.launches, 2);
}

static void test_buffers(void **s)
{
	int32_t list[64], other[64];
	CUdeviceptr a, b, c, d;
	struct hs_site site, second;

	(void)s;
	rig_start(256, HS_POLICY_LRU, 0);
	memset(list, 0xff, sizeof(list));
	memset(other, 0xff, sizeof(other));
	struct hs_list l = rig_list(list, 1, 64), m = rig_list(other, 1, 64);
	site = rig_site(0);
	second = rig_site(1);
	/* Eager: one a stream. */
	assert_int_equal(hs_cache_resolve(rig.layer, &l, &site, &a), 0);
	assert_int_equal(hs_cache_resolve(rig.layer, &m, &site, &b), 0);
	assert_int_equal(hs_cache_resolve(rig.layer, &m, &second, &c), 0);
	assert_int_equal(a, b);
	assert_int_not_equal(a, c);
	/* Captured: one for each list of the engine's. */
	site = rig_capture(0, 0);
	assert_int_equal(hs_cache_resolve(rig.layer, &l, &site, &b), 0);
	assert_int_equal(hs_cache_resolve(rig.layer, &m, &site, &c), 0);
	assert_int_equal(hs_cache_resolve(rig.layer, &l, &site, &d), 0);
	assert_int_not_equal(b, c);
	assert_int_not_equal(b, a);
	assert_int_equal(b, d);
	rig_run();
}

/* Lists of graphs, more of them than a pool holds: while there are safe moments now
 * and then, none is taken on the launch path. */
static void test_pools(void **s)
{
	enum { K = 1 << 18, MIBS = 40 };
	int32_t *lists = calloc(MIBS, K * sizeof(*lists));
	struct hs_site site;
	CUdeviceptr out, before = 0;
	unsigned refused = 0;
	int marked;

	(void)s;
	rig_start(256, HS_POLICY_LRU, 0);
	site = rig_capture(0, 0);
	marked = rig.marked;
	for (int i = 0; i < MIBS; i++) {
		struct hs_list l = rig_list(lists + (size_t)i * K, 1, K);

		rig.fail_own = 1;
		assert_int_equal(hs_cache_resolve(rig.layer, &l, &site, &out), 0);
		assert_int_not_equal(out, before);
		assert_int_equal(rig.fail_own, 1);
		before = out;
		rig.fail_own = 0;
		if (rig.marked > marked)
			hs_cache_settle();
		marked = rig.marked;
	}
	/* Without one, and without memory: in place, but not before it is used up. */
	lists = calloc(MIBS, K * sizeof(*lists));
	for (int i = 0; i < MIBS; i++) {
		struct hs_list l = rig_list(lists + (size_t)i * K, 1, K);

		rig.fail_own = 1;
		refused += hs_cache_resolve(rig.layer, &l, &site, &out) != 0;
	}
	assert_in_range(refused, MIBS - 32, MIBS - 1);
	assert_int_equal(rig.marked, marked + 1);
	rig.fail_own = 0;
	hs_cache_settle();
	struct hs_list l = rig_list(lists + (size_t)(MIBS - 1) * K, 1, K);

	rig.fail_own = 1;
	assert_int_equal(hs_cache_resolve(rig.layer, &l, &site, &out), 0);
}

static void test_refused(void **s)
{
	int32_t list[4] = {0};
	struct hs_site site;
	CUdeviceptr out = 1;

	(void)s;
	rig_start(256, HS_POLICY_LRU, 0);
	site = rig_site(0);
	struct hs_list l = rig_list(list, 1, 4);
	l.k = 0;
	assert_int_equal(hs_cache_resolve(rig.layer, &l, &site, &out), -EINVAL);
	l = rig_list(list, 2, 2);
	l.outer_stride = 1; /* rows that overlap */
	assert_int_equal(hs_cache_resolve(rig.layer, &l, &site, &out), -EINVAL);
	l = rig_list(list, 1, 4);
	l.k = 1u << 30; /* 4 GiB of list, and no memory */
	rig.fail_own = 1;
	assert_int_equal(hs_cache_resolve(rig.layer, &l, &site, &out), -ENOMEM);
	assert_int_equal(out, 1);
	assert_null(hs_layer_find(&rig.window, rig.base, 584, true));
	assert_null(hs_layer_find(&rig.window, rig.base + 8, 656, true));
	assert_null(hs_layer_find(&rig.window, rig.window.start - 656, 656, true));
	assert_null(hs_layer_find(&rig.window, rig.base + 656, 656, false));
}

static void test_little_memory(void **s)
{
	int32_t list[64];

	(void)s;
	rig.fail_hot = 100;
	rig_start(256, HS_POLICY_LRU, 0);
	for (int i = 0; i < 64; i++)
		list[i] = 300 + i;
	struct hs_list l = rig_list(list, 1, 64);
	attend(&l);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig.hot, 0);
}

static void test_forget(void **s)
{
	int32_t list[64];
	struct hs_layer *layer;

	(void)s;
	rig_start(256, HS_POLICY_LRU, 0);
	for (int i = 0; i < 64; i++)
		list[i] = 300 + i;
	struct hs_list l = rig_list(list, 1, 64);
	attend(&l);
	hs_cache_forget(&rig.window);
	assert_null(hs_layer_find(&rig.window, rig.base, RIG_ROW, false));
	for (uint32_t i = 0; i < RIG_SLOTS; i++)
		rig_fill(i, 9);
	/* The same address again: the same number, and nothing of before. */
	layer = hs_layer_find(&rig.window, rig.base, RIG_ROW, true);
	assert_ptr_equal(layer, rig.layer);
	hs_cache_settle();
	attend(&l);
	assert_read(128, 128);
}

static void test_planted_stale(void **s)
{
	(void)s;
	hs_plant = HS_PLANT_STALE;
	rig_start(256, HS_POLICY_LRU, 0);
	write_then_read();
	assert_int_not_equal(rig.wrong, 0);
}

static void test_planted_twice(void **s)
{
	int32_t list[512];
	unsigned faults = 0;

	(void)s;
	hs_plant = HS_PLANT_TWICE;
	rig_start(512, HS_POLICY_LRU, 4711);
	for (int i = 0; i < 512; i++)
		list[i] = 100 + (int32_t)pick(40);
	struct hs_list l = rig_list(list, 4, 128);
	attend(&l);
	faults = rig_faults();
	assert_int_not_equal(faults, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hit_and_miss),
		cmocka_unit_test(test_none_and_resident),
		cmocka_unit_test(test_strides_and_lengths),
		cmocka_unit_test(test_duplicates),
		cmocka_unit_test(test_ordered),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_written),
		cmocka_unit_test(test_wrote),
		cmocka_unit_test(test_captured_early),
		cmocka_unit_test(test_buffers),
		cmocka_unit_test(test_pools),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_little_memory),
		cmocka_unit_test(test_forget),
		cmocka_unit_test(test_planted_stale),
		cmocka_unit_test(test_planted_twice),
	};

	return rig_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
