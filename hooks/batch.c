/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include "hooks/copy.h"

/*
 * Batches. One with an item that crosses a seam is passed on as a longer one,
 * of the items' parts; without memory for that, as it is. A batch that failed
 * may have been done in part.
 */

/* What is passed on: parts of the items in order, and of each the item. */
struct longer {
	size_t count, room;
	size_t *item;
	CUdeviceptr *dsts, *srcs; /* of lines */
	size_t *sizes;
	CUDA_MEMCPY3D_BATCH_OP *ops;	  /* of boxes */
	const CUDA_MEMCPY3D_BATCH_OP *op; /* the item whose parts come now */
	size_t at;
};

static void finish(struct longer *l)
{
	free(l->item);
	free(l->dsts);
	free(l->srcs);
	free(l->sizes);
	free(l->ops);
}

static bool widen(void *array, size_t room, size_t bytes)
{
	void **at = array, *wider = realloc(*at, room * bytes);

	if (wider)
		*at = wider;
	return wider;
}

/* Room for one more part. */
static bool more(struct longer *l, bool boxes)
{
	const size_t room = l->room ? l->room * 2 : 64;

	if (l->count < l->room)
		return true;
	if (!widen(&l->item, room, sizeof(*l->item)) ||
		(boxes && !widen(&l->ops, room, sizeof(*l->ops))) ||
		(!boxes && (!widen(&l->dsts, room, sizeof(*l->dsts)) ||
				   !widen(&l->srcs, room, sizeof(*l->srcs)) ||
				   !widen(&l->sizes, room, sizeof(*l->sizes)))))
		return false;
	l->room = room;
	return true;
}

/* The index in the caller's batch of what failed. */
static void translate(size_t *fail, const struct longer *l)
{
	if (fail && *fail < l->count)
		*fail = l->item[*fail];
}

struct lines {
	CUdeviceptr *dsts, *srcs;
	size_t *sizes, count;
	CUmemcpyAttributes *attrs;
	size_t *firsts, nattrs, *fail;
	CUstream stream;
	bool per_thread;
	CUresult (*forward)(const struct lines *lines);
};

static size_t line_run(CUdeviceptr dst, CUdeviceptr src, size_t left)
{
	const size_t to = hs_copy_seam(dst, left) - dst, from = hs_copy_seam(src, left) - src;

	return to < from ? to : from;
}

static bool lines_cross(const struct lines *b)
{
	for (size_t i = 0; i < b->count; i++)
		if (line_run(b->dsts[i], b->srcs[i], b->sizes[i]) < b->sizes[i])
			return true;
	return false;
}

/* Everything of an item has the item's attributes: those begin with its first
 * part. */
static bool lengthen(struct longer *l, const struct lines *b, size_t *firsts)
{
	size_t attr = 0;

	for (size_t i = 0; i < b->count; i++) {
		size_t done = 0;

		for (; attr < b->nattrs && b->firsts[attr] <= i; attr++)
			firsts[attr] = l->count;
		do {
			if (!more(l, false))
				return false;
			l->item[l->count] = i;
			l->dsts[l->count] = b->dsts[i] + done;
			l->srcs[l->count] = b->srcs[i] + done;
			l->sizes[l->count] =
				line_run(b->dsts[i] + done, b->srcs[i] + done, b->sizes[i] - done);
			done += l->sizes[l->count++];
		} while (done < b->sizes[i]);
	}
	return attr == b->nattrs;
}

static CUresult forward_lines(const struct lines *b)
{
	struct longer longer = {0};
	struct lines parts = *b;
	CUresult result;

	if (!b->firsts || !b->nattrs || !lines_cross(b))
		return b->forward(b);
	parts.firsts = malloc(b->nattrs * sizeof(*parts.firsts));
	if (parts.firsts && lengthen(&longer, b, parts.firsts)) {
		parts.dsts = longer.dsts;
		parts.srcs = longer.srcs;
		parts.sizes = longer.sizes;
		parts.count = longer.count;
		result = b->forward(&parts);
		translate(b->fail, &longer);
	} else {
		result = b->forward(b);
	}
	free(parts.firsts);
	finish(&longer);
	return result;
}

static CUresult copy_lines(const struct lines *b)
{
	bool gated = false;
	CUresult result;

	if (hs_window_any() && b->dsts && b->srcs && b->sizes)
		for (size_t i = 0; i < b->count && !gated; i++)
			gated = hs_span_enter(b->dsts[i], b->srcs[i]);
	result = gated ? forward_lines(b) : b->forward(b);
	for (size_t i = 0; gated && i < b->count; i++)
		hs_copy_wrote(b->dsts[i], b->sizes[i], b->stream, b->per_thread);
	return hs_span_leave(gated, result);
}

#define LINES(name, per_thread_, fail_, params, args, call)                                        \
	static CUresult forward_##name(const struct lines *b)                                      \
	{                                                                                          \
		return HS_REAL(name) call;                                                         \
	}                                                                                          \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		return copy_lines(&(struct lines){dsts, srcs, sizes, count, attrs, firsts, nattrs, \
			fail_, stream, per_thread_, forward_##name});                              \
	}
#define GIVEN                                                                                      \
	CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,                         \
		CUmemcpyAttributes *attrs, size_t *firsts, size_t nattrs
#define HELD b->dsts, b->srcs, b->sizes, b->count, b->attrs, b->firsts, b->nattrs
#define LINES_V1(name, per_thread)                                                                 \
	LINES(name, per_thread, fail, (GIVEN, size_t * fail, CUstream stream),                     \
		(dsts, srcs, sizes, count, attrs, firsts, nattrs, fail, stream),                   \
		(HELD, b->fail, b->stream))
#define LINES_V2(name, per_thread)                                                                 \
	LINES(name, per_thread, NULL, (GIVEN, CUstream stream),                                    \
		(dsts, srcs, sizes, count, attrs, firsts, nattrs, stream), (HELD, b->stream))
LINES_V1(cuMemcpyBatchAsync, false)
LINES_V1(cuMemcpyBatchAsync_ptsz, true)
LINES_V2(cuMemcpyBatchAsync_v2, false)
LINES_V2(cuMemcpyBatchAsync_v2_ptsz, true)

struct boxes {
	size_t count;
	CUDA_MEMCPY3D_BATCH_OP *ops;
	size_t *fail;
	unsigned long long flags;
	CUstream stream;
	bool per_thread;
	CUresult (*forward)(const struct boxes *boxes);
};

static bool pointers(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	return op->src.type == CU_MEMCPY_OPERAND_TYPE_POINTER &&
	       op->dst.type == CU_MEMCPY_OPERAND_TYPE_POINTER;
}

static struct hs_box box_of(const CUDA_MEMCPY3D_BATCH_OP *op, size_t element)
{
	return (struct hs_box){
		0, 0, 0, op->extent.width * element, op->extent.height, op->extent.depth};
}

/* An element is a byte between two pointers; an array's may have up to 16. */
static struct hs_box_side side_of(const CUmemcpy3DOperand *o, const CUextent3D *e, size_t element)
{
	const size_t pitch = (o->op.ptr.rowLength ? o->op.ptr.rowLength : e->width) * element;
	const size_t rows = o->op.ptr.layerHeight ? o->op.ptr.layerHeight : e->height;

	if (o->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
		return (struct hs_box_side){0, 0, 0};
	return (struct hs_box_side){o->op.ptr.ptr, pitch, pitch * rows};
}

static struct hs_span box_to(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	const size_t element = pointers(op) ? 1 : 16;
	const struct hs_box whole = box_of(op, element);
	const struct hs_box_side side = side_of(&op->dst, &op->extent, element);

	return hs_box_span(&side, &whole);
}

static void move(CUmemcpy3DOperand *o, const CUextent3D *e, const struct hs_box *part)
{
	const struct hs_box_side side = side_of(o, e, 1);

	o->op.ptr.rowLength = side.pitch;
	o->op.ptr.layerHeight = side.pitch ? side.slice / side.pitch : 0;
	o->op.ptr.ptr += part->z * side.slice + part->y * side.pitch + part->x;
}

static CUresult add_part(void *data, const struct hs_box *part)
{
	struct longer *l = data;
	CUDA_MEMCPY3D_BATCH_OP *op;

	if (!more(l, true))
		return CUDA_ERROR_OUT_OF_MEMORY;
	op = &l->ops[l->count];
	l->item[l->count++] = l->at;
	*op = *l->op;
	move(&op->dst, &l->op->extent, part);
	move(&op->src, &l->op->extent, part);
	op->extent = (CUextent3D){part->width, part->height, part->depth};
	return CUDA_SUCCESS;
}

static struct hs_box_copy parts_of(const CUDA_MEMCPY3D_BATCH_OP *op, struct longer *l)
{
	return (struct hs_box_copy){side_of(&op->dst, &op->extent, 1),
		side_of(&op->src, &op->extent, 1), add_part, l, false};
}

static bool box_crosses(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	const struct hs_box_copy parts = parts_of(op, NULL);
	const struct hs_box whole = box_of(op, 1);

	return pointers(op) && hs_box_crosses(&parts, &whole);
}

static bool lengthen_boxes(struct longer *l, const struct boxes *b)
{
	for (size_t i = 0; i < b->count; i++) {
		const struct hs_box whole = box_of(&b->ops[i], 1);
		struct hs_box_copy parts = parts_of(&b->ops[i], l);

		l->at = i;
		l->op = &b->ops[i];
		if (box_crosses(l->op)) {
			if (hs_box_parts(&parts, &whole) != CUDA_SUCCESS)
				return false;
		} else {
			if (!more(l, true))
				return false;
			l->item[l->count] = i;
			l->ops[l->count++] = b->ops[i];
		}
	}
	return true;
}

static CUresult forward_boxes(const struct boxes *b)
{
	struct longer longer = {0};
	struct boxes parts = *b;
	CUresult result;
	size_t i = 0;

	while (i < b->count && !box_crosses(&b->ops[i]))
		i++;
	if (i == b->count || !lengthen_boxes(&longer, b)) {
		result = b->forward(b);
	} else {
		parts.ops = longer.ops;
		parts.count = longer.count;
		result = b->forward(&parts);
		translate(b->fail, &longer);
	}
	finish(&longer);
	return result;
}

static CUresult copy_boxes(const struct boxes *b)
{
	bool gated = false;
	CUresult result;

	if (hs_window_any() && b->ops)
		for (size_t i = 0; i < b->count && !gated; i++)
			gated = hs_span_enter(box_to(&b->ops[i]).start,
				side_of(&b->ops[i].src, &b->ops[i].extent, 1).start);
	result = gated ? forward_boxes(b) : b->forward(b);
	for (size_t i = 0; gated && i < b->count; i++) {
		const struct hs_span to = box_to(&b->ops[i]);

		if (to.bytes)
			hs_copy_wrote(to.start, to.bytes, b->stream, b->per_thread);
	}
	return hs_span_leave(gated, result);
}

#define BOXES(name, per_thread_, fail_, params, args, call)                                        \
	static CUresult forward_##name(const struct boxes *b)                                      \
	{                                                                                          \
		return HS_REAL(name) call;                                                         \
	}                                                                                          \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		return copy_boxes(&(struct boxes){                                                 \
			count, ops, fail_, flags, stream, per_thread_, forward_##name});           \
	}
#define OPS size_t count, CUDA_MEMCPY3D_BATCH_OP *ops
#define BOXES_V1(name, per_thread)                                                                 \
	BOXES(name, per_thread, fail,                                                              \
		(OPS, size_t * fail, unsigned long long flags, CUstream stream),                   \
		(count, ops, fail, flags, stream),                                                 \
		(b->count, b->ops, b->fail, b->flags, b->stream))
#define BOXES_V2(name, per_thread)                                                                 \
	BOXES(name, per_thread, NULL, (OPS, unsigned long long flags, CUstream stream),            \
		(count, ops, flags, stream), (b->count, b->ops, b->flags, b->stream))
BOXES_V1(cuMemcpy3DBatchAsync, false)
BOXES_V1(cuMemcpy3DBatchAsync_ptsz, true)
BOXES_V2(cuMemcpy3DBatchAsync_v2, false)
BOXES_V2(cuMemcpy3DBatchAsync_v2_ptsz, true)
