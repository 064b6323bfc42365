/* SPDX-License-Identifier: MIT */
/* The text and the file of HISPARSE_METRICS, and Prometheus's own word on it. */

#include "tests/unit/fake_metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "src/base/log.h"
#include "src/trace/file.h"

#define F(name, type, help) "# HELP hisparse_" name " " help "\n# TYPE hisparse_" name " " type "\n"
#define P(name, type, value, help) F(name, type, help) "hisparse_" name "{pid=\"42\"} " value "\n"
#define W(name, device, host, help)                                                                \
	F(name, "gauge", help)                                                                     \
	"hisparse_" name "{pid=\"42\",place=\"device\"} " device "\nhisparse_" name                \
	"{pid=\"42\",place=\"host\"} " host "\n"
#define L(name, type, first, second, help)                                                         \
	F("layer_" name, type, help)                                                               \
	"hisparse_layer_" name "{device=\"0\",layer=\"0\"} " first "\nhisparse_layer_" name        \
	"{device=\"1\",layer=\"7\"} " second "\n"

static const char golden[] = F("build_info", "gauge",
	"The library that counts here.") "hisparse_build_info{pid=\"42\",version=\"1.2.3\"} 1\n" W("windows",
	"1", "2", "Watched allocations, by where they live.") W("window_bytes", "3", "4",
	"Bytes of watched allocations, by where they live.") P("host_pool_bytes", "gauge", "5",
	"Pinned host memory that windows may take.") P("host_pool_used_bytes", "gauge", "6",
	"Pinned host memory that windows have taken.") P("reserve_bytes", "gauge", "7",
	"Device memory that is kept for hot rows, maps and lists.") P("reserve_used_bytes", "gauge",
	"8", "Device memory taken for hot rows, maps and lists.") P("attention_launches_total",
	"counter", "9",
	"Launches of attention kernels on a window; a captured one counts once.") P("attention_"
										    "remapped_"
										    "total",
	"counter", "10",
	"Of these, launches that read a remapped list.") P("attention_refused_total", "counter",
	"11",
	"Of these, launches that were left alone and read in place.") P("unknown_launches_total",
	"counter", "12",
	"Launches of kernels that no profile knows and that carry a window.") P("unknown_kernels",
	"gauge", "2",
	"Kernels that no profile knows and that were seen to carry a window.") P("verify_launches_"
										 "total",
	"counter", "13",
	"Attention launches issued or captured to be checked (HISPARSE_VERIFY).") P("verify_"
										    "skipped_total",
	"counter", "14",
	"Attention launches that were due to be checked and were not.") P("verify_rows_total",
	"counter", "15", "Output rows compared with those of the engine's own list.")
	P("verify_different_rows_total", "counter", "16", "Of these, rows that differ.") L(
		"hot_rows", "gauge", "4096", "0",
		"KV rows that the layer's hot buffer holds; 0 while it does not swap.") L("slots",
		"gauge", "70000", "0",
		"KV rows of the layer in its window.") L("launches_total", "counter", "20", "0",
		"Attention launches that were resolved, replays included.") L("hits_total",
		"counter", "3000", "18446744073709548615",
		"Selected rows that were on the device.") L("misses_total", "counter", "500", "0",
		"Selected rows that were fetched into the hot buffer.") L("fetched_bytes_total",
		"counter", "1099511627776", "0",
		"Bytes fetched into the hot buffer, or staged.") L("inplace_reads_total", "counter",
		"500", "0",
		"Selected rows that attention read from host memory, for want of a free row.")
		L("duplicates_total", "counter", "21", "0",
			"Further mentions of a row that the same launch fetched.")
			L("evictions_total", "counter", "22", "0", "Hot rows given up for others.")
				L("invalidated_total", "counter", "23", "0",
					"Hot rows dropped because their slot was written.")
					L("padding_total", "counter", "24", "0",
						"Entries of lists that select nothing.")
						L("staged_total", "counter", "25", "0",
							"Rows fetched for one launch alone, whose "
							"lists are long: a prefill's.");

static char folder[] = "hs-metrics-XXXXXX";
static char name[64];

static char *text_of(pid_t pid)
{
	static struct hs_metrics metrics;
	size_t length;
	char *text;

	hs_metrics_read(&metrics);
	metrics.pid = pid;
	assert_int_equal(hs_metrics_print(&metrics, &text, &length), 0);
	assert_int_equal(strlen(text), length);
	return text;
}

static void text_is_exact(void **state)
{
	char *text = text_of(42);

	(void)state;
	assert_string_equal(text, golden);
	free(text);
}

static void totals_are_sums(void **state)
{
	static struct hs_metrics metrics;

	(void)state;
	fake.cache[1] = (struct hs_cache_counts){1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
	hs_metrics_read(&metrics);
	assert_int_equal(metrics.layers, 2);
	assert_int_equal(metrics.total.launches, 21);
	assert_int_equal(metrics.total.hits, 3002);
	assert_int_equal(metrics.total.misses, 503);
	assert_int_equal(metrics.total.duplicates, 25);
	assert_int_equal(metrics.total.inplace, 505);
	assert_int_equal(metrics.total.evictions, 28);
	assert_int_equal(metrics.total.invalidated, 30);
	assert_int_equal(metrics.total.padding, 32);
	assert_int_equal(metrics.total.bytes, (UINT64_C(1) << 40) + 9);
	assert_int_equal(metrics.total.staged, 35);
	assert_true(hs_metrics_hit_rate(&fake.cache[0]) == 0.75);
	assert_true(hs_metrics_hit_rate(&(struct hs_cache_counts){0}) == 0);
}

/* promtool's exit status for a text. */
static int promtool(const char *text)
{
	FILE *pipe = popen("promtool check metrics 2>&1", "w");
	int status;

	assert_non_null(pipe);
	fputs(text, pipe);
	status = pclose(pipe);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void prometheus_agrees(void **state)
{
	char *text, *help;

	(void)state;
	fake_reset();
	text = text_of(42);
	assert_int_equal(promtool(text), 0);
	/* and it would say so if a HELP line were missing */
	help = strstr(text, "# HELP hisparse_layer_hits_total");
	memmove(help, strchr(help, '\n') + 1, strlen(strchr(help, '\n')));
	assert_int_not_equal(promtool(text), 0);
	free(text);
}

static char *slurp(const char *path)
{
	static char text[1 << 16];
	FILE *file = fopen(path, "r");
	size_t length;

	if (!file)
		return NULL;
	length = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[length] = '\0';
	return text;
}

static bool whole(const char *text)
{
	const char *last = strstr(text, "\nhisparse_layer_padding_total{device=\"1\"");

	return !strncmp(text, "# HELP hisparse_build_info", 26) && last &&
	       !strcmp(last + strlen(last) - 3, " 0\n");
}

static unsigned files(void)
{
	char command[128], line[16] = "";
	FILE *pipe;

	snprintf(command, sizeof(command), "ls -A %s | wc -l", folder);
	pipe = popen(command, "r");
	assert_non_null(fgets(line, sizeof(line), pipe));
	pclose(pipe);
	return (unsigned)atoi(line);
}

static int clear(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -f %s/*", folder);
	return system(command);
}

static atomic_bool done;

static void *reader(void *seen)
{
	while (!atomic_load(&done)) {
		const char *text = slurp(name);

		if (text && !whole(text)) {
			atomic_store(&done, true);
			return (void *)"torn";
		}
		atomic_fetch_add((_Atomic unsigned *)seen, text != NULL);
	}
	return NULL;
}

static void readers_see_whole_files(void **state)
{
	_Atomic unsigned seen = 0;
	pthread_t thread;
	void *torn;

	(void)state;
	atomic_store(&done, false);
	pthread_create(&thread, NULL, reader, &seen);
	for (unsigned i = 0; !atomic_load(&done) && (i < 200 || atomic_load(&seen) < 20); i++) {
		fake.cache[0].hits = i % 2 ? 1 : UINT64_MAX;
		assert_int_equal(hs_file_write(name), 0);
	}
	atomic_store(&done, true);
	pthread_join(thread, &torn);
	assert_null(torn);
	assert_int_equal(files(), 1); /* nothing is left beside it */
	assert_string_equal(fake.log, "");
}

/* Each case is a process of its own: the module remembers. */
static void in_child(void (*body)(void))
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		body();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
}
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			print_error("%s:%d: %s\n", __FILE__, __LINE__, #condition);                \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static bool written_by(const char *path, pid_t pid)
{
	char mark[64];
	const char *text = slurp(path);

	snprintf(mark, sizeof(mark), HS_METRICS_PID "%d\"", (int)pid);
	return text && whole(text) && strstr(text, mark);
}

static void put(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	fputs(text, file);
	fclose(file);
}

static void mark_is_replaced(void)
{
	char mark[80], path[80];

	snprintf(mark, sizeof(mark), "%s/a.%%p.prom", folder);
	snprintf(path, sizeof(path), "%s/a.%d.prom", folder, (int)getpid());
	CHECK(hs_file_write(mark) == 0);
	CHECK(written_by(path, getpid()));
	CHECK(files() == 1);
}

/* The file of the parent, who lives. */
static void taken_name_gets_the_process_id(void)
{
	const struct timespec fresh[] = {{.tv_sec = UINT32_MAX}, {.tv_sec = UINT32_MAX}};
	char path[80];

	snprintf(path, sizeof(path), "%s.%d", name, (int)getpid());
	CHECK(utimensat(AT_FDCWD, name, fresh, 0) == 0);
	CHECK(hs_file_write(name) == 0);
	CHECK(written_by(path, getpid()));
	CHECK(written_by(name, getppid()));
	CHECK(!strncmp(fake.log, "info: HISPARSE_METRICS=", 23));
	CHECK(strchr(fake.log, '\n') == fake.log + strlen(fake.log) - 1);
	CHECK(hs_file_write(name) == 0);
	CHECK(files() == 2);
}

static void stale_name_is_taken(void)
{
	const struct timespec old[] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

	CHECK(utimensat(AT_FDCWD, name, old, 0) == 0);
	CHECK(hs_file_write(name) == 0);
	CHECK(written_by(name, getpid()));
	CHECK(!*fake.log);
}

static void dead_name_is_taken(void)
{
	pid_t pid = fork();
	char *text;

	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	text = text_of(pid);
	put(name, text);
	free(text);
	CHECK(hs_file_write(name) == 0);
	CHECK(written_by(name, getpid()));
}

static void refused(const char *path, const char *line)
{
	for (int i = 0; i < 2; i++) {
		CHECK(hs_file_write(path) < 0);
		CHECK(!strcmp(fake.log, line)); /* said once */
	}
}

static void others_files_stay(void)
{
	char line[256];

	put(name, "root:x:0:0:\n");
	snprintf(line, sizeof(line),
		"warn: HISPARSE_METRICS: no metrics in %s (it holds something else)\n", name);
	refused(name, line);
	CHECK(!strcmp(slurp(name), "root:x:0:0:\n"));
	CHECK(files() == 1);
}

static void devices_stay(void)
{
	struct stat status;

	CHECK(mkfifo(name, 0600) == 0);
	CHECK(hs_file_write(name) == -EEXIST);
	CHECK(lstat(name, &status) == 0 && S_ISFIFO(status.st_mode));
}

static void no_such_folder(void)
{
	refused("hs-no-such-folder/x",
		"warn: HISPARSE_METRICS: no metrics in hs-no-such-folder/x (No such file or "
		"directory)\n");
}

static void empty_file_is_taken(void)
{
	put(name, "");
	CHECK(hs_file_write(name) == 0);
	CHECK(written_by(name, getpid()));
}

static void names_are_shared(void **state)
{
	(void)state;
	in_child(mark_is_replaced);
	clear();
	assert_int_equal(hs_file_write(name), 0);
	in_child(taken_name_gets_the_process_id);
	in_child(stale_name_is_taken);
	in_child(dead_name_is_taken);
}

static void files_of_others_stay(void **state)
{
	(void)state;
	in_child(others_files_stay);
	unlink(name);
	in_child(devices_stay);
	unlink(name);
	in_child(no_such_folder);
	in_child(empty_file_is_taken);
}

static int setup(void **state)
{
	(void)state;
	fake_reset();
	return clear();
}

/* --promtool: only that part, which needs a program. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(text_is_exact, setup),
		cmocka_unit_test_setup(totals_are_sums, setup),
		cmocka_unit_test_setup(readers_see_whole_files, setup),
		cmocka_unit_test_setup(names_are_shared, setup),
		cmocka_unit_test_setup(files_of_others_stay, setup),
	};
	const struct CMUnitTest prometheus[] = {
		cmocka_unit_test(prometheus_agrees),
	};
	int failed;

	if (argc > 1 && !strcmp(argv[1], "--promtool"))
		return system("command -v promtool >/dev/null")
			       ? 77
			       : cmocka_run_group_tests(prometheus, NULL, NULL);
	if (!mkdtemp(folder))
		return 1;
	snprintf(name, sizeof(name), "%s/x.prom", folder);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	clear();
	rmdir(folder);
	return failed;
}
