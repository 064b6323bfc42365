/* SPDX-License-Identifier: MIT */
/* The port of HISPARSE_METRICS, the thread behind it, and the end of a process. */

#include "tests/unit/fake_metrics.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "src/base/log.h"
#include "src/trace/listen.h"
#include "src/trace/trace.h"

static char name[64] = "hs-live-XXXXXX";

/* A bound socket of ours; *port is a free one. */
static int take_port(uint16_t *port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	*port = ntohs(address.sin_port);
	return fd;
}

static int dial(uint16_t port, uint32_t host)
{
	const struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(host)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!connect(fd, (const struct sockaddr *)&address, sizeof(address)))
		return fd;
	close(fd);
	return -1;
}

/* What the listener answers to a request whose sender then closes its side. */
static const char *ask(uint16_t port, const char *request)
{
	static char text[1 << 16];
	size_t used = 0;
	ssize_t n;
	int fd = dial(port, INADDR_LOOPBACK);

	assert_true(fd >= 0);
	if (send(fd, request, strlen(request), MSG_NOSIGNAL) >= 0)
		shutdown(fd, SHUT_WR);
	while ((n = recv(fd, text + used, sizeof(text) - 1 - used, 0)) > 0)
		used += (size_t)n;
	close(fd);
	text[used] = '\0';
	return text;
}

static void answers(uint16_t port, const char *request, const char *status)
{
	const char *text = ask(port, request);

	if (strncmp(text, "HTTP/1.0 ", 9) || strncmp(text + 9, status, strlen(status)))
		fail_msg("%s got %s", request, text);
	assert_null(strstr(text, "hisparse_"));
}

static void *serve(void *stop)
{
	while (!atomic_load((atomic_bool *)stop))
		hs_listen_serve();
	return NULL;
}

static void port_answers_http(void **state)
{
	static char long_request[20000];
	atomic_bool stop = false;
	pthread_t thread;
	uint16_t port;
	size_t length;
	const char *got;
	char *text;

	(void)state;
	close(take_port(&port));
	assert_int_equal(hs_listen_open(port), 0);
	assert_int_equal(dial(port, INADDR_LOOPBACK + 1), -1); /* 127.0.0.2 */
	pthread_create(&thread, NULL, serve, &stop);
	answers(port, "GET /other HTTP/1.1\r\n\r\n", "404");
	answers(port, "GET /metricsx HTTP/1.1\r\n\r\n", "404");
	answers(port, "POST /metrics HTTP/1.0\r\n\r\n", "405");
	answers(port, "GET /metrics\r\n\r\n", "400");
	answers(port, "\x16\x03\x01 not a word of HTTP\r\n\r\n", "400");
	answers(port, "GET /metrics HTTP/1.0\r\n", "400"); /* and no more */
	answers(port, "", "400");
	memset(long_request, 'a', sizeof(long_request) - 1);
	ask(port, long_request); /* any answer, or none */
	got = ask(port, "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
	hs_metrics_text(&text, &length);
	assert_int_equal(strncmp(got, "HTTP/1.0 200 OK\r\n", 17), 0);
	assert_non_null(strstr(got, "Content-Type: text/plain; version=0.0.4"));
	assert_string_equal(strstr(got, "\r\n\r\n") + 4, text);
	free(text);
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	assert_string_equal(fake.log, "");
	assert_int_equal(hs_listen_open(port), -EADDRINUSE); /* also by one of us */
}

static void taken_port_is_said(void **state)
{
	uint16_t port;
	char line[256];
	int fd = take_port(&port);

	(void)state;
	assert_int_equal(hs_listen_open(port), -EADDRINUSE);
	snprintf(line, sizeof(line),
		"warn: HISPARSE_METRICS=%u: no metrics on this port (Address already in use); a "
		"file name with %%p gives every process its own\n",
		port);
	assert_string_equal(fake.log, line);
	assert_int_equal(
		dial((uint16_t)(port + 1), INADDR_LOOPBACK), -1); /* the next one is not tried */
	close(fd);
}

static unsigned sockets(void)
{
	char path[300], to[64];
	struct dirent *entry;
	unsigned count = 0;
	DIR *folder = opendir("/proc/self/fd");

	while ((entry = readdir(folder))) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		n = readlink(path, to, sizeof(to));
		count += n > 7 && !strncmp(to, "socket:", 7);
	}
	closedir(folder);
	return count;
}

static void child_has_no_socket(void **state)
{
	unsigned before = sockets();
	uint16_t port;
	int status;
	pid_t pid;

	(void)state;
	close(take_port(&port));
	assert_int_equal(hs_listen_open(port), 0);
	assert_int_equal(sockets(), before + 1);
	pid = fork();
	if (!pid)
		_exit((int)sockets());
	waitpid(pid, &status, 0);
	/* the listener of the test before is gone in the child as well */
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) < (int)before + 1);
}

/* Runs body in a child that ends with exit(3), destructors and all. Returns
 * what it logged. */
static const char *life(void (*body)(void))
{
	static char text[8192];
	size_t used = 0;
	int pipes[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (!pid) {
		close(pipes[0]);
		fake.log_fd = pipes[1];
		body();
		exit(0);
	}
	close(pipes[1]);
	while ((n = read(pipes[0], text + used, sizeof(text) - 1 - used)) > 0)
		used += (size_t)n;
	text[used] = '\0';
	close(pipes[0]);
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	return text;
}
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			print_error("%s:%d: %s\n", __FILE__, __LINE__, #condition);                \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static void settle(void)
{
	hs_trace_settle();
	hs_trace_settle();
}

static void nothing(void)
{
}

#define SUMMARY                                                                                    \
	"info: cache: 2 layers, 3100 hits, 500 misses, 500 in place, hit rate 75.61 %, 22 "        \
	"evictions, 1024.00 GiB fetched\n"

static void end_is_one_line(void **state)
{
	(void)state;
	fake.cache[1].hits = 100;
	assert_string_equal(life(nothing), ""); /* no windows, no words */
	assert_string_equal(life(settle), SUMMARY);
	fake.options.log = HS_LOG_WARN;
	assert_string_equal(life(settle), "");
}

static void end_tells_of_few_hot_rows(void **state)
{
	(void)state;
	fake.cache[1].hits = 100;
	fake.cache[0].inplace = 1200; /* of 4,800 */
	assert_non_null(strstr(life(settle),
		"info: cache: 25 % of the selected rows found no hot row and were read in place; "
		"the fewest hot rows of a layer: 4096 (HISPARSE_SLOTS;"));
	fake.options.log = HS_LOG_WARN;
	assert_string_equal(life(settle), "");
}

static void end_tells_of_verify(void **state)
{
	(void)state;
	fake.cache[1].hits = 100;
	fake.options.verify = 1;
	assert_string_equal(life(settle), SUMMARY
		"error: verify: 13 launches checked, 15 rows, 16 different, 14 launches not "
		"checked\n");
	fake.options.log = HS_LOG_WARN;
	assert_string_equal(life(settle),
		"error: verify: 13 launches checked, 15 rows, 16 different, 14 launches not "
		"checked\n");
	fake.verify.different = 0;
	assert_string_equal(life(settle), "");
	fake.options.log = HS_LOG_INFO;
	assert_string_equal(life(settle),
		SUMMARY "info: verify: 13 launches checked, 15 rows, 0 different, 14 launches not "
			"checked\n");
}

static void layers_at_debug(void **state)
{
	const char *text;

	(void)state;
	fake.options.log = HS_LOG_DEBUG;
	text = life(settle);
	assert_non_null(strstr(text,
		"debug: layer 0: 3000 hits, 500 misses, 500 in place, hit rate 75.00 %, 22 "
		"evictions, 23 invalidated, 20 launches\n"));
	assert_non_null(strstr(text, "debug: layer 7: "));
}

/* A child that is forked later ends: not a word, not a file. */
static void fork_later(void)
{
	pid_t pid;

	hs_trace_settle();
	fake.options.metrics = name;
	pid = fork();
	if (!pid) {
		hs_trace_settle();
		exit(0);
	}
	CHECK(waitpid(pid, NULL, 0) == pid);
	CHECK(access(name, F_OK));
}

static void children_say_nothing(void **state)
{
	(void)state;
	fake.cache[1].hits = 100;
	assert_string_equal(life(fork_later), SUMMARY);
	assert_int_equal(access(name, F_OK), 0); /* the last counters */
}

/* The blocked signals of the thread behind a status file, if it is ours. */
static bool blocked(const char *status, uint64_t *mask)
{
	char line[256];
	bool ours = false;
	FILE *file = fopen(status, "r");

	while (file && fgets(line, sizeof(line), file)) {
		ours |= !strcmp(line, "Name:\thisparse\n");
		if (!strncmp(line, "SigBlk:", 7))
			*mask = strtoull(line + 7, NULL, 16);
	}
	if (file)
		fclose(file);
	return ours;
}

static bool find_thread(uint64_t *mask)
{
	DIR *folder = opendir("/proc/self/task");
	struct dirent *entry;
	bool found = false;
	char path[300];

	while (!found && (entry = readdir(folder))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		found = blocked(path, mask);
	}
	closedir(folder);
	return found;
}

static void thread_blocks_signals(void)
{
	const uint64_t all = UINT64_C(0x7fffffff) & ~(1u << (SIGKILL - 1)) & ~(1u << (SIGSTOP - 1));
	sigset_t before = {0}, after = {0};
	uint64_t mask;

	pthread_sigmask(SIG_SETMASK, NULL, &before);
	fake.options.metrics = name;
	hs_trace_settle();
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	CHECK(!memcmp(&before, &after, sizeof(before)));
	/* It writes; while it starts the C library blocks signals as well. */
	while (access(name, F_OK))
		sched_yield();
	CHECK(find_thread(&mask));
	CHECK((mask & all) == all);
}

static void thread_writes(void **state)
{
	(void)state;
	fake.options.log = HS_LOG_WARN;
	assert_string_equal(life(thread_blocks_signals), "");
}

static void live_port(void)
{
	static char number[8];
	uint16_t port;

	close(take_port(&port));
	snprintf(number, sizeof(number), "%u", port);
	fake.options.metrics = number;
	hs_trace_settle();
	CHECK(!strncmp(ask(port, "GET /metrics HTTP/1.0\n\n"), "HTTP/1.0 200", 12));
}

static void no_port(void)
{
	fake.options.metrics = "65536";
	hs_trace_settle();
	hs_trace_settle();
}

static void numbers_are_ports(void **state)
{
	(void)state;
	fake.options.log = HS_LOG_WARN;
	assert_string_equal(life(live_port), "");
	assert_int_not_equal(access(name, F_OK), 0);
	assert_string_equal(life(no_port),
		"warn: HISPARSE_METRICS=65536: a port is a number from 1 to 65535; no metrics\n");
	assert_int_not_equal(access("65536", F_OK), 0);
}

static int setup(void **state)
{
	(void)state;
	fake_reset();
	unlink(name);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(end_is_one_line, setup),
		cmocka_unit_test_setup(end_tells_of_few_hot_rows, setup),
		cmocka_unit_test_setup(end_tells_of_verify, setup),
		cmocka_unit_test_setup(layers_at_debug, setup),
		cmocka_unit_test_setup(children_say_nothing, setup),
		cmocka_unit_test_setup(thread_writes, setup),
		cmocka_unit_test_setup(numbers_are_ports, setup),
		cmocka_unit_test_setup(port_answers_http, setup),
		cmocka_unit_test_setup(taken_port_is_said, setup),
		cmocka_unit_test_setup(child_has_no_socket, setup),
	};
	int failed, fd = mkstemp(name);

	if (fd < 0)
		return 1;
	close(fd);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(name);
	return failed;
}
