/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/targets.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "tools/bench/workers.h"
#include "tools/hisparse/policy.h"
#include "tools/hisparse/stream.h"

enum { K = HS_SYNTH_TOPK };

/* The runs behind the numbers. tokens: rows that a step selects for, more than
 * one with multi-token prediction. */
enum setting { GLM_100K, SWE_68K, BENCH_32K, MTP_32K, MTP_64K, MTP_96K, MTP_128K, SETTINGS };
static const struct {
	uint32_t prompt, steps, tokens;
} settings[SETTINGS] = {
	[GLM_100K] = {100384, 1000, 1},
	[SWE_68K] = {68665, 300, 1},
	[BENCH_32K] = {32768, 400, 1},
	[MTP_32K] = {32768, 150, 3},
	[MTP_64K] = {65536, 150, 3},
	[MTP_96K] = {98304, 150, 3},
	[MTP_128K] = {131072, 150, 3},
};

enum { BENCH_ROWS = 6554 }; /* a fifth of 32 K, arXiv 2512.10576 */

/* One layer class in one setting. */
struct run {
	struct hs_reuse reuse;
	uint32_t steps; /* that count */
	uint64_t fifo, random, belady;
	uint32_t *misses; /* per step, of an LRU of BENCH_ROWS */
};

struct measuring {
	const struct hs_calibration *calibration;
	uint64_t seed;
	bool policies;
	_Atomic int error;
	struct run runs[SETTINGS * HS_LAYER_CLASSES];
};

static int measure(struct measuring *measuring, struct run *run, uint32_t index)
{
	enum setting setting = index / HS_LAYER_CLASSES;
	uint32_t tokens = settings[setting].tokens;
	struct hs_scores_in in = {.k = K,
		.prompt = settings[setting].prompt,
		.steps = settings[setting].steps * tokens,
		.seed = measuring->seed * 7919 + index};
	/* The lists of the tokens of one step lie side by side. */
	struct hs_dsat trace = {.layers = 1,
		.batch = 1,
		.steps = settings[setting].steps,
		.k = K * tokens,
		.ctx = in.prompt + in.steps};
	/* The paper's means are over the first steps; elsewhere a cache is filled
	 * first. */
	uint32_t skip = setting == GLM_100K ? 0 : 20;
	struct hs_stream stream = {0};
	int err;

	hs_synth_scores(&in, measuring->calibration, index % HS_LAYER_CLASSES);
	err = hs_dsat_init(&trace);
	if (!err)
		err = hs_scores_make(trace.positions, K, &in);
	if (!err)
		err = hs_stream_init(&stream, &trace, 0, 0);
	hs_dsat_finish(&trace);
	if (!err)
		err = hs_reuse_init(&run->reuse, stream.ids);
	if (!err && !(run->misses = calloc(trace.steps, sizeof(*run->misses))))
		err = -ENOMEM;
	run->steps = trace.steps - skip;
	if (!err)
		err = hs_reuse_add(&run->reuse, &stream, skip, BENCH_ROWS, run->misses);
	if (!err && setting == GLM_100K && measuring->policies) {
		err = hs_replay_run(&run->fifo, &stream, HS_REPLAY_FIFO, 2 * K, skip, 1);
		if (!err)
			err = hs_replay_run(
				&run->random, &stream, HS_REPLAY_RANDOM, 2 * K, skip, 1);
		if (!err)
			err = hs_replay_run(
				&run->belady, &stream, HS_REPLAY_BELADY, 2 * K, skip, 1);
	}
	hs_stream_finish(&stream);
	return err;
}

static void job(void *data, uint32_t index)
{
	struct measuring *measuring = data;
	int err = measure(measuring, &measuring->runs[index], index);

	if (err)
		measuring->error = err;
}

static void finish(struct measuring *measuring)
{
	for (int i = 0; i < SETTINGS * HS_LAYER_CLASSES; i++) {
		hs_reuse_finish(&measuring->runs[i].reuse);
		free(measuring->runs[i].misses);
	}
}

static const struct run *run_of(const struct measuring *m, enum setting setting, unsigned class)
{
	return &m->runs[setting * HS_LAYER_CLASSES + class];
}

static double share(uint64_t part, const struct run *run)
{
	return (double)part / (double)run->reuse.total;
}

/* Means over the layers of classes first to last, weighed by layers. */
static double mean(const struct measuring *m, enum setting setting, const unsigned weight[4],
	double (*value)(const struct run *run, uint64_t rows), uint64_t rows)
{
	double sum = 0, layers = 0;

	for (unsigned class = 0; class < HS_LAYER_CLASSES; class ++) {
		if (!weight[class])
			continue;
		sum += weight[class] * value(run_of(m, setting, class), rows);
		layers += weight[class];
	}
	return sum / layers;
}

static double changed(const struct run *run, uint64_t rows)
{
	(void)rows;
	return share(run->reuse.fresh, run);
}

static double lru(const struct run *run, uint64_t rows)
{
	return share(hs_reuse_misses(&run->reuse, rows), run);
}

/* Rows that a step of one layer misses. */
static double lru_rows(const struct run *run, uint64_t rows)
{
	return (double)hs_reuse_misses(&run->reuse, rows) / run->steps;
}

static double fifo(const struct run *run, uint64_t rows)
{
	(void)rows;
	return share(run->fifo, run);
}

static double pick(const struct run *run, uint64_t rows)
{
	(void)rows;
	return share(run->random, run);
}

static double belady(const struct run *run, uint64_t rows)
{
	(void)rows;
	return share(run->belady, run);
}

static const unsigned all[4] = {1, 16, 27, 17}, late_half[4] = {0, 0, 24, 17},
		      only[4][4] = {{1}, {0, 1}, {0, 0, 1}, {0, 0, 0, 1}};

/* Steps until the misses of a cold cache first fall below 1.5 times their mean
 * from step 20 on, and the highest of those over that mean. */
static void settle(const struct run *run, uint32_t steps, double *until, double *peak)
{
	double sum = 0, most = 0;
	uint32_t step = 0;

	for (uint32_t i = 20; i < steps; i++) {
		sum += run->misses[i];
		most = run->misses[i] > most ? run->misses[i] : most;
	}
	sum /= steps - 20;
	while (step < steps && run->misses[step] > 1.5 * sum)
		step++;
	*until = step;
	*peak = most / sum;
}

static int runs(struct measuring *m, uint32_t count)
{
	hs_workers_run(count, job, m);
	return m->error;
}

#define ROW(...)                                                                                   \
	targets[n++] = (struct hs_target)                                                          \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}
#define GLM "GLM-5.1, 100K, arXiv 2608.07009"
#define ESS "DeepSeek-V3.2, arXiv 2512.10576, by eye"
#define GVR "DeepSeek-V3.2, SWE-bench, arXiv 2604.22312"

int hs_targets_measure(struct hs_target targets[HS_TARGETS], enum hs_calibration_index which,
	const struct hs_calibration *calibration, uint64_t seed)
{
	struct measuring *m = calloc(1, sizeof(*m));
	enum hs_target_use easy = which == HS_EASY ? HS_TARGET_FITTED : HS_TARGET_HELD_OUT;
	enum hs_target_use hard = which == HS_HARD ? HS_TARGET_FITTED : HS_TARGET_HELD_OUT;
	double until, peak, small, third, quarter;
	int n = 0, err;

	if (!m)
		return -ENOMEM;
	m->calibration = calibration;
	m->seed = seed;
	m->policies = true;
	err = runs(m, SETTINGS * HS_LAYER_CLASSES);
	if (err)
		goto out;
	ROW("A", "misses with k rows", GLM, true, 0.30, 0.30, easy,
		mean(m, GLM_100K, all, changed, 0));
	ROW("B", "misses with 2 k rows, LRU", GLM, true, 0.134, 0.134, easy,
		mean(m, GLM_100K, all, lru, 2 * K));
	ROW("B", "misses with 2 k rows, random", GLM, true, 0.161, 0.161, HS_TARGET_HELD_OUT,
		mean(m, GLM_100K, all, pick, 0));
	ROW("B", "misses with 2 k rows, FIFO", GLM, true, 0.172, 0.172, HS_TARGET_HELD_OUT,
		mean(m, GLM_100K, all, fifo, 0));
	ROW("B", "misses with 2 k rows, Belady", GLM, true, 0.082, 0.082, HS_TARGET_HELD_OUT,
		mean(m, GLM_100K, all, belady, 0));
	ROW("C", "misses with 4 k rows, LRU", GLM, true, 0.067, 0.067, HS_TARGET_HELD_OUT,
		mean(m, GLM_100K, all, lru, 4 * K));
	ROW("D", "overlap of steps, layer 0", ESS, true, 0, 0.1, HS_TARGET_SHAPE,
		1 - mean(m, BENCH_32K, only[0], changed, 0));
	ROW("D", "overlap of steps, layers 1-16", ESS, true, 0.7, 0.9, HS_TARGET_SHAPE,
		1 - mean(m, BENCH_32K, only[1], changed, 0));
	ROW("D", "overlap of steps, layers 17-43", ESS, true, 0.35, 0.6, HS_TARGET_SHAPE,
		1 - mean(m, BENCH_32K, only[2], changed, 0));
	ROW("D", "overlap of steps, layers 44-60", ESS, true, 0.5, 0.8, HS_TARGET_SHAPE,
		1 - mean(m, BENCH_32K, only[3], changed, 0));
	ROW("E", "overlap of steps, layers 20-60", GVR, true, 0.44, 0.44, hard,
		1 - mean(m, SWE_68K, late_half, changed, 0));
	ROW("E", "overlap of steps, layer 0", GVR, true, 0.01, 0.02, HS_TARGET_HELD_OUT,
		1 - mean(m, SWE_68K, only[0], changed, 0));
	small = mean(m, BENCH_32K, all, lru_rows, BENCH_ROWS);
	third = mean(m, BENCH_32K, all, lru_rows, BENCH_ROWS * 3 / 2);
	quarter = mean(m, BENCH_32K, all, lru_rows, BENCH_ROWS * 2);
	ROW("F", "missed rows, 6.4K of 32K, mean layer", ESS, false, 100, 400, HS_TARGET_HELD_OUT,
		small);
	ROW("F", "missed rows, 6.4K of 32K, calmest layer", ESS, false, 16.7, 16.7,
		HS_TARGET_HELD_OUT, mean(m, BENCH_32K, only[1], lru_rows, BENCH_ROWS));
	ROW("F", "missed rows, 6.4K of 32K, busiest layer", ESS, false, 605, 605,
		HS_TARGET_HELD_OUT, mean(m, BENCH_32K, only[2], lru_rows, BENCH_ROWS));
	ROW("F", "9.6K rows over 6.4K rows", ESS, true, 0.5, 0.5, HS_TARGET_HELD_OUT,
		third / small);
	ROW("F", "12.8K rows over 6.4K rows", ESS, true, 1 / 3., 1 / 3., HS_TARGET_HELD_OUT,
		quarter / small);
	/* A step's three lists are one selection of 3 k at most. */
	ROW("G", "missed rows, MTP 2, 3.2K of 32K", ESS, false, 640, 640, HS_TARGET_HELD_OUT,
		mean(m, MTP_32K, all, lru_rows, 3277));
	ROW("G", "missed rows, MTP 2, 6.4K of 32K", ESS, false, 190, 190, HS_TARGET_HELD_OUT,
		mean(m, MTP_32K, all, lru_rows, 6554));
	ROW("G", "missed rows, MTP 2, 6.4K of 64K", ESS, false, 225, 225, HS_TARGET_HELD_OUT,
		mean(m, MTP_64K, all, lru_rows, 6554));
	ROW("G", "missed rows, MTP 2, 12.8K of 128K", ESS, false, 140, 140, HS_TARGET_HELD_OUT,
		mean(m, MTP_128K, all, lru_rows, 13107));
	settle(run_of(m, BENCH_32K, 2), settings[BENCH_32K].steps, &until, &peak);
	ROW("H", "cold cache, missed rows of the first step", ESS, false, 1700, 1700,
		HS_TARGET_HELD_OUT, run_of(m, BENCH_32K, 2)->misses[0]);
	ROW("H", "cold cache, steps until it settles", ESS, false, 5, 10, HS_TARGET_HELD_OUT,
		until);
	ROW("I", "highest step over the mean, one layer", ESS, false, 2, 3, HS_TARGET_HELD_OUT,
		peak);
	err = n;
out:
	finish(m);
	free(m);
	return err;
}

double hs_target_error(const struct hs_target *target)
{
	if (target->got < target->low)
		return target->got - target->low;
	return target->got > target->high ? target->got - target->high : 0;
}

double hs_target_mean(const struct hs_target *targets, int count, enum hs_target_use use)
{
	double sum = 0;
	int n = 0;

	for (int i = 0; i < count; i++) {
		if (!targets[i].rate || targets[i].use != use)
			continue;
		sum += fabs(hs_target_error(&targets[i]));
		n++;
	}
	return n ? sum / n : 0;
}

/* The two miss rates that the easy calibration is fitted to. */
static int misses_of(double out[2], const struct hs_calibration *calibration, uint64_t seed)
{
	struct measuring *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return -ENOMEM;
	m->calibration = calibration;
	m->seed = seed;
	err = runs(m, (GLM_100K + 1) * HS_LAYER_CLASSES);
	if (!err) {
		out[0] = mean(m, GLM_100K, all, changed, 0);
		out[1] = mean(m, GLM_100K, all, lru, 2 * K);
	}
	finish(m);
	free(m);
	return err;
}

/* Newton's method on the logarithms of drift and noise, always from the same
 * start: topics of ten steps, a tenth of the variance. */
static int fit_easy(struct hs_calibration *calibration, uint64_t seed)
{
	static const double wanted[2] = {0.30, 0.134}, nudge = 0.1;

	calibration->drift = 10;
	calibration->noise = 0.1;
	for (int turn = 0; turn < 12; turn++) {
		struct hs_calibration other = *calibration;
		double at[2], by_drift[2], by_noise[2], off[2], determinant, drift, noise;
		int err = misses_of(at, calibration, seed);

		if (err)
			return err;
		off[0] = wanted[0] - at[0];
		off[1] = wanted[1] - at[1];
		if (fabs(off[0]) < 0.0005 && fabs(off[1]) < 0.0005)
			return 0;
		other.drift *= exp(nudge);
		err = misses_of(by_drift, &other, seed);
		if (err)
			return err;
		other = *calibration;
		other.noise *= exp(nudge);
		err = misses_of(by_noise, &other, seed);
		if (err)
			return err;
		for (int i = 0; i < 2; i++) {
			by_drift[i] = (by_drift[i] - at[i]) / nudge;
			by_noise[i] = (by_noise[i] - at[i]) / nudge;
		}
		determinant = by_drift[0] * by_noise[1] - by_drift[1] * by_noise[0];
		drift = (off[0] * by_noise[1] - off[1] * by_noise[0]) / determinant;
		noise = (by_drift[0] * off[1] - by_drift[1] * off[0]) / determinant;
		if (!isfinite(drift) || !isfinite(noise))
			return -ERANGE;
		calibration->drift *= exp(fmax(-1, fmin(1, drift)));
		calibration->noise *= exp(fmax(-1, fmin(1, noise)));
	}
	return -ERANGE;
}

static int overlap_of(double *out, const struct hs_calibration *calibration, uint64_t seed)
{
	struct measuring *m = calloc(1, sizeof(*m));
	int err = m ? 0 : -ENOMEM;

	if (err)
		return err;
	m->calibration = calibration;
	m->seed = seed;
	for (uint32_t class = 2; !err && class < HS_LAYER_CLASSES; class ++) {
		uint32_t index = SWE_68K * HS_LAYER_CLASSES + class;

		err = measure(m, &m->runs[index], index);
	}
	if (!err)
		*out = 1 - mean(m, SWE_68K, late_half, changed, 0);
	finish(m);
	free(m);
	return err;
}

static int fit_hard(struct hs_calibration *calibration, uint64_t seed)
{
	const struct hs_calibration *easy = &hs_calibrations[HS_EASY];
	double low = 0.5, high = 16;

	for (int turn = 0; turn < 12; turn++) {
		double pace = sqrt(low * high), overlap;
		int err;

		calibration->drift = easy->drift / pace;
		calibration->noise = easy->noise * pace;
		err = overlap_of(&overlap, calibration, seed);
		if (err)
			return err;
		if (fabs(overlap - 0.44) < 0.0005)
			return 0;
		if (overlap > 0.44)
			low = pace;
		else
			high = pace;
	}
	return high / low < 1.01 ? 0 : -ERANGE;
}

int hs_targets_fit(
	struct hs_calibration *calibration, enum hs_calibration_index which, uint64_t seed)
{
	return which == HS_EASY ? fit_easy(calibration, seed) : fit_hard(calibration, seed);
}
