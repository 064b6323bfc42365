/* SPDX-License-Identifier: MIT */
#ifndef TESTS_UNIT_FAKE_METRICS_H
#define TESTS_UNIT_FAKE_METRICS_H

/* What src/trace counts: two layers, one of which does not swap, two kernels
 * that nobody knows and one that somebody does. */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdint.h>
#include "src/base/options.h"
#include "src/trace/metrics.h"

struct fake_metrics {
	struct hs_options options;
	struct hs_memory_counts memory;
	struct hs_launch_counts launch;
	struct hs_verify_counts verify;
	struct hs_cache_counts cache[2];
	char log[4096]; /* "warn: …" lines up to options.log */
	unsigned settled, finished; /* calls of the session's functions */
	int log_fd;	/* the lines go there, too; -1: nowhere */
};
extern struct fake_metrics fake;

void fake_reset(void);

#endif
