/* SPDX-License-Identifier: MIT */
#include "hooks/hook.h"
#include "src/memory/memory.h"

HS_EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	if (!hs_hook_begin())
		return HS_REAL(cuMemGetInfo_v2)(free, total);
	return hs_hook_end(hs_memory_info(free, total));
}

HS_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	if (!hs_hook_begin())
		return HS_REAL(cuDeviceTotalMem_v2)(bytes, device);
	return hs_hook_end(hs_memory_total(bytes, device));
}

HS_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr ptr)
{
	if (!hs_hook_begin())
		return HS_REAL(cuMemGetAddressRange_v2)(start, bytes, ptr);
	return hs_hook_end(hs_memory_range(start, bytes, ptr));
}

HS_EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute which, CUdeviceptr ptr)
{
	if (!hs_hook_begin())
		return HS_REAL(cuPointerGetAttribute)(data, which, ptr);
	return hs_hook_end(hs_memory_attribute(data, which, ptr));
}

HS_EXPORT CUresult cuPointerGetAttributes(
	unsigned count, CUpointer_attribute *which, void **data, CUdeviceptr ptr)
{
	if (!hs_hook_begin())
		return HS_REAL(cuPointerGetAttributes)(count, which, data, ptr);
	return hs_hook_end(hs_memory_attributes(count, which, data, ptr));
}

/* The driver has this attribute for memory of cuMemAlloc, and for mapped memory a
 * flag of the context that does the same for all of its memory (580: the attribute
 * is NOT_SUPPORTED there). It stays set: who else wants it cannot be told. */
static CUresult always_synchronise(bool always)
{
	unsigned flags;
	CUresult result = hs_driver.cuCtxGetFlags(&flags);

	if (result != CUDA_SUCCESS || !always || flags & CU_CTX_SYNC_MEMOPS)
		return result;
	if (!hs_driver.cuCtxSetFlags)
		return CUDA_ERROR_NOT_SUPPORTED;
	return hs_driver.cuCtxSetFlags(flags | CU_CTX_SYNC_MEMOPS);
}

HS_EXPORT CUresult cuPointerSetAttribute(
	const void *value, CUpointer_attribute which, CUdeviceptr ptr)
{
	if (!hs_hook_begin())
		return HS_REAL(cuPointerSetAttribute)(value, which, ptr);
	/* As for memory of cuMemAlloc, which has no other attribute to be set. */
	if (hs_window_find(ptr))
		return hs_hook_end(value && which == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
					   ? always_synchronise(*(const unsigned char *)value)
					   : CUDA_ERROR_INVALID_VALUE);
	return hs_hook_end(hs_driver.cuPointerSetAttribute(value, which, ptr));
}

/* What is not for memory of cuMemAlloc is refused as the driver does that, what
 * is for it and not for mapped memory as the driver refuses windows. */

HS_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
	if (!hs_hook_begin())
		return HS_REAL(cuIpcGetMemHandle)(handle, ptr);
	return hs_hook_end(hs_driver.cuIpcGetMemHandle(handle, ptr));
}

#define REFUSE(name, ptr, params, args)                                                            \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		if (hs_window_find((CUdeviceptr)(ptr)))                                            \
			return hs_hook_end(CUDA_ERROR_INVALID_VALUE);                              \
		return hs_hook_end(hs_driver.name args);                                           \
	}
REFUSE(cuMemHostGetDevicePointer_v2, host, (CUdeviceptr * device, void *host, unsigned flags),
	(device, host, flags))
REFUSE(cuMemRetainAllocationHandle, address, (CUmemGenericAllocationHandle * handle, void *address),
	(handle, address))

/* For managed memory */
#define DEVICE (CUdeviceptr ptr, size_t bytes, CUdevice device, CUstream stream)
#define PLACE (CUdeviceptr ptr, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream)
REFUSE(cuMemPrefetchAsync, ptr, DEVICE, (ptr, bytes, device, stream))
REFUSE(cuMemPrefetchAsync_ptsz, ptr, DEVICE, (ptr, bytes, device, stream))
REFUSE(cuMemPrefetchAsync_v2, ptr, PLACE, (ptr, bytes, place, flags, stream))
REFUSE(cuMemPrefetchAsync_v2_ptsz, ptr, PLACE, (ptr, bytes, place, flags, stream))
REFUSE(cuMemAdvise, ptr, (CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUdevice device),
	(ptr, bytes, advice, device))
REFUSE(cuMemAdvise_v2, ptr,
	(CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUmemLocation place),
	(ptr, bytes, advice, place))
