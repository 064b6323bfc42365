/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_BUDGET_H
#define SRC_MEMORY_BUDGET_H

/*
 * The books: what the process holds on the device and in the host pool, what
 * is kept in reserve for us, and what the engine is told. All in bytes. Any
 * thread; no lock is taken, so the launch path may allocate our own memory
 * while windows move.
 *
 *	D  free device memory (the driver's, under HISPARSE_GPU_GIB)
 *	R  the reserve: HISPARSE_SLOTS hot rows for HISPARSE_LAYERS layers, or one hot
 *	   row for 38 tokens; and lists and graphs
 *	H  what is left of the host pool
 *
 * Every device has its own, but for the pool, which is the process's: what is told of
 * a device counts on an equal share with all others that have had windows.
 *
 * Told while no KV window is seen: as much as fits, min(D * c / d, (D + H) * c /
 * (d + row)), without what lists and graphs take. A token that takes c = row + 132
 * bytes a layer of the engine's cache takes d on the device, the indexer's 132,
 * the map's 4 and its share of a hot row, and its row in the pool or on the device.
 * Never more than the first answer. R follows from it, until the first KV window
 * is seen: it falls while weights are loaded, and not while KV is allocated.
 */

#include <stdbool.h>
#include <stddef.h>
#include "hooks/driver.h"
#include "src/memory/memory.h"

/* Books `bytes` in a place; false (and nothing booked) beyond the cap or the
 * pool, for which the device does not matter. HISPARSE_GPU_GIB is each device's; it
 * counts what is allocated, not contexts, code or what a
 * pool of the driver keeps; memory of cuMemCreate until its handle is released. */
bool hs_budget_take(enum hs_place place, CUdevice device, size_t bytes);
void hs_budget_give(enum hs_place place, CUdevice device, size_t bytes);
size_t hs_budget_pool_used(void);

/* Bytes that we have of a device beyond the reserve. */
size_t hs_budget_grown(CUdevice device);

/* Bytes of the current context's device, under the cap, that are in use but for our own. */
size_t hs_budget_used(void);

/* Windows are made on this device. */
void hs_budget_serves(CUdevice device);

/* Of the device bytes booked, those that are our own: they come out of the
 * reserve. own() asks whether the current context's device has room for more: within
 * the reserve, or beyond it while there is plenty; if it is not for hot rows, while there is some.
 */
bool hs_budget_own(size_t bytes, bool hot);
void hs_budget_disown(CUdevice device, size_t bytes);

/* `bytes` of the current context's device were taken: what is in use now will be in use again,
 * whatever is free when KV is sized. goes: a window is about to be given back; of
 * several the allocator may have hoarded some. */
void hs_budget_sample(size_t bytes);
void hs_budget_goes(size_t bytes);

/* The part of hs_memory_read that is about pool and reserve, of all devices; zeros
 * until a window was made. */
void hs_budget_read(struct hs_memory_counts *counts);

/* Whether windows may move to the host: not HISPARSE_PLACE=device, and a pool
 * that has not failed. While they may not, everything is as the driver says. */
bool hs_budget_active(void);

/* The current context's device's reserve as of what is free now. Where nothing is half allocated.
 */
void hs_budget_adjust(void);

/* Whether `bytes` more on the current context's device leave the reserve. */
bool hs_budget_room(size_t bytes);

/* Whether the device has `bytes` left, the reserve counted in. */
bool hs_budget_fits(size_t bytes);

/* Whether the pool has `bytes` left. */
bool hs_budget_pool(size_t bytes);

/* What was last told to be free before KV was seen: what the engine sizes its cache
 * from. 0: nothing yet. */
size_t hs_budget_told(void);

/* No host memory after all: nothing moves to the host from here on. */
void hs_budget_pool_failed(void);

/* A window was seen to hold KV (row 0: not known): the true device figure is
 * told from here on, and the reserve has room for the maps of its rows, be they
 * more than was told. Returns those bytes, for gone. Launch path. */
size_t hs_budget_kv_seen(CUdevice device, size_t bytes, uint32_t row);
void hs_budget_kv_gone(CUdevice device, size_t maps);

/* One line about all of this, at level info, once a device. */
void hs_budget_say(CUdevice device);

#endif
