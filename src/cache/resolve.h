/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_RESOLVE_H
#define SRC_CACHE_RESOLVE_H

#include "src/cache/device.h"

/*
 * Every launch of a lane over a layer is followed by two passes over that layer
 * (kernels/keep.h), which the lane's next launches take along. What eager lanes
 * of the device still owe is enqueued here, on the default stream of the current
 * context: with the device idle, at safe moments.
 */
void hs_resolve_settle(struct hs_device *device);

#endif
