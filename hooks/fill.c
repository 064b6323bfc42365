/* SPDX-License-Identifier: MIT */
#include "hooks/hook.h"
#include "src/memory/copy.h"
#include "src/memory/gate.h"
#include "src/memory/memory.h"
#include "src/memory/peer.h"

/*
 * Fills. The driver refuses one that crosses a seam between two backings
 * (580.159.04: INVALID_VALUE), so those are cut at the seams.
 */

struct fill {
	CUdeviceptr dst;
	size_t pitch;	       /* bytes from row to row */
	unsigned value, width; /* width: bytes of an element */
	size_t count, height;  /* elements of a row, rows */
	CUstream stream;
	bool per_thread;
	CUresult (*forward)(const struct fill *fill);
};

static size_t extent(const struct fill *f)
{
	return f->count && f->height ? (f->height - 1) * f->pitch + f->count * f->width : 0;
}

/* One row, from seam to seam. */
static CUresult fill_row(struct fill f)
{
	CUresult result = CUDA_SUCCESS;

	f.height = 1;
	while (f.count && result == CUDA_SUCCESS) {
		struct fill part = f;
		const size_t run = (hs_copy_seam(f.dst, extent(&f)) - f.dst) / f.width;

		if (run && run < f.count)
			part.count = run;
		result = part.forward(&part);
		f.dst += part.count * f.width;
		f.count -= part.count;
	}
	return result;
}

/* As many whole rows at a time as lie before the next seam. */
static CUresult fill_rows(struct fill f)
{
	CUresult result = CUDA_SUCCESS;

	while (f.height && result == CUDA_SUCCESS) {
		struct fill part = f;
		const size_t run = hs_copy_seam(f.dst, extent(&f)) - f.dst;
		const size_t row = f.count * f.width;

		if (run < row)
			part.height = 1;
		else if (run < extent(&f))
			part.height = (run - row) / f.pitch + 1;
		result = run < row ? fill_row(part) : part.forward(&part);
		f.dst += part.height * f.pitch;
		f.height -= part.height;
	}
	return result;
}

static CUresult fill(const struct fill *f)
{
	struct hs_window *window = hs_window_any() ? hs_window_find(f->dst) : NULL;
	CUresult result;

	if (!window || !extent(f))
		return hs_hook_end(f->forward(f));
	hs_peer_note();
	hs_gate_enter();
	result = fill_rows(*f);
	(f->value ? hs_copy_wrote : hs_copy_filled)(
		f->dst, extent(f), f->stream, f->per_thread);
	hs_gate_leave();
	return hs_hook_end(result);
}

#define FILL(name, type, params, args, call, per_thread_, ...)                                     \
	static CUresult forward_##name(const struct fill *f)                                       \
	{                                                                                          \
		return hs_driver.name call;                                                        \
	}                                                                                          \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		return fill(&(struct fill){.dst = dst,                                             \
			.value = value,                                                            \
			.width = sizeof(type),                                                     \
			.count = count,                                                            \
			.per_thread = per_thread_,                                                 \
			.forward = forward_##name,                                                 \
			__VA_ARGS__});                                                             \
	}

#define LINE(name, type, per_thread)                                                               \
	FILL(name, type, (CUdeviceptr dst, type value, size_t count), (dst, value, count),         \
		(f->dst, (type)f->value, f->count), per_thread, .height = 1)
LINE(cuMemsetD8_v2, unsigned char, false)
LINE(cuMemsetD8_v2_ptds, unsigned char, true)
LINE(cuMemsetD16_v2, unsigned short, false)
LINE(cuMemsetD16_v2_ptds, unsigned short, true)
LINE(cuMemsetD32_v2, unsigned, false)
LINE(cuMemsetD32_v2_ptds, unsigned, true)

#define LINE_ASYNC(name, type, per_thread)                                                         \
	FILL(name, type, (CUdeviceptr dst, type value, size_t count, CUstream stream),             \
		(dst, value, count, stream), (f->dst, (type)f->value, f->count, f->stream),        \
		per_thread, .height = 1, .stream = stream)
LINE_ASYNC(cuMemsetD8Async, unsigned char, false)
LINE_ASYNC(cuMemsetD8Async_ptsz, unsigned char, true)
LINE_ASYNC(cuMemsetD16Async, unsigned short, false)
LINE_ASYNC(cuMemsetD16Async_ptsz, unsigned short, true)
LINE_ASYNC(cuMemsetD32Async, unsigned, false)
LINE_ASYNC(cuMemsetD32Async_ptsz, unsigned, true)

#define RECT(name, type, per_thread)                                                               \
	FILL(name, type, (CUdeviceptr dst, size_t pitch, type value, size_t count, size_t height), \
		(dst, pitch, value, count, height),                                                \
		(f->dst, f->pitch, (type)f->value, f->count, f->height), per_thread,               \
		.pitch = pitch, .height = height)
RECT(cuMemsetD2D8_v2, unsigned char, false)
RECT(cuMemsetD2D8_v2_ptds, unsigned char, true)
RECT(cuMemsetD2D16_v2, unsigned short, false)
RECT(cuMemsetD2D16_v2_ptds, unsigned short, true)
RECT(cuMemsetD2D32_v2, unsigned, false)
RECT(cuMemsetD2D32_v2_ptds, unsigned, true)

#define RECT_ASYNC(name, type, per_thread)                                                         \
	FILL(name, type,                                                                           \
		(CUdeviceptr dst, size_t pitch, type value, size_t count, size_t height,           \
			CUstream stream),                                                          \
		(dst, pitch, value, count, height, stream),                                        \
		(f->dst, f->pitch, (type)f->value, f->count, f->height, f->stream), per_thread,    \
		.pitch = pitch, .height = height, .stream = stream)
RECT_ASYNC(cuMemsetD2D8Async, unsigned char, false)
RECT_ASYNC(cuMemsetD2D8Async_ptsz, unsigned char, true)
RECT_ASYNC(cuMemsetD2D16Async, unsigned short, false)
RECT_ASYNC(cuMemsetD2D16Async_ptsz, unsigned short, true)
RECT_ASYNC(cuMemsetD2D32Async, unsigned, false)
RECT_ASYNC(cuMemsetD2D32Async_ptsz, unsigned, true)
