/* SPDX-License-Identifier: MIT */
/* What launches tell: their counts, their lists, the file of them and its replay. */
#include "tests/unit/cache_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "src/cache/device.h"
#include "src/cache/journal.h"
#include "src/trace/record.h"
#include "src/trace/step.h"
#include "tools/bench/trace.h"
#include "tools/hisparse/stream.h"

enum { K = 16, ROWS = 3, MOST = 4096 };

struct told {
	unsigned launches, lists;
	uint32_t last[2]; /* numbers */
	unsigned gaps;
	uint64_t totals[HS_COUNTS];
	struct hs_journal_head head;
	int32_t list[ROWS * K];
	struct hs_record *record;
};

static void take(CUdevice device, const struct hs_journal_head *record, void *data)
{
	struct told *told = data;
	const bool lists = record->what == HS_JOURNAL_LISTS;

	assert_int_equal(device, 0);
	assert_true(record->what == HS_JOURNAL_LAUNCHES || lists);
	if (lists ? told->lists : told->launches)
		told->gaps += record->number != told->last[lists] + 1;
	told->last[lists] = record->number;
	if (!lists) {
		told->launches++;
		memcpy(told->totals,
			((const struct hs_journal_launch *)(const void *)record)->totals,
			sizeof(told->totals));
		return;
	}
	told->lists++;
	told->head = *record;
	assert_int_equal(record->words, sizeof(*record) / 4 + record->rows * record->k);
	if (record->rows * record->k <= ROWS * K)
		memcpy(told->list, record + 1, record->rows * record->k * sizeof(int32_t));
	if (told->record)
		assert_int_equal(hs_record_add(told->record, record), 0);
}

static void ask(unsigned what, uint32_t every)
{
	hs_journal_ask(what, every);
	hs_cache_settle();
}

static void attend(int32_t *entries, uint32_t rows, uint32_t k)
{
	struct hs_site site = rig_site(0);
	struct hs_list list = rig_list(entries, rows, k);

	assert_int_equal(rig_attend(&list, &site, 0, NULL), 0);
	rig_run();
}

static void draw(int32_t *entries, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		entries[i] = RIG_FIRST + rand() % 500;
}

static void test_silent_until_asked(void **state)
{
	struct told told = {0};
	int32_t entries[ROWS * K];

	(void)state;
	rig_start(256, HS_POLICY_LRU, 0);
	draw(entries, ROWS * K);
	attend(entries, ROWS, K);
	assert_int_equal(hs_journal_read(0, take, &told), 0);
	ask(HS_JOURNAL_LAUNCHES, 1);
	attend(entries, ROWS, K);
	assert_int_equal(hs_journal_read(0, take, &told), 1);
	assert_int_equal(told.launches, 1);
	ask(0, 1);
	attend(entries, ROWS, K);
	assert_int_equal(hs_journal_read(0, take, &told), 0);
	assert_int_equal(rig.wrong, 0);
}

static void test_counts_of_launches(void **state)
{
	struct told told = {0};
	struct hs_cache_counts counts;
	int32_t entries[ROWS * K];

	(void)state;
	rig_start(128, HS_POLICY_LRU, 5);
	ask(HS_JOURNAL_LAUNCHES, 1);
	for (unsigned i = 0; i < 40; i++) {
		draw(entries, ROWS * K);
		attend(entries, ROWS, K);
		assert_int_equal(hs_journal_read(0, take, &told), 1);
		rig_counts(&counts);
		assert_int_equal(told.totals[HS_COUNT_LAUNCHES], i + 1);
		assert_int_equal(told.totals[HS_COUNT_HITS], counts.hits);
		assert_int_equal(told.totals[HS_COUNT_MISSES], counts.misses);
		assert_int_equal(told.totals[HS_COUNT_INPLACE], counts.inplace);
	}
	assert_true(counts.misses > 0);
	assert_int_equal(told.gaps, 0);
}

static void test_lists(void **state)
{
	struct told told = {0};
	int32_t entries[ROWS * (K + 5)], expected[ROWS * K], lengths[ROWS] = {K, 3, K + 9};
	struct hs_site site = rig_site(1);
	struct hs_list list;

	(void)state;
	rig_start(256, HS_POLICY_LRU, 3);
	ask(HS_JOURNAL_LISTS, 1);
	draw(entries, ROWS * (K + 5));
	entries[2] = -1;
	list = rig_list(entries, ROWS, K);
	list.outer_stride = K + 5;
	list.lengths = (CUdeviceptr)(uintptr_t)lengths;
	for (int i = 0; i < ROWS; i++)
		for (int n = 0; n < K; n++)
			expected[i * K + n] = n < lengths[i] ? entries[i * (K + 5) + n] : -1;
	assert_int_equal(rig_attend(&list, &site, 0, NULL), 0);
	rig_run();
	assert_int_equal(hs_journal_read(0, take, &told), 1);
	assert_int_equal(told.head.rows, ROWS);
	assert_int_equal(told.head.k, K);
	assert_int_equal(told.head.layer, hs_layer_id(rig.layer));
	assert_memory_equal(told.list, expected, sizeof(expected));
	assert_int_equal(rig.wrong, 0);
}

/* A layer that is not on tells its lists all the same. */
static void test_resident(void **state)
{
	struct told told = {0};
	int32_t entries[K];

	(void)state;
	rig_start(256, HS_POLICY_LRU, 3);
	rig.window.place = HS_PLACE_DEVICE;
	ask(HS_JOURNAL_LISTS | HS_JOURNAL_LAUNCHES, 1);
	assert_int_equal(rig_entry()->state, HS_ENTRY_OFF);
	draw(entries, K);
	attend(entries, 1, K);
	assert_int_equal(hs_journal_read(0, take, &told), 2);
	assert_int_equal(told.lists, 1);
	assert_memory_equal(told.list, entries, sizeof(entries));
	assert_int_equal(rig.hot, 0);
}

/* Where windows never leave the device nothing of it is ours, and its launches are as
 * they were, until somebody asks. */
static void test_device_only(void **state)
{
	struct told told = {0};
	int32_t entries[ROWS * K];
	const struct hs_list list = rig_list(entries, ROWS, K);
	struct hs_site site;
	CUdeviceptr remapped;

	(void)state;
	rig.options.place = HS_OPTION_DEVICE;
	rig_start(128, HS_POLICY_LRU, 3);
	rig.window.place = HS_PLACE_DEVICE;
	assert_null(hs_device_get(0));
	for (int graph = 0; graph < 2; graph++) {
		draw(entries, ROWS * K);
		site = graph ? rig_capture(0, 0) : rig_site(0);
		assert_int_equal(rig_attend(&list, &site, 0, &remapped), 0);
		assert_int_equal(remapped, list.indices);
		if (graph)
			rig_capture_end(&site);
	}
	rig_replay(0, 0);
	rig_run();
	assert_int_equal(rig.read, 2 * ROWS * K);
	ask(HS_JOURNAL_LAUNCHES | HS_JOURNAL_LISTS, 1);
	attend(entries, ROWS, K);
	assert_int_equal(hs_journal_read(0, take, &told), 2);
	assert_memory_equal(told.list, entries, sizeof(entries));
	assert_int_equal(rig.hot, 0);
	assert_int_equal(rig.wrong, 0);
}

static void test_every(void **state)
{
	struct told told = {0};
	int32_t entries[K];

	(void)state;
	rig_start(256, HS_POLICY_LRU, 0);
	ask(HS_JOURNAL_LISTS, 4);
	for (int i = 0; i < 12; i++) {
		draw(entries, K);
		attend(entries, 1, K);
	}
	hs_journal_read(0, take, &told);
	assert_int_equal(told.lists, 3);
	assert_int_equal(told.gaps, 0);
}

/* Records that nobody takes: the ring fills, the rest is left out and missed by
 * number; what was told is whole. */
static void test_full(void **state)
{
	struct told told = {0};
	int32_t entries[K];
	unsigned more = 0;

	(void)state;
	rig_start(256, HS_POLICY_LRU, 0);
	ask(HS_JOURNAL_LAUNCHES, 1);
	draw(entries, K);
	for (int i = 0; i < 12000; i++)
		attend(entries, 1, K);
	hs_journal_read(0, take, &told);
	assert_true(told.launches > 4096 && told.launches < 12000);
	assert_int_equal(told.gaps, 0);
	for (int i = 0; i < 100; i++)
		attend(entries, 1, K);
	more = told.launches;
	hs_journal_read(0, take, &told);
	assert_int_equal(told.launches - more, 100);
	assert_int_equal(told.gaps, 1);
	assert_int_equal(told.totals[HS_COUNT_LAUNCHES], 12100);
}

/* Misses of an LRU of `rows` rows in the file's trace. */
static uint64_t replayed(const struct hs_dsat *trace, uint64_t rows)
{
	struct hs_stream stream;
	struct hs_reuse reuse;
	uint64_t misses;

	assert_int_equal(hs_stream_init(&stream, trace, 0, HS_ALL_REQUESTS), 0);
	assert_int_equal(hs_reuse_init(&reuse, RIG_SLOTS), 0);
	assert_int_equal(hs_reuse_add(&reuse, &stream, 0, rows, NULL), 0);
	misses = hs_reuse_misses(&reuse, rows);
	hs_reuse_finish(&reuse);
	hs_stream_finish(&stream);
	return misses;
}

/* The hot rows that hold something are between all of them and all but the
 * free ones that wait for the next launch: so are the misses. The number of
 * rows of a launch changes. */
static void test_replay(void **state)
{
	char path[] = "hs-record-XXXXXX";
	struct told told = {0};
	struct hs_cache_counts counts;
	struct hs_dsat trace;
	int32_t entries[ROWS * K];
	uint32_t hot = 256;
	uint64_t most, least;

	(void)state;
	close(mkstemp(path));
	rig_start(hot, HS_POLICY_LRU, 7);
	ask(HS_JOURNAL_LISTS, 1);
	assert_int_equal(hs_record_create(&told.record, path), 0);
	for (int i = 0; i < 300; i++) {
		uint32_t rows = 1 + (uint32_t)rand() % ROWS;

		draw(entries, rows * K);
		if (i % 7 == 0)
			entries[rows * K - 1] = -1;
		attend(entries, rows, K);
		hs_journal_read(0, take, &told);
	}
	assert_int_equal(hs_record_close(told.record, 1), 0);
	rig_counts(&counts);
	assert_int_equal(hs_dsat_read(&trace, path), 0);
	unlink(path);
	assert_int_equal(trace.steps, 300);
	assert_int_equal(trace.layers, 1);
	assert_int_equal(trace.batch, 1);
	assert_true(trace.k > K && trace.k <= ROWS * K);
	assert_non_null(strstr(trace.note, "300 launches, 0 more"));
	least = replayed(&trace, hot);
	/* Up to a quarter of the rows is kept spare, and a bit more. Ties may be
	 * broken the other way. */
	most = replayed(&trace, hot - hot / 4 - hot / 16);
	most += most / 50;
	assert_in_range(counts.misses + counts.inplace, least - least / 50, most);
	assert_true(least > 1000 && most < 2 * least && counts.inplace < counts.misses / 100);
	hs_dsat_finish(&trace);
}

static void test_cut_short(void **state)
{
	char path[] = "hs-record-XXXXXX";
	int32_t list[10 + 2 * 3] = {0};
	struct hs_journal_head *head = (void *)list;
	struct hs_record *record;
	struct hs_dsat trace;

	(void)state;
	close(mkstemp(path));
	assert_int_equal(sizeof(*head), 40);
	*head = (struct hs_journal_head){16, HS_JOURNAL_LISTS, 0, 4, 0, 2, 3, 0, 0};
	memcpy(list + 10, (int32_t[]){5, -1, 7, 7, -1, -1}, 24);
	assert_int_equal(hs_record_create(&record, path), 0);
	for (unsigned i = 0; i < 3; i++) {
		head->number = 2 * i;
		assert_int_equal(hs_record_add(record, head), 0);
	}
	assert_int_equal(hs_record_close(record, 2), 0);
	assert_int_equal(hs_dsat_read(&trace, path), 0);
	assert_int_equal(trace.steps, 3);
	assert_int_equal(trace.k, 2);
	assert_memory_equal(trace.positions, ((int32_t[]){5, 7, 5, 7, 5, 7}), 24);
	assert_string_equal(trace.note, "recorded slots: 3 launches, 2 more found the ring full, "
					"every launch in 2 of a layer");
	hs_dsat_finish(&trace);
	assert_int_equal(truncate(path, 32 + 40 + 40 + 30), 0);
	assert_int_equal(hs_dsat_read(&trace, path), 0);
	assert_int_equal(trace.steps, 2);
	assert_string_equal(trace.note, "");
	hs_dsat_finish(&trace);
	assert_int_equal(truncate(path, 40), 0);
	assert_int_not_equal(hs_dsat_read(&trace, path), 0);
	unlink(path);
	assert_int_equal(hs_record_create(&record, "no/such/folder"), -2);
}

static void test_steps(void **state)
{
	static struct hs_step steps;
	static const struct {
		uint32_t lane, layer, step;
	} launches[] = {{1, 0, 1}, {1, 1, 1}, {1, 2, 1}, {1, 0, 2}, {1, 2, 2}, {2, 0, 3}, {2, 1, 3},
		{2, 2, 3}, {1, 0, 4}, {2, 0, 4}, {1, 1, 4}, {2, 1, 4}, {1, 0, 5}, {1, 5, 5},
		{1, 5, 6}, {1, 5, 7}, {1, 0, 8}};

	(void)state;
	for (size_t i = 0; i < sizeof(launches) / sizeof(launches[0]); i++)
		assert_int_equal(hs_step_next(&steps, launches[i].lane, launches[i].layer),
			launches[i].step);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_silent_until_asked),
		cmocka_unit_test(test_counts_of_launches),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_resident),
		cmocka_unit_test(test_device_only),
		cmocka_unit_test(test_every),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_replay),
		cmocka_unit_test(test_cut_short),
		cmocka_unit_test(test_steps),
	};

	return rig_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
