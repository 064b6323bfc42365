/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_BENCH_SWAPIN_CELL_H
#define TOOLS_BENCH_SWAPIN_CELL_H

/* What the files of a cell share: swapin.c opens it, swapin_run.c records and
 * replays, swapin_check.c looks at what was left. */

#include <errno.h>
#include <stdio.h>
#include "tools/bench/place.h"
#include "tools/bench/swapin.h"

enum { HS_SWAPIN_BLOCKS = 264, HS_SWAPIN_THREADS = 512 };

/* Not in the library's table: only the bench times inside graphs. CUDA 11.1. */
typedef CUresult record_with_flags(CUevent event, CUstream stream, unsigned flags);

struct hs_swapin_layer {
	struct hs_layer *layer;
	CUdeviceptr window, positions, slots, missed, missed_count, ordered, remapped, kept;
	CUevent marks[HS_SWAPIN_SIDES][2];
};

struct hs_swapin {
	struct hs_swapin_plan plan;
	struct hs_places places;
	struct hs_swapin_layer *layers;
	CUstream stream;
	CUmodule module;
	CUfunction gather, check, empty, sweep;
	CUdeviceptr lists, ordered, kept, staging, flush, result;
	CUgraphExec graphs[HS_SWAPIN_SIDES];
	CUevent ends[HS_SWAPIN_SIDES];
	record_with_flags *record;
	int32_t *host;	   /* pinned: what `lists` holds, of one step */
	int32_t *sorted;   /* pinned: what `ordered` holds, every layer's misses by address */
	uint32_t *offsets; /* host: where a list's misses go in its layer's */
	uint32_t step;
};

#define HS_TRY(call)                                                                               \
	do {                                                                                       \
		CUresult try_result = (call);                                                      \
		if (try_result != CUDA_SUCCESS) {                                                  \
			fprintf(stderr, "swapin: %s: CUDA error %d\n", #call, try_result);         \
			return -EIO;                                                               \
		}                                                                                  \
	} while (0)

/* Bytes of one layer's list. `lists` holds positions, slots and missed slots of
 * every layer, in this order, then the counts of the missed. */
size_t hs_swapin_list_bytes(const struct hs_swapin *cell);
size_t hs_swapin_lists_bytes(const struct hs_swapin *cell);

/* Rows that an exact LRU misses in list `which` = layer * batch + request. */
uint32_t hs_swapin_missed(const struct hs_swapin *cell, uint32_t step, uint32_t which);

int hs_swapin_launch(struct hs_swapin *cell, CUfunction kernel, unsigned blocks, unsigned threads,
	void *arguments);

#endif
