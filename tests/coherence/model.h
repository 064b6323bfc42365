/* SPDX-License-Identifier: MIT */
#ifndef TESTS_COHERENCE_MODEL_H
#define TESTS_COHERENCE_MODEL_H

/*
 * What the kernels of this test do to one row, said once for the kernels and
 * for the plain model that they are compared with.
 */

#include <stdint.h>

#ifdef __CUDACC__
#define COHERENCE_INLINE static inline __host__ __device__
#else
#define COHERENCE_INLINE static inline
#endif

struct coherence_attend_args {
	uint64_t kv;   /* address of slot 0's row */
	uint64_t list; /* int32 [rows][stride], -1 for none */
	uint64_t out;  /* uint64 [rows][k]: a hash of the row that was read, 0 for none */
	int32_t rows, k, stride;
	int32_t row_bytes;
	int64_t block_stride; /* bytes from one block of 64 rows to the next */
};

COHERENCE_INLINE uint64_t coherence_mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ (hash >> 29);
}

/* Word `i` of a row that was written with `value`. */
COHERENCE_INLINE uint32_t coherence_word(uint32_t value, uint32_t i)
{
	return (value * 2654435761u) ^ (i * 40503u);
}

#endif
