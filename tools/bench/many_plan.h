/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_BENCH_MANY_PLAN_H
#define TOOLS_BENCH_MANY_PLAN_H

/* What tools/bench/many is asked to measure. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tools/bench/rows.h"

#define HS_MANY_PREFIXES 8
#define HS_MANY_LAYERS 32

extern const char hs_many_plan_usage[];

struct hs_many_plan {
	uint64_t rows, k, row, layers, window_mib, staging, hot, repeat, flush_mib, seed;
	uint64_t fresh; /* --new */
	uint64_t prefix[HS_MANY_PREFIXES];
	unsigned prefixes;
	enum hs_rows_kind kind;
	bool json;
};

/* Entries of the lists. */
size_t hs_many_plan_entries(const struct hs_many_plan *plan);

/* Defaults and options; false: not as the usage says. */
bool hs_many_plan_parse(struct hs_many_plan *plan, int argc, char **argv);

#endif
