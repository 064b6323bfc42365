/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_BENCH_MEMORY_H
#define TOOLS_BENCH_MEMORY_H

/*
 * Stands in for src/memory and the options under src/cache, so that the bench
 * times the library's own resolve path on rows that it placed itself: windows
 * on the host that may overlap, hot areas where the address trick needs them,
 * and memory for the cache's own state from one arena.
 */

#include <stddef.h>
#include <stdint.h>
#include "src/memory/memory.h"

enum { HS_BENCH_WINDOWS = 64 };

/* The arena holds `own` bytes; the cache sees `slots` hot rows a layer and the
 * policy by its number. Returns 0 or a negative errno. */
int hs_bench_memory_open(size_t own, uint32_t slots, int policy);

/* Gives back the arena and every hot area; forgets the windows. */
void hs_bench_memory_close(void);

/* A host window over [start, start + bytes) with rows of `row` bytes, or NULL
 * when there are HS_BENCH_WINDOWS already. any_order: as struct hs_window has it. */
struct hs_window *hs_bench_window(CUdeviceptr start, size_t bytes, uint32_t row, bool any_order);

/* Lowest index and count of the hot rows above base; count 0 when there are none. */
void hs_bench_hot(CUdeviceptr base, uint32_t row, uint32_t *low, uint32_t *count);

/* Bytes that the cache has taken: of the arena, and in hot areas. */
void hs_bench_taken(size_t *own, size_t *hot);

#endif
