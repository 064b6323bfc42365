/* SPDX-License-Identifier: MIT */
#ifndef SOFTGPU_GRID_H
#define SOFTGPU_GRID_H

/*
 * One launch of a kernel: its blocks, their threads (a fibre each), barriers
 * and warp calls. The order is first come first served, or random when the
 * driver has a seed. The driver's lock is held throughout.
 */

#include <stdbool.h>
#include <stdint.h>
#include "softgpu/kernel.h"

/* Threads that are under way at once, all blocks of a launch together: what
 * the reported multiprocessors hold. A grid that is larger gets blocks in as
 * others end. */
#define SOFT_SM_COUNT 4
#define SOFT_SM_THREADS 2048

struct soft_launch {
	const struct soft_kernel *kernel;
	unsigned grid[3], block[3];
	size_t shared;	      /* dynamic, bytes */
	unsigned char *bytes; /* all arguments, naturally aligned; owned */
	void *handle;	      /* as it was launched: a CUkernel or a CUfunction */
	bool by_kernel;
};

struct soft_grid;

enum soft_progress { SOFT_RUNNING, SOFT_DONE, SOFT_STUCK };

/* The launch must outlive the grid. NULL without memory. */
struct soft_grid *soft_grid_create(const struct soft_launch *launch);
/* Lets one thread go on to its next schedule point. SOFT_STUCK: every thread
 * waits for another; said on standard error. */
enum soft_progress soft_grid_step(struct soft_grid *grid);
void soft_grid_destroy(struct soft_grid *grid);

/* Offsets of the arguments in soft_launch.bytes; returns their end. */
size_t soft_kernel_layout(const struct soft_kernel *kernel, size_t offsets[SOFT_PARAMS_MAX]);

#endif
