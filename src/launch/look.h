/* SPDX-License-Identifier: MIT */
#ifndef SRC_LAUNCH_LOOK_H
#define SRC_LAUNCH_LOOK_H

/*
 * A launch while it is looked at: its kernel's profile, the fields as they are
 * in this launch, and what the profile's expressions come to. Launch path.
 */

#include "src/cache/cache.h"
#include "src/launch/kernel.h"
#include "src/launch/launch.h"

struct hs_look {
	struct hs_launch *launch;
	struct hs_kernel *kernel;
	const struct hs_profile *profile;
	int64_t fields[HS_PROFILE_FIELDS];
	struct hs_expr_values values;
};

/* False when the launch does not carry what the profile reads. */
bool hs_look_at(struct hs_look *look, struct hs_launch *launch, struct hs_kernel *kernel);

/* Where it goes. */
struct hs_site hs_look_site(const struct hs_launch *launch);

/* An expression that is not there is 0. False when it has no value, or none
 * that fits. */
bool hs_look_eval(const struct hs_look *look, const struct hs_expr *expr, int64_t *result);
bool hs_look_u32(const struct hs_look *look, const struct hs_expr *expr, uint32_t *result);

/* The window of the profile's base, or NULL; *base is set when it has one. */
struct hs_window *hs_look_window(const struct hs_look *look, CUdeviceptr *base);

/* The first need that does not hold, or NULL. */
const char *hs_look_unmet(const struct hs_look *look);

/* Roles of kernels that name no window (arrive.c). Return what the driver did. */
CUresult hs_arrive_transfer(struct hs_look *look);
CUresult hs_arrive_table(struct hs_look *look);

#endif
