/* SPDX-License-Identifier: MIT */
#include "hooks/hook.h"
#include "src/memory/account.h"
#include "src/memory/capture.h"
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

/* No windows come from the rest: it is the driver's own memory. It counts under
 * the cap, and a window makes way for it. */

#define TRIED(device, bytes, call)                                                                 \
	({                                                                                         \
		CUresult tried_ = hs_account_take(device, bytes);                                  \
		if (tried_ == CUDA_SUCCESS) {                                                      \
			tried_ = call;                                                             \
			if (tried_ != CUDA_SUCCESS)                                                \
				hs_account_keep(tried_, device, 0, bytes);                         \
		}                                                                                  \
		tried_;                                                                            \
	})

/* key: of what was allocated, once it is */
#define COUNTED_ON(device, bytes, key, call)                                                       \
	({                                                                                         \
		CUresult counted_ = HS_SPARED(bytes, TRIED(device, bytes, call));                  \
		if (counted_ == CUDA_SUCCESS)                                                      \
			hs_account_keep(counted_, device, key, bytes);                             \
		counted_;                                                                          \
	})
#define COUNTED(...) COUNTED_ON(HS_ACCOUNT_HERE, __VA_ARGS__)

HS_EXPORT CUresult cuMemAllocPitch_v2(
	CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned element)
{
	if (!hs_hook_begin())
		return HS_REAL(cuMemAllocPitch_v2)(ptr, pitch, width, height, element);
	hs_hook_settle(false);
	const size_t bytes = (width + 511) / 512 * 512 * height;
	return hs_hook_end(COUNTED(bytes, HS_ACCOUNT_PTR(*ptr),
		hs_driver.cuMemAllocPitch_v2(ptr, pitch, width, height, element)));
}

HS_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned flags)
{
	if (!hs_hook_begin())
		return HS_REAL(cuMemAllocManaged)(ptr, bytes, flags);
	hs_hook_settle(false);
	return hs_hook_end(COUNTED(
		bytes, HS_ACCOUNT_PTR(*ptr), hs_driver.cuMemAllocManaged(ptr, bytes, flags)));
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
	if (!prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return hs_hook_end(hs_driver.cuMemCreate(handle, bytes, prop, flags));
	return hs_hook_end(COUNTED_ON(prop->location.id, bytes, HS_ACCOUNT_HANDLE(*handle),
		hs_driver.cuMemCreate(handle, bytes, prop, flags)));
}

HS_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	if (!hs_hook_begin())
		return HS_REAL(cuMemRelease)(handle);
	return hs_hook_end(
		HS_ACCOUNT_FREED(HS_ACCOUNT_HANDLE(handle), hs_driver.cuMemRelease(handle)));
}

/* A captured allocation is a node's, and none yet. */
static bool captured(CUstream stream, bool per_thread)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (!hs_capture_count())
		return false;
	return (per_thread ? hs_driver.cuStreamIsCapturing_ptsz : hs_driver.cuStreamIsCapturing)(
		       stream, &status) != CUDA_SUCCESS ||
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

#define ALLOC_ASYNC(name, per_thread, params, args)                                                \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		if (captured(stream, per_thread))                                                  \
			return hs_hook_end(hs_driver.name args);                                   \
		return hs_hook_end(COUNTED(bytes, HS_ACCOUNT_PTR(*ptr), hs_driver.name args));     \
	}
#define FROM_DEVICE (CUdeviceptr * ptr, size_t bytes, CUstream stream), (ptr, bytes, stream)
#define FROM_POOL                                                                                  \
	(CUdeviceptr * ptr, size_t bytes, CUmemoryPool pool, CUstream stream),                     \
		(ptr, bytes, pool, stream)
#define ROW(...) ALLOC_ASYNC(__VA_ARGS__)
ROW(cuMemAllocAsync, false, FROM_DEVICE)
ROW(cuMemAllocAsync_ptsz, true, FROM_DEVICE)
ROW(cuMemAllocFromPoolAsync, false, FROM_POOL)
ROW(cuMemAllocFromPoolAsync_ptsz, true, FROM_POOL)
#undef ROW

/* A window is freed as by cuMemFree: what the stream still does comes first. */
#define FREE_ASYNC(name, per_thread)                                                               \
	HS_EXPORT CUresult name(CUdeviceptr ptr, CUstream stream)                                  \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(ptr, stream);                                         \
		if (hs_window_find(ptr) && !captured(stream, per_thread))                          \
			return hs_hook_end(hs_memory_free(ptr));                                   \
		return hs_hook_end(                                                                \
			HS_ACCOUNT_FREED(HS_ACCOUNT_PTR(ptr), hs_driver.name(ptr, stream)));       \
	}
FREE_ASYNC(cuMemFreeAsync, false)
FREE_ASYNC(cuMemFreeAsync_ptsz, true)
#undef FREE_ASYNC
