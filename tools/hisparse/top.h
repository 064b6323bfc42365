/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_TOP_H
#define TOOLS_HISPARSE_TOP_H

/*
 * The counters of a running process, read from what HISPARSE_METRICS makes it
 * publish: a file or a port of 127.0.0.1. Counters are totals since the
 * process's start, sizes are bytes, times seconds since the epoch.
 */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HS_TOP_LAYERS 512
#define HS_TOP_SOURCES 64

/* The counters of a layer, in the order of hs_top_names. */
enum hs_top_counter {
	HS_TOP_HITS,
	HS_TOP_MISSES,
	HS_TOP_BYTES,
	HS_TOP_EVICTIONS,
	HS_TOP_INPLACE,
	HS_TOP_INVALIDATED,
	HS_TOP_STAGED,
	HS_TOP_LAUNCHES,
	HS_TOP_COUNTERS,
};
extern const char *const hs_top_names[HS_TOP_COUNTERS]; /* "hits", "fetched_bytes", … */

struct hs_top_layer {
	int device; /* -1: all of them */
	unsigned layer;
	uint64_t hot_rows, slots; /* 0 while it does not swap */
	uint64_t counters[HS_TOP_COUNTERS];
};

struct hs_top_sample {
	double at;
	pid_t pid;
	char version[32];
	uint64_t windows[2], window_bytes[2]; /* device, host */
	uint64_t pool, pool_used;
	uint64_t unknown_kernels, refused;
	uint64_t verify_launches, verify_rows, verify_different;
	unsigned layers;
	struct hs_top_layer layer[HS_TOP_LAYERS];
};

/* Fills all but `at`. -EINVAL: not the metrics of libhisparse. */
int hs_top_parse(struct hs_top_sample *sample, const char *text);

/* The sum of the layers. */
void hs_top_sum(struct hs_top_layer *sum, const struct hs_top_sample *sample);

/* Counters per second from one sample to the next; before: NULL, or of an
 * earlier process: zeros. */
void hs_top_rates(double rates[HS_TOP_COUNTERS], const struct hs_top_layer *before,
	const struct hs_top_layer *now, double seconds);

/* hits / (hits + misses + in place), or -1 when there were none. */
double hs_top_hit_rate(double hits, double misses, double inplace);

struct hs_top_source {
	uint16_t port; /* or 0 and */
	char path[PATH_MAX];
};

/*
 * Where the process, file or port that `what` names publishes. A number is a
 * process if one of that id, or one of its ancestors, was started with
 * HISPARSE_METRICS (the files of its descendants count too: servers start
 * workers), else a port. Returns how many, or a negative errno: -ENOENT with
 * *why when there is nothing.
 */
int hs_top_find(struct hs_top_source sources[HS_TOP_SOURCES], const char *what, const char **why);

/* Reads what a source publishes now. at: when it was published. */
int hs_top_read(struct hs_top_sample *sample, const struct hs_top_source *source);

#endif
