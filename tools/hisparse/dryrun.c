/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/dryrun.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tools/hisparse/command.h"
#include "tools/hisparse/run.h"
#include "tools/hisparse/summary.h"

#define LOOK_MS 200
#define PATIENCE 30 /* seconds from SIGTERM to SIGKILL: servers take their time */

/* The element past the last, zeroed. */
static void *grow(void *list, size_t count, size_t size)
{
	if (count & (count - 1))
		return list;
	list = hs_need(realloc(list, (count ? 2 * count : 1) * size));
	memset((char *)list + count * size, 0, (count ? count : 1) * size);
	return list;
}

static struct hs_dry_kernel *kernel_of(struct hs_dry *dry, const char *name, size_t length)
{
	for (size_t i = 0; i < dry->kernel_count; i++)
		if (!strncmp(dry->kernels[i].name, name, length))
			return &dry->kernels[i];
	dry->kernels = grow(dry->kernels, dry->kernel_count, sizeof(*dry->kernels));
	snprintf(dry->kernels[dry->kernel_count].name, sizeof(dry->kernels->name), "%s", name);
	return &dry->kernels[dry->kernel_count++];
}

static struct hs_dry_window *window_of(struct hs_dry *dry, int pid, unsigned id)
{
	for (size_t i = 0; i < dry->window_count; i++)
		if (dry->windows[i].pid == pid && dry->windows[i].id == id)
			return &dry->windows[i];
	dry->windows = grow(dry->windows, dry->window_count, sizeof(*dry->windows));
	dry->windows[dry->window_count].pid = pid;
	dry->windows[dry->window_count].id = id;
	return &dry->windows[dry->window_count++];
}

static void keep(struct hs_dry *dry, const char *text)
{
	char line[sizeof(*dry->lines)];

	snprintf(line, sizeof(line), "%s", text);
	for (size_t i = 0; i < dry->line_count; i++)
		if (!strcmp(dry->lines[i], line))
			return;
	dry->lines = grow(dry->lines, dry->line_count, sizeof(*dry->lines));
	strcpy(dry->lines[dry->line_count++], line);
}

bool hs_dry_line(struct hs_dry *dry, const char *line)
{
	char level[8], name[512], role[16], profile[64];
	struct hs_dry_window *window;
	struct hs_dry_kernel *kernel;
	unsigned long long launches;
	unsigned id, row;
	size_t mib;
	int pid, at = 0;

	/* A progress bar that was not ended may stand before it. */
	line = strstr(line, "hisparse[");
	if (!line || sscanf(line, "hisparse[%d]: %7[a-z]: %n", &pid, level, &at) < 2 || !at)
		return false;
	line += at;
	if (sscanf(line, "seen kernel %511[^:]: %15[a-z], profile %63s", name, role, profile) ==
		3) {
		kernel = kernel_of(dry, name, sizeof(name));
		strcpy(kernel->role, role);
		strcpy(kernel->profile, profile);
	} else if (sscanf(line, "launches of kernel %511[^:]: %llu", name, &launches) == 2) {
		kernel_of(dry, name, sizeof(name))->launches += launches;
	} else if (sscanf(line, "seen window %u: %zu MiB of %15[A-Za-z ], rows of %u", &id, &mib,
			   role, &row) == 4) {
		window = window_of(dry, pid, id);
		window->mib = mib;
		window->kv = !strcmp(role, "KV");
		window->row = row;
	} else if (sscanf(line, "kernel %511s is not known and touches KV window %u", name, &id) ==
		   2) {
		/* This line has the first 100 bytes of a name. */
		kernel_of(dry, name, strlen(name) < 100 ? sizeof(name) : 100)->kv = true;
	} else if (!strcmp(level, "warn") || !strcmp(level, "error")) {
		keep(dry, line);
	}
	return true;
}

/* Whole lines from what was read; the rest moves to the front. */
static size_t take(struct hs_dry *dry, char *text, size_t length, bool end)
{
	char *from = text, *to;

	text[length] = '\0';
	while ((to = strchr(from, '\n')) || (end && *from)) {
		if (to)
			*to = '\0';
		if (!hs_dry_line(dry, from))
			fprintf(stderr, "%s\n", from);
		from = to ? to + 1 : text + length;
	}
	length -= (size_t)(from - text);
	memmove(text, from, length);
	return length;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Until the program has ended and nothing more comes from what it started. */
static void watch(struct hs_dry *dry, pid_t child, int fd, unsigned seconds)
{
	static char text[1 << 16];
	struct pollfd poller = {.fd = fd, .events = POLLIN};
	const double began = now();
	bool ended = false, killed = false;
	size_t length = 0;
	ssize_t n = 1;
	int status, ready;

	while (!ended || (ready > 0 && n > 0)) {
		ready = n > 0 ? poll(&poller, 1, LOOK_MS) : usleep(LOOK_MS * 1000);
		if (ready > 0) {
			n = read(fd, text + length, sizeof(text) - 1 - length);
			length = take(dry, text, length + (size_t)(n > 0 ? n : 0), n <= 0);
			if (length == sizeof(text) - 1)
				length = take(dry, text, length, true);
		}
		if (!ended && waitpid(child, &status, WNOHANG) == child) {
			ended = true;
			ready = 1;
			dry->status =
				WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		}
		if (ended || !seconds)
			continue;
		if (!dry->stopped && now() - began > seconds) {
			dry->stopped = true;
			kill(child, SIGTERM);
		} else if (!killed && now() - began > seconds + PATIENCE) {
			killed = true;
			kill(child, SIGKILL);
		}
	}
	take(dry, text, length, true);
}

static pid_t start(char **program, const char *library, int end)
{
	pid_t child = fork();
	char *preload;

	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGINT, SIG_DFL);
	preload = hs_need(hs_run_preload(getenv("LD_PRELOAD"), library));
	setenv("LD_PRELOAD", preload, 1);
	setenv("HISPARSE_PLACE", "device", 1);
	setenv("HISPARSE_LOG", "debug", 1);
	unsetenv("HISPARSE_DISABLE");
	unsetenv("HISPARSE_LIBRARY");
	dup2(STDERR_FILENO, STDOUT_FILENO);
	dup2(end, STDERR_FILENO);
	execvp(program[0], program);
	dprintf(STDOUT_FILENO, "hisparse: %s: %s\n", program[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static void read_counters(struct hs_dry *dry, const char *folder)
{
	static struct hs_top_source sources[HS_TOP_SOURCES];
	static struct hs_top_sample sample;
	size_t count = hs_summary_sources(sources, folder);

	for (size_t i = 0; i < count; i++) {
		if (hs_top_read(&sample, &sources[i]))
			continue;
		dry->processes++;
		dry->layers += sample.layers;
	}
}

int hs_dry_run(struct hs_dry *dry, char **program, const char *library, unsigned seconds)
{
	char folder[PATH_MAX];
	void (*before)(int);
	int ends[2], err;
	pid_t child;

	*dry = (struct hs_dry){0};
	err = hs_summary_folder(folder);
	if (err)
		return err;
	if (pipe2(ends, O_CLOEXEC)) {
		err = -errno;
		goto out;
	}
	/* From a terminal the program gets it, too, and ends; then comes the report. */
	before = signal(SIGINT, SIG_IGN);
	child = start(program, library, ends[1]);
	err = child < 0 ? -errno : 0;
	close(ends[1]);
	if (!err) {
		watch(dry, child, ends[0], seconds);
		read_counters(dry, folder);
	}
	close(ends[0]);
	signal(SIGINT, before);
out:
	hs_summary_remove(folder);
	return err;
}

void hs_dry_finish(struct hs_dry *dry)
{
	free(dry->kernels);
	free(dry->windows);
	free(dry->lines);
}
