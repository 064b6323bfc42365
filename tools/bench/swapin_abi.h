/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_BENCH_SWAPIN_ABI_H
#define TOOLS_BENCH_SWAPIN_ABI_H

/* What the benchmark's host and device code share. */

#include <stdint.h>

/* The pool's contents: 8-byte word i holds a value that no other word holds,
 * so a row that came from another slot is seen. (Multiplying by an odd number
 * is a bijection.) */
#define HS_SWAPIN_WORD(i) ((uint64_t)(i)*0x9e3779b97f4a7c15u + 0x5851f42d4c957f2du)

/* Copies row slots[i] of the window to row i of out, i < *count. */
struct hs_swapin_gather_args {
	const void *window;
	void *out;
	const int32_t *slots;
	const uint32_t *count;
	uint32_t row; /* bytes, a multiple of 16 */
};

/*
 * Looks at what attention would read: entry i of `indices` (NULL: i) stands for
 * slot slots[i]. An index in [hot_low, hot_low + hot_count) is a hot row, at
 * base + index * row; else it must be the slot itself, and only where in_place.
 * Padding, a slot of -1, must stay -1.
 */
struct hs_swapin_check_args {
	const int32_t *indices, *slots;
	uint64_t base;
	uint64_t word; /* the pool's number of the first word of slot 0 */
	uint32_t count, row;
	uint32_t hot_low, hot_count;
	uint32_t in_place;
	uint32_t *result; /* enum hs_swapin_result, added to */
};

enum hs_swapin_result {
	HS_SWAPIN_HOT,	     /* entries that read a hot row with the right bytes */
	HS_SWAPIN_IN_PLACE,  /* entries that read the window, right bytes */
	HS_SWAPIN_PADDING,   /* entries of -1 that stayed so */
	HS_SWAPIN_BAD_INDEX, /* entries that point to neither */
	HS_SWAPIN_BAD_BYTES, /* entries whose row holds anything else */
	HS_SWAPIN_RESULTS,
};

/* Reads bytes (a multiple of 16), through the L2. */
struct hs_swapin_sweep_args {
	const void *from;
	uint64_t bytes;
	uint32_t *result; /* not written */
};

/* An empty launch: what the timing itself costs. */
struct hs_swapin_empty_args {
	uint32_t unused;
};

/* Copies count entries: a kernel as small as most of a decode step's are. */
struct hs_swapin_small_args {
	const int32_t *list;
	int32_t *out;
	uint32_t count;
};

#endif
