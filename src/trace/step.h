/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_STEP_H
#define SRC_TRACE_STEP_H

/*
 * Which forward pass a launch belongs to. Layers are numbered in the order in
 * which a model runs them. A step ends when a lane starts again, or when
 * another lane comes in behind where the last one was: micro-batches that run
 * side by side, layer by layer, share a step; a layer that runs several times
 * (drafts) makes a step each time.
 */

#include <stdint.h>
#include "kernels/abi.h"

struct hs_step {
	uint64_t step; /* begins at 1 */
	uint32_t layer;
	struct {
		uint64_t step;
		uint32_t layer;
	} lanes[HS_LANES + 1];
};

/* The step of the next launch, by its lane and layer. */
uint64_t hs_step_next(struct hs_step *steps, uint32_t lane, uint32_t layer);

#endif
