/* SPDX-License-Identifier: MIT */
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/cache/cache.h"
#include "src/memory/account.h"
#include "src/memory/arena.h"
#include "src/memory/budget.h"
#include "src/memory/capture.h"
#include "src/memory/gate.h"
#include "src/memory/move.h"
#include "src/memory/own.h"
#include "src/memory/peer.h"
#include "src/memory/place.h"
#include "src/memory/range.h"
#include "src/memory/settle.h"
#include "src/memory/window.h"

static CUresult driver_alloc(CUdeviceptr *out, size_t bytes)
{
	CUresult result = hs_account_take(HS_ACCOUNT_HERE, bytes);

	if (result != CUDA_SUCCESS)
		return result;
	result = hs_driver.cuMemAlloc_v2(out, bytes);
	hs_account_keep(
		result, HS_ACCOUNT_HERE, result == CUDA_SUCCESS ? HS_ACCOUNT_PTR(*out) : 0, bytes);
	return result;
}

static CUresult driver_free(CUdeviceptr ptr)
{
	return HS_ACCOUNT_FREED(HS_ACCOUNT_PTR(ptr), hs_driver.cuMemFree_v2(ptr));
}

bool hs_memory_spare(size_t bytes)
{
	bool moved;

	if (!hs_window_any())
		return false;
	hs_memory_lock();
	moved = hs_place_evict(bytes);
	hs_memory_unlock();
	return moved;
}

static CUresult small_alloc(CUdeviceptr *out, size_t bytes)
{
	CUresult result = driver_alloc(out, bytes);

	if (result == CUDA_ERROR_OUT_OF_MEMORY && hs_memory_spare(bytes))
		result = driver_alloc(out, bytes);
	if (result == CUDA_SUCCESS)
		hs_budget_sample(bytes);
	return result;
}

static bool can_map(CUdevice device)
{
	return hs_driver_attribute(
		       CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) != 0;
}

/* Memory behind the record's addresses. On failure there is none. */
static CUresult back_once(struct hs_holding *h, enum hs_place place, bool best)
{
	const size_t rest = h->window.bytes - HS_GRANULE;
	CUresult result =
		hs_backing_create(&h->head, HS_PLACE_DEVICE, HS_GRANULE, h->window.device);

	if (result == CUDA_SUCCESS && hs_range_piece(h->window.bytes) &&
		(place == HS_PLACE_DEVICE || !hs_range_whole(h->window.bytes))) {
		result = hs_backing_map(&h->head, h->window.start);
		if (result == CUDA_SUCCESS)
			result = hs_range_back(h, place);
		if (result != CUDA_SUCCESS)
			hs_backing_destroy(&h->head);
		return result;
	}
	if (result == CUDA_SUCCESS) {
		result = (best ? hs_backing_create_best : hs_backing_create)(
			&h->rest, place, rest, h->window.device);
		if (result != CUDA_SUCCESS && place == HS_PLACE_HOST)
			hs_place_host_failed(rest, result);
	}
	if (result == CUDA_SUCCESS) {
		result = hs_move_in(h);
		/* Of a kind whose memory comes with its addresses, which are there. */
		if (result == CUDA_ERROR_OUT_OF_MEMORY && !h->rest.kind->keeps && h->head.at)
			hs_place_host_failed(rest, result);
	}
	if (result != CUDA_SUCCESS) {
		hs_backing_destroy(&h->rest);
		hs_backing_destroy(&h->head);
		return result;
	}
	atomic_store(&h->window.place, place);
	return CUDA_SUCCESS;
}

static CUresult back(struct hs_holding *h, enum hs_place place)
{
	unsigned refusals;
	CUresult result;

	do {
		refusals = hs_backing_refusals();
		result = back_once(h, place, true);
	} while (result != CUDA_SUCCESS && refusals != hs_backing_refusals());
	/* As in move.c. */
	if (result == CUDA_ERROR_MAP_FAILED && place == HS_PLACE_HOST)
		result = back_once(h, place, false);
	return result;
}

/* NOT_SUPPORTED: no window can be made here; the driver may still allocate. */
static CUresult window_alloc(CUdeviceptr *out, size_t bytes)
{
	struct hs_holding *h = hs_holding_take();
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;
	CUdeviceptr addresses;
	enum hs_place place;

	if (!h)
		return result;
	if (hs_driver.cuCtxGetCurrent(&h->context) != CUDA_SUCCESS || !h->context ||
		hs_driver.cuCtxGetDevice(&h->window.device) != CUDA_SUCCESS ||
		!can_map(h->window.device))
		goto drop;
	h->story = hs_slack_last(h->window.device);
	h->window.requested = bytes;
	h->window.bytes = (bytes + HS_GRANULE - 1) & ~(HS_GRANULE - 1);
	if (hs_arena_reserve(&addresses, HS_WINDOW_LEAD + h->window.bytes, HS_ARENA_WINDOWS) !=
		CUDA_SUCCESS)
		goto drop;
	h->window.start = addresses + HS_WINDOW_LEAD;
	result = hs_place_choose(&place, h->window.bytes);
	if (result != CUDA_SUCCESS)
		goto release;
	result = back(h, place);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && hs_place_evict(h->window.bytes))
		result = back(h, place);
	/* The pool has ended before its size said so. */
	if (result == CUDA_ERROR_OUT_OF_MEMORY && place == HS_PLACE_HOST &&
		hs_place_choose(&place, h->window.bytes) == CUDA_SUCCESS &&
		place == HS_PLACE_DEVICE)
		result = back(h, place);
	if (result != CUDA_SUCCESS)
		goto release;
	hs_own_prepare();
	hs_cache_ready();
	hs_holding_publish(h);
	hs_budget_serves(h->window.device);
	hs_budget_say(h->window.device);
	hs_debug("window %u: %zu MiB at 0x%llx on the %s", h->window.id, h->window.bytes >> 20,
		(unsigned long long)h->window.start, place == HS_PLACE_HOST ? "host" : "device");
	*out = h->window.start;
	return CUDA_SUCCESS;
release:
	hs_arena_release(addresses);
drop:
	hs_holding_drop(h);
	return result;
}

CUresult hs_memory_alloc(CUdeviceptr *out, size_t bytes)
{
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;

	/* Under capture a window could neither be moved for nor be KV. */
	if (out && bytes >= hs_options()->window_bytes && bytes > HS_GRANULE &&
		bytes < HS_ARENA_HOT && hs_capture_none()) {
		hs_memory_lock();
		result = window_alloc(out, bytes);
		hs_memory_unlock();
	}
	return result == CUDA_ERROR_NOT_SUPPORTED ? small_alloc(out, bytes) : result;
}

static CUresult window_free(CUdeviceptr ptr)
{
	struct hs_window *window = hs_window_find(ptr);
	struct hs_holding *h;

	if (!window || window->start != ptr)
		return CUDA_ERROR_INVALID_VALUE;
	h = hs_holding_of(window);
	if (!atomic_load(&window->virgin))
		hs_budget_goes(window->bytes);
	hs_place_learn(h);
	hs_holding_withdraw(h);
	h->doomed = true;
	/* Unmapping does not wait for what still runs, as the driver's free
	 * does. When it is no time to wait, a later moment finishes. */
	if (hs_world_stop(true)) {
		hs_place_reap(h);
		hs_world_start();
	} else {
		hs_memory_mark();
	}
	return CUDA_SUCCESS;
}

CUresult hs_memory_free(CUdeviceptr ptr)
{
	CUresult result;

	if (hs_window_find(ptr)) {
		hs_memory_lock();
		result = window_free(ptr);
		hs_memory_unlock();
	} else {
		result = driver_free(ptr);
	}
	hs_place_freed();
	return result;
}

void hs_memory_context_gone(CUcontext context)
{
	bool stopped;

	hs_memory_lock();
	stopped = hs_world_stop(true);
	for (struct hs_holding *h = hs_holding_next(NULL); h; h = hs_holding_next(h)) {
		if (h->context != context)
			continue;
		if (h->live)
			hs_holding_withdraw(h);
		h->doomed = true;
		if (stopped) {
			hs_place_reap(h);
			continue;
		}
		h->context = NULL; /* nothing to wait for once it is gone */
		hs_memory_mark();
	}
	hs_own_forget(context);
	hs_peer_forget(context);
	hs_cache_context_gone(context);
	if (stopped)
		hs_world_start();
	hs_memory_unlock();
}

CUresult hs_memory_range(CUdeviceptr *start, size_t *bytes, CUdeviceptr ptr)
{
	const struct hs_window *window = hs_window_find(ptr);

	if (!window)
		return hs_driver.cuMemGetAddressRange_v2(start, bytes, ptr);
	if (start)
		*start = window->start;
	if (bytes)
		*bytes = window->requested;
	return CUDA_SUCCESS;
}

void hs_memory_read(struct hs_memory_counts *counts)
{
	hs_window_read(counts);
	hs_budget_read(counts);
}

/* What a window answers as cuMemAlloc's memory would. HOST_POINTER: as for
 * device memory, there is none. False: the driver knows. */
static bool answer(void *data, CUpointer_attribute which, struct hs_window *window, CUdeviceptr ptr)
{
	switch (which) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = hs_holding_of(window)->context;
		return true;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = CU_MEMORYTYPE_DEVICE;
		return true;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = ptr;
		return true;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(void **)data = NULL;
		return true;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)data = 0;
		return true;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = window->device;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = window->start;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = window->requested;
		return true;
	default:
		return false;
	}
}

CUresult hs_memory_attribute(void *data, CUpointer_attribute which, CUdeviceptr ptr)
{
	struct hs_window *window = hs_window_find(ptr);

	if (!window || !data)
		return hs_driver.cuPointerGetAttribute(data, which, ptr);
	if (which == CU_POINTER_ATTRIBUTE_HOST_POINTER)
		return CUDA_ERROR_INVALID_VALUE;
	if (answer(data, which, window, ptr))
		return CUDA_SUCCESS;
	/* The first granule is device memory wherever the rest is. */
	return hs_driver.cuPointerGetAttribute(data, which, window->start);
}

CUresult hs_memory_attributes(
	unsigned count, CUpointer_attribute *which, void **data, CUdeviceptr ptr)
{
	struct hs_window *window = hs_window_find(ptr);
	CUresult result;

	result = hs_driver.cuPointerGetAttributes(count, which, data, window ? window->start : ptr);
	for (unsigned i = 0; window && result == CUDA_SUCCESS && i < count; i++)
		answer(data[i], which[i], window, ptr);
	return result;
}
