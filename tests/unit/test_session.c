/* SPDX-License-Identifier: MIT */
/* Traces that are started and stopped again in one process, on a device and a
 * CUPTI that do as the test says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "hooks/driver.h"
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/cache/cache.h"
#include "src/cache/journal.h"
#include "src/trace/control.h"
#include "src/trace/session.h"
#include "src/trace/timeline.h"
#include "tests/unit/fake_cupti.h"

#define AHEAD 123000000000ull /* fake_cupti.c's clock is, of ours */
#define BEHIND 7000000000ull  /* the device's clock is, of CUPTI's */
#define RUNS 20
#define RING 256u

struct hs_driver hs_driver;
__thread int hs_inside;

static __typeof__(fake_kernel) *run_kernel;
static struct fake_cupti *fake;
static char request[HS_CONTROL_BYTES], answer[HS_CONTROL_BYTES], path[64];
static char warning[256]; /* the last one */
static unsigned warnings;

/* The device. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned asked, told;
static bool idle;   /* nothing is launched at a stop */
static bool prompt; /* what is asked for becomes so at once */
static uint64_t since, base[HS_COUNTS], totals[HS_COUNTS];
static struct hs_journal_launch ring[RING];
static unsigned given;
static uint32_t number;

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void wait_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

const struct hs_options *hs_options(void)
{
	static const struct hs_options options = {.record_every = 1};

	return &options;
}

bool hs_log_on(enum hs_log_level level)
{
	return level <= HS_LOG_WARN;
}

void hs_log_write(enum hs_log_level level, const char *format, ...)
{
	va_list args;

	(void)level;
	va_start(args, format);
	vsnprintf(warning, sizeof(warning), format, args);
	va_end(args);
	warnings++;
}

void hs_layer_each(void (*visit)(struct hs_layer *layer, void *data), void *data)
{
	(void)visit;
	(void)data;
}

enum hs_trace_kind hs_timeline_kind(const char *name)
{
	if (!strcmp(name, "choose"))
		return HS_TRACE_TOPK;
	return strcmp(name, "hs_resolve") ? HS_TRACE_OTHER : HS_TRACE_SWAP_IN;
}

static void launch(void);

/* Our thread cannot look between these two. A launch comes right before a stop, and
 * one right behind it. */
bool hs_control_read(char text[HS_CONTROL_BYTES])
{
	strcpy(text, request);
	if (!strcmp(request, "stop") && !idle)
		launch();
	return *request;
}

void hs_control_answer(bool done, const char *text)
{
	if (!strcmp(request, "stop") && !idle)
		launch();
	*request = '\0';
	snprintf(answer, sizeof(answer), "%s %.*s", done ? "done" : "failed", PATH_MAX, text);
}

static CUresult CUDAAPI synchronize(void)
{
	return CUDA_SUCCESS;
}

static void settle(void)
{
	pthread_mutex_lock(&lock);
	if (told != asked) {
		memcpy(base, totals, sizeof(base));
		since = now();
	}
	told = asked;
	pthread_mutex_unlock(&lock);
}

void hs_journal_ask(unsigned what, uint32_t every)
{
	(void)every;
	asked = what;
	if (prompt)
		settle();
}

unsigned hs_journal_on(void)
{
	return told;
}

uint64_t hs_journal_since(void)
{
	return since;
}

const uint64_t *hs_journal_base(CUdevice device, uint32_t layer)
{
	(void)device;
	(void)layer;
	return base;
}

unsigned hs_journal_read(CUdevice device,
	void (*take)(CUdevice device, const struct hs_journal_head *record, void *data), void *data)
{
	static struct hs_journal_launch records[RING];
	unsigned n;

	if (device)
		return 0;
	pthread_mutex_lock(&lock);
	n = given;
	memcpy(records, ring, sizeof(ring));
	given = 0;
	pthread_mutex_unlock(&lock);
	for (unsigned i = 0; i < n; i++)
		take(0, &records[i].head, data);
	return n;
}

/* Of our kernel, 1,000 ns behind one that chose its positions: every one with another
 * number of misses, and its node is the same. */
static void launch(void)
{
	static uint64_t misses;
	const uint64_t start = now();
	uint64_t end;

	while ((end = now()) < start + 200000)
		;
	misses++;
	run_kernel(start + AHEAD, start + AHEAD + 1000, misses, "choose");
	run_kernel(start + AHEAD + 2000, end + AHEAD, misses, "hs_resolve");
	pthread_mutex_lock(&lock);
	totals[HS_COUNT_MISSES] += misses;
	if (told & HS_JOURNAL_LAUNCHES) {
		struct hs_journal_launch *record = &ring[given++];

		assert_true(given <= RING);
		*record = (struct hs_journal_launch){
			.head = {.what = HS_JOURNAL_LAUNCHES,
				.number = number++,
				.stamp = end - 1000 + AHEAD - BEHIND},
		};
		memcpy(record->totals, totals, sizeof(totals));
	}
	pthread_mutex_unlock(&lock);
}

static void launch_some(void)
{
	for (int i = 0; i < RUNS; i++) {
		launch();
		wait_ms(1);
	}
}

/* Looks for requests are 100 ms apart. `prompt` or not, the device follows
 * within these. */
static void ask(const char *what)
{
	const uint64_t until = now() + 10000000000u;

	snprintf(request, sizeof(request), "%s", what);
	*answer = '\0';
	while (!*answer && now() < until) {
		hs_session_settle();
		if (prompt)
			settle();
		wait_ms(10);
	}
	assert_memory_equal(answer, "done", 4);
}

static void start(void)
{
	char what[96];
	int fd;

	strcpy(path, "hs-session-XXXXXX.jsonl");
	fd = mkstemps(path, 6);
	assert_true(fd >= 0);
	close(fd);
	snprintf(what, sizeof(what), "start %s", path);
	ask(what);
	assert_non_null(strstr(answer, "with kernel times"));
}

/* What the trace that was stopped has in its file, up to its end. */
static const char *traced(void)
{
	static char text[1 << 18];
	const uint64_t until = now() + 10000000000u;
	FILE *file;

	do {
		wait_ms(5);
		file = fopen(path, "r");
		text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
		fclose(file);
	} while (!strstr(text, "\"type\":\"end\"") && now() < until);
	unlink(path);
	return text;
}

/* Its swap-ins, but for so many at first of which only the times are known. Each has
 * the times and the counts of one and the same launch. */
static unsigned swap_ins(unsigned unmatched)
{
	const char *text = traced(), *line;
	unsigned long long node, misses;
	char end_line[96];
	unsigned n = 0;

	snprintf(end_line, sizeof(end_line),
		"\"lost_kernels\":0,\"lost_launches\":0,\"unmatched\":%u}", unmatched);
	if (!strstr(text, end_line))
		fail_msg("%s", text);
	for (line = text; (line = strstr(line, "\"kind\":\"swap-in\"")); line++) {
		const char *at = strstr(line, "\"start\""), *end = strchr(line, '\n');

		if (!at || at > end || sscanf(strstr(at, "\"node\""), "\"node\":%llu", &node) != 1)
			fail_msg("no times in %.200s", line);
		if (unmatched) {
			unmatched--;
			continue;
		}
		at = strstr(at, "\"misses\"");
		if (!at || at > end || sscanf(at, "\"misses\":%llu", &misses) != 1)
			fail_msg("no counts in %.200s", line);
		assert_int_equal(node, misses);
		at = strstr(at, "\"topk_lead\":1000,\"topk_kernels\":0}");
		if (!at || at > end)
			fail_msg("no lead of 1,000 ns in %.300s", line);
		n++;
	}
	return n;
}

static int set_up(void **state)
{
	void *library;

	(void)state;
	hs_driver.cuCtxSynchronize = synchronize;
	/* The first request comes after the options were read. */
	hs_session_settle();
	library = dlopen("libcupti.so.13", RTLD_NOW);
	if (!library)
		return -1;
	fake = ((__typeof__(fake_cupti) *)dlsym(library, "fake_cupti"))();
	run_kernel = (__typeof__(fake_kernel) *)dlsym(library, "fake_kernel");
	return !run_kernel;
}

/* The device stops telling before our thread has looked at what it told. */
static void test_prompt(void **state)
{
	(void)state;
	prompt = true;
	for (int i = 0; i < 3; i++) {
		launch_some();
		start();
		launch_some();
		ask("stop");
		launch_some();
		assert_int_equal(swap_ins(0), RUNS + 1);
	}
}

/* It goes on telling for long: that is no part of any trace. */
static void test_late(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		prompt = true;
		start();
		launch_some();
		prompt = false;
		ask("stop");
		launch_some();
		assert_int_equal(swap_ins(0), RUNS + 1);
		launch_some();
		assert_int_equal(told, HS_JOURNAL_LAUNCHES);
	}
	prompt = true;
	settle();
}

/* A start waits for it. */
static void test_waits(void **state)
{
	(void)state;
	prompt = true;
	start();
	launch_some();
	prompt = false;
	ask("stop");
	assert_int_equal(swap_ins(0), RUNS + 1);
	launch_some();
	snprintf(request, sizeof(request), "start x.jsonl");
	*answer = '\0';
	for (int i = 0; i < 15; i++) {
		hs_session_settle();
		wait_ms(20);
	}
	assert_string_equal(answer, "");
	prompt = true;
	start();
	launch_some();
	ask("stop");
	assert_int_equal(swap_ins(0), RUNS + 1);
}

/* Kernels from before the device tells are not taken for those from after. */
static void test_early(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		prompt = false;
		start();
		launch_some();
		prompt = true;
		settle();
		launch_some();
		ask("stop");
		assert_int_equal(swap_ins(RUNS), RUNS + 1);
	}
}

/* A profiler lets us subscribe and gets the kernels' records: a trace too short to
 * find out while it runs says so at its end, once, and has the counts. */
static void test_mute(void **state)
{
	const char *line;
	unsigned n = 0;

	(void)state;
	prompt = true;
	assert_int_equal(warnings, 0);
	for (unsigned i = 1; i < 3; i++) {
		fake->mute = 1;
		start();
		launch_some();
		ask("stop");
		for (line = traced(); (line = strstr(line, "\"kind\":\"swap-in\"")); line++)
			n++;
		assert_int_equal(n, i * (RUNS + 1));
		assert_int_equal(warnings, i);
		assert_non_null(strstr(warning, path));
		assert_non_null(strstr(warning, "another profiler"));
		fake->mute = 0;
		start();
		launch_some();
		ask("stop");
		assert_int_equal(swap_ins(0), RUNS + 1);
		assert_int_equal(warnings, i);
	}
}

/* Without launches none is missed. */
static void test_idle(void **state)
{
	const unsigned before = warnings;

	(void)state;
	prompt = true;
	start();
	idle = true;
	ask("stop");
	idle = false;
	assert_int_equal(swap_ins(0), 0);
	assert_int_equal(warnings, before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prompt),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_early),
		cmocka_unit_test(test_mute),
		cmocka_unit_test(test_idle),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
