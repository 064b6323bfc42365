/* SPDX-License-Identifier: MIT */
#ifndef EXAMPLES_DSA_PORT_H
#define EXAMPLES_DSA_PORT_H

/*
 * dsa_kernels.cu compiles as CUDA C++ for the GPU and as C for the stand-in
 * driver. What the two spell differently is here.
 */

#ifdef __CUDACC__
#define DSA_KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)
#define DSA_DEVICE static __device__ __forceinline__
/* Declares `type *s`, one object per block. */
#define DSA_SHARED(type, s)                                                                        \
	__shared__ type s##_block;                                                                 \
	type *const s = &s##_block
#else
#include "softgpu/cuda_cpu.h"
#define DSA_KERNEL(name, ...) static void name(__VA_ARGS__)
#define DSA_DEVICE static inline
#define DSA_SHARED(type, s) type *const s = (type *)soft_shared(sizeof(type))
#endif

#endif
