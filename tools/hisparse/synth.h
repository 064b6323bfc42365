/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_SYNTH_H
#define TOOLS_HISPARSE_SYNTH_H

/*
 * Synthetic traces whose two free numbers are fitted to some published miss
 * rates and tested on others. Nothing here is a measured miss rate.
 *
 * Layers are not alike: selections change slowly in early layers, fast in the
 * middle, and almost entirely in layer 0 (DeepSeek-V3.2, arXiv 2512.10576,
 * figure 2). Four classes stand for the 61 layers.
 */

#include <stdbool.h>
#include <stdint.h>
#include "tools/bench/trace.h"
#include "tools/hisparse/scores.h"

/* drift and noise of the middle of the range; a layer class moves at `pace`. */
struct hs_calibration {
	const char *name;
	const char *fitted_to;
	double drift, noise;
};

enum hs_calibration_index { HS_EASY, HS_HARD, HS_CALIBRATIONS };
extern const struct hs_calibration hs_calibrations[HS_CALIBRATIONS];

/* The share of the score that never changes: half, set before anything was
 * compared and not fitted. With two rates there is nothing to fit it to. */
#define HS_SYNTH_FIXED 0.5

enum { HS_LAYER_CLASSES = 4, HS_SYNTH_TOPK = 2048 };
struct hs_layer_class {
	unsigned layers; /* of 61 */
	double pace;
};
extern const struct hs_layer_class hs_layer_classes[HS_LAYER_CLASSES];

/* Sets fixed, drift, noise and newest for a layer of the class. */
void hs_synth_scores(
	struct hs_scores_in *in, const struct hs_calibration *calibration, unsigned class);

/* Fills a trace of the shape that its fields give; ctx must be at least
 * steps + k. The note says that it is synthetic. */
int hs_synth_fill(struct hs_dsat *trace, const struct hs_calibration *calibration, uint64_t seed);

#endif
