/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_BENCH_MEDIAN_H
#define TOOLS_BENCH_MEDIAN_H

#include <stdlib.h>

static inline int hs_bench_ascending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of count values, at least one; they are sorted then. */
static inline double hs_bench_median(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), hs_bench_ascending);
	return values[count / 2];
}

#endif
