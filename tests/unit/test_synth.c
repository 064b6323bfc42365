/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/hisparse/stream.h"
#include "tools/hisparse/targets.h"

enum { STEPS = 12, K = 128, PROMPT = 2000 };

static void lists_are_selections(void **state)
{
	struct hs_scores_in in = {.fixed = 0.5,
		.drift = 10,
		.noise = 0.05,
		.k = K,
		.prompt = PROMPT,
		.steps = STEPS,
		.newest = 16,
		.seed = 4};
	static int32_t lists[STEPS][K], again[STEPS][K];

	(void)state;
	assert_int_equal(hs_scores_make(lists[0], K, &in), 0);
	for (int step = 0; step < STEPS; step++) {
		for (int i = 1; i < K; i++)
			assert_true(lists[step][i] > lists[step][i - 1]);
		assert_true(lists[step][0] >= 0);
		/* The newest 16 of PROMPT + step positions close the list. */
		for (int i = 0; i < 16; i++)
			assert_int_equal(lists[step][K - 1 - i], PROMPT + step - 1 - i);
	}
	assert_int_equal(hs_scores_make(again[0], K, &in), 0);
	assert_memory_equal(again, lists, sizeof(lists));
	in.seed = 5;
	assert_int_equal(hs_scores_make(again[0], K, &in), 0);
	assert_memory_not_equal(again, lists, sizeof(lists));
	in.newest = K + 1;
	assert_int_equal(hs_scores_make(again[0], K, &in), -EINVAL);
	in.newest = 0;
	in.k = PROMPT + 1;
	assert_int_equal(hs_scores_make(again[0], K, &in), -EINVAL);
}

static double changed(double drift, double noise)
{
	struct hs_dsat trace = {.layers = 1, .steps = 40, .batch = 1, .k = K, .ctx = PROMPT + 40};
	struct hs_scores_in in = {.fixed = 0.5,
		.drift = drift,
		.noise = noise,
		.k = K,
		.prompt = PROMPT,
		.steps = 40,
		.seed = 1};
	struct hs_stream stream;
	struct hs_reuse reuse;
	double share;

	assert_int_equal(hs_dsat_init(&trace), 0);
	assert_int_equal(hs_scores_make(trace.positions, K, &in), 0);
	assert_int_equal(hs_stream_init(&stream, &trace, 0, 0), 0);
	assert_int_equal(hs_reuse_init(&reuse, stream.ids), 0);
	assert_int_equal(hs_reuse_add(&reuse, &stream, 1, 0, NULL), 0);
	share = (double)reuse.fresh / (double)reuse.total;
	hs_reuse_finish(&reuse);
	hs_stream_finish(&stream);
	hs_dsat_finish(&trace);
	return share;
}

static void knobs_turn_the_right_way(void **state)
{
	(void)state;
	assert_true(changed(1e9, 1e-9) < 0.01);
	assert_true(changed(40, 0.01) < changed(40, 0.1));
	assert_true(changed(80, 0.01) < changed(10, 0.01));
	/* Nothing but noise: by chance, 128 of 2,000 come back. */
	assert_true(fabs(changed(40, 1e4) - (1 - 128 / 2020.)) < 0.02);
}

static void traces_say_what_they_are(void **state)
{
	struct hs_dsat trace = {.layers = 3, .steps = STEPS, .batch = 2, .k = K, .ctx = 1000};
	struct hs_dsat read;
	char path[] = "synth-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(hs_dsat_init(&trace), 0);
	assert_int_equal(hs_synth_fill(&trace, &hs_calibrations[HS_HARD], 3), 0);
	assert_int_equal(strncmp(trace.note, "synthetic, calibration hard", 27), 0);
	assert_non_null(strstr(trace.note, "no measured selections"));
	assert_int_equal(hs_dsat_write(&trace, path), 0);
	assert_int_equal(hs_dsat_read(&read, path), 0);
	assert_string_equal(read.note, trace.note);
	assert_memory_equal(read.positions, trace.positions, sizeof(int32_t) * STEPS * 3 * 2 * K);
	hs_dsat_finish(&read);

	/* Two requests of a layer are two streams. */
	assert_memory_not_equal(
		hs_dsat_list(&trace, 0, 1, 0), hs_dsat_list(&trace, 0, 1, 1), sizeof(int32_t) * K);
	trace.ctx = STEPS + K - 1;
	assert_int_equal(hs_synth_fill(&trace, &hs_calibrations[HS_HARD], 3), -EINVAL);

	/* What follows the lists must be a note. */
	fd = open(path, O_WRONLY | O_APPEND);
	assert_int_equal(ftruncate(fd, 32 + (off_t)sizeof(int32_t) * STEPS * 3 * 2 * K), 0);
	assert_int_equal(write(fd, "tail", 4), 4);
	close(fd);
	assert_int_equal(hs_dsat_read(&read, path), -EBADMSG);
	unlink(path);
	hs_dsat_finish(&trace);
}

/* The easy calibration, fitted to two of six published rates, as far as it is
 * from the rest: four buffers of 2 k rows by less than a point, 4 k rows by two. */
static void easy_calibration_holds(void **state)
{
	struct hs_target targets[HS_TARGETS];
	int count = hs_targets_measure(targets, HS_EASY, &hs_calibrations[HS_EASY], 1);
	int fitted = 0, held_out = 0;

	(void)state;
	assert_true(count > 6 && count <= HS_TARGETS);
	for (int i = 0; i < count; i++) {
		double error = fabs(hs_target_error(&targets[i]));

		if (targets[i].use == HS_TARGET_FITTED) {
			assert_true(error < 0.002);
			fitted++;
		} else if (*targets[i].id == 'B' || *targets[i].id == 'C') {
			assert_true(error < (*targets[i].id == 'B' ? 0.008 : 0.025));
			held_out++;
		}
	}
	assert_int_equal(fitted, 2);
	assert_int_equal(held_out, 4);
	assert_true(hs_target_mean(targets, count, HS_TARGET_FITTED) < 0.002);
}

static void means_are_of_rates(void **state)
{
	const struct hs_target targets[] = {
		{.rate = true, .low = 0.1, .high = 0.1, .got = 0.2},
		{.rate = true, .low = 0.5, .high = 0.6, .got = 0.3},
		{.rate = true, .low = 0, .high = 0, .got = 1, .use = HS_TARGET_FITTED},
		{.low = 5, .high = 5, .got = 900},
	};

	(void)state;
	assert_true(fabs(hs_target_mean(targets, 4, HS_TARGET_HELD_OUT) - 0.15) < 1e-9);
	assert_true(hs_target_mean(targets, 4, HS_TARGET_FITTED) == 1);
	assert_true(hs_target_mean(targets, 4, HS_TARGET_SHAPE) == 0);
}

static void errors_of_ranges(void **state)
{
	struct hs_target target = {.low = 2, .high = 3, .got = 2.5};

	(void)state;
	assert_true(hs_target_error(&target) == 0);
	target.got = 1.5;
	assert_true(hs_target_error(&target) == -0.5);
	target.got = 4;
	assert_true(hs_target_error(&target) == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_are_selections),
		cmocka_unit_test(knobs_turn_the_right_way),
		cmocka_unit_test(traces_say_what_they_are),
		cmocka_unit_test(easy_calibration_holds),
		cmocka_unit_test(errors_of_ranges),
		cmocka_unit_test(means_are_of_rates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
