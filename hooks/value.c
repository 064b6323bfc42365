/* SPDX-License-Identifier: MIT */
#include "hooks/copy.h"

/* What a stream writes by itself, in place of a kernel: a value, or several among
 * other operations. They are aligned, so none lies across a seam. */

#define WRITE_VALUE(name, type, per_thread)                                                        \
	HS_EXPORT CUresult name(CUstream stream, CUdeviceptr dst, type value, unsigned flags)      \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(stream, dst, value, flags);                           \
		const bool gated = hs_span_enter(dst, 0);                                          \
		const CUresult result = HS_REAL(name)(stream, dst, value, flags);                  \
		if (gated && result == CUDA_SUCCESS)                                               \
			hs_span_wrote((struct hs_span){dst, sizeof(value)}, stream, per_thread);   \
		return hs_span_leave(gated, result);                                               \
	}
WRITE_VALUE(cuStreamWriteValue32, cuuint32_t, false)
WRITE_VALUE(cuStreamWriteValue32_ptsz, cuuint32_t, true)
WRITE_VALUE(cuStreamWriteValue32_v2, cuuint32_t, false)
WRITE_VALUE(cuStreamWriteValue32_v2_ptsz, cuuint32_t, true)
WRITE_VALUE(cuStreamWriteValue64, cuuint64_t, false)
WRITE_VALUE(cuStreamWriteValue64_ptsz, cuuint64_t, true)
WRITE_VALUE(cuStreamWriteValue64_v2, cuuint64_t, false)
WRITE_VALUE(cuStreamWriteValue64_v2_ptsz, cuuint64_t, true)

/* Of operations that are not writes nothing. */
static struct hs_span written(const CUstreamBatchMemOpParams *op)
{
	switch (op->operation) {
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return (struct hs_span){op->writeValue.address, sizeof(cuuint32_t)};
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return (struct hs_span){op->writeValue.address, sizeof(cuuint64_t)};
	default:
		return (struct hs_span){0, 0};
	}
}

static bool enter(const CUstreamBatchMemOpParams *ops, unsigned count)
{
	for (unsigned i = 0; hs_window_any() && ops && i < count; i++)
		if (hs_span_enter(written(&ops[i]).start, 0))
			return true;
	return false;
}

/* The array is the caller's again when the driver returns, and is so still. */
#define BATCH(name, per_thread)                                                                    \
	HS_EXPORT CUresult name(                                                                   \
		CUstream stream, unsigned count, CUstreamBatchMemOpParams *ops, unsigned flags)    \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(stream, count, ops, flags);                           \
		const bool gated = enter(ops, count);                                              \
		const CUresult result = HS_REAL(name)(stream, count, ops, flags);                  \
		for (unsigned i = 0; gated && result == CUDA_SUCCESS && i < count; i++)            \
			hs_span_wrote(written(&ops[i]), stream, per_thread);                       \
		return hs_span_leave(gated, result);                                               \
	}
BATCH(cuStreamBatchMemOp, false)
BATCH(cuStreamBatchMemOp_ptsz, true)
BATCH(cuStreamBatchMemOp_v2, false)
BATCH(cuStreamBatchMemOp_v2_ptsz, true)
