/* SPDX-License-Identifier: MIT */
#include "src/memory/managed.h"

#include <errno.h>
#include <sys/mman.h>
#include "src/base/log.h"
#include "src/memory/prefault.h"
#include "src/memory/steer.h"

static int attribute(CUdevice_attribute which, CUdevice device)
{
	int value = 0;

	return hs_driver.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

CUresult hs_managed_share(CUdeviceptr at, size_t bytes, CUdevice with)
{
	const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = with};

	return hs_driver.cuMemAdvise_v2(at, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, device);
}

/* HOST, not HOST_NUMA: from the latter a copy moves pages to the device (580.159.04). Who
 * maps is told before there are pages: they are mapped as they are made then, in a third
 * of the time. */
static CUresult settle(CUdeviceptr at, size_t bytes, CUdevice device)
{
	const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
	CUresult result =
		hs_driver.cuMemAdvise_v2(at, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host);
	int error = 0;

	if (result == CUDA_SUCCESS)
		result = hs_managed_share(at, bytes, device);
	if (result != CUDA_SUCCESS)
		return CUDA_ERROR_NOT_SUPPORTED;
	madvise((void *)at, bytes, MADV_DONTFORK);
	madvise((void *)at, bytes, MADV_DONTDUMP);
	error = hs_prefault((void *)at, bytes, HS_PREFAULT_GRANULE,
		attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device));
	if (error)
		hs_debug("managed memory: %zu MiB not made (errno %d)", bytes >> 20, -error);
	/* EINVAL: a kernel before 5.14, which does not do so on demand. */
	return !error		  ? CUDA_SUCCESS
	       : error == -EINVAL ? CUDA_ERROR_NOT_SUPPORTED
				  : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hs_managed_create(CUdeviceptr *at, size_t bytes, CUdevice device)
{
	CUdeviceptr got = 0;
	CUresult result;
	bool asked;

	if (!hs_driver.cuMemAllocManaged || !hs_driver.cuMemAdvise_v2 ||
		!attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device))
		return CUDA_ERROR_NOT_SUPPORTED;
	hs_steer_begin(*at, bytes);
	result = hs_driver.cuMemAllocManaged(&got, bytes, CU_MEM_ATTACH_GLOBAL);
	asked = hs_steer_end();
	if (result != CUDA_SUCCESS)
		return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_ERROR_NOT_SUPPORTED;
	if (*at && got != *at) {
		hs_debug("managed memory: %zu MiB at 0x%llx, not at 0x%llx", bytes >> 20,
			(unsigned long long)got, (unsigned long long)*at);
		result = asked ? CUDA_ERROR_MAP_FAILED : CUDA_ERROR_NOT_SUPPORTED;
	}
	if (result == CUDA_SUCCESS)
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
