/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_MANY_H
#define SRC_CACHE_MANY_H

/*
 * Launches whose lists have very many entries (prefill over the paged cache):
 * their union is made hot or copied to a staging area, see struct hs_many_args. A device has
 * one area, for all its layers; from one safe moment to the next it belongs to
 * the first eager lane that uses it. Captured launches never do: nobody knows
 * when they are replayed, and graphs are for decoding.
 */

#include "src/cache/lane.h"
#include "src/cache/layer.h"

/* Tests and benchmarks change them. */
extern struct hs_many_limits {
	uint64_t entries;		/* of a list, from which it is worth it */
	uint32_t rows_least, rows_most; /* of the area */
} hs_many_limits;

/* A layer is about to start: makes the device's area, above the layer's base, if
 * there is none, and has room for a mark for each of so many slots. What cannot
 * be had is done without. Safe moments. */
void hs_many_ready(const struct hs_device *device, CUdeviceptr base, uint32_t row, uint32_t slots);

/* The device is idle: no lane has the area any more. */
void hs_many_settle(CUdevice device);

/* The area went with its context. */
void hs_many_forget(CUdevice device);

/*
 * Enqueues what a resolve launch with these arguments (but for span and tiles)
 * would do, by way of the staging area. Returns 0, -EAGAIN when it is not for
 * that launch, or another negative errno: then the launch goes on with the
 * engine's own list. Launch path.
 */
int hs_many_resolve(struct hs_device *device, struct hs_layer *layer, struct hs_lane_site *lane,
	const struct hs_resolve_args *list, const struct hs_site *site);

/* Room of the device's area for the layer: the index of its first row, and rows;
 * 0 when there is none. */
uint32_t hs_many_room(const struct hs_layer *layer, int32_t *index);

#endif
