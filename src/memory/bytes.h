/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_BYTES_H
#define SRC_MEMORY_BYTES_H

/* Arithmetic of sizes, which never goes below zero. */

#include <stddef.h>

static inline size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* How much a is above b. */
static inline size_t above(size_t a, size_t b)
{
	return a > b ? a - b : 0;
}

#endif
