/* SPDX-License-Identifier: MIT */
#ifndef SOFTGPU_TEST_SOFT_H
#define SOFTGPU_TEST_SOFT_H

/* What the stand-in driver's own tests share. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include "softgpu/cuda_cpu.h"
#include "softgpu/softgpu.h"

#define MIB ((size_t)1 << 20)
#define ok(call) assert_int_equal(call, CUDA_SUCCESS)
#define refused(call, error) assert_int_equal(call, error)
#define PARAMS(...)                                                                                \
	(void *[])                                                                                 \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

static inline int start(void **state)
{
	CUcontext context;

	(void)state;
	ok(cuInit(0));
	ok(cuDevicePrimaryCtxRetain(&context, 0));
	ok(cuCtxSetCurrent(context));
	return 0;
}

static inline CUfunction function(const char *name)
{
	static CUmodule module; /* once: loading spoils a capture */
	CUfunction f;

	if (!module)
		ok(cuModuleLoadData(&module, "any image"));
	ok(cuModuleGetFunction(&f, module, name));
	return f;
}

static inline void launch(
	const char *name, unsigned blocks, unsigned threads, CUstream stream, void **params)
{
	ok(cuLaunchKernel(function(name), blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL));
}

/* Zeroed device memory that the test may read in place. */
static inline void *zeroed(size_t bytes)
{
	CUdeviceptr ptr;

	ok(cuMemAlloc_v2(&ptr, bytes));
	ok(cuMemsetD8_v2(ptr, 0, bytes));
	ok(cuCtxSynchronize());
	return (void *)ptr;
}

#endif
