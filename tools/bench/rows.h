/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_BENCH_ROWS_H
#define TOOLS_BENCH_ROWS_H

/*
 * The host memory that rows are fetched from, filled with HS_SWAPIN_WORD, at an
 * address that leaves room for hot rows above it. The device reads it at its
 * host address.
 */

#include <stdint.h>

enum hs_rows_kind {
	HS_ROWS_REGISTERED,
	HS_ROWS_MANAGED, /* src/memory/managed.h */
	HS_ROWS_BESIDE,	 /* registered, at other addresses: a second pool */
};

struct hs_rows {
	void *start;
	uint64_t bytes; /* a multiple of 2 MiB */
	uint32_t kind;	/* enum hs_rows_kind; what was had */
};

/* Where managed memory cannot be had, that is said on standard error, and it is
 * registered memory. Returns 0 or a negative errno; says what failed, too. Needs a
 * current context, and for managed memory that hooks/map.c is the process's mmap. */
int hs_rows_open(struct hs_rows *pool, uint64_t bytes, enum hs_rows_kind kind);
void hs_rows_close(struct hs_rows *pool);

/* 0 if every word still holds what it was filled with, else -EBADMSG. The processor
 * reads them, and may have managed memory mapped in smaller pages: comes last. */
int hs_rows_check(const struct hs_rows *pool);

#endif
