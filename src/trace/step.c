/* SPDX-License-Identifier: MIT */
#include "src/trace/step.h"

#include <stdbool.h>

uint64_t hs_step_next(struct hs_step *steps, uint32_t lane, uint32_t layer)
{
	const uint32_t at = lane <= HS_LANES ? lane : HS_LANES;
	bool begins;

	if (!steps->step)
		begins = true;
	else if (steps->lanes[at].step == steps->step)
		begins = layer <= steps->lanes[at].layer;
	else
		begins = layer < steps->layer;
	steps->step += begins;
	steps->layer = layer;
	steps->lanes[at].step = steps->step;
	steps->lanes[at].layer = layer;
	return steps->step;
}
