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

/* The driver refuses memory that was mapped, as windows are, and takes no
 * device address for a host one. */

HS_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
	if (!hs_hook_begin())
		return HS_REAL(cuIpcGetMemHandle)(handle, ptr);
	return hs_hook_end(hs_driver.cuIpcGetMemHandle(handle, ptr));
}

HS_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned flags)
{
	if (!hs_hook_begin())
		return HS_REAL(cuMemHostGetDevicePointer_v2)(device, host, flags);
	if (hs_window_find((CUdeviceptr)host))
		return hs_hook_end(CUDA_ERROR_INVALID_VALUE);
	return hs_hook_end(hs_driver.cuMemHostGetDevicePointer_v2(device, host, flags));
}
