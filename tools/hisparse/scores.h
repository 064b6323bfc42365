/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_SCORES_H
#define TOOLS_HISPARSE_SCORES_H

/*
 * Synthetic selections: what a top-k indexer would pick if the scores of its
 * positions moved as random processes do. A position's score is the sum of a
 * part that never changes (some rows matter all the time), a part that drifts
 * with a correlation time of `drift` steps (topics come and go), and noise of
 * each step (rows at the edge flicker). The newest rows are always selected,
 * and every step adds one.
 *
 * It is a model, fitted to published statistics (targets.h), not a recording.
 */

#include <stdint.h>

struct hs_scores_in {
	double fixed; /* variance of the constant part; the drifting one has 1 - fixed */
	double drift; /* steps */
	double noise; /* variance */
	uint32_t k, prompt, steps; /* positions: prompt + steps */
	uint32_t newest;	   /* rows that are selected because they are new */
	uint64_t seed;
};

/* Writes step s's k positions to out + s * stride. Returns 0 or -ENOMEM; -EINVAL
 * when newest > k or k > prompt. */
int hs_scores_make(int32_t *out, uint64_t stride, const struct hs_scores_in *in);

#endif
