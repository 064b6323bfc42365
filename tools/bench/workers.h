/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_BENCH_WORKERS_H
#define TOOLS_BENCH_WORKERS_H

/*
 * Runs job(data, i) for every i below count on all processors and returns when
 * all are done. Jobs run in any order. The caller works too, so it also
 * finishes where no thread can be started.
 */

#include <stdint.h>

void hs_workers_run(uint32_t count, void (*job)(void *data, uint32_t index), void *data);

#endif
