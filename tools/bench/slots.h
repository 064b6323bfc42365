/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_BENCH_SLOTS_H
#define TOOLS_BENCH_SLOTS_H

/*
 * DSAT version 2 (src/trace/record.h): what a running engine selected. It is
 * read as a trace of one request that selects, in each step and layer, every
 * slot that any row of the step names, once.
 */

#include <stdio.h>
#include "tools/bench/trace.h"

/* Reads what follows the header. Sets all but the note's tail as hs_dsat_read
 * does. Returns 0, -EBADMSG or -ENOMEM. */
int hs_slots_read(struct hs_dsat *trace, FILE *file);

#endif
