/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>
#include "softgpu/soft.h"

enum side { HOST_TO = 1, TO_HOST = 2, ANY = 4, SYNC = 8 };

/* The bytes from the first to the last that a box touches. */
static size_t extent(const struct soft_box *box, size_t pitch, size_t slice)
{
	return (box->depth - 1) * slice + (box->height - 1) * pitch + box->width;
}

static bool stage(struct soft_box *box)
{
	size_t bytes = extent(box, box->src_pitch, box->src_slice);

	box->staged = malloc(bytes);
	if (!box->staged)
		return false;
	memcpy(box->staged, box->src, bytes);
	box->src = box->staged;
	return true;
}

/* All within one reservation, allocation or registration: that the real driver
 * takes more is not known. */
static bool one_range(const char *start, size_t bytes)
{
	return soft_range_find((uintptr_t)start) == soft_range_find((uintptr_t)start + bytes - 1);
}

/* The devices that a copy's sides are reached from. */
struct ends {
	CUdevice to, from;
};

static struct ends here(void)
{
	const CUdevice device = soft_device(soft_context());

	return (struct ends){device, device};
}

static CUresult check(const struct soft_box *box, unsigned side, struct ends ends, bool *known_src,
	bool *known_dst)
{
	const size_t to = extent(box, box->dst_pitch, box->dst_slice);
	const size_t from = extent(box, box->src_pitch, box->src_slice);

	*known_src = soft_known((uintptr_t)box->src, from);
	*known_dst = soft_known((uintptr_t)box->dst, to);
	if ((!*known_src && !(side & (HOST_TO | ANY))) ||
		(!*known_dst && !(side & (TO_HOST | ANY))))
		return CUDA_ERROR_INVALID_VALUE;
	if ((*known_src && !one_range(box->src, from)) || (*known_dst && !one_range(box->dst, to)))
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_reaches(ends.from, (uintptr_t)box->src, from) ||
		!soft_reaches(ends.to, (uintptr_t)box->dst, to))
		return CUDA_ERROR_INVALID_VALUE;
	/* A pointer into a reservation where nothing is mapped is no host pointer. */
	if ((!*known_src && soft_range_find((uintptr_t)box->src)) ||
		(!*known_dst && soft_range_find((uintptr_t)box->dst)))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/*
 * Pageable memory behaves as the real driver's: an asynchronous copy from it
 * has read it when the call returns, one to it is done then. A synchronous
 * copy between device addresses does not wait.
 */
static CUresult submit(
	struct soft_box box, unsigned side, struct ends ends, CUstream handle, bool per_thread)
{
	struct soft_stream *stream = soft_stream_find(handle, per_thread);
	struct soft_op op = {.kind = SOFT_OP_COPY};
	bool known_src, known_dst, wait;
	CUresult result;

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!box.width || !box.height || !box.depth)
		return CUDA_SUCCESS;
	result = check(&box, side, ends, &known_src, &known_dst);
	if (result)
		return result;
	wait = !known_dst ||
	       (side & SYNC && (soft.flags & CU_CTX_SYNC_MEMOPS || !known_src ||
				       soft_place((uintptr_t)box.src, NULL) == SOFT_ON_HOST ||
				       soft_place((uintptr_t)box.dst, NULL) == SOFT_ON_HOST));
	if (!known_src && !stream->capture && soft_fuzzing() && !wait && !stage(&box))
		return CUDA_ERROR_OUT_OF_MEMORY;
	op.box = box;
	result = soft_submit(stream, &op);
	if (!result && wait && !stream->capture) {
		soft_run(stream->last);
		result = soft.error;
	}
	return result;
}

static struct soft_box line(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	return (struct soft_box){.dst = (char *)dst,
		.src = (const char *)src,
		.width = bytes,
		.height = 1,
		.depth = 1};
}

static CUresult copy(CUdeviceptr dst, CUdeviceptr src, size_t bytes, unsigned side, CUstream stream,
	bool per_thread)
{
	SOFT_ENTER(side & SYNC ? SOFT_CONTEXT | SOFT_UNSAFE : SOFT_CONTEXT);
	return submit(line(dst, src, bytes), side, here(), stream, per_thread);
}

#define D CUdeviceptr
#define H(p) ((CUdeviceptr)(p))

SOFT_BOTH(cuMemcpy, _ptds, (D dst, D src, size_t n), copy(dst, src, n, ANY | SYNC, 0, per_thread))
SOFT_BOTH(cuMemcpyAsync, _ptsz, (D dst, D src, size_t n, CUstream s),
	copy(dst, src, n, ANY, s, per_thread))
SOFT_BOTH(cuMemcpyHtoD_v2, _ptds, (D dst, const void *src, size_t n),
	copy(dst, H(src), n, HOST_TO | SYNC, 0, per_thread))
SOFT_BOTH(cuMemcpyHtoDAsync_v2, _ptsz, (D dst, const void *src, size_t n, CUstream s),
	copy(dst, H(src), n, HOST_TO, s, per_thread))
SOFT_BOTH(cuMemcpyDtoH_v2, _ptds, (void *dst, D src, size_t n),
	copy(H(dst), src, n, TO_HOST | SYNC, 0, per_thread))
SOFT_BOTH(cuMemcpyDtoHAsync_v2, _ptsz, (void *dst, D src, size_t n, CUstream s),
	copy(H(dst), src, n, TO_HOST, s, per_thread))
SOFT_BOTH(cuMemcpyDtoD_v2, _ptds, (D dst, D src, size_t n), copy(dst, src, n, SYNC, 0, per_thread))
SOFT_BOTH(cuMemcpyDtoDAsync_v2, _ptsz, (D dst, D src, size_t n, CUstream s),
	copy(dst, src, n, 0, s, per_thread))

static CUresult peer(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes,
	unsigned side, CUstream stream, bool per_thread)
{
	SOFT_ENTER(side & SYNC ? SOFT_CONTEXT | SOFT_UNSAFE : SOFT_CONTEXT);
	return submit(line(dst, src, bytes), side,
		(struct ends){soft_device(to), soft_device(from)}, stream, per_thread);
}

SOFT_BOTH(cuMemcpyPeer, _ptds, (D dst, CUcontext to, D src, CUcontext from, size_t n),
	peer(dst, to, src, from, n, SYNC, 0, per_thread))
SOFT_BOTH(cuMemcpyPeerAsync, _ptsz,
	(D dst, CUcontext to, D src, CUcontext from, size_t n, CUstream s),
	peer(dst, to, src, from, n, 0, s, per_thread))

static CUresult base(char **out, unsigned *side, unsigned host, CUmemorytype type, const void *ptr,
	CUdeviceptr device)
{
	switch (type) {
	case CU_MEMORYTYPE_HOST:
		*out = (char *)ptr;
		*side |= host;
		return CUDA_SUCCESS;
	case CU_MEMORYTYPE_UNIFIED:
		*side |= ANY;
		*out = (char *)device;
		return CUDA_SUCCESS;
	case CU_MEMORYTYPE_DEVICE:
		*out = (char *)device;
		return CUDA_SUCCESS;
	default: /* arrays */
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult box_of(struct soft_box *out, unsigned *sides, const CUDA_MEMCPY3D_PEER *c)
{
	struct soft_box box = {.width = c->WidthInBytes, .height = c->Height, .depth = c->Depth};
	unsigned side = *sides;
	CUresult result;
	char *dst, *src;

	result = base(&src, &side, HOST_TO, c->srcMemoryType, c->srcHost, c->srcDevice);
	if (!result)
		result = base(&dst, &side, TO_HOST, c->dstMemoryType, c->dstHost, c->dstDevice);
	if (result)
		return result;
	box.src_pitch = c->srcPitch ? c->srcPitch : box.width;
	box.dst_pitch = c->dstPitch ? c->dstPitch : box.width;
	box.src_slice = (c->srcHeight ? c->srcHeight : box.height) * box.src_pitch;
	box.dst_slice = (c->dstHeight ? c->dstHeight : box.height) * box.dst_pitch;
	if (box.src_pitch < c->srcXInBytes + box.width ||
		box.dst_pitch < c->dstXInBytes + box.width ||
		(c->srcHeight && c->srcHeight < c->srcY + box.height) ||
		(c->dstHeight && c->dstHeight < c->dstY + box.height))
		return CUDA_ERROR_INVALID_VALUE;
	box.src = src + c->srcXInBytes + c->srcY * box.src_pitch + c->srcZ * box.src_slice;
	box.dst = dst + c->dstXInBytes + c->dstY * box.dst_pitch + c->dstZ * box.dst_slice;
	/* The base, not the first byte, tells of which memory the copy is (driver 580
	 * refused parts of a box whose base was left before a seam). */
	if (soft_range_find((uintptr_t)src) != soft_range_find((uintptr_t)box.src) ||
		soft_range_find((uintptr_t)dst) != soft_range_find((uintptr_t)box.dst))
		return CUDA_ERROR_INVALID_VALUE;
	*out = box;
	*sides = side;
	return CUDA_SUCCESS;
}

static CUresult box_copy(const CUDA_MEMCPY3D_PEER *c, unsigned side, struct ends ends,
	CUstream stream, bool per_thread)
{
	struct soft_box box;
	CUresult result = box_of(&box, &side, c);

	return result ? result : submit(box, side, ends, stream, per_thread);
}

/* What the smaller descriptions have in common with the largest. */
#define COMMON(c)                                                                                  \
	.srcXInBytes = (c)->srcXInBytes, .srcY = (c)->srcY, .srcMemoryType = (c)->srcMemoryType,   \
	.srcHost = (c)->srcHost, .srcDevice = (c)->srcDevice, .srcPitch = (c)->srcPitch,           \
	.dstXInBytes = (c)->dstXInBytes, .dstY = (c)->dstY, .dstMemoryType = (c)->dstMemoryType,   \
	.dstHost = (c)->dstHost, .dstDevice = (c)->dstDevice, .dstPitch = (c)->dstPitch,           \
	.WidthInBytes = (c)->WidthInBytes, .Height = (c)->Height

static CUresult copy2d(const CUDA_MEMCPY2D *c, unsigned side, CUstream stream, bool per_thread)
{
	SOFT_ENTER(side & SYNC ? SOFT_CONTEXT | SOFT_UNSAFE : SOFT_CONTEXT);
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	return box_copy(&(const CUDA_MEMCPY3D_PEER){COMMON(c), .Depth = 1}, side, here(), stream,
		per_thread);
}

static CUresult copy3d(const CUDA_MEMCPY3D *c, unsigned side, CUstream stream, bool per_thread)
{
	SOFT_ENTER(side & SYNC ? SOFT_CONTEXT | SOFT_UNSAFE : SOFT_CONTEXT);
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	return box_copy(
		&(const CUDA_MEMCPY3D_PEER){COMMON(c), .srcZ = c->srcZ, .srcHeight = c->srcHeight,
			.dstZ = c->dstZ, .dstHeight = c->dstHeight, .Depth = c->Depth},
		side, here(), stream, per_thread);
}

CUresult soft_copy_op(struct soft_op *op, const CUDA_MEMCPY3D *c)
{
	const CUDA_MEMCPY3D_PEER peer = {COMMON(c), .srcZ = c->srcZ, .srcHeight = c->srcHeight,
		.dstZ = c->dstZ, .dstHeight = c->dstHeight, .Depth = c->Depth};
	unsigned side = 0;
	bool src, dst;
	CUresult result;

	*op = (struct soft_op){.kind = SOFT_OP_COPY};
	result = box_of(&op->box, &side, &peer);
	if (!result && (!c->WidthInBytes || !c->Height || !c->Depth))
		result = CUDA_ERROR_INVALID_VALUE;
	return result ? result : check(&op->box, side, here(), &src, &dst);
}

/* What no node can hold is refused while it would be captured (driver 580), and
 * the capture goes on. */
static bool captures(CUstream handle, bool per_thread)
{
	struct soft_stream *stream = soft_stream_find(handle, per_thread);

	return stream && stream->capture;
}

static CUresult copy3d_peer(
	const CUDA_MEMCPY3D_PEER *c, unsigned side, CUstream stream, bool per_thread)
{
	SOFT_ENTER(side & SYNC ? SOFT_CONTEXT | SOFT_UNSAFE : SOFT_CONTEXT);
	if (captures(stream, per_thread))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	return box_copy(c, side,
		(struct ends){soft_device(c->dstContext), soft_device(c->srcContext)}, stream,
		per_thread);
}

SOFT_BOTH(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D *c), copy2d(c, SYNC, 0, per_thread))
SOFT_BOTH(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D *c), copy2d(c, SYNC, 0, per_thread))
SOFT_BOTH(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D *c, CUstream s),
	copy2d(c, 0, s, per_thread))
SOFT_BOTH(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D *c), copy3d(c, SYNC, 0, per_thread))
SOFT_BOTH(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D *c, CUstream s),
	copy3d(c, 0, s, per_thread))
SOFT_BOTH(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER *c), copy3d_peer(c, SYNC, 0, per_thread))
SOFT_BOTH(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER *c, CUstream s),
	copy3d_peer(c, 0, s, per_thread))

static CUresult batch(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
	CUmemcpyAttributes *attributes, size_t *first, size_t attribute_count, size_t *failed,
	CUstream stream, bool per_thread)
{
	CUresult result;

	if (!dsts || !srcs || !sizes || !count || !attributes || !first || !attribute_count ||
		attribute_count > count || !stream || stream == CU_STREAM_LEGACY)
		return CUDA_ERROR_INVALID_VALUE; /* "must not be the legacy stream" (cuda.h) */
	{
		SOFT_ENTER(SOFT_CONTEXT);
		if (captures(stream, per_thread))
			return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (failed)
		*failed = SIZE_MAX;
	for (size_t i = 0; i < count; i++) {
		result = copy(dsts[i], srcs[i], sizes[i], ANY, stream, per_thread);
		if (result && failed)
			*failed = i;
		if (result)
			return result;
	}
	return CUDA_SUCCESS;
}

SOFT_BOTH(cuMemcpyBatchAsync, _ptsz,
	(D * dsts, D *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
		size_t *first, size_t attribute_count, size_t *failed, CUstream s),
	batch(dsts, srcs, sizes, count, attributes, first, attribute_count, failed, s, per_thread))
SOFT_BOTH(cuMemcpyBatchAsync_v2, _ptsz,
	(D * dsts, D *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
		size_t *first, size_t attribute_count, CUstream s),
	batch(dsts, srcs, sizes, count, attributes, first, attribute_count, NULL, s, per_thread))

static CUresult operand(char **out, size_t *pitch, size_t *slice, const CUmemcpy3DOperand *o,
	const CUextent3D *extent)
{
	if (o->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
		return CUDA_ERROR_NOT_SUPPORTED;
	*out = (char *)o->op.ptr.ptr;
	*pitch = o->op.ptr.rowLength ? o->op.ptr.rowLength : extent->width;
	*slice = (o->op.ptr.layerHeight ? o->op.ptr.layerHeight : extent->height) * *pitch;
	return *pitch < extent->width || *slice < extent->height * *pitch ? CUDA_ERROR_INVALID_VALUE
									  : CUDA_SUCCESS;
}

static CUresult batch3d(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed,
	unsigned long long flags, CUstream stream, bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT);
	CUresult result = CUDA_SUCCESS;

	if (!ops || !count || flags || !stream || stream == CU_STREAM_LEGACY)
		return CUDA_ERROR_INVALID_VALUE;
	if (captures(stream, per_thread))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (failed)
		*failed = SIZE_MAX;
	for (size_t i = 0; i < count && !result; i++) {
		const CUextent3D *e = &ops[i].extent;
		struct soft_box box = {.width = e->width, .height = e->height, .depth = e->depth};
		char *src;

		result = operand(&src, &box.src_pitch, &box.src_slice, &ops[i].src, e);
		if (!result)
			result = operand(&box.dst, &box.dst_pitch, &box.dst_slice, &ops[i].dst, e);
		box.src = src;
		if (!result)
			result = submit(box, ANY, here(), stream, per_thread);
		if (result && failed)
			*failed = i;
	}
	return result;
}

SOFT_BOTH(cuMemcpy3DBatchAsync, _ptsz,
	(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags,
		CUstream s),
	batch3d(count, ops, failed, flags, s, per_thread))
SOFT_BOTH(cuMemcpy3DBatchAsync_v2, _ptsz,
	(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream s),
	batch3d(count, ops, NULL, flags, s, per_thread))

/* A fill may not cross from one kind of memory to another (driver 580). */
CUresult soft_fill_op(struct soft_op *op, const CUDA_MEMSET_NODE_PARAMS *f)
{
	size_t run = 0;

	*op = (struct soft_op){.kind = SOFT_OP_FILL};
	if (f->elementSize != 1 && f->elementSize != 2 && f->elementSize != 4)
		return CUDA_ERROR_INVALID_VALUE;
	op->box = (struct soft_box){.dst = (char *)f->dst,
		.width = f->width * f->elementSize,
		.height = f->height,
		.depth = 1,
		.dst_pitch = f->pitch,
		.value = f->value,
		.value_bytes = f->elementSize};
	if (!f->width || !f->height || soft_place(f->dst, &run) == SOFT_NOWHERE ||
		extent(&op->box, f->pitch, 0) > run || f->dst % f->elementSize ||
		(f->height > 1 && f->pitch < op->box.width))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult fill(CUdeviceptr dst, size_t pitch, uint32_t value, unsigned value_bytes,
	size_t count, size_t height, CUstream handle, bool sync, bool per_thread)
{
	SOFT_ENTER(sync ? SOFT_CONTEXT | SOFT_UNSAFE : SOFT_CONTEXT);
	struct soft_stream *stream = soft_stream_find(handle, per_thread);
	struct soft_op op;
	CUresult result;

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!count || !height)
		return CUDA_SUCCESS;
	result = soft_fill_op(
		&op, &(CUDA_MEMSET_NODE_PARAMS){dst, pitch, value, value_bytes, count, height});
	return result ? result : soft_submit(stream, &op);
}

#define FILLS(bits, type)                                                                          \
	SOFT_BOTH(cuMemsetD##bits##_v2, _ptds, (D dst, type v, size_t n),                          \
		fill(dst, 0, v, bits / 8, n, 1, 0, true, per_thread))                              \
	SOFT_BOTH(cuMemsetD##bits##Async, _ptsz, (D dst, type v, size_t n, CUstream s),            \
		fill(dst, 0, v, bits / 8, n, 1, s, false, per_thread))                             \
	SOFT_BOTH(cuMemsetD2D##bits##_v2, _ptds,                                                   \
		(D dst, size_t pitch, type v, size_t n, size_t h),                                 \
		fill(dst, pitch, v, bits / 8, n, h, 0, true, per_thread))                          \
	SOFT_BOTH(cuMemsetD2D##bits##Async, _ptsz,                                                 \
		(D dst, size_t pitch, type v, size_t n, size_t h, CUstream s),                     \
		fill(dst, pitch, v, bits / 8, n, h, s, false, per_thread))

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned)
