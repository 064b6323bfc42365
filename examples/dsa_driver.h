/* SPDX-License-Identifier: MIT */
#ifndef EXAMPLES_DSA_DRIVER_H
#define EXAMPLES_DSA_DRIVER_H

/*
 * The CUDA driver as the example uses it: entries found by name at run time,
 * and a small caching allocator. Failures of the driver end the program with
 * one line and status 1; no GPU or no driver ends it with status 77.
 */

#include <cudaTypedefs.h>
#include <stddef.h>

/* entry, version of the prototype */
#define DSA_DRIVER(ENTRY)                                                                          \
	ENTRY(cuInit, 2000)                                                                        \
	ENTRY(cuGetErrorName, 6000)                                                                \
	ENTRY(cuDeviceGet, 2000)                                                                   \
	ENTRY(cuDeviceGetName, 2000)                                                               \
	ENTRY(cuDevicePrimaryCtxRetain, 7000)                                                      \
	ENTRY(cuDevicePrimaryCtxRelease, 11000)                                                    \
	ENTRY(cuCtxSetCurrent, 4000)                                                               \
	ENTRY(cuCtxSynchronize, 2000)                                                              \
	ENTRY(cuModuleLoadData, 2000)                                                              \
	ENTRY(cuModuleGetFunction, 2000)                                                           \
	ENTRY(cuMemGetInfo, 3020)                                                                  \
	ENTRY(cuMemAlloc, 3020)                                                                    \
	ENTRY(cuMemFree, 3020)                                                                     \
	ENTRY(cuMemsetD8Async, 3020)                                                               \
	ENTRY(cuMemcpyHtoDAsync, 3020)                                                             \
	ENTRY(cuMemcpyDtoH, 3020)                                                                  \
	ENTRY(cuStreamCreate, 2000)                                                                \
	ENTRY(cuStreamDestroy, 4000)                                                               \
	ENTRY(cuStreamSynchronize, 2000)                                                           \
	ENTRY(cuStreamBeginCapture, 10010)                                                         \
	ENTRY(cuStreamEndCapture, 10000)                                                           \
	ENTRY(cuGraphInstantiateWithFlags, 11040)                                                  \
	ENTRY(cuGraphLaunch, 10000)                                                                \
	ENTRY(cuGraphDestroy, 10000)                                                               \
	ENTRY(cuGraphExecDestroy, 10000)                                                           \
	ENTRY(cuLaunchKernel, 4000)

struct dsa_driver {
#define ENTRY(name, version) PFN_##name##_v##version name;
	DSA_DRIVER(ENTRY)
#undef ENTRY
};

extern struct dsa_driver dsa;

/* Opens the driver and makes the first GPU's primary context current. */
CUdevice dsa_driver_init(void);

void dsa_check(CUresult result, const char *call);
#define DSA_CHECK(call) dsa_check((call), #call)

/*
 * Device memory. A freed allocation is kept and handed out again to a request
 * that it fits; when the driver has no memory left, the kept ones are given
 * back and the driver is asked once more.
 */
CUdeviceptr dsa_alloc(size_t bytes);
void dsa_free(CUdeviceptr ptr);
void dsa_alloc_finish(void);

#endif
