/* SPDX-License-Identifier: MIT */
#include "hooks/copy.h"

/* Rectangles and boxes of rows. */

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* The gap behind the last row or plane counts, too: whether the driver looks at it
 * is not known. A single row has none. */
static struct hs_span reach(const struct hs_box_side *side, const struct hs_box *box)
{
	struct hs_span span = hs_box_span(side, box);

	if (span.bytes && box->depth > 1)
		span.bytes = box->depth * side->slice;
	else if (span.bytes && box->height > 1)
		span.bytes = box->height * side->pitch;
	return span;
}

/* Bytes of the box's span that lie before the first seam on either side. */
static size_t before_seam(const struct hs_box_copy *copy, const struct hs_box *box, bool *crosses)
{
	const struct hs_span dst = reach(&copy->dst, box), src = reach(&copy->src, box);
	const size_t to = hs_copy_seam(dst.start, dst.bytes) - dst.start;
	const size_t from = hs_copy_seam(src.start, src.bytes) - src.start;

	*crosses = to < dst.bytes || from < src.bytes;
	return dst.bytes && src.bytes ? least(to, from) : dst.bytes ? to : from;
}

/* In halves, first of planes, then of rows, as long as a seam is crossed: a few
 * calls for each seam. A single row is cut where the seam is. */
CUresult hs_box_parts(struct hs_box_copy *copy, const struct hs_box *box)
{
	struct hs_box part = *box, rest = *box;
	bool crosses;
	const size_t before = before_seam(copy, box, &crosses);
	CUresult result;

	if (!crosses) {
		result = copy->forward(copy->copy, box);
		copy->done |= result == CUDA_SUCCESS;
		return result;
	}
	if (box->depth > 1) {
		part.depth /= 2;
		rest.z += part.depth;
		rest.depth -= part.depth;
	} else if (box->height > 1) {
		part.height /= 2;
		rest.y += part.height;
		rest.height -= part.height;
	} else {
		part.width = before;
		rest.x += part.width;
		rest.width -= part.width;
	}
	result = hs_box_parts(copy, &part);
	return result == CUDA_SUCCESS ? hs_box_parts(copy, &rest) : result;
}

bool hs_box_crosses(const struct hs_box_copy *copy, const struct hs_box *box)
{
	bool crosses;

	before_seam(copy, box, &crosses);
	return crosses;
}

/* A copy that names an array, and one that the driver is to refuse, is passed
 * on as it is. */
static bool array(CUmemorytype type)
{
	return type == CU_MEMORYTYPE_ARRAY;
}

static bool linear(CUmemorytype type)
{
	return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

#define SIDE(c, side, z_, rows_)                                                                   \
	({                                                                                         \
		const size_t pitch_ = (c)->side##Pitch ? (c)->side##Pitch                          \
						       : (c)->side##XInBytes + (c)->WidthInBytes;  \
		const size_t slice_ = pitch_ * (rows_);                                            \
		(struct hs_box_side){linear((c)->side##MemoryType)                                 \
					     ? (c)->side##Device + (z_)*slice_ +                   \
						       (c)->side##Y * pitch_ + (c)->side##XInBytes \
					     : 0,                                                  \
			pitch_, slice_};                                                           \
	})
#define ROWS(c, side) ((c)->side##Height ? (c)->side##Height : (c)->side##Y + (c)->Height)

#define SIDE2D(c, side) SIDE(c, side, 0, 0)
#define SIDE3D(c, side) SIDE(c, side, (c)->side##Z, ROWS(c, side))

struct hs_span hs_box_written(const CUDA_MEMCPY3D *copy)
{
	const struct hs_box whole = {0, 0, 0, copy->WidthInBytes, copy->Height, copy->Depth};
	const struct hs_box_side dst = SIDE3D(copy, dst);

	return hs_box_span(&dst, &whole);
}

/* The part's description. It begins at its base: the driver refuses a part that
 * lies behind a seam and has its base before it. Nor may rows be longer than what
 * is copied of a single one. */
#define MOVE(c, part, side, z_, rows_)                                                             \
	do {                                                                                       \
		const size_t pitch_ = (c)->side##Pitch ? (c)->side##Pitch                          \
						       : (c)->side##XInBytes + (c)->WidthInBytes;  \
		const size_t by_ = ((z_) * (rows_) + (c)->side##Y + (part)->y) * pitch_ +          \
				   (c)->side##XInBytes + (part)->x;                                \
		(c)->side##Host = (void *)((uintptr_t)(c)->side##Host + by_);                      \
		(c)->side##Device += by_;                                                          \
		(c)->side##XInBytes = (c)->side##Y = 0;                                            \
		(c)->side##Pitch =                                                                 \
			(part)->height > 1 || (part)->depth > 1 ? pitch_ : (part)->width;          \
	} while (0)
#define MOVE3D(c, part, side)                                                                      \
	do {                                                                                       \
		const size_t height_ = ROWS(c, side);                                              \
		MOVE(c, part, side, (c)->side##Z + (part)->z, height_);                            \
		(c)->side##Height = (part)->depth > 1 ? height_ : (part)->height;                  \
		(c)->side##Z = 0;                                                                  \
	} while (0)

#define PART2D(c, part)                                                                            \
	do {                                                                                       \
		MOVE(c, part, src, 0, 0);                                                          \
		MOVE(c, part, dst, 0, 0);                                                          \
	} while (0)
#define PART3D(c, part)                                                                            \
	do {                                                                                       \
		MOVE3D(c, part, src);                                                              \
		MOVE3D(c, part, dst);                                                              \
		(c)->Depth = (part)->depth;                                                        \
	} while (0)

/* All that is done about one type of description. */
#define KIND(type, SIDE_OF, PART, depth)                                                           \
	struct type##_call {                                                                       \
		const type *copy;                                                                  \
		CUresult (*at_once)(const type *copy); /* or: */                                   \
		CUresult (*on_stream)(const type *copy, CUstream stream);                          \
		CUstream stream;                                                                   \
		bool per_thread;                                                                   \
	};                                                                                         \
	static CUresult type##_pass(const struct type##_call *call, const type *copy)              \
	{                                                                                          \
		return call->at_once ? call->at_once(copy) : call->on_stream(copy, call->stream);  \
	}                                                                                          \
	static CUresult type##_part(void *data, const struct hs_box *part)                         \
	{                                                                                          \
		const struct type##_call *call = data;                                             \
		type copy = *call->copy;                                                           \
		PART(&copy, part);                                                                 \
		copy.WidthInBytes = part->width;                                                   \
		copy.Height = part->height;                                                        \
		return type##_pass(call, &copy);                                                   \
	}                                                                                          \
	static CUresult type##_run(struct type##_call *call)                                       \
	{                                                                                          \
		const type *copy = call->copy;                                                     \
		const struct hs_box whole = {0, 0, 0, copy->WidthInBytes, copy->Height, depth};    \
		struct hs_box_copy parts = {                                                       \
			SIDE_OF(copy, dst), SIDE_OF(copy, src), type##_part, call, false};         \
		const struct hs_span to = hs_box_span(&parts.dst, &whole);                         \
		const struct hs_span from = hs_box_span(&parts.src, &whole);                       \
		const bool gated = hs_span_enter(to.start, from.start);                            \
		CUresult result;                                                                   \
		if (gated && !array(copy->srcMemoryType) && !array(copy->dstMemoryType) &&         \
			hs_box_crosses(&parts, &whole)) {                                          \
			result = hs_box_parts(&parts, &whole);                                     \
		} else {                                                                           \
			result = type##_pass(call, copy);                                          \
			parts.done = result == CUDA_SUCCESS;                                       \
		}                                                                                  \
		if (parts.done && to.bytes)                                                        \
			hs_span_wrote(                                                             \
				to, call->at_once ? HS_SPAN_NOW : call->stream, call->per_thread); \
		return hs_span_leave(gated, result);                                               \
	}
KIND(CUDA_MEMCPY2D, SIDE2D, PART2D, 1)
KIND(CUDA_MEMCPY3D, SIDE3D, PART3D, copy->Depth)
KIND(CUDA_MEMCPY3D_PEER, SIDE3D, PART3D, copy->Depth)
#undef KIND

#define AT_ONCE(name, type, per_thread_)                                                           \
	HS_EXPORT CUresult name(const type *copy)                                                  \
	{                                                                                          \
		if (!copy || !hs_hook_begin())                                                     \
			return HS_REAL(name)(copy);                                                \
		return type##_run(&(struct type##_call){                                           \
			.copy = copy, .at_once = hs_driver.name, .per_thread = per_thread_});      \
	}
AT_ONCE(cuMemcpy2D_v2, CUDA_MEMCPY2D, false)
AT_ONCE(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, true)
AT_ONCE(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, false)
AT_ONCE(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, true)
AT_ONCE(cuMemcpy3D_v2, CUDA_MEMCPY3D, false)
AT_ONCE(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, true)
AT_ONCE(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, false)
AT_ONCE(cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER, true)

#define ON_STREAM(name, type, per_thread_)                                                         \
	HS_EXPORT CUresult name(const type *copy, CUstream stream)                                 \
	{                                                                                          \
		if (!copy || !hs_hook_begin())                                                     \
			return HS_REAL(name)(copy, stream);                                        \
		return type##_run(&(struct type##_call){.copy = copy,                              \
			.on_stream = hs_driver.name,                                               \
			.stream = stream,                                                          \
			.per_thread = per_thread_});                                               \
	}
ON_STREAM(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, false)
ON_STREAM(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, true)
ON_STREAM(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, false)
ON_STREAM(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, true)
ON_STREAM(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, false)
ON_STREAM(cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY3D_PEER, true)
