/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_STREAM_H
#define TOOLS_HISPARSE_STREAM_H

/*
 * What one cache sees of a trace: the rows that are selected step by step, of
 * one request in one layer or of all requests of a layer together. Rows are
 * numbered densely in order of their first selection; padding and repeats
 * within a step are gone.
 */

#include <stdint.h>
#include "tools/bench/trace.h"

struct hs_stream {
	uint32_t steps, ids; /* ids: distinct rows */
	uint32_t *rows;	     /* rows[start[s]] .. rows[start[s + 1] - 1] are those of step s */
	uint64_t *start;     /* steps + 1 */
};

enum { HS_ALL_REQUESTS = -1 };

/* request: HS_ALL_REQUESTS for a buffer that all requests of the layer share.
 * Returns 0, -ENOMEM, or -EBADMSG for a position beyond the trace's ctx. */
int hs_stream_init(
	struct hs_stream *stream, const struct hs_dsat *trace, uint32_t layer, int request);
void hs_stream_finish(struct hs_stream *stream);

/*
 * Reuse of a row in an LRU cache by step, for every size at once: a row with
 * distance d hits in every cache of more than d rows (that holds at least a
 * step's rows). Of one step's rows, the one that was higher before stays
 * higher, so that in any cache a step's misses end up below its hits, as in
 * SGLang's and vLLM's resolve kernels.
 */
struct hs_reuse {
	uint32_t bound;	       /* distances are below this */
	uint64_t *counts;      /* [bound]: selections with this distance */
	uint64_t first;	       /* selections of rows never selected before */
	uint64_t total, fresh; /* all selections; those not selected the step before */
};

/*
 * Adds the selections of steps from `skip` on. misses: NULL, or one counter a
 * step to which the misses of a cache of `slots` rows are added.
 * Returns 0 or -ENOMEM.
 */
int hs_reuse_add(struct hs_reuse *reuse, const struct hs_stream *stream, uint32_t skip,
	uint64_t slots, uint32_t *misses);

int hs_reuse_init(struct hs_reuse *reuse, uint32_t bound);
void hs_reuse_finish(struct hs_reuse *reuse);

/* Misses of an LRU cache of so many rows. */
uint64_t hs_reuse_misses(const struct hs_reuse *reuse, uint64_t slots);

#endif
