/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/scores.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Scores fall into buckets for the selection: 4,096 for each unit, all of
 * [-8, 8). What lies beyond counts as the edge. */
enum { BUCKETS = 65536, PER_UNIT = 4096 };

/* Counter-based, so that the loop over positions has no carried state. */
static inline uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* The sum of four uniform numbers, scaled to variance 1: near enough to a
 * normal one for scores, whose tail is cut at 2 % or so. */
static inline float normal(uint64_t state)
{
	uint64_t bits = mix(state);
	int sum = (int)(bits & 0xffff) + (int)(bits >> 16 & 0xffff) + (int)(bits >> 32 & 0xffff) +
		  (int)(bits >> 48);

	return (float)(sum - 131070) * (1.7320508f / 65536);
}

static inline uint32_t bucket(float score)
{
	int at = (int)((score + 8) * PER_UNIT);

	return at < 0 ? 0 : at >= BUCKETS ? BUCKETS - 1 : (uint32_t)at;
}

/* The k highest of n scores, in order of position. */
static void select_top(int32_t *out, uint32_t k, const float *score, uint32_t n, uint32_t *filled)
{
	uint32_t above = 0, edge = BUCKETS - 1, at_edge, count = 0;

	memset(filled, 0, BUCKETS * sizeof(*filled));
	for (uint32_t i = 0; i < n; i++)
		filled[bucket(score[i])]++;
	while (above + filled[edge] < k)
		above += filled[edge--];
	at_edge = k - above;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t b = bucket(score[i]);

		if (b < edge || (b == edge && !at_edge))
			continue;
		at_edge -= b == edge;
		out[count++] = (int32_t)i;
	}
}

int hs_scores_make(int32_t *out, uint64_t stride, const struct hs_scores_in *in)
{
	uint32_t positions = in->prompt + in->steps;
	float *fixed = malloc(positions * sizeof(*fixed));
	float *drifting = malloc(positions * sizeof(*drifting));
	float *score = malloc(positions * sizeof(*score));
	uint32_t *filled = malloc(BUCKETS * sizeof(*filled));
	float keep = (float)exp(-1 / in->drift), fresh = sqrtf(1 - keep * keep);
	double unit = 1 / sqrt(1 + in->noise); /* scores of variance 1 */
	float noise = (float)(unit * sqrt(in->noise)), part = (float)(unit * sqrt(1 - in->fixed));
	uint64_t counter = mix(in->seed * 0x9e3779b97f4a7c15u + 1);
	int err = -ENOMEM;

	if (in->newest > in->k || in->k > in->prompt) {
		err = -EINVAL;
		goto out;
	}
	if (!fixed || !drifting || !score || !filled)
		goto out;
	for (uint32_t i = 0; i < positions; i++) {
		fixed[i] =
			(float)(unit * sqrt(in->fixed)) * normal(counter++ * 0x9e3779b97f4a7c15u);
		drifting[i] = normal(counter++ * 0x9e3779b97f4a7c15u);
	}
	for (uint32_t step = 0; step < in->steps; step++) {
		uint32_t n = in->prompt + step;

		for (uint32_t i = 0; i < n; i++) {
			uint64_t state = (counter + 2 * i) * 0x9e3779b97f4a7c15u;

			drifting[i] = keep * drifting[i] + fresh * normal(state);
			score[i] = fixed[i] + part * drifting[i] +
				   noise * normal(state + 0x9e3779b97f4a7c15u);
		}
		counter += 2 * (uint64_t)n;
		for (uint32_t i = 0; i < in->newest; i++)
			score[n - 1 - i] = 8;
		select_top(out + step * stride, in->k, score, n, filled);
	}
	err = 0;
out:
	free(fixed);
	free(drifting);
	free(score);
	free(filled);
	return err;
}
