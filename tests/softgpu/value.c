/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include "softgpu/soft.h"

/*
 * What a stream writes by itself, as fills of four bytes; and arrays of one dimension,
 * which are host memory here.
 */

static CUresult write32(struct soft_stream *stream, CUdeviceptr at, uint32_t value)
{
	struct soft_op op;
	const CUresult result =
		soft_fill_op(&op, &(CUDA_MEMSET_NODE_PARAMS){at, 0, value, 4, 1, 1});

	return result ? result : soft_submit(stream, &op);
}

static CUresult value(
	CUstream handle, CUdeviceptr at, uint64_t v, size_t bytes, unsigned flags, bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_stream *stream = soft_stream_find(handle, per_thread);
	CUresult result;

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (soft_managed(at, 1) || at % bytes ||
		flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
		return CUDA_ERROR_INVALID_VALUE;
	result = write32(stream, at, (uint32_t)v);
	return result || bytes == 4 ? result : write32(stream, at + 4, (uint32_t)(v >> 32));
}

#define VALUE(name, bits)                                                                          \
	SOFT_BOTH(name, _ptsz, (CUstream s, CUdeviceptr at, cuuint##bits##_t v, unsigned flags),   \
		value(s, at, v, bits / 8, flags, per_thread))
VALUE(cuStreamWriteValue32, 32)
VALUE(cuStreamWriteValue32_v2, 32)
VALUE(cuStreamWriteValue64, 64)
VALUE(cuStreamWriteValue64_v2, 64)

/* Waits and barriers order what is in order here anyway. */
static CUresult batch(CUstream stream, unsigned count, const CUstreamBatchMemOpParams *ops,
	unsigned flags, bool per_thread)
{
	CUresult result = CUDA_SUCCESS;

	if (!ops || !count || count > 256 || flags)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count && !result; i++) {
		const bool wide = ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;

		if (wide || ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
			result = value(stream, ops[i].writeValue.address, ops[i].writeValue.value64,
				wide ? 8 : 4, ops[i].writeValue.flags, per_thread);
	}
	return result;
}

#define BATCH(name)                                                                                \
	SOFT_BOTH(name, _ptsz,                                                                     \
		(CUstream s, unsigned count, CUstreamBatchMemOpParams *ops, unsigned flags),       \
		batch(s, count, ops, flags, per_thread))
BATCH(cuStreamBatchMemOp)
BATCH(cuStreamBatchMemOp_v2)

struct array {
	size_t bytes;
	char memory[];
};

CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *what)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	struct array *array;

	if (!out || !what || !what->Width || what->NumChannels != 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (what->Height > 1 || what->Format != CU_AD_FORMAT_UNSIGNED_INT8)
		return CUDA_ERROR_NOT_SUPPORTED;
	array = calloc(1, sizeof(*array) + what->Width);
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	array->bytes = what->Width;
	*out = (CUarray)array;
	return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray array)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	soft_run_all();
	free(array);
	return CUDA_SUCCESS;
}

static char *within(CUarray handle, size_t offset, size_t bytes)
{
	struct array *array = (struct array *)handle;

	return offset <= array->bytes && bytes <= array->bytes - offset ? array->memory + offset
									: NULL;
}

/* As copies from and to pageable memory. */
#define COPY(name, copy, params, array, to, from)                                                  \
	SOFT_BOTH(name, _ptds, params,                                                             \
		!within(array, offset, bytes) ? CUDA_ERROR_INVALID_VALUE                           \
		: per_thread		      ? copy##_ptds(to, from, bytes)                       \
					      : copy(to, from, bytes))
COPY(cuMemcpyAtoD_v2, cuMemcpyHtoD_v2, (CUdeviceptr dst, CUarray src, size_t offset, size_t bytes),
	src, dst, within(src, offset, bytes))
COPY(cuMemcpyDtoA_v2, cuMemcpyDtoH_v2, (CUarray dst, size_t offset, CUdeviceptr src, size_t bytes),
	dst, within(dst, offset, bytes), src)
