/* SPDX-License-Identifier: MIT */
/* hisparse top: what it reads, where it finds it, and the command itself. */

#include "tests/unit/fake_metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "src/trace/file.h"
#include "src/trace/listen.h"
#include "tools/hisparse/top.h"

static const char *command; /* the hisparse command */
static char folder[64] = "hs-top-XXXXXX", name[128];
static struct hs_top_sample sample;
static struct hs_top_source sources[HS_TOP_SOURCES];
static const char *why;

static void library_and_command_agree(void **state)
{
	static const uint64_t first[HS_TOP_COUNTERS] = {
		3000, 500, UINT64_C(1) << 40, 22, 500, 23, 25, 20};
	size_t length;
	char *text;

	(void)state;
	assert_int_equal(hs_metrics_text(&text, &length), 0);
	assert_int_equal(hs_top_parse(&sample, text), 0);
	free(text);
	assert_int_equal(sample.pid, getpid());
	assert_string_equal(sample.version, "1.2.3");
	assert_int_equal(sample.windows[0], 1);
	assert_int_equal(sample.windows[1], 2);
	assert_int_equal(sample.window_bytes[0], 3);
	assert_int_equal(sample.window_bytes[1], 4);
	assert_int_equal(sample.pool, 5);
	assert_int_equal(sample.pool_used, 6);
	assert_int_equal(sample.unknown_kernels, 2);
	assert_int_equal(sample.refused, 11);
	assert_int_equal(sample.verify_launches, 13);
	assert_int_equal(sample.verify_rows, 15);
	assert_int_equal(sample.verify_different, 16);
	assert_int_equal(sample.layers, 2);
	assert_int_equal(sample.layer[0].hot_rows, 4096);
	assert_memory_equal(sample.layer[0].counters, first, sizeof(first));
	assert_int_equal(sample.layer[1].device, 1);
	assert_int_equal(sample.layer[1].layer, 7);
	assert_int_equal(sample.layer[1].counters[HS_TOP_HITS], UINT64_MAX - 3000);
}

static void others_text_is_refused(void **state)
{
	static char many[HS_TOP_LAYERS * 64 + 4096];
	size_t used = 0;

	(void)state;
	assert_int_equal(hs_top_parse(&sample, ""), -EINVAL);
	assert_int_equal(hs_top_parse(&sample, "vllm:num_requests_running 3\n"), -EINVAL);
	assert_int_equal(hs_top_parse(&sample, "hisparse_layer_hits_total{device="), -EINVAL);
	for (unsigned i = 0; i < HS_TOP_LAYERS + 9; i++)
		used += (size_t)snprintf(many + used, sizeof(many) - used,
			"hisparse_layer_hits_total{device=\"0\",layer=\"%u\"} 1\n", i);
	assert_int_equal(hs_top_parse(&sample, many), -EINVAL);
	assert_int_equal(sample.layers, HS_TOP_LAYERS);
}

static void rates_are_differences(void **state)
{
	struct hs_top_layer before = {.counters = {100, 10, 1000, 5, 0, 7, 1}};
	struct hs_top_layer now = {.counters = {300, 20, 1000, 4, 6, 7, 2}};
	double rates[HS_TOP_COUNTERS];

	(void)state;
	hs_top_rates(rates, &before, &now, 2);
	assert_true(rates[HS_TOP_HITS] == 100 && rates[HS_TOP_MISSES] == 5);
	assert_true(rates[HS_TOP_BYTES] == 0 && rates[HS_TOP_INPLACE] == 3);
	assert_true(rates[HS_TOP_EVICTIONS] == 0); /* never below zero */
	hs_top_rates(rates, NULL, &now, 2);
	assert_true(rates[HS_TOP_HITS] == 0);
	hs_top_rates(rates, &before, &now, 0);
	assert_true(rates[HS_TOP_HITS] == 0);
	assert_true(hs_top_hit_rate(6, 1, 1) == 0.75);
	assert_true(hs_top_hit_rate(0, 0, 0) < 0);
}

/* A process in `folder` with one variable in its environment, that waits. In
 * a shell's child, which forgets its environment, with `below`. */
static pid_t start(const char *setting, bool below)
{
	int pipes[2];
	char ready;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (!pid) {
		char *env[] = {(char *)(uintptr_t)setting, NULL};
		/* Stopped, not replaced: during an exec there is no environment. */
		const char *program =
			below ? "(echo; exec env -i sleep 100) & wait" : "echo; kill -STOP $$";

		setpgid(0, 0);
		dup2(pipes[1], STDOUT_FILENO);
		close(pipes[0]);
		close(pipes[1]);
		if (!chdir(folder))
			execle("/bin/sh", "sh", "-c", program, (char *)NULL, env);
		_exit(1);
	}
	close(pipes[1]);
	assert_int_equal(read(pipes[0], &ready, 1), 1);
	close(pipes[0]);
	return pid;
}

static void stop(pid_t pid)
{
	kill(-pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static int find(pid_t pid)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", (int)pid);
	return hs_top_find(sources, number, &why);
}

static void touch(const char *format, int pid)
{
	char path[256];
	size_t length = (size_t)snprintf(path, sizeof(path), "%s/", folder);

	snprintf(path + length, sizeof(path) - length, format, pid);
	fclose(fopen(path, "w"));
}

static bool ends_with(const char *text, const char *end)
{
	return strlen(text) > strlen(end) && !strcmp(text + strlen(text) - strlen(end), end);
}

static void processes_are_found(void **state)
{
	char end[64];
	pid_t pid = start("HISPARSE_METRICS=a.%p.prom", false);

	(void)state;
	assert_int_equal(find(pid), -ENOENT);
	assert_non_null(strstr(why, "first window"));
	touch("a.%d.prom", pid);
	assert_int_equal(find(pid), 1);
	snprintf(end, sizeof(end), "/a.%d.prom", (int)pid);
	assert_true(ends_with(sources[0].path, end));
	assert_int_equal(sources[0].port, 0);
	stop(pid);

	pid = start("HISPARSE_METRICS=b", false);
	touch("b", 0);
	assert_int_equal(find(pid), 1);
	assert_true(ends_with(sources[0].path, "/cwd/b"));
	touch("b.%d", pid);
	assert_int_equal(find(pid), 2);
	stop(pid);

	pid = start("HISPARSE_METRICS=9400", false);
	assert_int_equal(find(pid), 1);
	assert_int_equal(sources[0].port, 9400);
	stop(pid);
}

static void workers_are_found(void **state)
{
	char line[32], list[128], end[64];
	pid_t child, pid = start("HISPARSE_METRICS=w.%p", true);
	FILE *file;

	(void)state;
	snprintf(list, sizeof(list), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	file = fopen(list, "r");
	if (!file || !fgets(line, sizeof(line), file))
		fail();
	fclose(file);
	child = atoi(line);
	touch("w.%d", child);
	assert_int_equal(find(pid), 1);
	snprintf(end, sizeof(end), "/w.%d", (int)child);
	assert_true(ends_with(sources[0].path, end));
	assert_int_equal(find(child), 1);
	assert_true(ends_with(sources[0].path, end));
	stop(pid);
}

static void numbers_may_be_ports(void **state)
{
	pid_t pid = start("OTHER=1", false);

	(void)state;
	/* This process has no such variable, nor have its ancestors. */
	assert_int_equal(find(pid), pid <= UINT16_MAX ? 1 : -ENOENT);
	assert_int_equal(hs_top_find(sources, "65536000", &why), -ENOENT);
	stop(pid);
	assert_int_equal(hs_top_find(sources, "0", &why), -ENOENT);
	assert_int_equal(hs_top_find(sources, "no/such/file", &why), -ENOENT);
}

static void ports_are_read(void **state)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	struct hs_top_source source = {0};
	int fd = socket(AF_INET, SOCK_STREAM, 0), status;
	pid_t pid;

	(void)state;
	assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	close(fd);
	source.port = ntohs(address.sin_port);
	assert_int_equal(hs_top_read(&sample, &source), -ECONNREFUSED);
	assert_int_equal(hs_listen_open(source.port), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		static struct hs_top_sample got;

		_exit(hs_top_read(&got, &source) || got.layer[0].counters[HS_TOP_HITS] != 3000);
	}
	while (!waitpid(pid, &status, WNOHANG))
		hs_listen_serve();
	assert_int_equal(status, 0);
}

static FILE *open_command(const char *arguments)
{
	char line[1024];
	FILE *pipe;

	snprintf(line, sizeof(line), "%s top %s", command, arguments);
	pipe = popen(line, "r");
	assert_non_null(pipe);
	return pipe;
}

static json_t *run(const char *arguments, int status)
{
	FILE *pipe = open_command(arguments);
	json_t *json = json_loadf(pipe, 0, NULL);

	assert_int_equal(WEXITSTATUS(pclose(pipe)), status);
	return json;
}

static double number(json_t *json, const char *part, const char *key)
{
	json_t *process = json_array_get(json_object_get(json, "processes"), 0);

	json = json_object_get(json_object_get(process, part), key);
	assert_true(json_is_number(json));
	return json_number_value(json);
}

/* Another process writes, as the library does, until it is killed: 40 hits and
 * 10 misses each time, none any more once there is a file "rest". */
static pid_t start_writer(void)
{
	const struct timespec pause = {.tv_nsec = 10000000};
	char rest[128];
	pid_t pid;

	fake.cache[1].hits = 0;
	snprintf(rest, sizeof(rest), "%s/rest", folder);
	pid = fork();
	while (!pid) {
		const bool busy = access(rest, F_OK);

		fake.cache[0].hits += busy ? 40 : 0;
		fake.cache[0].misses += busy ? 10 : 0;
		hs_file_write(name);
		nanosleep(&pause, NULL);
	}
	while (access(name, F_OK))
		nanosleep(&pause, NULL);
	return pid;
}

static void stop_writer(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void command_sees_rates(void **state)
{
	pid_t pid = start_writer();
	char arguments[256];
	double ratio;
	json_t *json;

	(void)state;
	snprintf(arguments, sizeof(arguments), "--once --delay 0.2 --json %s", name);
	json = run(arguments, 0);
	stop_writer(pid);
	assert_true(number(json, "total", "hits_per_second") > 0);
	ratio = number(json, "total", "hits_per_second") /
		number(json, "total", "misses_per_second");
	assert_true(ratio > 3.999 && ratio < 4.001); /* six digits are printed */
	assert_true(number(json, "total", "hit_rate") == 0.8);
	assert_true(number(json, "total", "hits") >= 3040);
	assert_true(number(json, "windows", "host") == 2);
	json_decref(json);
}

static void command_prints_a_table(void **state)
{
	char arguments[256], line[512], hits[32], misses[32], rate[32];
	pid_t pid = start_writer();
	unsigned lines = 0;
	FILE *pipe;

	(void)state;
	snprintf(arguments, sizeof(arguments), "--once --delay 0.2 %s", name);
	pipe = open_command(arguments);
	while (fgets(line, sizeof(line), pipe)) {
		assert_null(strstr(line, "found no hot row"));
		if (sscanf(line, " all 4,096 %31s %31s %31s", hits, misses, rate) != 3 &&
			sscanf(line, " 0 0 4,096 %31s %31s %31s", hits, misses, rate) != 3)
			continue;
		lines++;
		assert_string_not_equal(hits, "0");
		assert_string_not_equal(misses, "0");
		assert_string_equal(rate, "80.00");
	}
	assert_int_equal(pclose(pipe), 0);
	stop_writer(pid);
	assert_int_equal(lines, 2);
}

static void command_tells_of_few_hot_rows(void **state)
{
	char arguments[256], line[512];
	unsigned lines = 0;
	FILE *pipe;
	pid_t pid;

	(void)state;
	fake.cache[0].inplace = 1u << 30;
	pid = start_writer();
	snprintf(arguments, sizeof(arguments), "--once --delay 0.2 %s", name);
	pipe = open_command(arguments);
	while (fgets(line, sizeof(line), pipe))
		lines += strstr(line, "100 % of the selected rows found no hot row") != NULL;
	assert_int_equal(pclose(pipe), 0);
	stop_writer(pid);
	assert_int_equal(lines, 1);
}

/* Look after look, until the process is gone. */
static void command_follows(void **state)
{
	pid_t pid = start_writer();
	char arguments[256];
	unsigned looks = 0;
	double rate = 1;
	json_t *json;
	FILE *pipe;

	(void)state;
	snprintf(arguments, sizeof(arguments), "--delay 0.1 --json %s", name);
	pipe = open_command(arguments);
	for (; rate > 0 && looks < 40; looks++) {
		json = json_loadf(pipe, JSON_DISABLE_EOF_CHECK, NULL);
		rate = number(json, "total", "hits_per_second");
		json_decref(json);
		if (looks == 2)
			touch("rest", 0);
	}
	assert_true(looks > 3);
	assert_true(rate == 0); /* of now, not since it began */
	stop_writer(pid);
	while ((json = json_loadf(pipe, JSON_DISABLE_EOF_CHECK, NULL)))
		json_decref(json);
	assert_int_equal(pclose(pipe), 0);
}

static void command_shows_what_is_left(void **state)
{
	char arguments[256];
	json_t *json;

	(void)state;
	fake.cache[1].hits = 0;
	assert_int_equal(hs_file_write(name), 0);
	snprintf(arguments, sizeof(arguments), "--delay 0.2 --once --json %s", name);
	json = run(arguments, 0);
	assert_true(number(json, "total", "hits_per_second") == 0);
	assert_true(number(json, "total", "hits") == 3000);
	assert_true(number(json, "total", "hit_rate_since_start") == 0.75);
	json_decref(json);
	json_decref(run("2>/dev/null", 2));
	json_decref(run("--delay=0 1 2>/dev/null", 2));
	json_decref(run("/dev/null 2>/dev/null", 1));
	json_decref(run("no/such/file 2>/dev/null", 1));
}

static int clear(void **state)
{
	char line[128];

	(void)state;
	fake_reset();
	snprintf(line, sizeof(line), "rm -f %s/*", folder);
	return system(line);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(library_and_command_agree, clear),
		cmocka_unit_test_setup(others_text_is_refused, clear),
		cmocka_unit_test_setup(rates_are_differences, clear),
		cmocka_unit_test_setup(processes_are_found, clear),
		cmocka_unit_test_setup(workers_are_found, clear),
		cmocka_unit_test_setup(numbers_may_be_ports, clear),
		cmocka_unit_test_setup(ports_are_read, clear),
		cmocka_unit_test_setup(command_sees_rates, clear),
		cmocka_unit_test_setup(command_prints_a_table, clear),
		cmocka_unit_test_setup(command_tells_of_few_hot_rows, clear),
		cmocka_unit_test_setup(command_follows, clear),
		cmocka_unit_test_setup(command_shows_what_is_left, clear),
	};
	int failed;

	if (argc != 2 || !mkdtemp(folder))
		return 1;
	command = argv[1];
	snprintf(name, sizeof(name), "%s/x.prom", folder);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	clear(NULL);
	rmdir(folder);
	return failed;
}
