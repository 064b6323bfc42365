/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_BENCH_ROWS_H
#define TOOLS_BENCH_ROWS_H

/*
 * The pinned host memory that rows are fetched from, filled with
 * HS_SWAPIN_WORD, at an address that leaves room for hot rows above it. The
 * device reads it at its host address.
 */

#include <stdint.h>

struct hs_rows {
	void *start;
	uint64_t bytes; /* a multiple of 2 MiB */
};

/* Returns 0 or a negative errno; says what failed on standard error. Needs a
 * current context. */
int hs_rows_open(struct hs_rows *pool, uint64_t bytes);
void hs_rows_close(struct hs_rows *pool);

/* 0 if every word still holds what it was filled with, else -EBADMSG. */
int hs_rows_check(const struct hs_rows *pool);

#endif
