/* SPDX-License-Identifier: MIT */
#include "src/memory/prefault.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include "src/base/log.h"
#include "src/memory/memory.h"

#define GIB ((double)(1ull << 30))
#define THREADS 16
#define CHUNK ((size_t)32 << 20)
#define PAGE ((size_t)4096)
#define PATIENCE 2.0 /* seconds until progress is told, and between the lines */

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

struct job {
	char *start;
	size_t bytes;
	enum hs_prefault what;
	bool bound; /* threads run on these processors only */
	cpu_set_t near;
	_Atomic size_t next;
	_Atomic int error;
};

/* Windows that are made one right after the other count as one start-up. */
static struct {
	double since, last, told;
	_Atomic size_t bytes;
} progress;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void tell(bool last)
{
	const double at = now();

	progress.last = at;
	if (at - progress.since < PATIENCE || (!last && at - progress.told < PATIENCE))
		return;
	progress.told = at;
	hs_info("host memory: %.1f GiB made ready in %.1f s", atomic_load(&progress.bytes) / GIB,
		at - progress.since);
}

static void populate(char *start, size_t bytes)
{
	if (!madvise(start, bytes, MADV_POPULATE_WRITE))
		return;
	for (size_t i = 0; i < bytes; i += PAGE)
		*(volatile char *)(start + i) = 0;
}

/* So much of each granule. */
static int populate_granules(char *start, size_t bytes, size_t each)
{
	for (size_t i = 0; i < bytes; i += HS_GRANULE)
		if (madvise(start + i, each, MADV_POPULATE_WRITE))
			return -errno;
	return 0;
}

static bool step(struct job *job)
{
	const size_t at = atomic_fetch_add(&job->next, CHUNK);
	const size_t left = at < job->bytes ? job->bytes - at : 0;
	const size_t bytes = left < CHUNK ? left : CHUNK;
	int error = 0, none = 0;

	if (!left || atomic_load(&job->error))
		return false;
	if (job->what == HS_PREFAULT_ALL)
		populate(job->start + at, bytes);
	else
		error = populate_granules(
			job->start + at, bytes, job->what == HS_PREFAULT_EACH ? HS_GRANULE : PAGE);
	if (error)
		atomic_compare_exchange_strong(&job->error, &none, error);
	atomic_fetch_add(&progress.bytes, bytes);
	return !error;
}

static void *work(void *data)
{
	struct job *job = data;

	if (job->bound)
		sched_setaffinity(0, sizeof(job->near), &job->near);
	while (step(job))
		;
	return NULL;
}

static void join(pthread_t thread)
{
	struct timespec until;

	do {
		tell(false);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
	} while (pthread_timedjoin_np(thread, NULL, &until) == ETIMEDOUT);
}

/* "0-3,8-11", as the kernel lists a node's processors, those of them in `may`. */
static void near(int node, const cpu_set_t *may, cpu_set_t *out)
{
	char path[64], line[4096], *at = line, *end;
	FILE *f;

	CPU_ZERO(out);
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	f = node < 0 ? NULL : fopen(path, "re");
	if (!f)
		return;
	if (!fgets(line, sizeof(line), f))
		*line = '\0';
	fclose(f);
	while (*at >= '0' && *at <= '9') {
		unsigned long from = strtoul(at, &end, 10), to = from;

		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		for (; from <= to && from < CPU_SETSIZE; from++)
			if (CPU_ISSET(from, may))
				CPU_SET(from, out);
		at = *end == ',' ? end + 1 : end;
	}
}

/* Memory is the node's whose processor makes it. The caller works too unless it may
 * run elsewhere, and is the one who talks. */
int hs_prefault(void *start, size_t bytes, enum hs_prefault what, int node)
{
	const int saved = errno;
	struct job job = {.start = start, .bytes = bytes, .what = what};
	const double begin = now();
	size_t want = 1, count;
	pthread_t threads[THREADS];
	sigset_t all, before;
	cpu_set_t may;

	if (now() - progress.last > PATIENCE) {
		progress.since = progress.told = now();
		atomic_store(&progress.bytes, 0);
	}
	if (!sched_getaffinity(0, sizeof(may), &may)) {
		near(node, &may, &job.near);
		want = (size_t)CPU_COUNT(&job.near);
		job.bound = want && want < (size_t)CPU_COUNT(&may);
		want = want ? want : (size_t)CPU_COUNT(&may);
	}
	want = want > THREADS ? THREADS : want;
	if (want > bytes / CHUNK)
		want = bytes / CHUNK;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (count = 0; count + !job.bound < want; count++)
		if (pthread_create(&threads[count], NULL, work, &job))
			break;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!job.bound || !count)
		while (step(&job))
			tell(false);
	for (size_t i = 0; i < count; i++)
		join(threads[i]);
	tell(true);
	hs_debug("host memory: %.3f GiB of pages in %.3f s, %zu threads", bytes / GIB,
		now() - begin, count + (!job.bound || !count));
	errno = saved;
	return atomic_load(&job.error);
}
