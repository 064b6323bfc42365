/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_ARRIVE_H
#define SRC_CACHE_ARRIVE_H

/*
 * Rows that arrive without a launch that names their window: what cache.h has
 * for them (hs_cache_arrived, hs_cache_tabled) is made in arrive.c.
 */

#include "src/cache/layer.h"

/* A launch of the layer reads its list. Launch path. */
void hs_arrive_attended(
	struct hs_device *device, const struct hs_layer *layer, const struct hs_site *site);

#endif
