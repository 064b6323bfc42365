/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_TARGETS_H
#define TOOLS_HISPARSE_TARGETS_H

/*
 * Published statistics of real top-k selections, what a calibration gives for
 * each, and the fit to some of them.
 */

#include <stdbool.h>
#include <stdint.h>
#include "tools/hisparse/synth.h"

enum hs_target_use {
	HS_TARGET_HELD_OUT,
	HS_TARGET_FITTED,
	HS_TARGET_SHAPE, /* gave the layers' paces */
};

/* A rate is a share of the selected rows; everything else counts rows of one
 * layer and step, steps, or times the mean, as `what` says. */
struct hs_target {
	const char *id, *what, *source;
	bool rate;
	double low, high; /* as published; equal unless it is a range */
	enum hs_target_use use;
	double got;
};

enum { HS_TARGETS = 24 };

/* Fills targets; returns how many, or a negative errno. Takes seconds. */
int hs_targets_measure(struct hs_target targets[HS_TARGETS], enum hs_calibration_index which,
	const struct hs_calibration *calibration, uint64_t seed);

/* 0 inside a published range, else the signed distance to it. */
double hs_target_error(const struct hs_target *target);

/* Mean distance of the rates with this use, as shares; other rows count nothing. */
double hs_target_mean(const struct hs_target *targets, int count, enum hs_target_use use);

/*
 * Finds drift and noise, whatever the calibration holds. easy: both,
 * from the miss rates with k and 2 k rows. hard: one pace for the easy
 * calibration's two, from the overlap of layers 20 to 60. Returns 0, a negative
 * errno, or -ERANGE when it does not settle. Takes a minute.
 */
int hs_targets_fit(
	struct hs_calibration *calibration, enum hs_calibration_index which, uint64_t seed);

#endif
