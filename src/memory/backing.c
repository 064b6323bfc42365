/* SPDX-License-Identifier: MIT */
#include "src/memory/backing.h"
#include "src/memory/budget.h"

static int attribute(CUdevice_attribute which, CUdevice device)
{
	int value = 0;

	return hs_driver.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

static CUresult vmm_map(struct hs_backing *backing, CUdeviceptr at)
{
	const CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = backing->device},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUresult result = hs_driver.cuMemMap(at, backing->bytes, 0, backing->handle, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = hs_driver.cuMemSetAccess(at, backing->bytes, &access, 1);
	if (result != CUDA_SUCCESS)
		hs_driver.cuMemUnmap(at, backing->bytes);
	return result;
}

static CUresult vmm_unmap(struct hs_backing *backing)
{
	return hs_driver.cuMemUnmap(backing->at, backing->bytes);
}

static void vmm_destroy(struct hs_backing *backing)
{
	hs_driver.cuMemRelease(backing->handle);
}

static CUresult device_create(struct hs_backing *backing)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = backing->device},
	};

	/* As cuMemAlloc's memory is, where the device can. */
	prop.allocFlags.gpuDirectRDMACapable =
		attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
			backing->device) != 0;
	return hs_driver.cuMemCreate(&backing->handle, backing->bytes, &prop, 0);
}

/* 2-4 GiB/s (driver 580.159.04): the driver pins page by page. */
static CUresult host_create(struct hs_backing *backing)
{
	const int node = attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, backing->device);
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node < 0 ? 0 : node},
	};

	return hs_driver.cuMemCreate(&backing->handle, backing->bytes, &prop, 0);
}

static const struct hs_backing_kind device_kind = {
	HS_PLACE_DEVICE, device_create, vmm_map, vmm_unmap, vmm_destroy};
static const struct hs_backing_kind host_kind = {
	HS_PLACE_HOST, host_create, vmm_map, vmm_unmap, vmm_destroy};

CUresult hs_backing_create(
	struct hs_backing *backing, enum hs_place place, size_t bytes, CUdevice device)
{
	const struct hs_backing_kind *kind = place == HS_PLACE_HOST ? &host_kind : &device_kind;
	CUresult result;

	*backing = (struct hs_backing){.bytes = bytes, .device = device};
	if (!hs_budget_take(place, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = kind->create(backing);
	if (result == CUDA_SUCCESS)
		backing->kind = kind;
	else
		hs_budget_give(place, bytes);
	return result;
}

CUresult hs_backing_map(struct hs_backing *backing, CUdeviceptr at)
{
	const CUresult result = backing->kind->map(backing, at);

	if (result == CUDA_SUCCESS)
		backing->at = at;
	return result;
}

CUresult hs_backing_unmap(struct hs_backing *backing)
{
	const CUresult result = backing->kind->unmap(backing);

	if (result == CUDA_SUCCESS)
		backing->at = 0;
	return result;
}

void hs_backing_destroy(struct hs_backing *backing)
{
	if (!backing->kind)
		return;
	if (backing->at)
		hs_backing_unmap(backing);
	backing->kind->destroy(backing);
	hs_budget_give(backing->kind->place, backing->bytes);
	backing->kind = NULL;
}
