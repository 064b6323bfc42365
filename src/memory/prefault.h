/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_PREFAULT_H
#define SRC_MEMORY_PREFAULT_H

/*
 * Pages that are there before anybody needs them, made by up to 16 threads of
 * ours, which run on the processors of a NUMA node, block all signals and are gone
 * on return. What takes longer than 2 s in all is told at level info. No driver
 * call is made here.
 */

#include <stddef.h>

enum hs_prefault {
	HS_PREFAULT_ALL,     /* every page; what the kernel refuses is written to instead */
	HS_PREFAULT_EACH,    /* every page, only as the kernel says: one that cannot be made
			      * raises no signal */
	HS_PREFAULT_GRANULE, /* the same of the first page of each HS_GRANULE: who owns the
			      * memory makes the rest (managed.h) */
};

/* bytes: a multiple of HS_GRANULE. node < 0: anywhere. Returns 0, or a negative errno
 * of the first page that could not be made; not of ALL. */
int hs_prefault(void *start, size_t bytes, enum hs_prefault what, int node);

#endif
