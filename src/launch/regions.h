/* SPDX-License-Identifier: MIT */
#ifndef SRC_LAUNCH_REGIONS_H
#define SRC_LAUNCH_REGIONS_H

/*
 * What a launch may write, from the `output` lines of its profile, as the
 * one-dimensional regions that the verify kernels take. Dense dimensions are
 * folded, so that a contiguous tensor is one region with a row per query row.
 */

#include <stdbool.h>
#include "kernels/abi.h"
#include "src/launch/profile.h"

#define HS_REGIONS_MAX 64

struct hs_regions {
	unsigned count;
	uint64_t rows; /* of all of them */
	struct hs_region region[HS_REGIONS_MAX];
};

/* False when the profile tells no output, or more than fits. */
bool hs_regions_find(struct hs_regions *regions, const struct hs_profile *profile,
	const struct hs_expr_values *values);

#endif
