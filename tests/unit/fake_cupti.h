/* SPDX-License-Identifier: MIT */
#ifndef TESTS_UNIT_FAKE_CUPTI_H
#define TESTS_UNIT_FAKE_CUPTI_H

/* The other side of tests/unit/fake_cupti.c, found with dlsym. */

#include <stddef.h>
#include <stdint.h>

struct fake_cupti {
	int held;		  /* there is a subscriber */
	int enabled;		  /* kinds of records */
	int refuse;		  /* enabling fails */
	unsigned late;		  /* kernels that the next flush brings */
	int stuck;		  /* only a forced flush brings the buffer */
	int mute;		  /* kernels are recorded for somebody else */
	size_t dropped;		  /* records, told with the next buffer */
	unsigned flushes, forced; /* calls, the flag of the last one */
};

struct fake_cupti *fake_cupti(void);
void fake_deliver(unsigned first, unsigned count, const char *name);
void fake_deliver_foreign(unsigned char *buffer, size_t size);
/* A kernel runs: recorded only while that is enabled, brought by the next flush. */
void fake_kernel(uint64_t start, uint64_t end, uint64_t node, const char *name);

#endif
