/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_REMAP_H
#define SRC_CACHE_REMAP_H

/*
 * Where remapped lists go. An eager stream has one buffer, since its launches
 * follow each other. A captured launch has one for the engine's list that it
 * reads and its stream: the engine never runs two replays at once that share a
 * list, and buffers of a graph cannot be told to be free again. Buffers are
 * cut from pools, taken ahead: when little is left of one, a safe moment is asked
 * for and takes the next, for which KV makes way. A pool that runs out on the
 * launch path is followed by another one there, too (hs_memory_own works there),
 * unless memory is short; then a captured launch would read in place for ever.
 */

#include "src/cache/lane.h"

/* Takes the first pool on the current context's device, and the next when that is
 * nearly used up. Safe moments. */
int hs_remap_ready(CUdevice device);

/* The device's buffers are gone with their context. */
void hs_remap_forget(CUdevice device);

/* A buffer of at least `bytes` bytes, 256-byte aligned, for the list at `list`.
 * Returns 0 or a negative errno. */
int hs_remap_find(CUdeviceptr *out, struct hs_lane_site *lane, CUdeviceptr list, size_t bytes);

#endif
