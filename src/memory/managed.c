/* SPDX-License-Identifier: MIT */
#include "src/memory/managed.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include "src/base/log.h"
#include "src/memory/prefault.h"
#include "src/memory/steer.h"

/* So many places behind earlier allocations are taken before the driver is given up: a
 * guard, for they should be too small for what we ask for. */
#define STOCK 16

/* What will not be otherwise another time. */
static bool for_good(CUresult result)
{
	return result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE ||
	       result == CUDA_ERROR_INVALID_DEVICE;
}

CUresult hs_managed_share(CUdeviceptr at, size_t bytes, CUdevice with)
{
	const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = with};

	return hs_driver.cuMemAdvise_v2(at, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, device);
}

/* Whether the driver makes all of a granule at its first touch, as it does by default. */
static bool granules(void)
{
	FILE *f = fopen("/sys/module/nvidia_uvm/parameters/uvm_perf_prefetch_enable", "re");
	const int first = f ? fgetc(f) : '1';

	if (f)
		fclose(f);
	return first != '0';
}

/* HOST, not HOST_NUMA: from the latter a copy moves pages to the device (580.159.04). Who
 * maps is told before there are pages: they are mapped as they are made then, in half the
 * time. */
static CUresult settle(CUdeviceptr at, size_t bytes, CUdevice device)
{
	const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
	CUresult result =
		hs_driver.cuMemAdvise_v2(at, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host);
	int error = 0;

	if (result == CUDA_SUCCESS)
		result = hs_managed_share(at, bytes, device);
	if (result != CUDA_SUCCESS)
		return for_good(result) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_MAP_FAILED;
	madvise((void *)at, bytes, MADV_DONTFORK);
	madvise((void *)at, bytes, MADV_DONTDUMP);
	error = hs_prefault((void *)at, bytes, granules() ? HS_PREFAULT_GRANULE : HS_PREFAULT_EACH,
		hs_driver_attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device));
	if (error)
		hs_debug("managed memory: %zu MiB not made (errno %d)", bytes >> 20, -error);
	/* EINVAL: a kernel before 5.14, which does not do so on demand. */
	return !error		  ? CUDA_SUCCESS
	       : error == -EINVAL ? CUDA_ERROR_NOT_SUPPORTED
				  : CUDA_ERROR_OUT_OF_MEMORY;
}

/*
 * Managed memory at *at, or 0: anywhere. What fits behind an earlier allocation, in the
 * 32 MiB that it was rounded up to, the driver puts there and asks nobody: such places
 * are taken until it asks, and ours leave none behind themselves, where somebody else's
 * memory would lie among our addresses. NOT_SUPPORTED: it never asks.
 */
static CUresult allocate(CUdeviceptr *at, size_t bytes)
{
	CUdeviceptr stock[STOCK], got = 0;
	bool asked = false;
	CUresult result;
	size_t n = 0;

	bytes = (bytes + HS_STEER_SLACK - 1) & ~(HS_STEER_SLACK - 1);
	for (;;) {
		hs_steer_begin(*at, bytes);
		result = hs_driver.cuMemAllocManaged(&got, bytes, CU_MEM_ATTACH_GLOBAL);
		asked = hs_steer_end();
		if (result != CUDA_SUCCESS || !*at || got == *at || asked || n == STOCK)
			break;
		stock[n++] = got;
	}
	if (result == CUDA_SUCCESS && *at && got != *at) {
		hs_debug("managed memory: %zu MiB at 0x%llx, not at 0x%llx", bytes >> 20,
			(unsigned long long)got, (unsigned long long)*at);
		hs_driver.cuMemFree_v2(got);
		result = asked ? CUDA_ERROR_MAP_FAILED : CUDA_ERROR_NOT_SUPPORTED;
	} else if (result == CUDA_SUCCESS) {
		*at = got;
	} else {
		result = for_good(result) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_MAP_FAILED;
	}
	while (n)
		hs_driver.cuMemFree_v2(stock[--n]);
	return result;
}

bool hs_managed_able(CUdevice device)
{
	return hs_driver_attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device) != 0;
}

CUresult hs_managed_create(CUdeviceptr *at, size_t bytes, CUdevice device)
{
	CUdeviceptr got = *at;
	CUresult result;

	if (!hs_driver.cuMemAllocManaged || !hs_driver.cuMemAdvise_v2 || !hs_managed_able(device))
		return CUDA_ERROR_NOT_SUPPORTED;
	result = allocate(&got, bytes);
	if (result != CUDA_SUCCESS)
		return result;
	result = settle(got, bytes, device);
	if (result != CUDA_SUCCESS) {
		hs_driver.cuMemFree_v2(got);
		return result;
	}
	*at = got;
	return CUDA_SUCCESS;
}

CUresult hs_managed_destroy(CUdeviceptr at)
{
	return hs_driver.cuMemFree_v2(at);
}
