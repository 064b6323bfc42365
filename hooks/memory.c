/* SPDX-License-Identifier: MIT */
#include "hooks/hook.h"
#include "src/memory/memory.h"

HS_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	if (!hs_hook_begin())
		return HS_REAL(cuMemAlloc_v2)(ptr, bytes);
	hs_hook_settle(false);
	return hs_hook_end(hs_memory_alloc(ptr, bytes));
}

HS_EXPORT CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	if (!hs_hook_begin())
		return HS_REAL(cuMemFree_v2)(ptr);
	hs_hook_settle(true);
	return hs_hook_end(hs_memory_free(ptr));
}

HS_EXPORT CUresult cuMemAllocPitch_v2(
	CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned element)
{
	if (!hs_hook_begin())
		return HS_REAL(cuMemAllocPitch_v2)(ptr, pitch, width, height, element);
	hs_hook_settle(false);
	return hs_hook_end(hs_driver.cuMemAllocPitch_v2(ptr, pitch, width, height, element));
}

/* No windows come from these: the driver's own memory, counted by nobody yet. */

HS_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned flags)
{
	if (!hs_hook_begin())
		return HS_REAL(cuMemAllocManaged)(ptr, bytes, flags);
	hs_hook_settle(false);
	return hs_hook_end(hs_driver.cuMemAllocManaged(ptr, bytes, flags));
}

HS_EXPORT CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	if (!hs_hook_begin())
		return HS_REAL(cuMemHostAlloc)(ptr, bytes, flags);
	hs_hook_settle(false);
	return hs_hook_end(hs_driver.cuMemHostAlloc(ptr, bytes, flags));
}

HS_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
	const CUmemAllocationProp *prop, unsigned long long flags)
{
	if (!hs_hook_begin())
		return HS_REAL(cuMemCreate)(handle, bytes, prop, flags);
	return hs_hook_end(hs_driver.cuMemCreate(handle, bytes, prop, flags));
}

#define ALLOC_ASYNC(name)                                                                          \
	HS_EXPORT CUresult name(CUdeviceptr *ptr, size_t bytes, CUstream stream)                   \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(ptr, bytes, stream);                                  \
		return hs_hook_end(hs_driver.name(ptr, bytes, stream));                            \
	}
ALLOC_ASYNC(cuMemAllocAsync)
ALLOC_ASYNC(cuMemAllocAsync_ptsz)
#undef ALLOC_ASYNC

#define ALLOC_POOL(name)                                                                           \
	HS_EXPORT CUresult name(                                                                   \
		CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream)                \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(ptr, bytes, pool, stream);                            \
		return hs_hook_end(hs_driver.name(ptr, bytes, pool, stream));                      \
	}
ALLOC_POOL(cuMemAllocFromPoolAsync)
ALLOC_POOL(cuMemAllocFromPoolAsync_ptsz)
#undef ALLOC_POOL
