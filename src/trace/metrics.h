/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_METRICS_H
#define SRC_TRACE_METRICS_H

/*
 * The counters of this process at one moment, and the same as Prometheus text
 * (format 0.0.4). Reads mapped host memory and atomics: no driver call, no
 * lock, also after the context is gone. Not in a forked child.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "kernels/abi.h"
#include "src/cache/cache.h"
#include "src/launch/launch.h"
#include "src/launch/verify.h"
#include "src/memory/memory.h"

struct hs_metrics_layer {
	CUdevice device;
	uint32_t id;
	uint64_t hot_rows, slots; /* 0 while it does not swap */
	struct hs_cache_counts counts;
};

struct hs_metrics {
	pid_t pid;
	struct hs_memory_counts memory;
	struct hs_launch_counts launch;
	struct hs_verify_counts verify;
	uint64_t unknown_kernels; /* of launch.unknown: different ones */
	struct hs_cache_counts total;
	unsigned layers;
	struct hs_metrics_layer layer[HS_LAYERS];
};

void hs_metrics_read(struct hs_metrics *metrics);

/* How the text of process `pid` begins. */
#define HS_METRICS_PID "hisparse_build_info{pid=\""

/* *text is from malloc. Returns 0 or -ENOMEM. */
int hs_metrics_print(const struct hs_metrics *metrics, char **text, size_t *length);

/* hs_metrics_read and hs_metrics_print. */
int hs_metrics_text(char **text, size_t *length);

/* Share of the distinct rows that launches asked for that were on the device:
 * hits / (hits + misses + in place); 0 when there were none. */
double hs_metrics_hit_rate(const struct hs_cache_counts *counts);

#endif
