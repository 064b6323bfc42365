/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_PORT_H
#define KERNELS_PORT_H

/*
 * What a kernel source needs beyond the common subset of CUDA C++ and C, so
 * that the same file is compiled by nvcc for the GPU and by a C compiler for
 * the stand-in driver. A kernel takes one struct:
 *
 *	HS_KERNEL(hs_copy, struct hs_copy_args) { ... a.count ... }
 *
 * threadIdx, blockIdx, blockDim, gridDim, __syncthreads, __syncwarp,
 * __ballot_sync, __shfl_sync, __popc, __ffs, __clz, __fns are the same on both
 * sides. State that other threads change while we look goes through the
 * accessors below: they are where the stand-in driver may switch threads.
 * Accessors take pointers to 32- or 64-bit integers.
 */

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__

/* The pragma that unrolls the loop that follows. */
#define HS_UNROLL _Pragma("unroll")
#define HS_DEVICE static __device__ __forceinline__
#define HS_KERNEL(name, type) extern "C" __global__ void name(const __grid_constant__ type a)
/* As HS_KERNEL, never launched with more than `threads` threads a block. */
#define HS_KERNEL_BOUNDED(name, type, threads)                                                     \
	extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ type a)
/* And so that `blocks` of them are resident on a processor. */
#define HS_KERNEL_RESIDENT(name, type, threads, blocks)                                            \
	extern "C" __global__ void __launch_bounds__(threads, blocks)                              \
		name(const __grid_constant__ type a)
/* Declares `type *s` in memory that the block shares, not initialised. One a
 * kernel. */
#define HS_SHARED(type, s)                                                                         \
	__shared__ type s##_storage;                                                               \
	type *const s = &s##_storage

typedef uint4 hs_u128;

/* 16 bytes of a row that is read once: not kept in L1. Only for memory that
 * nobody writes while the kernel runs. */
HS_DEVICE hs_u128 hs_load16_stream(const void *p)
{
	hs_u128 v;

	asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		     : "l"(p));
	return v;
}

HS_DEVICE hs_u128 hs_load16(const void *p)
{
	return *(const hs_u128 *)p;
}

HS_DEVICE void hs_store16(void *p, hs_u128 v)
{
	*(hs_u128 *)p = v;
}

/* The line of p is on its way to the L2. */
HS_DEVICE void hs_warm(const void *p)
{
	asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* A function that is called seldom: its registers are not the caller's. */
#define HS_SELDOM static __device__ __noinline__

/* A word of mapped host memory that the host changes meanwhile. */
HS_DEVICE uint64_t hs_load_system(const uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

HS_DEVICE void hs_store_system(uint32_t *p, uint32_t v)
{
	asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

/* v, about which the compiler knows nothing: what is computed from it is not
 * kept in registers from before. */
HS_DEVICE uint32_t hs_opaque(uint32_t v)
{
	asm volatile("" : "+r"(v));
	return v;
}

/* The sum of the warp's values. */
HS_DEVICE uint32_t hs_warp_sum(uint32_t v)
{
#if __CUDA_ARCH__ >= 800
	return __reduce_add_sync(0xffffffffu, v);
#else
	for (uint32_t i = 16; i; i /= 2)
		v += __shfl_xor_sync(0xffffffffu, v, i);
	return v;
#endif
}

/* ns since some start. */
HS_DEVICE uint64_t hs_clock(void)
{
	uint64_t v;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
	return v;
}

HS_DEVICE void hs_fence(void)
{
	__threadfence();
}

HS_DEVICE void hs_fence_system(void)
{
	__threadfence_system();
}

/* Loads and stores of global memory, atomics of any. Overloads for one integer type: T as kernels
 * spell it, A as CUDA's atomics do (they have none for unsigned long), PTX type and register class.
 */
#define HS_ACCESSORS(T, A, ptx, reg)                                                               \
	HS_DEVICE T hs_load_relaxed(const T *p)                                                    \
	{                                                                                          \
		T v;                                                                               \
		asm volatile("ld.relaxed.gpu.global." ptx " %0, [%1];"                             \
			     : "=" reg(v)                                                          \
			     : "l"(p)                                                              \
			     : "memory");                                                          \
		return v;                                                                          \
	}                                                                                          \
	HS_DEVICE T hs_load_acquire(const T *p)                                                    \
	{                                                                                          \
		T v;                                                                               \
		asm volatile("ld.acquire.gpu.global." ptx " %0, [%1];"                             \
			     : "=" reg(v)                                                          \
			     : "l"(p)                                                              \
			     : "memory");                                                          \
		return v;                                                                          \
	}                                                                                          \
	HS_DEVICE void hs_store_relaxed(T *p, T v)                                                 \
	{                                                                                          \
		asm volatile("st.relaxed.gpu.global." ptx " [%0], %1;" ::"l"(p), reg(v)            \
			     : "memory");                                                          \
	}                                                                                          \
	HS_DEVICE void hs_store_release(T *p, T v)                                                 \
	{                                                                                          \
		asm volatile("st.release.gpu.global." ptx " [%0], %1;" ::"l"(p), reg(v)            \
			     : "memory");                                                          \
	}                                                                                          \
	HS_DEVICE T hs_atomic_add(T *p, T v)                                                       \
	{                                                                                          \
		return (T)atomicAdd((A *)p, (A)v);                                                 \
	}                                                                                          \
	HS_DEVICE T hs_atomic_exch(T *p, T v)                                                      \
	{                                                                                          \
		return (T)atomicExch((A *)p, (A)v);                                                \
	}                                                                                          \
	/* Returns what was there: it was stored iff that is `expected`. */                        \
	HS_DEVICE T hs_atomic_cas(T *p, T expected, T v)                                           \
	{                                                                                          \
		return (T)atomicCAS((A *)p, (A)expected, (A)v);                                    \
	}                                                                                          \
	HS_DEVICE T hs_atomic_max(T *p, T v)                                                       \
	{                                                                                          \
		return (T)atomicMax((A *)p, (A)v);                                                 \
	}                                                                                          \
	HS_DEVICE T hs_atomic_or(T *p, T v)                                                        \
	{                                                                                          \
		return (T)atomicOr((A *)p, (A)v);                                                  \
	}                                                                                          \
	HS_DEVICE T hs_atomic_and(T *p, T v)                                                       \
	{                                                                                          \
		return (T)atomicAnd((A *)p, (A)v);                                                 \
	}

HS_ACCESSORS(int32_t, int, "u32", "r")
HS_ACCESSORS(uint32_t, unsigned, "u32", "r")
HS_ACCESSORS(uint64_t, unsigned long long, "u64", "l")
HS_ACCESSORS(unsigned long long, unsigned long long, "u64", "l")
#undef HS_ACCESSORS

#else

#include <time.h>
#include "softgpu/cuda_cpu.h"

#define HS_UNROLL
#define HS_DEVICE static inline __attribute__((unused))
#define HS_KERNEL(name, type)                                                                      \
	static void name(const type a);                                                            \
	SOFT_KERNEL(name, type)                                                                    \
	static void name(const type a)
#define HS_KERNEL_BOUNDED(name, type, threads) HS_KERNEL(name, type)
#define HS_KERNEL_RESIDENT(name, type, threads, blocks) HS_KERNEL(name, type)
#define HS_SHARED(type, s) type *const s = (type *)soft_shared(sizeof(type))

typedef uint4 hs_u128;

HS_DEVICE hs_u128 hs_load16(const void *p)
{
	soft_point();
	return *(const hs_u128 *)p;
}

HS_DEVICE hs_u128 hs_load16_stream(const void *p)
{
	return hs_load16(p);
}

HS_DEVICE void hs_store16(void *p, hs_u128 v)
{
	soft_point();
	*(hs_u128 *)p = v;
}

#define HS_SELDOM HS_DEVICE
#define hs_load_system(p) (soft_point(), __atomic_load_n(p, __ATOMIC_ACQUIRE))
#define hs_store_system(p, v) (soft_point(), __atomic_store_n(p, v, __ATOMIC_RELEASE))

HS_DEVICE uint64_t hs_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#define hs_warp_sum(v) __reduce_add_sync(0xffffffffu, v)
#define hs_opaque(v) (v)
#define hs_warm(p) ((void)(p))
#define hs_fence() __threadfence()
#define hs_fence_system() __threadfence_system()
#define hs_load_relaxed(p) (soft_point(), __atomic_load_n(p, __ATOMIC_RELAXED))
#define hs_load_acquire(p) (soft_point(), __atomic_load_n(p, __ATOMIC_ACQUIRE))
#define hs_store_relaxed(p, v) (soft_point(), __atomic_store_n(p, v, __ATOMIC_RELAXED))
#define hs_store_release(p, v) (soft_point(), __atomic_store_n(p, v, __ATOMIC_RELEASE))
#define hs_atomic_add(p, v) atomicAdd(p, v)
#define hs_atomic_exch(p, v) atomicExch(p, v)
#define hs_atomic_cas(p, expected, v) atomicCAS(p, expected, v)
#define hs_atomic_max(p, v) atomicMax(p, v)
#define hs_atomic_or(p, v) atomicOr(p, v)
#define hs_atomic_and(p, v) atomicAnd(p, v)

#endif
#endif
