/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_PLACE_H
#define SRC_MEMORY_PLACE_H

/*
 * Where windows live. The one place that decides; everything here needs the
 * memory lock. Bytes as mapped.
 *
 * auto: on the device while the reserve is left. When it is not, KV windows
 * and then windows that saw nothing but a fill move out. Once some KV is on the host, more of
 * it follows until the engine has its slack (slack.h) and hot rows their memory. What then finds no
 * room goes to the host if its size is known to be KV; otherwise it is refused
 * once, as the driver would, so that the engine's allocator frees what it
 * hoards, and its immediate retry goes to the host. What is not KV comes back as
 * soon as there is room, and KV makes way for it; KV comes back when there is more
 * room than it needs and nothing had to move out for a while.
 * host: KV moves to the host as soon as it is seen. device: nothing moves.
 */

#include <stdint.h>
#include "src/memory/window.h"

/* Where a new window goes; OUT_OF_MEMORY: refuse it. May move others. */
CUresult hs_place_choose(enum hs_place *place, size_t bytes);

/* Moves windows out until `bytes` more fit, but at least one. False when none
 * could be moved. */
bool hs_place_evict(size_t bytes);

/* The world is stopped, and `bytes` of our own do not fit: KV makes way. False: none
 * can. */
bool hs_place_yield(size_t bytes);

/* A window could not be put on the host: said once, and nothing more moves. */
void hs_place_host_failed(size_t bytes, CUresult result);

/* The size of a KV window that goes, for the next one of that size. */
void hs_place_learn(struct hs_holding *holding);

/* Destroys a window that is in no table. The world is stopped. */
void hs_place_reap(struct hs_holding *holding);

/* So long after a window had to move out none moves back for want of nothing. */
extern int64_t hs_place_calm_ns;

/* Device memory came free: windows that wait for room may move back. */
void hs_place_freed(void);

/* The world is stopped: every window to where it belongs, freed ones away. */
void hs_place_balance(void);

#endif
