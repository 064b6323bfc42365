/* SPDX-License-Identifier: MIT */
#ifndef SRC_LAUNCH_PARAMS_H
#define SRC_LAUNCH_PARAMS_H

/*
 * The parameters of a launch in either form (an array of pointers, or one
 * packed buffer in `extra`): read where they are, changed in a copy only.
 * Nothing here allocates.
 */

#include <stdbool.h>
#include <stdint.h>
#include "src/launch/kernel.h"
#include "src/launch/launch.h"

/* Parameters [0, count) of the launch; count is at most HS_PROFILE_SIZES. False
 * when the launch does not carry them. */
bool hs_params_find(const struct hs_launch *launch, const struct hs_kernel *kernel,
	const void **params, unsigned count);

/* The window that the next aligned word at or after *cursor points into, before
 * its tail, or NULL at the end. *cursor starts at 0. */
struct hs_window *hs_params_touch(
	const struct hs_launch *launch, const struct hs_kernel *kernel, uint64_t *cursor);

/* A copy of a launch with fields of its own. On the stack of the launch. */
#define HS_COPY_BYTES 4096
#define HS_COPY_PARAMS 64
struct hs_params_copy {
	struct hs_launch launch;
	const struct hs_kernel *kernel;
	void *params[HS_COPY_PARAMS];
	void *extra[5];
	size_t bytes; /* of `buffer` in use */
	_Alignas(16) unsigned char buffer[HS_COPY_BYTES];
};

/* False when the parameters are more than a copy holds. */
bool hs_params_copy(struct hs_params_copy *copy, const struct hs_launch *launch,
	const struct hs_kernel *kernel);
bool hs_params_set(
	struct hs_params_copy *copy, const struct hs_profile_field *field, int64_t value);

#endif
