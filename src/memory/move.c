/* SPDX-License-Identifier: MIT */
#include "src/base/log.h"
#include "src/memory/arena.h"
#include "src/memory/move.h"

/* DtoD copies return before they are done. */
static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	const CUresult result = hs_driver.cuMemcpyDtoD_v2(to, from, bytes);

	return result == CUDA_SUCCESS ? hs_driver.cuCtxSynchronize() : result;
}

/* The device memory is what gets the second address in either direction, so
 * that host memory only ever has to appear at the window's own. */
static CUresult to_host(
	struct hs_backing *old, struct hs_backing *fresh, CUdeviceptr at, CUdeviceptr staging)
{
	CUresult result = hs_backing_unmap(old);

	if (result == CUDA_SUCCESS)
		result = hs_backing_map(old, staging);
	if (result == CUDA_SUCCESS)
		result = hs_backing_map(fresh, at);
	if (result == CUDA_SUCCESS)
		result = copy(at, staging, old->bytes);
	return result;
}

static CUresult to_device(
	struct hs_backing *old, struct hs_backing *fresh, CUdeviceptr at, CUdeviceptr staging)
{
	CUresult result = hs_backing_map(fresh, staging);

	if (result == CUDA_SUCCESS)
		result = copy(staging, at, old->bytes);
	if (result == CUDA_SUCCESS)
		result = hs_backing_unmap(fresh);
	if (result == CUDA_SUCCESS)
		result = hs_backing_unmap(old);
	if (result == CUDA_SUCCESS)
		result = hs_backing_map(fresh, at);
	return result;
}

static void restore(struct hs_holding *holding, struct hs_backing *fresh, CUdeviceptr at)
{
	struct hs_backing *old = &holding->rest;
	CUresult result = CUDA_SUCCESS;

	if (fresh->at)
		hs_backing_unmap(fresh);
	if (old->at && old->at != at)
		hs_backing_unmap(old);
	if (!old->at)
		result = hs_backing_map(old, at);
	if (result != CUDA_SUCCESS)
		hs_error(
			"window %u at 0x%llx: its memory could not be mapped again (CUDA error %d)",
			holding->window.id, (unsigned long long)holding->window.start, result);
}

CUresult hs_move(struct hs_holding *holding, enum hs_place place)
{
	struct hs_backing *old = &holding->rest, fresh;
	const CUdeviceptr at = holding->window.start + HS_GRANULE;
	CUdeviceptr staging;
	CUcontext popped;
	CUresult result = hs_driver.cuCtxPushCurrent_v2(holding->context);

	if (result != CUDA_SUCCESS)
		return result;
	result = hs_backing_create(&fresh, place, old->bytes, holding->window.device);
	if (result != CUDA_SUCCESS)
		goto pop;
	result = hs_arena_reserve(&staging, old->bytes, HS_ARENA_AREAS);
	if (result != CUDA_SUCCESS)
		goto destroy;
	result = place == HS_PLACE_HOST ? to_host(old, &fresh, at, staging)
					: to_device(old, &fresh, at, staging);
	if (result != CUDA_SUCCESS) {
		restore(holding, &fresh, at);
		goto release;
	}
	hs_backing_destroy(old);
	*old = fresh;
	fresh.kind = NULL;
	atomic_store(&holding->window.place, place);
release:
	hs_arena_release(staging);
destroy:
	hs_backing_destroy(&fresh);
pop:
	hs_driver.cuCtxPopCurrent_v2(&popped);
	return result;
}
