/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/synth.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include "tools/bench/workers.h"

/* What `hisparse synth --fit` finds with seed 1, from a start of its own. */
const struct hs_calibration hs_calibrations[HS_CALIBRATIONS] = {
	[HS_EASY] = {"easy", "GLM-5.1, LongBench: 30 % at k, 13.4 % at 2 k", 35.23, 0.0337},
	[HS_HARD] = {"hard", "DeepSeek-V3.2, SWE-bench: 44 % overlap", 8.53, 0.1393},
};

/*
 * Layers of DeepSeek-V3.2 by how much of a step's selection was not in the step
 * before: layer 0 about 95 %, layers 1-16 about 20 %, 17-43 about 52 %, 44-60
 * about 35 %, by eye from arXiv 2512.10576. The pace is that over the mean of
 * layers 1-60. Layer 0 is noise in any calibration.
 */
const struct hs_layer_class hs_layer_classes[HS_LAYER_CLASSES] = {
	{1, 0}, {16, 0.26}, {27, 1.82}, {17, 0.81}};

static const double layer_0_noise = 30;

void hs_synth_scores(
	struct hs_scores_in *in, const struct hs_calibration *calibration, unsigned class)
{
	double pace = hs_layer_classes[class].pace;

	in->newest = in->k / 32;
	in->fixed = HS_SYNTH_FIXED;
	in->drift = class ? calibration->drift / pace : calibration->drift;
	in->noise = class ? calibration->noise * pace : layer_0_noise;
}

/* The class of a layer, by its depth when the trace has fewer than all 61. */
static unsigned class_of(uint32_t layer, uint32_t layers)
{
	double depth = (layer + 0.5) * 61 / layers;

	if (depth < 1)
		return 0;
	return depth < 17 ? 1 : depth < 44 ? 2 : 3;
}

struct filling {
	struct hs_dsat *trace;
	const struct hs_calibration *calibration;
	uint64_t seed;
	_Atomic int error;
};

static void fill_one(void *data, uint32_t index)
{
	struct filling *filling = data;
	struct hs_dsat *trace = filling->trace;
	uint32_t layer = index / trace->batch, request = index % trace->batch;
	struct hs_scores_in in = {.k = trace->k,
		.steps = trace->steps,
		.prompt = (uint32_t)(trace->ctx - trace->steps),
		.seed = filling->seed * 1000003 + index};
	int err;

	hs_synth_scores(&in, filling->calibration, class_of(layer, trace->layers));
	err = hs_scores_make(hs_dsat_list(trace, 0, layer, request),
		(uint64_t)trace->layers * trace->batch * trace->k, &in);
	if (err)
		filling->error = err;
}

int hs_synth_fill(struct hs_dsat *trace, const struct hs_calibration *calibration, uint64_t seed)
{
	struct filling filling = {trace, calibration, seed, 0};

	if (trace->ctx < (uint64_t)trace->steps + trace->k)
		return -EINVAL;
	hs_workers_run(trace->layers * trace->batch, fill_one, &filling);
	snprintf(trace->note, sizeof(trace->note),
		"synthetic, calibration %s (fitted to %s), seed %llu: no measured selections",
		calibration->name, calibration->fitted_to, (unsigned long long)seed);
	return filling.error;
}
