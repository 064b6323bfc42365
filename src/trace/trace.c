/* SPDX-License-Identifier: MIT */
#include "src/trace/trace.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/memory/capture.h"
#include "src/memory/gate.h"
#include "src/trace/crowded.h"
#include "src/trace/file.h"
#include "src/trace/listen.h"
#include "src/trace/metrics.h"
#include "src/trace/session.h"

#define GIB ((double)(1ull << 30))

static _Atomic pid_t owner; /* the process that has windows; 0: none yet */
static _Atomic bool ending;
/* Around the writes of the file, so that the last one is the last. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void write_file(const char *name, bool last)
{
	pthread_mutex_lock(&lock);
	if (last || !atomic_load(&ending))
		hs_file_write(name);
	pthread_mutex_unlock(&lock);
}

static void *file_thread(void *name)
{
	const struct timespec second = {.tv_sec = 1};

	for (;;) {
		write_file(name, false);
		nanosleep(&second, NULL);
	}
	return NULL;
}

static void *port_thread(void *unused)
{
	while (!hs_listen_serve())
		;
	return unused;
}

static bool is_port(const char *text)
{
	return *text && strspn(text, "0123456789") == strlen(text);
}

static bool open_port(const char *text)
{
	const unsigned long port = strtoul(text, NULL, 10);

	if (port > 0 && port <= UINT16_MAX)
		return hs_listen_open((uint16_t)port) == 0;
	hs_warn("HISPARSE_METRICS=%s: a port is a number from 1 to %d; no metrics", text,
		UINT16_MAX);
	return false;
}

static void start(const char *metrics)
{
	void *(*run)(void *) = is_port(metrics) ? port_thread : file_thread;
	sigset_t all, before;
	pthread_t thread;
	int error;

	if (run == port_thread && !open_port(metrics))
		return;
	/* The engine's signals are for the engine's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, NULL, run, (void *)(uintptr_t)metrics);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		hs_warn("HISPARSE_METRICS=%s: no thread for it (%s)", metrics, strerror(error));
		return;
	}
	pthread_setname_np(thread, "hisparse");
	pthread_detach(thread);
}

void hs_trace_settle(void)
{
	pid_t none = 0;

	if (!atomic_load_explicit(&owner, memory_order_relaxed) &&
		atomic_compare_exchange_strong(&owner, &none, getpid()) && hs_options()->metrics)
		start(hs_options()->metrics);
	hs_session_settle();
}

static void say_layer(const struct hs_metrics_layer *layer)
{
	const struct hs_cache_counts *c = &layer->counts;

	hs_debug("layer %u: %llu hits, %llu misses, %llu in place, hit rate %.2f %%, %llu "
		 "evictions, %llu invalidated, %llu launches",
		layer->id, (unsigned long long)c->hits, (unsigned long long)c->misses,
		(unsigned long long)c->inplace, 100 * hs_metrics_hit_rate(c),
		(unsigned long long)c->evictions, (unsigned long long)c->invalidated,
		(unsigned long long)c->launches);
}

/* What a person can do about it, who cannot know how many rows launches select. */
static void say_crowded(const struct hs_metrics *metrics)
{
	const struct hs_cache_counts *c = &metrics->total;
	const uint64_t all = c->hits + c->misses + c->inplace;
	uint64_t least = 0;

	for (unsigned i = 0; i < metrics->layers; i++) {
		const uint64_t rows = metrics->layer[i].hot_rows;

		least = rows && (!least || rows < least) ? rows : least;
	}
	if (least && c->inplace > all / HS_CROWDED)
		hs_info("cache: %.0f %% of the selected rows found no hot row and were read in "
			"place; the fewest hot rows of a layer: %llu (HISPARSE_SLOTS; or fewer "
			"requests at once)",
			100.0 * (double)c->inplace / (double)all, (unsigned long long)least);
}

static void say(const struct hs_metrics *metrics)
{
	const struct hs_cache_counts *c = &metrics->total;
	const struct hs_verify_counts *v = &metrics->verify;

	for (unsigned i = 0; hs_log_on(HS_LOG_DEBUG) && i < metrics->layers; i++)
		say_layer(&metrics->layer[i]);
	hs_info("cache: %u layers, %llu hits, %llu misses, %llu in place, hit rate %.2f %%, "
		"%llu evictions, %.2f GiB fetched",
		metrics->layers, (unsigned long long)c->hits, (unsigned long long)c->misses,
		(unsigned long long)c->inplace, 100 * hs_metrics_hit_rate(c),
		(unsigned long long)c->evictions, (double)c->bytes / GIB);
	say_crowded(metrics);
	hs_debug("launches: %llu attention, %llu remapped, %llu refused, %llu writers, %llu fills, "
		 "%llu unknown; %d captures open",
		(unsigned long long)metrics->launch.attention,
		(unsigned long long)metrics->launch.remapped,
		(unsigned long long)metrics->launch.refused,
		(unsigned long long)metrics->launch.written,
		(unsigned long long)metrics->launch.filled,
		(unsigned long long)metrics->launch.unknown, hs_capture_count());
	if (hs_options()->verify)
		hs_log(v->different ? HS_LOG_ERROR : HS_LOG_INFO,
			"verify: %llu launches checked, %llu rows, %llu different, %llu launches "
			"not checked",
			(unsigned long long)v->launches, (unsigned long long)v->rows,
			(unsigned long long)v->different, (unsigned long long)v->skipped);
}

/* The context may be gone by now: what is read here is memory of ours. */
__attribute__((destructor)) static void finish(void)
{
	struct hs_metrics *metrics;

	if (atomic_load(&owner) != getpid())
		return;
	atomic_store(&ending, true);
	hs_session_finish();
	if (hs_options()->metrics && !is_port(hs_options()->metrics))
		write_file(hs_options()->metrics, true);
	if (!hs_log_on(HS_LOG_INFO) && !hs_options()->verify)
		return;
	metrics = malloc(sizeof(*metrics));
	if (metrics)
		hs_metrics_read(metrics), say(metrics);
	free(metrics);
}
