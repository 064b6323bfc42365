/* SPDX-License-Identifier: MIT */
#ifndef SRC_LAUNCH_KERNEL_H
#define SRC_LAUNCH_KERNEL_H

/*
 * Function handles and what they are. A handle is classified the first time
 * that it is seen, without synchronising; after that a look-up takes no lock
 * and costs nanoseconds. What is answered stays readable for the life of the
 * process.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "hooks/driver.h"
#include "src/launch/profile.h"
#include "src/memory/memory.h"

struct hs_kernel {
	CUfunction function;
	struct hs_kernel *replaced; /* what the handle meant before */
	atomic_uint generation;
	const struct hs_profile *profile; /* NULL: unknown */
	char *name;			  /* as the driver tells it, "?" if it does not */
	unsigned count;			  /* parameters */
	uint32_t *offsets, *sizes;	  /* bytes, of every parameter */

	/* Set on the launch path, logged at safe moments. */
	_Atomic(struct hs_window *) touched; /* unknown kernel: a window it carried */
	_Atomic(const char *) refused;	     /* why a launch was left alone */
	atomic_bool touch_said, refusal_said, seen_said;
	atomic_uint_fast64_t launches; /* on a window */
};

/* NULL only when memory is out. */
struct hs_kernel *hs_kernel_find(CUfunction function);

/* Handles may mean other kernels from here on. */
void hs_kernel_forget(void);

/* Every kernel seen so far. Not on the launch path. */
void hs_kernel_each(void (*visit)(struct hs_kernel *kernel, void *data), void *data);

#endif
