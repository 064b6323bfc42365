/* SPDX-License-Identifier: MIT */
#ifndef HOOKS_COPY_H
#define HOOKS_COPY_H

/*
 * Copies: in one line (copy.c), of boxes (box.c), in batches (batch.c). The
 * driver does them; what they wrote is reported afterwards, on the same stream.
 * Those that touch a window pass the gate, so that it does not move under them;
 * all others do not, as a copy may wait for long. No copy is known to run from a
 * reservation into registered memory (driver 580.159.04), so they are cut at the
 * seams.
 */

#include "hooks/hook.h"
#include "src/memory/copy.h"
#include "src/memory/gate.h"
#include "src/memory/memory.h"
#include "src/memory/peer.h"

struct hs_span {
	CUdeviceptr start;
	size_t bytes; /* 0: not device memory, or nothing */
};

static inline bool hs_span_enter(CUdeviceptr dst, CUdeviceptr src)
{
	if (!hs_window_any() || (!hs_window_find(dst) && !hs_window_find(src)))
		return false;
	hs_peer_note();
	hs_gate_enter();
	return true;
}

static inline CUresult hs_span_leave(bool gated, CUresult result)
{
	if (gated)
		hs_gate_leave();
	return hs_hook_end(result);
}

/* A call without a stream has copied by the time it returns, and work on other
 * streams need not wait for the default one: what it wrote is dropped by then. */
#define HS_SPAN_NOW ((CUstream) ~(uintptr_t)0)

static inline void hs_span_wrote(struct hs_span dst, CUstream stream, bool per_thread)
{
	hs_copy_wrote(dst.start, dst.bytes, stream == HS_SPAN_NOW ? NULL : stream, per_thread);
	if (stream != HS_SPAN_NOW || !hs_window_any() || !hs_window_find(dst.start))
		return;
	if (per_thread)
		hs_driver.cuStreamSynchronize_ptsz(NULL);
	else
		hs_driver.cuStreamSynchronize(NULL);
}

/* A box: `width` bytes in each of `height` rows in each of `depth` planes. */
struct hs_box {
	size_t x, y, z, width, height, depth;
};

/* Where one side of a copy has it. start 0: not device memory. */
struct hs_box_side {
	CUdeviceptr start;
	size_t pitch, slice; /* bytes from row to row, from plane to plane */
};

/* From the first byte of the box to the last. */
static inline struct hs_span hs_box_span(const struct hs_box_side *side, const struct hs_box *box)
{
	if (!side->start || !box->width || !box->height || !box->depth)
		return (struct hs_span){0, 0};
	return (struct hs_span){side->start + box->z * side->slice + box->y * side->pitch + box->x,
		(box->depth - 1) * side->slice + (box->height - 1) * side->pitch + box->width};
}

/* Calls forward for parts of the box that lie between seams on both sides, until
 * one fails. *done: whether one did not. */
struct hs_box_copy {
	struct hs_box_side dst, src;
	CUresult (*forward)(void *copy, const struct hs_box *part);
	void *copy;
	bool done;
};
CUresult hs_box_parts(struct hs_box_copy *copy, const struct hs_box *box);
/* What a copy writes of device memory. */
struct hs_span hs_box_written(const CUDA_MEMCPY3D *copy);
bool hs_box_crosses(const struct hs_box_copy *copy, const struct hs_box *box);

#endif
