/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_BENCH_SWAPIN_H
#define TOOLS_BENCH_SWAPIN_H

/*
 * One cell of the swap-in benchmark: a trace over one row size, replayed step
 * by step through the library's own resolve path and through whatever else is
 * recorded beside it, on the same rows, lists, flush and events. The driver is
 * swapin.py; this is the part that it calls.
 *
 * Every call of a step is a node group of one graph per side:
 *
 *	for each layer: flush the L2, event, the side's call, event
 *
 * so that no host time is inside a figure. One more event at the end tells
 * whether a side left work behind its calls. A layer's window holds ctx slots for
 * each request (place.h). Windows are spread evenly over the pool and overlap
 * where they do not fit; slots of one layer never do.
 *
 * Functions return 0 or a negative errno and set outputs only on success.
 */

#include <stdint.h>
#include "src/cache/cache.h"
#include "tools/bench/rows.h"
#include "tools/bench/swapin_abi.h"
#include "tools/bench/trace.h"

enum hs_swapin_side {
	HS_SWAPIN_OURS,
	HS_SWAPIN_THEIRS, /* recorded from outside */
	HS_SWAPIN_GATHER, /* a plain gather of the rows that an exact LRU misses */
	HS_SWAPIN_EMPTY,
	HS_SWAPIN_ORDERED, /* the gather's rows by address, over a whole layer */
	HS_SWAPIN_SIDES,
};

struct hs_swapin_plan {
	const struct hs_dsat *trace;
	const uint32_t *misses; /* as hs_dsat_check gives them for `hot` */
	const int32_t *missed;
	struct hs_rows rows;
	const void *beside; /* where other sides find the rows' bytes: a second pool, or NULL */
	uint64_t own;	    /* bytes for the cache's state */
	uint64_t flush;	    /* bytes written or read between calls, at least the L2 */
	uint64_t seed;
	uint32_t hot; /* rows a request and layer */
	uint32_t row; /* bytes, a multiple of 16 */
	uint32_t policy;
	uint32_t padding;  /* the last requests' lists are -1, as graph padding is */
	uint32_t resident; /* layers are never started: what the early exit costs */
	uint32_t eager;	   /* no graphs, for tools that look into kernels: gaps are timed */
	uint32_t reads;	   /* the flush reads: the L2's lines have nothing to write back */
	uint32_t ordered;  /* the loads put the misses in order for HS_SWAPIN_ORDERED */
};

/* What another side needs to work on the same rows. Addresses of the device. */
struct hs_swapin_view {
	uint64_t positions, slots; /* int32 [request][k] of the step that is loaded */
	uint64_t window; /* address of slot 0, on host and device; of plan.beside, if any */
	uint64_t stream;
	uint64_t slot_count; /* of a window */
	uint64_t any_order;  /* ours fetches in any order */
};

struct hs_swapin;

/* Opens the driver and makes the first device's primary context current. */
int hs_swapin_device(void);

/* -EIO once a kernel has failed: the context is lost with all that is in it. */
int hs_swapin_alive(void);

int hs_swapin_open(struct hs_swapin **out, const struct hs_swapin_plan *plan);
void hs_swapin_close(struct hs_swapin *cell);
int hs_swapin_view(struct hs_swapin *cell, uint32_t layer, struct hs_swapin_view *view);

/* slots: int64 [request][ctx], the slot of every position. */
void hs_swapin_table(const struct hs_swapin *cell, int64_t *slots);

/* Records one of our own sides into its graph. */
int hs_swapin_record(struct hs_swapin *cell, uint32_t side);

/* The same in pieces: begin; for each layer mark(0), the call on the view's
 * stream, mark(1); end. */
int hs_swapin_begin(struct hs_swapin *cell);
int hs_swapin_mark(struct hs_swapin *cell, uint32_t side, uint32_t layer, uint32_t edge);
int hs_swapin_end(struct hs_swapin *cell, uint32_t side);

/* Puts a step's lists where every side reads them. */
int hs_swapin_load(struct hs_swapin *cell, uint32_t step);

/* Runs the loaded step. us: one figure a layer, then the whole step without its
 * first flush, in microseconds, negative where the driver cannot time inside
 * graphs. */
int hs_swapin_replay(struct hs_swapin *cell, uint32_t side, float *us);

/* Checks what the last replay of a gather left: its last layer. */
int hs_swapin_check_gather(struct hs_swapin *cell, uint32_t side, uint32_t *result);

/* Checks what our last replay left in every layer, or another side's indices:
 * hot rows at bases[layer] + index * row for index < count. result:
 * HS_SWAPIN_RESULTS sums over the layers. */
int hs_swapin_check(struct hs_swapin *cell, uint32_t *result);
int hs_swapin_check_other(struct hs_swapin *cell, const uint64_t *indices, const uint64_t *bases,
	uint32_t count, uint32_t *result);

/* Our counters over all layers. */
int hs_swapin_counts(struct hs_swapin *cell, struct hs_cache_counts *counts);

/* Host time of one eager call, median of `calls`, in nanoseconds: of an empty
 * launch, or of hs_cache_resolve. */
int hs_swapin_host(struct hs_swapin *cell, uint32_t calls, bool empty, double *ns);

#endif
