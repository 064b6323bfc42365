/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_RESOLVE_H
#define SRC_CACHE_RESOLVE_H

#include "src/cache/lane.h"
#include "src/cache/layer.h"

/*
 * Every launch of a lane over a layer is followed by two passes over that layer
 * (kernels/keep.h), which the lane's next launches take along. What eager lanes
 * of the device still owe is enqueued here, on the default stream of the current
 * context: with the device idle, at safe moments.
 */
void hs_resolve_settle(struct hs_device *device);

/* Enqueues HS_DEVICE_RESOLVE or _MANY_HOT with these arguments, but for those that follow
 * from the list's form, and all that belongs to it. 0 or a negative errno. Launch path. */
int hs_resolve_launch(struct hs_device *device, enum hs_device_kernel kernel,
	struct hs_layer *layer, struct hs_lane_site *lane, struct hs_resolve_args *args,
	const struct hs_site *site);

#endif
