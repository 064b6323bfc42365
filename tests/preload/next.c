/* SPDX-License-Identifier: MIT */
/* A library of somebody else that wraps what comes next, as profilers and
 * allocators do: a libc function, and one of the driver's that we wrap too. */
#include <dlfcn.h>
#include <stdio.h>
#include <cuda.h>

int puts(const char *text)
{
	int (*next)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "puts");

	if (!next || next == puts)
		return fprintf(stderr, "RTLD_NEXT came back to its caller\n");
	next("(wrapped)");
	return next(text);
}

CUresult cuMemGetAddressRange(CUdeviceptr *start, size_t *bytes, CUdeviceptr ptr)
{
	CUresult (*next)(CUdeviceptr *, size_t *, CUdeviceptr) = (CUresult(*)(
		CUdeviceptr *, size_t *, CUdeviceptr))dlsym(RTLD_NEXT, "cuMemGetAddressRange_v2");

	if (!next || next == cuMemGetAddressRange) {
		fprintf(stderr, "RTLD_NEXT came back to its caller\n");
		return CUDA_ERROR_UNKNOWN;
	}
	return next(start, bytes, ptr);
}
