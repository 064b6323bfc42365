/* SPDX-License-Identifier: MIT */
/* Launches and kernels joined, and what the exports say. With an argument:
 * writes a trace to that file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "src/trace/timeline.h"

#define BEHIND 5000000000ull /* the device's clock is, of CUPTI's */

/* The same pointer for a name, as CUPTI's side gives them. */
static const char resolve[] = "hs_resolve", attend[] = "attend", store[] = "store",
		  drop[] = "hs_invalidate", merge[] = "merge", other[] = "other",
		  choose[] = "choose", convert[] = "convert", plan[] = "plan";

static char path[64];
static struct hs_timeline *timeline;
static struct hs_export *export;
static struct hs_cupti_kernel kernels[512];
static size_t count;
static uint32_t number;
static uint64_t totals[HS_LAYERS][HS_COUNTS];

static void begin(const char *end, bool timed)
{
	const struct hs_trace_head head = {.pid = 42,
		.version = "1.2.3",
		.clock = timed ? "cupti" : "device",
		.why = timed ? NULL : "a \"reason\""};
	int fd;

	snprintf(path, sizeof(path), "hs-trace-XXXXXX%s", end);
	fd = mkstemps(path, (int)strlen(end));
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(hs_export_create(&export, path, &head), 0);
	timeline = hs_timeline_create(export, timed);
	assert_non_null(timeline);
	count = 0;
	number = 0;
	memset(totals, 0, sizeof(totals));
}

static char *end(void)
{
	static char text[1 << 18];
	struct hs_trace_tail tail;
	FILE *file;
	size_t n;

	hs_timeline_run(timeline, UINT64_MAX);
	hs_timeline_tail(timeline, &tail);
	assert_int_equal(hs_export_close(export, &tail), 0);
	hs_timeline_destroy(timeline);
	file = fopen(path, "r");
	n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = '\0';
	fclose(file);
	unlink(path);
	return text;
}

static void launch(uint32_t layer, uint32_t lane, uint64_t stamp, uint64_t misses)
{
	struct hs_journal_launch told = {.head = {.what = HS_JOURNAL_LAUNCHES,
						 .number = number++,
						 .layer = layer,
						 .lane = lane,
						 .stamp = stamp - BEHIND}};

	totals[layer][HS_COUNT_HITS] += 100 - misses;
	totals[layer][HS_COUNT_MISSES] += misses;
	memcpy(told.totals, totals[layer], sizeof(told.totals));
	hs_timeline_launch(timeline, 0, &told, 656, NULL);
}

static void kernel(const char *name, uint64_t start, uint64_t stop, uint64_t node)
{
	kernels[count++] = (struct hs_cupti_kernel){start, stop, name, node, node ? 9 : 0, 0, 7};
}

static void hand_over(void)
{
	hs_timeline_kernels(timeline, kernels, count);
	count = 0;
}

/* A step of two layers from t on: something, top-k, the writer, its invalidation,
 * the swap-in 1,000 ns, attention 200. */
static void step(uint64_t t, uint64_t misses)
{
	for (uint32_t layer = 0; layer < 2; layer++, t += 10000) {
		kernel(merge, t + 3600, t + 3700, 6);
		kernel(attend, t + 3300, t + 3500, 5);
		kernel(other, t, t + 1000, 1);
		kernel(choose, t + 1020, t + 1080, 7);
		kernel(store, t + 1100, t + 1200, 2);
		kernel(drop, t + 1300, t + 1400, 3);
		kernel(resolve, t + 2000, t + 3000, 4);
		launch(layer, 1, t + 2900, misses + layer);
	}
}

static unsigned find(const char *text, const char *what)
{
	unsigned n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

static void assert_line(const char *text, const char *line)
{
	if (!strstr(text, line))
		fail_msg("no %s in\n%s", line, text);
}

static void test_lines(void **state)
{
	const char *text;

	(void)state;
	begin(".jsonl", true);
	step(9000000000ull, 10);
	step(9000100000ull, 20);
	hand_over();
	text = end();
	assert_line(
		text, "{\"type\":\"head\",\"version\":\"1.2.3\",\"pid\":42,\"clock\":\"cupti\"}\n");
	assert_line(text,
		"{\"type\":\"kernel\",\"kind\":\"swap-in\",\"device\":0,\"name\":\"hs_resolve\","
		"\"stream\":7,\"start\":9000012000,\"end\":9000013000,\"layer\":1,\"step\":1,"
		"\"graph\":9,\"node\":4,\"hits\":89,\"misses\":11,\"inplace\":0,\"bytes\":7216,"
		"\"topk_lead\":920,\"topk_kernels\":2}\n");
	/* From the end of the invalidation to attention: 1,900 ns. */
	assert_line(text,
		"{\"type\":\"kernel\",\"kind\":\"attention\",\"device\":0,\"name\":\"attend\","
		"\"stream\":7,\"start\":9000103300,\"end\":9000103500,\"layer\":0,\"step\":2,"
		"\"graph\":9,\"node\":5,\"stall\":1900}\n");
	assert_line(text,
		"{\"type\":\"kernel\",\"kind\":\"writer\",\"device\":0,\"name\":\"store\","
		"\"stream\":7,\"start\":9000111100,\"end\":9000111200,\"layer\":1,\"step\":2,"
		"\"graph\":9,\"node\":2}\n");
	assert_line(text,
		"{\"type\":\"step\",\"start\":9000002000,\"end\":9000013500,\"step\":1,\"device\":"
		"0,"
		"\"launches\":2,\"swap_in\":2000,\"attention\":400,\"stall\":3800,"
		"\"topk_lead\":1840,\"topk_hides\":1840,\"list_lead\":0,\"list_hides\":0,\"hits\":"
		"179,"
		"\"misses\":21,\"inplace\":0,\"bytes\":13776}\n");
	assert_line(text, "\"step\":2,\"device\":0,\"launches\":2");
	assert_line(text, "{\"type\":\"end\",\"lost_kernels\":0,\"lost_launches\":0,"
			  "\"unmatched\":0}\n");
	assert_line(text, "\"start\":9000113600,\"end\":9000113700,\"layer\":1,\"step\":2,"
			  "\"graph\":9,\"node\":6}\n");
	assert_int_equal(find(text, "\"kind\":\"combine\""), 4);
	assert_line(text,
		"{\"type\":\"kernel\",\"kind\":\"topk\",\"device\":0,\"name\":\"choose\","
		"\"stream\":7,\"start\":9000111020,\"end\":9000111080,\"layer\":1,\"step\":2,"
		"\"graph\":9,\"node\":7}\n");
	assert_int_equal(find(text, "\"type\":\"kernel\""), 24);
	assert_null(strstr(text, "\"other\""));
}

/* A long list: four kernels before attention, of which the last tells. */
static void test_staged(void **state)
{
	static const char mark[] = "hs_many_mark", rank[] = "hs_many_rank",
			  gather[] = "hs_many_gather", remap[] = "hs_many_remap";
	const uint64_t t = 9000000000ull;
	const char *text;

	(void)state;
	begin(".jsonl", true);
	kernel(convert, t - 100, t - 60, 0);
	kernel(other, t, t + 100, 0);
	kernel(mark, t + 200, t + 300, 0);
	kernel(rank, t + 300, t + 310, 0);
	kernel(gather, t + 320, t + 1320, 0);
	kernel(remap, t + 1400, t + 1600, 0);
	totals[3][HS_COUNT_STAGED] += 7;
	launch(3, 1, t + 1590, 2);
	kernel(attend, t + 1700, t + 1900, 0);
	hand_over();
	text = end();
	assert_line(text,
		"{\"type\":\"kernel\",\"kind\":\"stage\",\"device\":0,\"name\":\"hs_many_gather\","
		"\"stream\":7,\"start\":9000000320,\"end\":9000001320,\"layer\":3,\"step\":1");
	/* A list that stood 260 ns before what stages, one kernel in between. */
	assert_line(text, "\"layer\":3,\"step\":1,\"hits\":98,\"misses\":2,\"inplace\":0,"
			  "\"bytes\":5904,\"topk_lead\":260,\"topk_kernels\":1,"
			  "\"list_lead\":260,\"list_kernels\":1}\n");
	/* From the end of the other kernel to attention; 100 + 10 + 1000 + 200. */
	assert_line(text, "\"layer\":3,\"step\":1,\"stall\":1600}\n");
	assert_line(text, "\"swap_in\":1310,\"attention\":200,\"stall\":1600,"
			  "\"topk_lead\":260,\"topk_hides\":260,\"list_lead\":260,");
	assert_int_equal(find(text, "\"kind\":\"stage\""), 3);
	assert_line(text, "\"unmatched\":0}");
}

/* What is known of a swap-in of layer `layer` at t + 5,000 to t + 6,000. */
static void swap(uint64_t t, uint32_t layer)
{
	kernel(resolve, t + 5000, t + 6000, 0);
	launch(layer, 1, t + 5900, 1);
	kernel(attend, t + 6100, t + 6200, 0);
}

/* Positions, then the list of slots; a layer with the list of the one before; a
 * kernel that makes both, on another stream; a step that has none of its own. */
static void test_lead(void **state)
{
	const uint64_t t = 9000000000ull;
	const char *text;

	(void)state;
	begin(".jsonl", true);
	kernel(choose, t, t + 1000, 0);
	kernel(store, t + 1100, t + 1200, 0);
	kernel(convert, t + 4000, t + 4800, 0);
	kernel(plan, t + 4810, t + 4900, 0);
	swap(t, 0);
	kernel(other, t + 10000, t + 10100, 0);
	swap(t + 10000, 1);
	kernel(convert, t + 21000, t + 24000, 0);
	kernels[count - 1].stream = 8;
	kernel(other, t + 23500, t + 24500, 0);
	swap(t + 20000, 2);
	swap(t + 30000, 0);
	kernel(choose, t + 40000, t + 41000, 0);
	kernel(choose, t + 42000, t + 44000, 0);
	swap(t + 40000, 1);
	hand_over();
	text = end();
	assert_line(text, "\"layer\":0,\"step\":1,\"hits\":99,\"misses\":1,\"inplace\":0,"
			  "\"bytes\":656,\"topk_lead\":4000,\"topk_kernels\":3,"
			  "\"list_lead\":200,\"list_kernels\":1}\n");
	assert_line(text, "\"layer\":1,\"step\":1,\"hits\":99,\"misses\":1,\"inplace\":0,"
			  "\"bytes\":656,\"topk_lead\":14000,\"topk_kernels\":6,"
			  "\"list_lead\":10200,\"list_kernels\":4}\n");
	assert_line(text, "\"layer\":2,\"step\":1,\"hits\":99,\"misses\":1,\"inplace\":0,"
			  "\"bytes\":656,\"topk_lead\":1000,\"topk_kernels\":1,"
			  "\"list_lead\":1000,\"list_kernels\":1}\n");
	/* A fetch of 1,000 ns: 1,000 + 1,000 + 1,000 and 200 + 1,000 + 1,000. */
	assert_line(text, "\"topk_lead\":19000,\"topk_hides\":3000,\"list_lead\":11400,"
			  "\"list_hides\":2200,");
	assert_line(text, "\"layer\":0,\"step\":2,\"hits\":99,\"misses\":1,\"inplace\":0,"
			  "\"bytes\":656}\n");
	assert_line(text, "\"layer\":1,\"step\":2,\"hits\":99,\"misses\":1,\"inplace\":0,"
			  "\"bytes\":656,\"topk_lead\":1000,\"topk_kernels\":0}\n");
	assert_int_equal(find(text, "\"kind\":\"list\""), 2);
	assert_null(strstr(text, "plan"));
}

/* Kernels that CUPTI lost and launches that found the ring full: the others
 * keep their own counts. */
static void test_lost(void **state)
{
	const char *text;

	(void)state;
	begin(".jsonl", true);
	for (uint32_t i = 0; i < 20; i++) {
		uint64_t t = 9000000000ull + i * 1000000;

		if (i < 5 || i > 8)
			kernel(resolve, t, t + 1000, 0);
		if (i == 12 || i == 13)
			number++, totals[0][HS_COUNT_MISSES] += i;
		else
			launch(0, 1, t + 700, i);
	}
	hand_over();
	text = end();
	for (uint32_t i = 0; i < 20; i++) {
		char line[160];

		snprintf(line, sizeof(line), "\"end\":%llu,\"layer\":0,\"step\":%u,\"hits\":%u,",
			9000001000ull + i * 1000000, i < 12 ? i + 1 : i - 1, 100 - i);
		/* The first launch behind a gap brings the gap's counts along. */
		if ((i < 5 || i > 8) && i != 12 && i != 13)
			assert_line(text, line);
	}
	assert_line(text, "\"lost_kernels\":0,\"lost_launches\":2,\"unmatched\":2}");
	assert_int_equal(find(text, "hs_resolve"), 16);
	assert_int_equal(find(text, "\"kind\":\"swap-in\""), 20);
}

/* Two clocks that part steadily, either way, and after a pause. */
static void test_drift(void **state)
{
	const char *text;

	(void)state;
	for (int way = -1; way <= 1; way += 2) {
		begin(".jsonl", true);
		for (uint32_t i = 0; i < 400; i++) {
			/* 100 us a second; a second passes at 200. */
			uint64_t t = 9000000000ull + i * 1000000 + (i < 200 ? 0 : 1000000000);

			kernel(resolve, t, t + 5000, 0);
			launch(0, 1,
				t + 2500 + (uint64_t)(way * (int64_t)(t - 9000000000ull) / 10000),
				i % 50);
		}
		hand_over();
		text = end();
		assert_line(text, "\"lost_kernels\":0,\"lost_launches\":0,\"unmatched\":0}");
		assert_int_equal(find(text, "hs_resolve"), 400);
	}
}

/* CUPTI's clock is set anew: by less than what is between two launches, either
 * way, also just before a kernel or a launch is missing. */
static void test_jump(void **state)
{
	const char *text;

	(void)state;
	for (int way = -1; way <= 1; way += 2) {
		begin(".jsonl", true);
		for (uint32_t i = 0; i < 40; i++) {
			uint64_t t = 9000000000ull + i * 100000;
			uint64_t jump = (uint64_t)(way * (i < 10 ? 0 : i < 25 ? 40000 : 75000));

			if (i != 15)
				kernel(resolve, t + jump, t + jump + 3000, 0);
			launch(0, 1, t + 1500, i);
		}
		hand_over();
		text = end();
		for (uint32_t i = 0; i < 40; i++) {
			uint64_t t = 9000000000ull + i * 100000;
			uint64_t jump = (uint64_t)(way * (i < 10 ? 0 : i < 25 ? 40000 : 75000));
			char line[160];

			snprintf(line, sizeof(line),
				"\"end\":%llu,\"layer\":0,\"step\":%u,\"hits\":%u,",
				(unsigned long long)(t + jump + 3000), i + 1, 100 - i);
			if (i != 15)
				assert_line(text, line);
		}
		assert_line(text, "\"lost_kernels\":0,\"lost_launches\":0,\"unmatched\":0}");
		assert_int_equal(find(text, "hs_resolve"), 39);
	}
}

/* Another profiler took the kernels: launches are told by themselves. */
static void test_untimed(void **state)
{
	const char *text;

	(void)state;
	begin(".jsonl", true);
	step(9000000000ull, 10);
	launch(0, 1, 9000100000ull, 3);
	hand_over();
	hs_timeline_untimed(timeline);
	launch(1, 1, 9000200000ull, 4);
	launch(0, 1, 9000300000ull, 5);
	text = end();
	assert_int_equal(find(text, "\"kind\":\"swap-in\""), 5);
	assert_int_equal(find(text, "hs_resolve"), 2);
	assert_line(text, "\"layer\":0,\"step\":3,\"hits\":95,\"misses\":5");
	assert_line(text, "\"unmatched\":0}");
}

/* Kernels from before the device told anything. */
static void test_since(void **state)
{
	const char *text;

	(void)state;
	begin(".jsonl", true);
	for (uint32_t i = 0; i < 5; i++)
		kernel(resolve, 9000000000ull + i * 100000, 9000001000ull + i * 100000, 0);
	hs_timeline_since(timeline, 9000000000ull + 290000);
	launch(3, 1, 9000300900ull, 33);
	launch(4, 1, 9000400900ull, 44);
	launch(5, 1, 9000501200ull, 55);
	hand_over();
	text = end();
	assert_line(text, "\"end\":9000301000,\"layer\":3,\"step\":1,\"hits\":67");
	assert_line(text, "\"end\":9000401000,\"layer\":4,\"step\":1,\"hits\":56");
	/* Its kernel never came. */
	assert_line(text, "\"device\":0,\"end\":9000500800,\"layer\":5,\"step\":1,");
	assert_line(text, "\"unmatched\":3}");
}

/* Kernels are told once nothing earlier can come. */
static void test_order(void **state)
{
	(void)state;
	begin(".jsonl", true);
	kernel(resolve, 9000010000ull, 9000011000ull, 0);
	hand_over();
	hs_timeline_run(timeline, 9000005000ull);
	kernel(resolve, 9000000000ull, 9000001000ull, 0);
	hand_over();
	launch(0, 1, 9000000500ull, 1);
	launch(1, 1, 9000010500ull, 2);
	assert_int_equal(hs_timeline_latest(timeline), 9000011000ull);
	assert_line(end(), "\"unmatched\":0}");
}

static void test_no_times(void **state)
{
	const char *text;

	(void)state;
	begin(".jsonl", false);
	launch(0, 1, 9000000500ull, 7);
	launch(1, 1, 9000000600ull, 8);
	launch(0, 1, 9000000700ull, 9);
	text = end();
	assert_line(text, "\"clock\":\"device\",\"why\":\"a \\\"reason\\\"\"}\n");
	assert_line(text, "{\"type\":\"kernel\",\"kind\":\"swap-in\",\"device\":0,"
			  "\"end\":4000000700,\"layer\":0,\"step\":2,\"hits\":91,\"misses\":9,"
			  "\"inplace\":0,\"bytes\":5904}\n");
	assert_int_equal(find(text, "\"type\":\"step\""), 2);
}

static void test_chrome(void **state)
{
	const char *text;

	(void)state;
	begin(".json", true);
	step(9000000000ull, 10);
	hand_over();
	text = end();
	assert_line(text, "{\"name\":\"attention\",\"ph\":\"X\",\"pid\":0,\"ts\":9000003.300,"
			  "\"dur\":0.200,\"tid\":7,\"args\":{\"kernel\":\"attend\",\"layer\":0,");
	assert_line(text, "{\"name\":\"step 1\"");
	assert_int_equal(text[strlen(text) - 2], '}');
}

static void test_names(void **state)
{
	const struct hs_trace_head head = {.version = "", .clock = ""};

	(void)state;
	assert_true(hs_export_knows("a.b/c.jsonl") && hs_export_knows("x.pftrace"));
	assert_false(hs_export_knows("trace") || hs_export_knows("x.jsonl.gz"));
	assert_int_equal(hs_export_create(&export, "x.txt", &head), -22);
	assert_int_equal(hs_export_create(&export, "no/such/x.json", &head), -2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_staged),
		cmocka_unit_test(test_lead),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_drift),
		cmocka_unit_test(test_jump),
		cmocka_unit_test(test_untimed),
		cmocka_unit_test(test_since),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_no_times),
		cmocka_unit_test(test_chrome),
		cmocka_unit_test(test_names),
	};

	if (argc > 1) {
		begin(strrchr(argv[1], '.'), true);
		step(9000000000ull, 10);
		step(9000100000ull, 20);
		hand_over();
		hs_timeline_run(timeline, UINT64_MAX);
		hs_export_close(export, &(struct hs_trace_tail){0});
		hs_timeline_destroy(timeline);
		return rename(path, argv[1]) != 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
