/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_PINNED_H
#define SRC_MEMORY_PINNED_H

/*
 * Anonymous host memory for windows: huge pages, all of them there already, on
 * a NUMA node of choice, left out of forks and core dumps. Bytes are multiples
 * of HS_GRANULE, addresses too. No driver call is made here.
 */

#include <stdbool.h>
#include <stddef.h>
#include "hooks/driver.h"

/* Zeros, or NULL. node < 0: wherever. The pages are made by up to 16 threads of
 * ours, which block all signals and are gone on return. What takes longer than
 * 2 s in all is told at level info. */
void *hs_pinned_create(size_t bytes, int node);
void hs_pinned_destroy(void *memory, size_t bytes);

/* The same pages at another address, which nothing else may use; to 0: at one
 * of the kernel's choice. NULL: they are where they were. */
void *hs_pinned_move(void *memory, size_t bytes, CUdeviceptr to);

#endif
