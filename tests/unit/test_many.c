/* SPDX-License-Identifier: MIT */
/* Lists of many entries, by union: lists, bytes and counters against a plain
 * reference. */
#include "tests/unit/cache_rig.h"

#include <stdlib.h>
#include <string.h>
#include "src/cache/device.h"
#include "src/cache/many.h"

enum {
	OUTER = 24,
	INNER = 2,
	K = 75,
	GAP = 9,
	ENTRIES = OUTER * INNER * K,
	HOT = 256,
	OTHERS = 64
};

/* What the launches so far must have left in the counters. */
static struct hs_cache_counts expected;
static int32_t entries[INNER * OUTER * (K + GAP)], lengths[OUTER];
static uint32_t state = 4711;

static uint32_t pick(uint32_t n)
{
	state = state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(state >> 4) * n >> 28);
}

/* With an area of so many rows. */
static void start_hot(uint32_t hot, uint32_t rows, uint64_t seed)
{
	hs_many_limits = (struct hs_many_limits){1000, 1, rows};
	rig.reserve = (size_t)32 << 20;
	rig_start(hot, HS_POLICY_LRU, seed);
}

static void start(uint32_t rows, uint64_t seed)
{
	start_hot(HOT, rows, seed);
}

/* Entries from [low, high), one in eight -1. */
static struct hs_list list_of(uint32_t low, uint32_t high)
{
	for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++)
		entries[i] = pick(8) ? (int32_t)(low + pick(high - low)) : -1;
	return (struct hs_list){.indices = (CUdeviceptr)(uintptr_t)entries,
		.outer = OUTER,
		.inner = INNER,
		.k = K,
		.outer_stride = INNER * (K + GAP),
		.inner_stride = K + GAP};
}

static bool ours(int32_t slot)
{
	return slot >= RIG_FIRST && slot < RIG_SLOTS;
}

/* The slot of entry n of a list row, as attention would take it. */
static int32_t slot_at(const struct hs_list *list, uint32_t i, uint32_t j, uint32_t n)
{
	const int32_t *most = (const int32_t *)(uintptr_t)list->lengths;

	if (most && (int64_t)n >= most[i])
		return -1;
	return entries[i * list->outer_stride + j * list->inner_stride + n];
}

/* What the list must become, and what is counted: ranks by a sorted union. */
static void reference(const struct hs_list *list, uint32_t rows, int32_t *out)
{
	static bool marked[RIG_SLOTS];
	int32_t rank[RIG_SLOTS], first;
	uint32_t count = 0;

	assert_int_equal(hs_many_room(rig.layer, &first), rows);
	memset(marked, 0, sizeof(marked));
	for (uint32_t e = 0; e < ENTRIES; e++) {
		int32_t slot = slot_at(list, e / K / INNER, e / K % INNER, e % K);

		if (ours(slot))
			marked[slot] = true;
	}
	for (uint32_t slot = 0; slot < RIG_SLOTS; slot++) {
		rank[slot] = (int32_t)count;
		if (!marked[slot])
			continue;
		if (count < rows && rig_map(slot) >= 0)
			expected.hits++;
		else if (count < rows)
			expected.staged++;
		count++;
	}
	for (uint32_t e = 0; e < ENTRIES; e++) {
		const uint32_t i = e / K / INNER, j = e / K % INNER, n = e % K;
		const int32_t slot = slot_at(list, i, j, n);
		const bool staged = ours(slot) && rank[slot] < (int32_t)rows;

		out[e] = staged ? first + rank[slot] : slot;
		expected.padding += slot < 0;
		expected.inplace += ours(slot) && !staged;
	}
	expected.launches++;
	expected.bytes = (expected.misses + expected.staged) * RIG_ROW;
}

static void assert_counts(void)
{
	struct hs_cache_counts c;

	rig_counts(&c);
	assert_int_equal(c.launches, expected.launches);
	assert_int_equal(c.hits, expected.hits);
	assert_int_equal(c.misses, expected.misses);
	assert_int_equal(c.duplicates, 0);
	assert_int_equal(c.staged, expected.staged);
	assert_int_equal(c.inplace, expected.inplace);
	assert_int_equal(c.padding, expected.padding);
	assert_int_equal(c.bytes, expected.bytes);
}

/* One launch of the list, all that it must do, and no more. */
static void attend(const struct hs_list *list, uint32_t rows)
{
	const size_t map = RIG_SLOTS * sizeof(int32_t), hot = HOT * sizeof(uint32_t);
	const struct hs_entry *entry = rig_entry();
	const struct hs_site site = rig_site(0);
	int32_t *wanted = malloc(ENTRIES * sizeof(*wanted));
	void *before = malloc(map + 2 * hot);
	const uint64_t free_rows = entry->free;
	CUdeviceptr out;
	int32_t *got;

	reference(list, rows, wanted);
	memcpy(before, entry->map, map);
	memcpy((char *)before + map, entry->stamp, hot);
	memcpy((char *)before + map + hot, entry->owner, hot);
	assert_int_equal(rig_attend(list, &site, 0, &out), 0);
	rig_run();
	got = (int32_t *)(uintptr_t)out;
	for (uint32_t e = 0; e < ENTRIES; e++)
		assert_int_equal(got[e / K / INNER * list->outer_stride +
					 e / K % INNER * list->inner_stride + e % K],
			wanted[e]);
	/* Between the list rows nothing is written. */
	for (uint32_t n = K; n < K + GAP; n++)
		assert_int_equal(got[n], 0);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig_faults(), 0);
	assert_counts();
	/* No state of the hot rows is touched. */
	assert_memory_equal(before, entry->map, map);
	assert_memory_equal((char *)before + map, entry->stamp, hot);
	assert_memory_equal((char *)before + map + hot, entry->owner, hot);
	assert_int_equal(entry->free, free_rows);
	free(before);
	free(wanted);
}

static void test_union(void **s)
{
	struct hs_list list;

	(void)s;
	start(RIG_SLOTS, 0);
	list = list_of(0, RIG_SLOTS + 40);
	/* What lies beyond the window has no bytes to compare. */
	for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++)
		entries[i] = entries[i] < RIG_SLOTS ? entries[i] : RIG_SLOTS - 1;
	attend(&list, RIG_SLOTS);
	assert_true(expected.staged > 900);
	assert_int_equal(expected.inplace, 0);
}

/* The marks are as they were after each launch: another union is its own. */
static void test_disjoint(void **s)
{
	struct hs_list list;

	(void)s;
	start(RIG_SLOTS, 99);
	for (uint32_t low = 8; low < 1000; low += 100) {
		list = list_of(low, low + 80);
		attend(&list, RIG_SLOTS);
	}
	assert_int_equal(expected.staged, 800);
}

static void test_lengths(void **s)
{
	struct hs_list list;

	(void)s;
	start(RIG_SLOTS, 5);
	for (int i = 0; i < OUTER; i++)
		lengths[i] = (int32_t)pick(K + 20) - 10;
	list = list_of(0, 300);
	list.lengths = (CUdeviceptr)(uintptr_t)lengths;
	attend(&list, RIG_SLOTS);
}

static void test_no_room(void **s)
{
	struct hs_list list;

	(void)s;
	start(300, 0);
	list = list_of(0, RIG_SLOTS);
	attend(&list, 300);
	assert_int_equal(expected.staged, 300);
	assert_true(expected.inplace > 1000);
	list = list_of(100, 200);
	attend(&list, 300);
	assert_int_equal(expected.staged, 400);
}

/* Brings so many slots from `low` on into hot rows, the ordinary way. */
static void warm(int32_t low, int32_t count)
{
	struct hs_site site = rig_site(0);
	struct hs_list list;
	int32_t slots[HOT];

	for (int32_t i = 0; i < count; i++)
		slots[i] = low + i;
	list = rig_list(slots, 1, (uint32_t)count);
	assert_int_equal(rig_attend(&list, &site, 0, NULL), 0);
	rig_run();
	hs_cache_settle(); /* whatever follows a launch has been done */
	expected.launches++;
	expected.misses += (uint64_t)count;
}

static void test_hot_rows(void **s)
{
	int64_t slots[50];
	struct hs_site site;
	struct hs_list list;
	uint64_t mentions = 0;

	(void)s;
	start(600, 0);
	site = rig_site(0);
	warm(200, 100);
	list = list_of(150, 600);
	attend(&list, 600);
	assert_int_equal(expected.hits, 100);
	assert_int_equal(expected.staged, 350);
	/* Written between two launches. */
	for (int i = 0; i < 50; i++)
		slots[i] = 190 + i;
	rig_write(slots, 50, 1234567, &site);
	rig_run();
	attend(&list, 600);
	assert_int_equal(expected.hits, 100 + 60);
	assert_int_equal(expected.staged, 350 + 390);
	/* A window whose bytes change behind our back shows where rows came from. */
	for (uint32_t slot = 240; slot < 300; slot++)
		rig_fill(slot, 7654321);
	for (uint32_t e = 0; e < ENTRIES; e++) {
		int32_t slot = slot_at(&list, e / K / INNER, e / K % INNER, e % K);

		mentions += slot >= 240 && slot < 300;
	}
	assert_int_equal(rig_attend(&list, &site, 0, NULL), 0);
	rig_run();
	assert_int_not_equal(mentions, 0);
	assert_int_equal(rig.wrong, mentions);
}

/* Rows of the list's union; whether any list of it reads in place is for the caller. */
static uint64_t union_of(const struct hs_list *list)
{
	static bool marked[RIG_SLOTS];
	uint64_t count = 0;

	memset(marked, 0, sizeof(marked));
	for (uint32_t e = 0; e < ENTRIES; e++) {
		const int32_t slot = slot_at(list, e / K / INNER, e / K % INNER, e % K);

		if (ours(slot) && !marked[slot]) {
			marked[slot] = true;
			count++;
		}
	}
	return count;
}

/* A launch whose union is to be made hot: what it read is right, and every row of the
 * union was found, fetched or staged, once. */
static struct hs_cache_counts make_hot(const struct hs_list *list, const struct hs_site *site)
{
	struct hs_cache_counts before, c;

	rig_counts(&before);
	assert_int_equal(rig_attend(list, site, 0, NULL), 0);
	rig_run();
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig_faults(), 0);
	rig_counts(&c);
	c.launches -= before.launches;
	c.hits -= before.hits;
	c.misses -= before.misses;
	c.staged -= before.staged;
	assert_int_equal(c.launches, 1);
	assert_int_equal(c.hits + c.misses + c.staged, union_of(list));
	assert_int_equal(c.inplace, before.inplace);
	assert_int_equal(c.duplicates, before.duplicates);
	return c;
}

/* Few enough for the hot buffer: the next chunk of the prompt finds them there. */
static void test_made_hot(void **s)
{
	struct hs_cache_counts c;
	struct hs_site site;
	struct hs_list list;
	int64_t slots[50];

	(void)s;
	start_hot(RIG_SLOTS, RIG_SLOTS, 3);
	site = rig_site(0);
	list = list_of(8, 200);
	c = make_hot(&list, &site);
	assert_int_equal(c.misses, 192);
	c = make_hot(&list, &site);
	assert_int_equal(c.hits, 192);
	for (int i = 0; i < 50; i++)
		slots[i] = 100 + i;
	rig_write(slots, 50, 1234567, &site);
	list = list_of(8, 250);
	c = make_hot(&list, &site);
	assert_int_equal(c.hits, 142);
	assert_int_equal(c.misses, 100);
	/* More than a quarter of the hot rows: those stay as they are. */
	list = list_of(8, 300);
	c = make_hot(&list, &site);
	assert_int_equal(c.hits, 242);
	assert_int_equal(c.staged, 50);
}

/* Unions come and go, rows are written, others decode. Rows that find no hot row are
 * staged, and the hot buffer goes on serving whoever comes. */
static void test_come_and_go(void **s)
{
	uint64_t hits = 0, misses = 0, staged = 0;
	struct hs_site site;
	int32_t small[64];
	int64_t slots[40];

	(void)s;
	start_hot(512, RIG_SLOTS, 7);
	site = rig_site(0);
	for (int n = 0; n < 120; n++) {
		const uint32_t low = RIG_FIRST + pick(RIG_SLOTS - RIG_FIRST - 128);
		const struct hs_list list = list_of(low, low + 20 + pick(100));
		const struct hs_cache_counts c = make_hot(&list, &site);
		struct hs_list decode;

		hits += c.hits;
		misses += c.misses;
		staged += c.staged;
		for (int i = 0; i < 40; i++)
			slots[i] = (int64_t)(RIG_FIRST + pick(RIG_SLOTS - RIG_FIRST));
		if (n % 3 == 0)
			rig_write(slots, 40, (uint64_t)n + 99, &site);
		for (int i = 0; i < 64; i++)
			small[i] =
				(int32_t)(RIG_FIRST + pick(n < 60 ? 200 : RIG_SLOTS - RIG_FIRST));
		decode = rig_list(small, 1, 64);
		assert_int_equal(rig_attend(&decode, &site, 0, NULL), 0);
		rig_run();
		assert_int_equal(rig.wrong, 0);
	}
	assert_true(hits > 1000);
	assert_true(misses > 1000);
	assert_true(staged < misses / 2);
}

/* After launches that only hit no row is listed for misses; who finds none asks for them. */
static void test_asks_for_rows(void **s)
{
	struct hs_cache_counts c = {0};
	struct hs_site site;
	struct hs_list list;

	(void)s;
	start_hot(512, RIG_SLOTS, 0);
	site = rig_site(0);
	for (uint32_t n = 0; n < 120; n++) {
		list = list_of(RIG_FIRST + n % 4 * 128, RIG_FIRST + n % 4 * 128 + 128);
		c = make_hot(&list, &site);
	}
	assert_int_equal(c.hits, 128);
	list = list_of(RIG_FIRST + 600, RIG_FIRST + 700);
	c = make_hot(&list, &site);
	assert_int_equal(c.staged, 100);
	for (int n = 0; n < 4; n++)
		c = make_hot(&list, &site);
	assert_int_equal(c.hits, 100);
}

/* One area, whatever the layer's base and row. */
static void test_room(void **s)
{
	static const uint32_t rows[] = {16, 32, 48, 576, 656, 1152};
	CUdeviceptr start_of, end;
	int32_t index;

	(void)s;
	start(RIG_SLOTS, 0);
	assert_int_equal(hs_many_room(rig.layer, &index), RIG_SLOTS);
	start_of = rig.base + (CUdeviceptr)index * RIG_ROW;
	end = start_of + RIG_SLOTS * RIG_ROW;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		for (uint32_t skew = 0; skew < 4096; skew += 16) {
			struct hs_layer layer = {
				.base = rig.base + skew, .row = rows[i], .slots = RIG_SLOTS};
			const uint32_t room = hs_many_room(&layer, &index);
			const CUdeviceptr at = layer.base + (CUdeviceptr)index * layer.row;

			assert_true(at >= start_of && at - start_of < layer.row);
			assert_true(room && at + (CUdeviceptr)room * layer.row <= end);
			assert_true(room == RIG_SLOTS ||
				    at + (CUdeviceptr)(room + 1) * layer.row > end);
		}
	}
	/* Too far, above the area, more slots than can be marked. */
	struct hs_layer far = {.base = 16, .row = 16, .slots = 1};
	struct hs_layer above = {.base = end, .row = 16, .slots = 1};
	struct hs_layer large = {.base = rig.base, .row = 16, .slots = 1025};
	assert_int_equal(hs_many_room(&far, &index), 0);
	assert_int_equal(hs_many_room(&above, &index), 0);
	assert_int_equal(hs_many_room(&large, &index), 0);
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[] = {
		cmocka_unit_test(test_union),
		cmocka_unit_test(test_disjoint),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_hot_rows),
		cmocka_unit_test(test_made_hot),
		cmocka_unit_test(test_come_and_go),
		cmocka_unit_test(test_asks_for_rows),
		cmocka_unit_test(test_room),
	};

	return rig_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
