/* SPDX-License-Identifier: MIT */
#include <stdatomic.h>
#include <time.h>
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/memory/backing.h"
#include "src/memory/budget.h"
#include "src/memory/managed.h"
#include "src/memory/peer.h"
#include "src/memory/pinned.h"
#include "src/memory/pool.h"

#define GIB ((double)(1ull << 30))
/* Host memory that we leave alone, whatever the pool may still hold: what runs
 * out here is the whole machine's, or kills this container. */
#define HOST_MARGIN ((uint64_t)512 << 20)

static atomic_uint refusals;
static atomic_bool managed_refused, registered_refused;

static CUresult give_access(struct hs_backing *backing, CUdeviceptr at, CUdevice to)
{
	const CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = to},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	return hs_driver.cuMemSetAccess(at, backing->bytes, &access, 1);
}

static CUresult vmm_share(struct hs_backing *backing, CUdevice with)
{
	return backing->at ? give_access(backing, backing->at, with) : CUDA_SUCCESS;
}

static CUresult vmm_map(struct hs_backing *backing, CUdeviceptr at)
{
	CUresult result = hs_driver.cuMemMap(at, backing->bytes, 0, backing->handle, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = give_access(backing, at, backing->device);
	for (uint64_t left = hs_peers(backing->device); left && result == CUDA_SUCCESS;
		left &= left - 1)
		result = give_access(backing, at, __builtin_ctzll(left));
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
		hs_driver_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
			backing->device) != 0;
	return hs_driver.cuMemCreate(&backing->handle, backing->bytes, &prop, 0);
}

static int node_of(CUdevice device)
{
	return hs_driver_attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device);
}

/*
 * 2-4 GiB/s (driver 580.159.04): the driver pins page by page. It is what is left for
 * windows in ranges (range.h), and where registered memory cannot be had.
 *
 * Ranges are not registered because that needs addresses which the driver has not
 * reserved, and it gives those back only as it gave them out: a whole reservation, in
 * which nothing is mapped, and which began at a multiple of 32 MiB. So every range
 * would have to be a reservation of its own (of 64 MiB, some two thousand on an H200,
 * each of which has to be asked for past the addresses that the driver keeps in stock),
 * and what is around the edges of each layer, which are cut at 2 MiB, would be the
 * driver's all the same. Besides, 64 MiB at a time are too few for 16 threads: the
 * pages of all of them would have to be made in one go, before it is known which
 * ranges go.
 */
static CUresult host_create(struct hs_backing *backing)
{
	const int node = node_of(backing->device);
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node < 0 ? 0 : node},
	};

	return hs_driver.cuMemCreate(&backing->handle, backing->bytes, &prop, 0);
}

/* Of a kind that does not work here, whose place the next one takes. */
static void refuse(atomic_bool *kind, size_t bytes, CUresult why, const char *what)
{
	if (!atomic_exchange(kind, true)) {
		hs_info("%s (%.2f GiB, CUDA error %d)", what, bytes / GIB, why);
		atomic_fetch_add(&refusals, 1);
	}
}

/* Memory and addresses come together. */
static CUresult managed_create(struct hs_backing *backing)
{
	return atomic_load(&managed_refused) || hs_options()->host_memory > HS_OPTION_MANAGED ||
			       !hs_managed_able(backing->device)
		       ? CUDA_ERROR_NOT_SUPPORTED
		       : CUDA_SUCCESS;
}

static CUresult managed_map(struct hs_backing *backing, CUdeviceptr at)
{
	CUresult result = hs_managed_create(&at, backing->bytes, backing->device);

	if (result == CUDA_ERROR_NOT_SUPPORTED)
		refuse(&managed_refused, backing->bytes, result,
			"no managed memory at our addresses: host memory is registered from here "
			"on, which the GPU reads more slowly");
	for (uint64_t left = hs_peers(backing->device); left && result == CUDA_SUCCESS;
		left &= left - 1)
		hs_managed_share(at, backing->bytes, __builtin_ctzll(left));
	return result;
}

static CUresult managed_share(struct hs_backing *backing, CUdevice with)
{
	return backing->at ? hs_managed_share(backing->at, backing->bytes, with) : CUDA_SUCCESS;
}

static CUresult managed_unmap(struct hs_backing *backing)
{
	return hs_managed_destroy(backing->at);
}

static void managed_destroy(struct hs_backing *backing)
{
	(void)backing;
}

/* 14-15 GiB/s with 16 threads (driver 580.159.04). */
static CUresult registered_create(struct hs_backing *backing)
{
	if (atomic_load(&registered_refused) || hs_options()->host_memory > HS_OPTION_REGISTERED)
		return CUDA_ERROR_NOT_SUPPORTED;
	backing->memory = hs_pinned_create(backing->bytes, node_of(backing->device));
	return backing->memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult enrol(void *memory, size_t bytes)
{
	CUdeviceptr device = 0;
	CUresult result = hs_driver.cuMemHostRegister_v2(
		memory, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);

	if (result != CUDA_SUCCESS)
		return result;
	result = hs_driver.cuMemHostGetDevicePointer_v2(&device, memory, 0);
	if (result == CUDA_SUCCESS && device == (CUdeviceptr)memory)
		return CUDA_SUCCESS;
	hs_driver.cuMemHostUnregister(memory);
	return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_SUPPORTED;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static CUresult registered_map(struct hs_backing *backing, CUdeviceptr at)
{
	const double begin = now();
	void *moved = hs_pinned_move(backing->memory, backing->bytes, at);
	CUresult result;

	if (!moved)
		return CUDA_ERROR_MAP_FAILED;
	backing->memory = moved;
	result = enrol(moved, backing->bytes);
	if (result == CUDA_SUCCESS) {
		hs_debug("host memory: %.3f GiB registered in %.3f s", backing->bytes / GIB,
			now() - begin);
		return CUDA_SUCCESS;
	}
	refuse(&registered_refused, backing->bytes, result,
		"the driver does not register host memory: it allocates host memory itself from "
		"here on, which takes longer");
	moved = hs_pinned_move(backing->memory, backing->bytes, 0);
	if (moved)
		backing->memory = moved;
	return result;
}

static CUresult registered_unmap(struct hs_backing *backing)
{
	CUresult result = hs_driver.cuMemHostUnregister(backing->memory);
	void *moved;

	if (result != CUDA_SUCCESS)
		return result;
	moved = hs_pinned_move(backing->memory, backing->bytes, 0);
	if (!moved) {
		enrol(backing->memory, backing->bytes);
		return CUDA_ERROR_MAP_FAILED;
	}
	backing->memory = moved;
	return CUDA_SUCCESS;
}

static void registered_destroy(struct hs_backing *backing)
{
	hs_pinned_destroy(backing->memory, backing->bytes);
}

static const struct hs_backing_kind device_memory = {.place = HS_PLACE_DEVICE,
	.keeps = true,
	.share = vmm_share,
	.create = device_create,
	.map = vmm_map,
	.unmap = vmm_unmap,
	.destroy = vmm_destroy};
static const struct hs_backing_kind driver_host = {.place = HS_PLACE_HOST,
	.keeps = true,
	.share = vmm_share,
	.create = host_create,
	.map = vmm_map,
	.unmap = vmm_unmap,
	.destroy = vmm_destroy};
static const struct hs_backing_kind registered_host = {.place = HS_PLACE_HOST,
	.apart = true,
	.zeroed = true,
	.keeps = true,
	.create = registered_create,
	.map = registered_map,
	.unmap = registered_unmap,
	.destroy = registered_destroy};
static const struct hs_backing_kind managed_host = {.place = HS_PLACE_HOST,
	.apart = true,
	.zeroed = true,
	.any_order = true,
	.share = managed_share,
	.create = managed_create,
	.map = managed_map,
	.unmap = managed_unmap,
	.destroy = managed_destroy};

/* What is tried, in this order. */
static const struct hs_backing_kind *const kinds[] = {
	&device_memory, &managed_host, &registered_host, &driver_host};

unsigned hs_backing_refusals(void)
{
	return atomic_load(&refusals);
}

static CUresult create(struct hs_backing *backing, enum hs_place place, size_t bytes,
	CUdevice device, bool apart, bool keeps)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	*backing = (struct hs_backing){.bytes = bytes, .device = device};
	if (place == HS_PLACE_HOST && hs_pool_free("") < bytes + HOST_MARGIN)
		return result;
	if (!hs_budget_take(place, device, bytes))
		return result;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && result != CUDA_SUCCESS; i++) {
		if (kinds[i]->place != place || (kinds[i]->apart && !apart) ||
			(keeps && !kinds[i]->keeps))
			continue;
		result = kinds[i]->create(backing);
		if (result == CUDA_SUCCESS)
			backing->kind = kinds[i];
	}
	if (result != CUDA_SUCCESS)
		hs_budget_give(place, device, bytes);
	return result;
}

CUresult hs_backing_create(
	struct hs_backing *backing, enum hs_place place, size_t bytes, CUdevice device)
{
	return create(backing, place, bytes, device, false, false);
}

CUresult hs_backing_create_best(
	struct hs_backing *backing, enum hs_place place, size_t bytes, CUdevice device)
{
	return create(backing, place, bytes, device, true, false);
}

CUresult hs_backing_create_kept(struct hs_backing *backing, size_t bytes, CUdevice device)
{
	return create(backing, HS_PLACE_HOST, bytes, device, true, true);
}

CUresult hs_backing_map(struct hs_backing *backing, CUdeviceptr at)
{
	const CUresult result = backing->kind->map(backing, at);

	if (result == CUDA_SUCCESS)
		backing->at = at;
	return result;
}

CUresult hs_backing_share(struct hs_backing *backing, CUdevice with)
{
	return backing->kind && backing->kind->share ? backing->kind->share(backing, with)
						     : CUDA_SUCCESS;
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
	hs_budget_give(backing->kind->place, backing->device, backing->bytes);
	backing->kind = NULL;
}
