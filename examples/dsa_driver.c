/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include "examples/dsa_driver.h"

struct dsa_driver dsa;

void dsa_check(CUresult result, const char *call)
{
	const char *name = NULL;

	if (result == CUDA_SUCCESS)
		return;
	if (dsa.cuGetErrorName)
		dsa.cuGetErrorName(result, &name);
	fprintf(stderr, "dsa_decode: %s: %s\n", call, name ? name : "unknown error");
	exit(1);
}

static void skip(const char *why)
{
	fprintf(stderr, "dsa_decode: no GPU: %s\n", why);
	exit(77);
}

CUdevice dsa_driver_init(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	PFN_cuGetProcAddress_v12000 find = NULL;
	CUdriverProcAddressQueryResult found;
	CUcontext context;
	CUdevice device;

	if (library)
		*(void **)&find = dlsym(library, "cuGetProcAddress_v2");
	if (!find)
		skip(library ? "the driver is older than CUDA 12.0" : "no libcuda.so.1");
#define ENTRY(entry, version)                                                                      \
	if (find(#entry, (void **)&dsa.entry, version, CU_GET_PROC_ADDRESS_DEFAULT, &found) ||     \
		!dsa.entry)                                                                        \
		skip("the driver lacks " #entry);
	DSA_DRIVER(ENTRY)
#undef ENTRY
	if (dsa.cuInit(0) || dsa.cuDeviceGet(&device, 0))
		skip("cuInit fails");
	DSA_CHECK(dsa.cuDevicePrimaryCtxRetain(&context, device));
	DSA_CHECK(dsa.cuCtxSetCurrent(context));
	return device;
}

struct allocation {
	CUdeviceptr ptr;
	size_t bytes;
	bool used;
	struct allocation *next;
};

static struct allocation *allocations;

/* Gives every kept allocation back to the driver. */
static void release_kept(void)
{
	struct allocation **link = &allocations;

	while (*link) {
		struct allocation *a = *link;

		if (a->used) {
			link = &a->next;
			continue;
		}
		DSA_CHECK(dsa.cuMemFree(a->ptr));
		*link = a->next;
		free(a);
	}
}

CUdeviceptr dsa_alloc(size_t bytes)
{
	struct allocation *a;
	CUresult result;

	for (a = allocations; a; a = a->next) {
		if (!a->used && a->bytes >= bytes && a->bytes / 2 <= bytes) {
			a->used = true;
			return a->ptr;
		}
	}
	a = calloc(1, sizeof(*a));
	if (!a)
		abort();
	result = dsa.cuMemAlloc(&a->ptr, bytes);
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		DSA_CHECK(dsa.cuCtxSynchronize());
		release_kept();
		result = dsa.cuMemAlloc(&a->ptr, bytes);
	}
	dsa_check(result, "cuMemAlloc");
	a->bytes = bytes;
	a->used = true;
	a->next = allocations;
	allocations = a;
	return a->ptr;
}

void dsa_free(CUdeviceptr ptr)
{
	for (struct allocation *a = allocations; a; a = a->next) {
		if (a->ptr == ptr)
			a->used = false;
	}
}

void dsa_alloc_finish(void)
{
	for (struct allocation *a = allocations; a; a = a->next)
		a->used = false;
	release_kept();
}
