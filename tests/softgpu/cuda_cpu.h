/* SPDX-License-Identifier: MIT */
#ifndef SOFTGPU_CUDA_CPU_H
#define SOFTGPU_CUDA_CPU_H

/*
 * CUDA's device side for a C compiler: what a kernel of the common subset may
 * use when it runs on the stand-in driver. Atomics, barriers and fences are
 * schedule points: there another thread, block or stream may go on. Plain
 * loads and stores are not.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "softgpu/kernel.h"

#define __global__ static __attribute__((unused))
#define __device__ __attribute__((unused))
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

typedef struct {
	unsigned x, y, z;
} uint3;
typedef struct {
	int x, y;
} __attribute__((aligned(8))) int2;
typedef struct {
	unsigned x, y;
} __attribute__((aligned(8))) uint2;
typedef struct {
	float x, y;
} __attribute__((aligned(8))) float2;
typedef struct {
	int x, y, z, w;
} __attribute__((aligned(16))) int4;
typedef struct {
	unsigned x, y, z, w;
} __attribute__((aligned(16))) uint4;
typedef struct {
	float x, y, z, w;
} __attribute__((aligned(16))) float4;

/* The thread that runs: a plain variable, because one kernel thread runs at a
 * time in the whole process. */
struct soft_thread {
	uint3 thread_idx, block_idx, block_dim, grid_dim;
};

#pragma GCC visibility push(default)
extern struct soft_thread *soft_self;

void soft_point(void);
void soft_sleep(void);
/* The block's shared memory: static, the same for every call of a kernel, and
 * dynamic (the launch's size). */
void *soft_shared(size_t bytes);
void *soft_shared_dynamic(void);
int soft_barrier(int predicate, int *any, int *all);
enum soft_collective { SOFT_BALLOT, SOFT_SHUFFLE, SOFT_ANY, SOFT_ALL, SOFT_MATCH, SOFT_SUM };
/* Waits for the lanes of mask to make the same call; see grid.c for results. */
uint64_t soft_warp(enum soft_collective what, unsigned mask, uint64_t value, unsigned source);
#pragma GCC visibility pop

#define threadIdx (soft_self->thread_idx)
#define blockIdx (soft_self->block_idx)
#define blockDim (soft_self->block_dim)
#define gridDim (soft_self->grid_dim)
#define warpSize 32

#define __syncthreads() ((void)soft_barrier(0, NULL, NULL))
#define __syncthreads_count(p) soft_barrier(!!(p), NULL, NULL)
static inline __attribute__((unused)) int __syncthreads_or(int predicate)
{
	int any;

	soft_barrier(!!predicate, &any, NULL);
	return any;
}
static inline __attribute__((unused)) int __syncthreads_and(int predicate)
{
	int all;

	soft_barrier(!!predicate, NULL, &all);
	return all;
}

static inline __attribute__((unused)) unsigned soft_lane(void)
{
	return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31;
}

/* Any type of at most 8 bytes. Width 32 only. */
#define soft_shuffle(mask, v, source)                                                              \
	({                                                                                         \
		__typeof__(v) soft_v = (v);                                                        \
		uint64_t soft_bits = 0;                                                            \
		memcpy(&soft_bits, &soft_v, sizeof(soft_v));                                       \
		soft_bits = soft_warp(SOFT_SHUFFLE, mask, soft_bits, source);                      \
		memcpy(&soft_v, &soft_bits, sizeof(soft_v));                                       \
		soft_v;                                                                            \
	})
#define __shfl_sync(mask, v, source) soft_shuffle(mask, v, (unsigned)(source)&31)
#define __shfl_xor_sync(mask, v, lanes) soft_shuffle(mask, v, soft_lane() ^ (unsigned)(lanes))
#define __shfl_down_sync(mask, v, n)                                                               \
	soft_shuffle(mask, v, soft_lane() + (n) < 32 ? soft_lane() + (n) : soft_lane())
#define __shfl_up_sync(mask, v, n)                                                                 \
	soft_shuffle(mask, v, soft_lane() >= (unsigned)(n) ? soft_lane() - (n) : soft_lane())
#define __ballot_sync(mask, p) ((unsigned)soft_warp(SOFT_BALLOT, mask, !!(p), 0))
#define __any_sync(mask, p) ((int)soft_warp(SOFT_ANY, mask, !!(p), 0))
#define __all_sync(mask, p) ((int)soft_warp(SOFT_ALL, mask, !!(p), 0))
#define __reduce_add_sync(mask, v) ((unsigned)soft_warp(SOFT_SUM, mask, (unsigned)(v), 0))
#define __match_any_sync(mask, v) ((unsigned)soft_warp(SOFT_MATCH, mask, (uint64_t)(v), 0))
static inline __attribute__((unused)) void __syncwarp(unsigned mask)
{
	soft_warp(SOFT_BALLOT, mask, 0, 0);
}
#define __syncwarp(...) __syncwarp(0xffffffffu __VA_OPT__(&(__VA_ARGS__)))

#define __popc(v) __builtin_popcount(v)
#define __popcll(v) __builtin_popcountll(v)
#define __ffs(v) __builtin_ffs((int)(v))
#define __ffsll(v) __builtin_ffsll((long long)(v))
static inline __attribute__((unused)) int __clz(int v)
{
	return v ? __builtin_clz((unsigned)v) : 32;
}
static inline __attribute__((unused)) int __clzll(long long v)
{
	return v ? __builtin_clzll((unsigned long long)v) : 64;
}
/* The offset-th set bit from base up (offset > 0) or down (< 0); ~0 if none. */
static inline __attribute__((unused)) unsigned __fns(unsigned mask, unsigned base, int offset)
{
	int step = offset < 0 ? -1 : 1;

	if (!offset)
		return mask >> base & 1 ? base : ~0u;
	for (int bit = (int)base; bit >= 0 && bit < 32; bit += step) {
		if (mask >> bit & 1 && !(offset -= step))
			return (unsigned)bit;
	}
	return ~0u;
}

/* One thread runs at a time in the whole process: nothing is left to order. */
#define __threadfence_block() soft_point()
#define __threadfence() __threadfence_block()
#define __threadfence_system() __threadfence_block()
#define __nanosleep(ns) ((void)(ns), soft_sleep())
#define __ldg(p) (*(p))

#define atomicAdd(p, v) (soft_point(), __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST))
#define atomicSub(p, v) (soft_point(), __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST))
#define atomicOr(p, v) (soft_point(), __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST))
#define atomicAnd(p, v) (soft_point(), __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST))
#define atomicXor(p, v) (soft_point(), __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST))
#define atomicExch(p, v) (soft_point(), __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST))
#define atomicCAS(p, expected, v)                                                                  \
	({                                                                                         \
		__typeof__(*(p)) soft_old = (expected);                                            \
		soft_point();                                                                      \
		__atomic_compare_exchange_n(                                                       \
			p, &soft_old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);               \
		soft_old;                                                                          \
	})
#define soft_atomic_pick(p, v, op)                                                                 \
	({                                                                                         \
		__typeof__(p) soft_p = (p);                                                        \
		__typeof__(*soft_p) soft_v = (v), soft_old;                                        \
		soft_point();                                                                      \
		soft_old = *soft_p;                                                                \
		if (soft_v op soft_old)                                                            \
			*soft_p = soft_v;                                                          \
		soft_old;                                                                          \
	})
#define atomicMax(p, v) soft_atomic_pick(p, v, >)
#define atomicMin(p, v) soft_atomic_pick(p, v, <)

#define min(a, b)                                                                                  \
	({                                                                                         \
		__typeof__((a) + (b)) soft_a = (a), soft_b = (b);                                  \
		soft_a < soft_b ? soft_a : soft_b;                                                 \
	})
#define max(a, b)                                                                                  \
	({                                                                                         \
		__typeof__((a) + (b)) soft_a = (a), soft_b = (b);                                  \
		soft_a > soft_b ? soft_a : soft_b;                                                 \
	})

#endif
