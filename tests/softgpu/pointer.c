/* SPDX-License-Identifier: MIT */
#include "softgpu/soft.h"

#include <string.h>

/* Of a reservation: all of it, whatever is mapped (driver 580). */
CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr ptr)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_range *range = soft_range_find(ptr);

	if (!range || soft_place(ptr, NULL) == SOFT_NOWHERE)
		return CUDA_ERROR_NOT_FOUND;
	if (start)
		*start = range->start;
	if (bytes)
		*bytes = range->bytes;
	return CUDA_SUCCESS;
}

static size_t attribute_bytes(CUpointer_attribute which)
{
	switch (which) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		return 8;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		return 4;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		return 1;
	default:
		return 0;
	}
}

static CUresult attribute(void *data, CUpointer_attribute which, CUdeviceptr ptr)
{
	enum soft_place place = soft_place(ptr, NULL);
	struct soft_range *range = soft_range_find(ptr);
	uint64_t value = 0;

	if (!data || !attribute_bytes(which))
		return CUDA_ERROR_INVALID_VALUE;
	if (place == SOFT_NOWHERE)
		return CUDA_ERROR_INVALID_VALUE;
	switch ((int)which) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		/* VMM memory belongs to no context. */
		value = range->kind == SOFT_RESERVED ? 0 : (uintptr_t)soft_context();
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		value = (unsigned)soft_owner(ptr);
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		value = place == SOFT_ON_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		value = ptr;
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (place == SOFT_ON_DEVICE)
			return CUDA_ERROR_INVALID_VALUE;
		value = ptr;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		value = range->id;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		value = range->start;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		value = range->bytes;
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		value = soft_managed(ptr, 1);
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		value = 1;
		break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		value = range->kind == SOFT_ALLOC;
		break;
	}
	memcpy(data, &value, attribute_bytes(which)); /* little-endian hosts only */
	return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute which, CUdeviceptr ptr)
{
	SOFT_ENTER(SOFT_CONTEXT);
	return attribute(data, which, ptr);
}

/* Not for what is mapped (driver 580); what it asks for is kept for the context
 * only. */
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute which, CUdeviceptr ptr)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_range *range = soft_range_find(ptr);

	if (!value || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !range ||
		soft_place(ptr, NULL) == SOFT_NOWHERE)
		return CUDA_ERROR_INVALID_VALUE;
	return range->kind == SOFT_RESERVED ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* What does not apply reads 0 here, and an unknown pointer is no error. */
CUresult cuPointerGetAttributes(
	unsigned count, CUpointer_attribute *which, void **data, CUdeviceptr ptr)
{
	const CUdevice none = CU_DEVICE_INVALID;

	SOFT_ENTER(SOFT_CONTEXT);
	if (!count || !which || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++) {
		if (!data[i] || !attribute_bytes(which[i]))
			return CUDA_ERROR_INVALID_VALUE;
		memset(data[i], 0, attribute_bytes(which[i]));
		if (which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			memcpy(data[i], &none, sizeof(none));
		attribute(data[i], which[i], ptr);
	}
	return CUDA_SUCCESS;
}
