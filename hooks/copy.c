/* SPDX-License-Identifier: MIT */
#include "hooks/copy.h"

/* Of `left` bytes those that lie between seams on either side. */
static size_t run(CUdeviceptr dst, CUdeviceptr src, size_t left)
{
	const size_t to = hs_copy_seam(dst, left) - dst, from = hs_copy_seam(src, left) - src;

	return to < from ? to : from;
}

/* name, its parameters, its arguments, what is written, what is read, where; and the
 * call for a window of another device (far) */
#define ADVANCE(ptr, by) ((__typeof__(ptr))((CUdeviceptr)(ptr) + (by)))
#define COPY1D_FAR(name, params, args, to, from, stream, per_thread, call)                         \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		const struct hs_span dst_ = to, src_ = from;                                       \
		const bool gated = hs_span_enter(dst_.start, src_.start);                          \
		struct hs_peer_ends far = {NULL, NULL};                                            \
		const size_t whole = bytes;                                                        \
		size_t done = 0;                                                                   \
		CUresult result;                                                                   \
		do {                                                                               \
			if (gated)                                                                 \
				bytes = run((CUdeviceptr)dst, (CUdeviceptr)src, whole - done);     \
			result = gated && hs_peer_far(dst_.start ? (CUdeviceptr)dst : 0,           \
						  src_.start ? (CUdeviceptr)src : 0, &far)         \
					 ? call                                                    \
					 : hs_driver.name args;                                    \
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

#define COPY1D(name, params, args, to, from, stream, per_thread)                                   \
	COPY1D_FAR(name, params, args, to, from, stream, per_thread, hs_driver.name args)

#define AT(ptr) ((struct hs_span){ptr, bytes})
#define HOST ((struct hs_span){0, 0})

#define DD (CUdeviceptr dst, CUdeviceptr src, size_t bytes)
#define DD_ASYNC (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
COPY1D_FAR(cuMemcpy, DD, (dst, src, bytes), AT(dst), AT(src), HS_SPAN_NOW, false,
	hs_driver.cuMemcpyPeer(dst, far.to, src, far.from, bytes))
COPY1D_FAR(cuMemcpy_ptds, DD, (dst, src, bytes), AT(dst), AT(src), HS_SPAN_NOW, true,
	hs_driver.cuMemcpyPeer_ptds(dst, far.to, src, far.from, bytes))
COPY1D_FAR(cuMemcpyAsync, DD_ASYNC, (dst, src, bytes, stream), AT(dst), AT(src), stream, false,
	hs_driver.cuMemcpyPeerAsync(dst, far.to, src, far.from, bytes, stream))
COPY1D_FAR(cuMemcpyAsync_ptsz, DD_ASYNC, (dst, src, bytes, stream), AT(dst), AT(src), stream, true,
	hs_driver.cuMemcpyPeerAsync_ptsz(dst, far.to, src, far.from, bytes, stream))
COPY1D_FAR(cuMemcpyDtoD_v2, DD, (dst, src, bytes), AT(dst), AT(src), HS_SPAN_NOW, false,
	hs_driver.cuMemcpyPeer(dst, far.to, src, far.from, bytes))
COPY1D_FAR(cuMemcpyDtoD_v2_ptds, DD, (dst, src, bytes), AT(dst), AT(src), HS_SPAN_NOW, true,
	hs_driver.cuMemcpyPeer_ptds(dst, far.to, src, far.from, bytes))
COPY1D_FAR(cuMemcpyDtoDAsync_v2, DD_ASYNC, (dst, src, bytes, stream), AT(dst), AT(src), stream,
	false, hs_driver.cuMemcpyPeerAsync(dst, far.to, src, far.from, bytes, stream))
COPY1D_FAR(cuMemcpyDtoDAsync_v2_ptsz, DD_ASYNC, (dst, src, bytes, stream), AT(dst), AT(src), stream,
	true, hs_driver.cuMemcpyPeerAsync_ptsz(dst, far.to, src, far.from, bytes, stream))

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

/* Between a line and an array, of which we know no more than what is read or written
 * of the line. */
#define ARRAY(name, params, args, ptr, writes, per_thread)                                         \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		const struct hs_span span = AT(ptr);                                               \
		const bool gated = hs_span_enter(ptr, 0);                                          \
		const size_t whole = bytes;                                                        \
		size_t done = 0;                                                                   \
		CUresult result;                                                                   \
		do {                                                                               \
			if (gated)                                                                 \
				bytes = hs_copy_seam(ptr, whole - done) - ptr;                     \
			result = hs_driver.name args;                                              \
			if (result != CUDA_SUCCESS)                                                \
				break;                                                             \
			done += bytes;                                                             \
			ptr += bytes;                                                              \
			offset += bytes;                                                           \
		} while (done < whole);                                                            \
		if (done && writes)                                                                \
			hs_span_wrote(span, HS_SPAN_NOW, per_thread);                              \
		return hs_span_leave(gated, result);                                               \
	}

#define FROM_ARRAY (CUdeviceptr dst, CUarray src, size_t offset, size_t bytes)
#define TO_ARRAY (CUarray dst, size_t offset, CUdeviceptr src, size_t bytes)
ARRAY(cuMemcpyAtoD_v2, FROM_ARRAY, (dst, src, offset, bytes), dst, true, false)
ARRAY(cuMemcpyAtoD_v2_ptds, FROM_ARRAY, (dst, src, offset, bytes), dst, true, true)
ARRAY(cuMemcpyDtoA_v2, TO_ARRAY, (dst, offset, src, bytes), src, false, false)
ARRAY(cuMemcpyDtoA_v2_ptds, TO_ARRAY, (dst, offset, src, bytes), src, false, true)
