/* SPDX-License-Identifier: MIT */
#include "hooks/hook.h"
#include "src/memory/copy.h"
#include "src/memory/gate.h"
#include "src/memory/memory.h"

/*
 * Copies. The driver does them; what they wrote is reported afterwards, on the
 * same stream. Those that touch a window pass the gate, so that it does not
 * move under them; all others do not, as a copy may wait for long.
 */

struct span {
	CUdeviceptr start;
	size_t bytes; /* 0: not device memory, or nothing */
};

/* The smallest span that holds every byte of a box. A pitch or height of 0
 * stands for a box of one row or one plane. */
static struct span box(CUmemorytype type, CUdeviceptr base, size_t x, size_t y, size_t z,
	size_t pitch, size_t rows, size_t width, size_t height, size_t depth)
{
	if ((type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) || !width || !height ||
		!depth)
		return (struct span){0, 0};
	return (struct span){base + (z * rows + y) * pitch + x,
		((depth - 1) * rows + height - 1) * pitch + width};
}

#define BOX2D(c, side)                                                                             \
	box((c)->side##MemoryType, (c)->side##Device, (c)->side##XInBytes, (c)->side##Y, 0,        \
		(c)->side##Pitch, 0, (c)->WidthInBytes, (c)->Height, 1)
#define BOX3D(c, side)                                                                             \
	box((c)->side##MemoryType, (c)->side##Device, (c)->side##XInBytes, (c)->side##Y,           \
		(c)->side##Z, (c)->side##Pitch, (c)->side##Height, (c)->WidthInBytes, (c)->Height, \
		(c)->Depth)

static bool enter(CUdeviceptr dst, CUdeviceptr src)
{
	if (!hs_window_any() || (!hs_window_find(dst) && !hs_window_find(src)))
		return false;
	hs_gate_enter();
	return true;
}

static CUresult leave(bool gated, CUresult result)
{
	if (gated)
		hs_gate_leave();
	return hs_hook_end(result);
}

/* A call without a stream has copied by the time it returns, and work on other
 * streams need not wait for the default one: what it wrote is dropped by then. */
#define NOW ((CUstream) ~(uintptr_t)0)

static void wrote(struct span dst, CUstream stream, bool per_thread)
{
	hs_copy_wrote(dst.start, dst.bytes, stream == NOW ? NULL : stream, per_thread);
	if (stream != NOW || !hs_window_any() || !hs_window_find(dst.start))
		return;
	if (per_thread)
		hs_driver.cuStreamSynchronize_ptsz(NULL);
	else
		hs_driver.cuStreamSynchronize(NULL);
}

/* name, its parameters, its arguments, what is written, what is read, where */
#define COPY(name, params, args, to, from, stream, per_thread)                                     \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		const struct span dst_ = to, src_ = from;                                          \
		const bool gated = enter(dst_.start, src_.start);                                  \
		const CUresult result = hs_driver.name args;                                       \
		if (result == CUDA_SUCCESS && dst_.bytes)                                          \
			wrote(dst_, stream, per_thread);                                           \
		return leave(gated, result);                                                       \
	}

/* Of `left` bytes those that lie between seams on either side: no copy is known
 * to run from a reservation into registered memory (driver 580.159.04). */
static size_t run(CUdeviceptr dst, CUdeviceptr src, size_t left)
{
	const size_t to = hs_copy_seam(dst, left) - dst, from = hs_copy_seam(src, left) - src;

	return to < from ? to : from;
}

#define ADVANCE(ptr, by) ((__typeof__(ptr))((CUdeviceptr)(ptr) + (by)))
#define COPY1D(name, params, args, to, from, stream, per_thread)                                   \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		const struct span dst_ = to, src_ = from;                                          \
		const bool gated = enter(dst_.start, src_.start);                                  \
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
			wrote(dst_, stream, per_thread);                                           \
		return leave(gated, result);                                                       \
	}

#define AT(ptr) ((struct span){ptr, bytes})
#define HOST ((struct span){0, 0})

#define DD (CUdeviceptr dst, CUdeviceptr src, size_t bytes)
#define DD_ASYNC (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
COPY1D(cuMemcpy, DD, (dst, src, bytes), AT(dst), AT(src), NOW, false)
COPY1D(cuMemcpy_ptds, DD, (dst, src, bytes), AT(dst), AT(src), NOW, true)
COPY1D(cuMemcpyAsync, DD_ASYNC, (dst, src, bytes, stream), AT(dst), AT(src), stream, false)
COPY1D(cuMemcpyAsync_ptsz, DD_ASYNC, (dst, src, bytes, stream), AT(dst), AT(src), stream, true)
COPY1D(cuMemcpyDtoD_v2, DD, (dst, src, bytes), AT(dst), AT(src), NOW, false)
COPY1D(cuMemcpyDtoD_v2_ptds, DD, (dst, src, bytes), AT(dst), AT(src), NOW, true)
COPY1D(cuMemcpyDtoDAsync_v2, DD_ASYNC, (dst, src, bytes, stream), AT(dst), AT(src), stream, false)
COPY1D(cuMemcpyDtoDAsync_v2_ptsz, DD_ASYNC, (dst, src, bytes, stream), AT(dst), AT(src), stream, true)

#define HD (CUdeviceptr dst, const void *src, size_t bytes)
#define HD_ASYNC (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
COPY1D(cuMemcpyHtoD_v2, HD, (dst, src, bytes), AT(dst), HOST, NOW, false)
COPY1D(cuMemcpyHtoD_v2_ptds, HD, (dst, src, bytes), AT(dst), HOST, NOW, true)
COPY1D(cuMemcpyHtoDAsync_v2, HD_ASYNC, (dst, src, bytes, stream), AT(dst), HOST, stream, false)
COPY1D(cuMemcpyHtoDAsync_v2_ptsz, HD_ASYNC, (dst, src, bytes, stream), AT(dst), HOST, stream, true)

#define DH (void *dst, CUdeviceptr src, size_t bytes)
#define DH_ASYNC (void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
COPY1D(cuMemcpyDtoH_v2, DH, (dst, src, bytes), HOST, AT(src), NOW, false)
COPY1D(cuMemcpyDtoH_v2_ptds, DH, (dst, src, bytes), HOST, AT(src), NOW, true)
COPY1D(cuMemcpyDtoHAsync_v2, DH_ASYNC, (dst, src, bytes, stream), HOST, AT(src), stream, false)
COPY1D(cuMemcpyDtoHAsync_v2_ptsz, DH_ASYNC, (dst, src, bytes, stream), HOST, AT(src), stream, true)

#define PEER (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes)
#define PEER_ASYNC                                                                                 \
	(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes,             \
		CUstream stream)
COPY1D(cuMemcpyPeer, PEER, (dst, to, src, from, bytes), AT(dst), AT(src), NOW, false)
COPY1D(cuMemcpyPeer_ptds, PEER, (dst, to, src, from, bytes), AT(dst), AT(src), NOW, true)
COPY1D(cuMemcpyPeerAsync, PEER_ASYNC, (dst, to, src, from, bytes, stream), AT(dst), AT(src), stream,
	false)
COPY1D(cuMemcpyPeerAsync_ptsz, PEER_ASYNC, (dst, to, src, from, bytes, stream), AT(dst), AT(src),
	stream, true)

/* A copy that the driver is to refuse is not read here. */
#define TO2D (copy ? BOX2D(copy, dst) : HOST)
#define FROM2D (copy ? BOX2D(copy, src) : HOST)
#define COPY2D(name, per_thread)                                                                   \
	COPY(name, (const CUDA_MEMCPY2D *copy), (copy), TO2D, FROM2D, NOW, per_thread)
#define COPY2D_ASYNC(name, per_thread)                                                             \
	COPY(name, (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream), TO2D, FROM2D,     \
		stream, per_thread)
COPY2D(cuMemcpy2D_v2, false)
COPY2D(cuMemcpy2D_v2_ptds, true)
COPY2D(cuMemcpy2DUnaligned_v2, false)
COPY2D(cuMemcpy2DUnaligned_v2_ptds, true)
COPY2D_ASYNC(cuMemcpy2DAsync_v2, false)
COPY2D_ASYNC(cuMemcpy2DAsync_v2_ptsz, true)

#define TO3D (copy ? BOX3D(copy, dst) : HOST)
#define FROM3D (copy ? BOX3D(copy, src) : HOST)
#define COPY3D(name, type, per_thread)                                                             \
	COPY(name, (const type *copy), (copy), TO3D, FROM3D, NOW, per_thread)
#define COPY3D_ASYNC(name, type, per_thread)                                                       \
	COPY(name, (const type *copy, CUstream stream), (copy, stream), TO3D, FROM3D, stream,      \
		per_thread)
COPY3D(cuMemcpy3D_v2, CUDA_MEMCPY3D, false)
COPY3D(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, true)
COPY3D_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, false)
COPY3D_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, true)
COPY3D(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, false)
COPY3D(cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER, true)
COPY3D_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, false)
COPY3D_ASYNC(cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY3D_PEER, true)

/* A batch that failed may have been done in part. */

static bool enter_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, size_t count)
{
	if (!hs_window_any() || !dsts || !srcs)
		return false;
	for (size_t i = 0; i < count; i++)
		if (enter(dsts[i], srcs[i]))
			return true;
	return false;
}

static CUresult wrote_batch(bool gated, CUresult result, const CUdeviceptr *dsts,
	const size_t *sizes, size_t count, CUstream stream, bool per_thread)
{
	for (size_t i = 0; gated && sizes && i < count; i++)
		hs_copy_wrote(dsts[i], sizes[i], stream, per_thread);
	return leave(gated, result);
}

#define ITEMS CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count
#define ATTRS CUmemcpyAttributes *attrs, size_t *firsts, size_t nattrs
#define BATCH(name, params, args, per_thread)                                                      \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		const bool gated = enter_batch(dsts, srcs, count);                                 \
		return wrote_batch(                                                                \
			gated, HS_REAL(name) args, dsts, sizes, count, stream, per_thread);        \
	}
BATCH(cuMemcpyBatchAsync, (ITEMS, ATTRS, size_t *fail, CUstream stream),
	(dsts, srcs, sizes, count, attrs, firsts, nattrs, fail, stream), false)
BATCH(cuMemcpyBatchAsync_ptsz, (ITEMS, ATTRS, size_t *fail, CUstream stream),
	(dsts, srcs, sizes, count, attrs, firsts, nattrs, fail, stream), true)
BATCH(cuMemcpyBatchAsync_v2, (ITEMS, ATTRS, CUstream stream),
	(dsts, srcs, sizes, count, attrs, firsts, nattrs, stream), false)
BATCH(cuMemcpyBatchAsync_v2_ptsz, (ITEMS, ATTRS, CUstream stream),
	(dsts, srcs, sizes, count, attrs, firsts, nattrs, stream), true)

/* An element is a byte between two pointers; an array's may have up to 16. */
static struct span operand(const CUmemcpy3DOperand *o, const CUextent3D *e, size_t element)
{
	const size_t pitch = o->op.ptr.rowLength ? o->op.ptr.rowLength : e->width;
	const size_t rows = o->op.ptr.layerHeight ? o->op.ptr.layerHeight : e->height;

	if (o->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
		return HOST;
	return box(CU_MEMORYTYPE_DEVICE, o->op.ptr.ptr, 0, 0, 0, pitch * element, rows,
		e->width * element, e->height, e->depth);
}

static struct span item_to(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	const bool linear = op->src.type == CU_MEMCPY_OPERAND_TYPE_POINTER;

	return operand(&op->dst, &op->extent, linear ? 1 : 16);
}

static bool enter_boxes(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count)
{
	for (size_t i = 0; ops && i < count; i++)
		if (enter(item_to(&ops[i]).start, operand(&ops[i].src, &ops[i].extent, 1).start))
			return true;
	return false;
}

static CUresult wrote_boxes(bool gated, CUresult result, const CUDA_MEMCPY3D_BATCH_OP *ops,
	size_t count, CUstream stream, bool per_thread)
{
	for (size_t i = 0; gated && i < count; i++) {
		const struct span to = item_to(&ops[i]);

		if (to.bytes)
			hs_copy_wrote(to.start, to.bytes, stream, per_thread);
	}
	return leave(gated, result);
}

#define OPS size_t count, CUDA_MEMCPY3D_BATCH_OP *ops
#define BATCH3D(name, params, args, per_thread)                                                    \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		const bool gated = enter_boxes(ops, count);                                        \
		return wrote_boxes(gated, HS_REAL(name) args, ops, count, stream, per_thread);     \
	}
BATCH3D(cuMemcpy3DBatchAsync, (OPS, size_t *fail, unsigned long long flags, CUstream stream),
	(count, ops, fail, flags, stream), false)
BATCH3D(cuMemcpy3DBatchAsync_ptsz, (OPS, size_t *fail, unsigned long long flags, CUstream stream),
	(count, ops, fail, flags, stream), true)
BATCH3D(cuMemcpy3DBatchAsync_v2, (OPS, unsigned long long flags, CUstream stream),
	(count, ops, flags, stream), false)
BATCH3D(cuMemcpy3DBatchAsync_v2_ptsz, (OPS, unsigned long long flags, CUstream stream),
	(count, ops, flags, stream), true)
