/* SPDX-License-Identifier: MIT */
#include "hooks/copy.h"

/* Of `left` bytes those that lie between seams on either side. */
static size_t run(CUdeviceptr dst, CUdeviceptr src, size_t left)
{
	const size_t to = hs_copy_seam(dst, left) - dst, from = hs_copy_seam(src, left) - src;

	return to < from ? to : from;
}

/* name, its parameters, its arguments, what is written, what is read, where */
#define ADVANCE(ptr, by) ((__typeof__(ptr))((CUdeviceptr)(ptr) + (by)))
#define COPY1D(name, params, args, to, from, stream, per_thread)                                   \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		const struct hs_span dst_ = to, src_ = from;                                       \
		const bool gated = hs_span_enter(dst_.start, src_.start);                          \
		const size_t whole = bytes;                                                        \
		size_t done = 0;                                                                   \
		CUresult result;                                                                   \
		do {                                                                               \
			if (gated)                                                                 \
				bytes = run((CUdeviceptr)dst, (CUdeviceptr)src, whole - done);     \
			result = hs_driver.name args;                                              \
			if (result != CUDA_SUCCESS)                                                \
				break;                                                             \
			done += bytes;                                                             \
			dst = ADVANCE(dst, bytes);                                                 \
			src = ADVANCE(src, bytes);                                                 \
		} while (done < whole);                                                            \
		if (done && dst_.bytes)                                                            \
			hs_span_wrote(dst_, stream, per_thread);                                   \
		return hs_span_leave(gated, result);                                               \
	}

#define AT(ptr) ((struct hs_span){ptr, bytes})
#define HOST ((struct hs_span){0, 0})

#define DD (CUdeviceptr dst, CUdeviceptr src, size_t bytes)
#define DD_ASYNC (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
COPY1D(cuMemcpy, DD, (dst, src, bytes), AT(dst), AT(src), HS_SPAN_NOW, false)
COPY1D(cuMemcpy_ptds, DD, (dst, src, bytes), AT(dst), AT(src), HS_SPAN_NOW, true)
COPY1D(cuMemcpyAsync, DD_ASYNC, (dst, src, bytes, stream), AT(dst), AT(src), stream, false)
COPY1D(cuMemcpyAsync_ptsz, DD_ASYNC, (dst, src, bytes, stream), AT(dst), AT(src), stream, true)
COPY1D(cuMemcpyDtoD_v2, DD, (dst, src, bytes), AT(dst), AT(src), HS_SPAN_NOW, false)
COPY1D(cuMemcpyDtoD_v2_ptds, DD, (dst, src, bytes), AT(dst), AT(src), HS_SPAN_NOW, true)
COPY1D(cuMemcpyDtoDAsync_v2, DD_ASYNC, (dst, src, bytes, stream), AT(dst), AT(src), stream, false)
COPY1D(cuMemcpyDtoDAsync_v2_ptsz, DD_ASYNC, (dst, src, bytes, stream), AT(dst), AT(src), stream,
	true)

#define HD (CUdeviceptr dst, const void *src, size_t bytes)
#define HD_ASYNC (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
COPY1D(cuMemcpyHtoD_v2, HD, (dst, src, bytes), AT(dst), HOST, HS_SPAN_NOW, false)
COPY1D(cuMemcpyHtoD_v2_ptds, HD, (dst, src, bytes), AT(dst), HOST, HS_SPAN_NOW, true)
COPY1D(cuMemcpyHtoDAsync_v2, HD_ASYNC, (dst, src, bytes, stream), AT(dst), HOST, stream, false)
COPY1D(cuMemcpyHtoDAsync_v2_ptsz, HD_ASYNC, (dst, src, bytes, stream), AT(dst), HOST, stream, true)

#define DH (void *dst, CUdeviceptr src, size_t bytes)
#define DH_ASYNC (void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
COPY1D(cuMemcpyDtoH_v2, DH, (dst, src, bytes), HOST, AT(src), HS_SPAN_NOW, false)
COPY1D(cuMemcpyDtoH_v2_ptds, DH, (dst, src, bytes), HOST, AT(src), HS_SPAN_NOW, true)
COPY1D(cuMemcpyDtoHAsync_v2, DH_ASYNC, (dst, src, bytes, stream), HOST, AT(src), stream, false)
COPY1D(cuMemcpyDtoHAsync_v2_ptsz, DH_ASYNC, (dst, src, bytes, stream), HOST, AT(src), stream, true)

#define PEER (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes)
#define PEER_ASYNC                                                                                 \
	(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes,             \
		CUstream stream)
COPY1D(cuMemcpyPeer, PEER, (dst, to, src, from, bytes), AT(dst), AT(src), HS_SPAN_NOW, false)
COPY1D(cuMemcpyPeer_ptds, PEER, (dst, to, src, from, bytes), AT(dst), AT(src), HS_SPAN_NOW, true)
COPY1D(cuMemcpyPeerAsync, PEER_ASYNC, (dst, to, src, from, bytes, stream), AT(dst), AT(src), stream,
	false)
COPY1D(cuMemcpyPeerAsync_ptsz, PEER_ASYNC, (dst, to, src, from, bytes, stream), AT(dst), AT(src),
	stream, true)
