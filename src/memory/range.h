/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_RANGE_H
#define SRC_MEMORY_RANGE_H

/*
 * Windows that are more than one layer: since 0.29 vLLM makes one allocation
 * for all layers and for the indexer's keys. What follows the first granule of
 * such a window is a row of ranges, each with memory of its own, so that a part
 * of the window can be on the host and an allocation larger than the device
 * can exist at all. Large allocations are made of ranges; others turn into one
 * range when layers are seen in the middle of them.
 *
 * Of a window that holds KV the rows of its layers may go to the host, without
 * each layer's first granule (lists of -1 read there) and without granules that
 * a layer shares with others' data. Everything here needs the memory lock, and
 * but for hs_range_back, _piece, _room and _movable a stopped world.
 */

#include "src/memory/window.h"

struct hs_range {
	CUdeviceptr at;
	struct hs_backing backing;
};

/* Bytes of the ranges that an allocation is made of; 0: it is made in one. */
size_t hs_range_piece(size_t bytes);

/* Whether an allocation goes to the host in one piece, which is memory of the best
 * kind: the pool has room, and it is not so large that it must be all layers'. */
bool hs_range_whole(size_t bytes);

/* How much of an allocation of `bytes`, made of ranges, the device has room for. */
size_t hs_range_room(size_t bytes);

/* Memory behind a new window that is made of ranges, after its first granule: in
 * `place`; what the host has no room for, or the device, is on the other. On
 * failure none. */
CUresult hs_range_back(struct hs_holding *holding, enum hs_place place);
void hs_range_destroy(struct hs_holding *holding);

/* Whether the window has ranges, or needs them before it moves. */
bool hs_range_wanted(struct hs_holding *holding);

/* Whether it is more than one layer that begins where the window begins. */
bool hs_range_layered(struct hs_holding *holding);

/* Bytes on the device that may go to the host, also of a window in one piece. */
size_t hs_range_movable(struct hs_holding *holding);

/* Moves parts to the host from the highest address down, until `bytes` fit on
 * the device. OUT_OF_MEMORY: the host did not have them after all; NOT_READY: the
 * device has no room to cut one. On failure
 * what could not move is where it was. */
CUresult hs_range_out(struct hs_holding *holding, size_t bytes, size_t *moved);

/* Bytes on the host that belong on the device, and moves them, or all there are,
 * as far as there is room. */
size_t hs_range_strays(struct hs_holding *holding);
CUresult hs_range_home(struct hs_holding *holding, bool all);

/* The first address above ptr at which the window's memory may be another's. */
CUdeviceptr hs_range_seam(struct hs_window *window, CUdeviceptr ptr);

#endif
