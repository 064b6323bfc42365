/* SPDX-License-Identifier: MIT */
#ifndef SOFTGPU_RANDOM_H
#define SOFTGPU_RANDOM_H

/* The order of everything, when there is a seed: xorshift64*. */

#include <stdbool.h>
#include <stdint.h>

extern uint64_t soft_random_state; /* 0: no seed, the plain order */

static inline bool soft_fuzzing(void)
{
	return soft_random_state != 0;
}

/* Spreads the bits: xorshift is slow to leave a small state. Only 0 gives 0. */
static inline uint64_t soft_random_start(uint64_t seed)
{
	seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9;
	seed = (seed ^ seed >> 27) * 0x94d049bb133111eb;
	return seed ^ seed >> 31;
}

/* Below n; n > 0. */
static inline unsigned soft_random(unsigned n)
{
	uint64_t x = soft_random_state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	soft_random_state = x;
	return (unsigned)(((x * 0x2545f4914f6cdd1d) >> 32) * n >> 32);
}

#endif
