/* SPDX-License-Identifier: MIT */
#include <stdatomic.h>
#include "src/cache/cache.h"
#include "src/memory/capture.h"
#include "src/memory/copy.h"
#include "src/memory/gate.h"
#include "src/memory/memory.h"
#include "src/memory/range.h"

/* More are not dropped after launches: they only have no hot rows later. */
#define UNSEEN 256

static struct hs_window *_Atomic unseen[UNSEEN];
static _Atomic unsigned nunseen; /* grows only, under the memory lock */

static struct hs_site site_of(CUstream stream, bool per_thread)
{
	struct hs_site site = {.stream = stream, .per_thread = per_thread};
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	cuuint64_t id = 0;
	CUresult result;

	if (hs_capture_count() == 0)
		return site;
	result = (per_thread ? hs_driver.cuStreamGetCaptureInfo_v2_ptsz
			     : hs_driver.cuStreamGetCaptureInfo_v2)(
		stream, &status, &id, NULL, NULL, NULL);
	site.capturing = result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
	site.capture_id = site.capturing ? id : 0;
	return site;
}

static void touched(CUdeviceptr dst, size_t bytes, CUstream stream, bool per_thread, bool data)
{
	struct hs_window *window;
	struct hs_site site;
	size_t room;

	if (!hs_window_any() || !bytes)
		return;
	window = hs_window_find(dst);
	if (!window)
		return;
	if (data && atomic_load_explicit(&window->virgin, memory_order_relaxed))
		atomic_store_explicit(&window->virgin, false, memory_order_relaxed);
	if (!data)
		atomic_store_explicit(&window->filled, true, memory_order_relaxed);
	room = window->start + window->bytes - dst;
	site = site_of(stream, per_thread);
	hs_cache_wrote(window, dst, bytes < room ? bytes : room, &site);
}

void hs_copy_wrote(CUdeviceptr dst, size_t bytes, CUstream stream, bool per_thread)
{
	touched(dst, bytes, stream, per_thread, true);
}

void hs_copy_filled(CUdeviceptr dst, size_t bytes, CUstream stream, bool per_thread)
{
	touched(dst, bytes, stream, per_thread, false);
}

CUdeviceptr hs_copy_seam(CUdeviceptr ptr, size_t bytes)
{
	struct hs_window *window = hs_window_find(ptr);
	CUdeviceptr seam;

	if (!window)
		return ptr + bytes;
	seam = hs_range_seam(window, ptr);
	return bytes > seam - ptr ? seam : ptr + bytes;
}

bool hs_copy_no_values(CUdeviceptr dst)
{
	struct hs_window *window = hs_window_find(dst);

	return window && dst - window->start >= HS_GRANULE && atomic_load(&window->any_order);
}

void hs_copy_node(CUdeviceptr dst, size_t bytes)
{
	struct hs_window *window = hs_window_any() && bytes ? hs_window_find(dst) : NULL;

	if (!window)
		return;
	atomic_store_explicit(&window->virgin, false, memory_order_relaxed);
	if (!atomic_exchange_explicit(&window->unseen, true, memory_order_relaxed))
		hs_memory_mark();
}

static void note(struct hs_window *window, void *data)
{
	const unsigned count = atomic_load_explicit(&nunseen, memory_order_relaxed);
	bool *any = data;

	if (!atomic_load_explicit(&window->unseen, memory_order_relaxed))
		return;
	*any = true;
	for (unsigned i = 0; i < count; i++)
		if (atomic_load_explicit(&unseen[i], memory_order_relaxed) == window)
			return;
	if (count == UNSEEN)
		return;
	atomic_store_explicit(&unseen[count], window, memory_order_relaxed);
	atomic_store_explicit(&nunseen, count + 1, memory_order_release);
}

bool hs_copy_unseen(void)
{
	bool any = false;

	if (hs_window_any())
		hs_window_each(note, &any);
	return any;
}

/* Windows are not forgotten: who comes to be described there is asked. */
void hs_copy_replayed(CUstream stream, bool per_thread)
{
	const unsigned count = atomic_load_explicit(&nunseen, memory_order_acquire);
	struct hs_site site;

	if (!count)
		return;
	site = site_of(stream, per_thread);
	for (unsigned i = 0; i < count; i++) {
		struct hs_window *window = atomic_load_explicit(&unseen[i], memory_order_relaxed);

		if (atomic_load_explicit(&window->unseen, memory_order_relaxed))
			hs_cache_wrote(window, window->start, 0, &site);
	}
}
