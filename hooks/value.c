/* SPDX-License-Identifier: MIT */
#include "hooks/copy.h"

/* What a stream writes by itself, in place of a kernel: a value, or several among
 * other operations. They are aligned, so none lies across a seam. Managed memory takes
 * none of them, but fills (cuda.h 13.0). What failed may have written a part. */

static CUresult put(CUstream stream, CUdeviceptr dst, uint64_t value, size_t bytes, bool per_thread)
{
	CUresult (*fill)(CUdeviceptr, unsigned, size_t, CUstream) =
		per_thread ? hs_driver.cuMemsetD32Async_ptsz : hs_driver.cuMemsetD32Async;
	const CUresult result = fill(dst, (unsigned)value, 1, stream);

	return result != CUDA_SUCCESS || bytes == 4
		       ? result
		       : fill(dst + 4, (unsigned)(value >> 32), 1, stream);
}

#define WRITE_VALUE(name, type, per_thread)                                                        \
	HS_EXPORT CUresult name(CUstream stream, CUdeviceptr dst, type value, unsigned flags)      \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(stream, dst, value, flags);                           \
		const bool gated = hs_span_enter(dst, 0);                                          \
		const CUresult result =                                                            \
			gated && hs_copy_no_values(dst)                                            \
				? put(stream, dst, value, sizeof(value), per_thread)               \
				: HS_REAL(name)(stream, dst, value, flags);                        \
		if (gated)                                                                         \
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

/* Up to each that is a fill, and that. */
static CUresult pieces(__typeof__(cuStreamBatchMemOp) *real, CUstream stream, unsigned count,
	CUstreamBatchMemOpParams *ops, unsigned flags, bool per_thread)
{
	CUresult result = CUDA_SUCCESS;
	unsigned from = 0;

	for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
		const struct hs_span to = written(&ops[i]);

		if (!to.bytes || !hs_copy_no_values(to.start))
			continue;
		if (i > from)
			result = real(stream, i - from, ops + from, flags);
		if (result == CUDA_SUCCESS)
			result = put(
				stream, to.start, ops[i].writeValue.value64, to.bytes, per_thread);
		from = i + 1;
	}
	if (result == CUDA_SUCCESS && (from < count || !from))
		result = real(stream, count - from, ops ? ops + from : ops, flags);
	return result;
}

/* The array is the caller's again when the driver returns, and is so still. */
#define BATCH(name, per_thread)                                                                    \
	HS_EXPORT CUresult name(                                                                   \
		CUstream stream, unsigned count, CUstreamBatchMemOpParams *ops, unsigned flags)    \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(stream, count, ops, flags);                           \
		const bool gated = enter(ops, count);                                              \
		const CUresult result =                                                            \
			gated ? pieces(HS_REAL(name), stream, count, ops, flags, per_thread)       \
			      : HS_REAL(name)(stream, count, ops, flags);                          \
		for (unsigned i = 0; gated && i < count; i++)                                      \
			hs_span_wrote(written(&ops[i]), stream, per_thread);                       \
		return hs_span_leave(gated, result);                                               \
	}
BATCH(cuStreamBatchMemOp, false)
BATCH(cuStreamBatchMemOp_ptsz, true)
BATCH(cuStreamBatchMemOp_v2, false)
BATCH(cuStreamBatchMemOp_v2_ptsz, true)
