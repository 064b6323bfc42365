/* SPDX-License-Identifier: MIT */
#include "src/base/log.h"
#include "src/memory/arena.h"
#include "src/memory/move.h"
#include "src/memory/own.h"
#include "src/memory/range.h"

/* The step that failed, for who looks for the reason. */
static CUresult step(const struct hs_holding *holding, const char *what, CUresult result)
{
	if (result != CUDA_SUCCESS)
		hs_debug("window %u: %s failed (CUDA error %d)", holding->window.id, what, result);
	return result;
}

/* What backs the addresses decides who must have reserved them. The first
 * granule's memory keeps its bytes while it has no address. */
static CUresult suit(struct hs_holding *holding, const struct hs_backing_kind *kind)
{
	const bool mapped = holding->head.at != 0;
	CUresult result = CUDA_SUCCESS;

	if (holding->apart == kind->apart)
		return result;
	if (mapped)
		result = step(
			holding, "unmapping its first granule", hs_backing_unmap(&holding->head));
	if (result == CUDA_SUCCESS)
		result = step(holding,
			kind->apart ? "cutting its addresses" : "joining its addresses",
			hs_arena_cut(holding->window.start - HS_WINDOW_LEAD, kind->apart));
	if (result == CUDA_SUCCESS)
		holding->apart = kind->apart;
	if (mapped && !holding->head.at) {
		const CUresult again = step(holding, "mapping its first granule",
			hs_backing_map(&holding->head, holding->window.start));

		return result == CUDA_SUCCESS ? again : result;
	}
	return result;
}

CUresult hs_move_in(struct hs_holding *holding)
{
	CUresult result = suit(holding, holding->rest.kind);

	if (result == CUDA_SUCCESS && !holding->head.at)
		result = hs_backing_map(&holding->head, holding->window.start);
	if (result == CUDA_SUCCESS)
		result = hs_backing_map(&holding->rest, holding->window.start + HS_GRANULE);
	if (result == CUDA_SUCCESS)
		atomic_store(&holding->window.any_order, holding->rest.kind->any_order);
	return result;
}

/* Not the pool's end: it is the device that has no room, for tables. */
static CUresult not_the_pool(CUresult result)
{
	return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_MAP_FAILED : result;
}

/* What is mapped into reservations gets the second address in either direction,
 * so that other memory only ever has to appear at the window's own. A window
 * that saw nothing but its zero fill is not copied to memory that is zero. */
static CUresult from_device(
	struct hs_holding *holding, struct hs_backing *fresh, CUdeviceptr staging)
{
	struct hs_backing *old = &holding->rest;
	const bool same = fresh->kind->zeroed && atomic_load(&holding->window.virgin);
	const CUdeviceptr at = old->at;
	CUresult result = step(holding, "unmapping it", hs_backing_unmap(old));

	if (result == CUDA_SUCCESS && !same)
		result = step(holding, "a second address", hs_backing_map(old, staging));
	if (result == CUDA_SUCCESS)
		result = suit(holding, fresh->kind);
	result = not_the_pool(result);
	if (result == CUDA_SUCCESS)
		result = step(holding, "mapping host memory", hs_backing_map(fresh, at));
	if (result == CUDA_SUCCESS && !same)
		result = step(holding, "the copy", hs_own_copy(at, staging, old->bytes));
	return result;
}

static CUresult from_host(struct hs_holding *holding, struct hs_backing *fresh, CUdeviceptr staging)
{
	struct hs_backing *old = &holding->rest;
	const CUdeviceptr at = old->at;
	CUresult result = step(holding, "a second address", hs_backing_map(fresh, staging));

	if (result == CUDA_SUCCESS)
		result = step(holding, "the copy", hs_own_copy(staging, at, old->bytes));
	if (result == CUDA_SUCCESS)
		result = step(holding, "unmapping device memory", hs_backing_unmap(fresh));
	if (result == CUDA_SUCCESS)
		result = step(holding, "unmapping host memory", hs_backing_unmap(old));
	if (result == CUDA_SUCCESS)
		result = suit(holding, fresh->kind);
	if (result == CUDA_SUCCESS)
		result = step(holding, "mapping device memory", hs_backing_map(fresh, at));
	return result;
}

static void lost(const struct hs_holding *holding, CUresult result)
{
	if (result != CUDA_SUCCESS)
		hs_error(
			"window %u at 0x%llx: its memory could not be mapped again (CUDA error %d)",
			holding->window.id, (unsigned long long)holding->window.start, result);
}

static void restore(struct hs_holding *holding, struct hs_backing *fresh, CUdeviceptr at)
{
	struct hs_backing *old = &holding->rest;

	if (fresh->at)
		hs_backing_unmap(fresh);
	if (old->at && old->at != at)
		hs_backing_unmap(old);
	if (!old->at)
		lost(holding, hs_move_in(holding));
}

/* The window's host memory again, from what was copied out of it. */
static CUresult refill(struct hs_holding *holding, struct hs_backing *fresh, CUdeviceptr staging)
{
	struct hs_backing *rest = &holding->rest;
	CUresult result = hs_move_in(holding);

	if (result == CUDA_SUCCESS)
		result = hs_backing_map(fresh, staging);
	if (result == CUDA_SUCCESS)
		result = hs_own_copy(rest->at, staging, rest->bytes);
	if (fresh->at)
		hs_backing_unmap(fresh);
	if (result != CUDA_SUCCESS && rest->at)
		hs_backing_unmap(rest);
	return result;
}

/*
 * Host memory that went with its addresses, after it was copied: `fresh` alone has its
 * bytes. The same again, or the device after all, or another kind of host memory, which
 * needs fewer addresses. True: it is on the device, and `fresh` is what it was before.
 */
static bool salvage(struct hs_holding *holding, struct hs_backing *fresh, CUdeviceptr staging)
{
	struct hs_backing *old = &holding->rest, other;
	CUresult result;

	if (fresh->at)
		hs_backing_unmap(fresh);
	result = refill(holding, fresh, staging);
	if (result == CUDA_SUCCESS)
		return false;
	other = *old;
	*old = *fresh;
	if (hs_move_in(holding) == CUDA_SUCCESS) {
		*fresh = other;
		return true;
	}
	*fresh = *old;
	hs_backing_destroy(&other); /* whose share of the pool is needed */
	result = hs_backing_create_kept(old, other.bytes, holding->window.device);
	if (result == CUDA_SUCCESS)
		result = refill(holding, fresh, staging);
	lost(holding, result);
	return false;
}

/* Of the best kind, or of one that is mapped where a reservation is. */
static CUresult create(
	struct hs_backing *fresh, enum hs_place place, size_t bytes, CUdevice device, bool best)
{
	return best ? hs_backing_create_best(fresh, place, bytes, device)
		    : hs_backing_create(fresh, place, bytes, device);
}

static CUresult move(struct hs_holding *holding, enum hs_place place, bool best)
{
	struct hs_backing *old = &holding->rest, fresh;
	const CUdeviceptr at = holding->window.start + HS_GRANULE;
	CUdeviceptr staging;
	CUresult result = create(&fresh, place, old->bytes, holding->window.device, best);

	if (result != CUDA_SUCCESS)
		return result;
	result = step(holding, "reserving a second address",
		hs_arena_reserve(&staging, old->bytes, HS_ARENA_AREAS));
	if (result != CUDA_SUCCESS)
		goto destroy;
	result = place == HS_PLACE_HOST ? from_device(holding, &fresh, staging)
					: from_host(holding, &fresh, staging);
	if (result == CUDA_SUCCESS) {
		hs_backing_destroy(old);
		*old = fresh;
		fresh.kind = NULL;
	} else if (old->at || old->kind->keeps) {
		restore(holding, &fresh, at);
	} else if (salvage(holding, &fresh, staging)) {
		result = CUDA_SUCCESS;
	}
	if (result == CUDA_SUCCESS) {
		atomic_store(&holding->window.any_order, old->kind->any_order);
		atomic_store(&holding->window.place, place);
	}
	hs_arena_release(staging);
destroy:
	hs_backing_destroy(&fresh);
	return result;
}

/* The ranges of a window to second addresses, or without one if they are zero. */
static CUresult put_aside(struct hs_holding *h, CUdeviceptr staging, bool same)
{
	const CUdeviceptr first = h->window.start + HS_GRANULE;
	CUresult result = CUDA_SUCCESS;

	for (unsigned i = 0; i < h->count && result == CUDA_SUCCESS; i++) {
		struct hs_range *range = &h->ranges[i];

		result = hs_backing_unmap(&range->backing);
		if (result == CUDA_SUCCESS && !same)
			result = hs_backing_map(&range->backing, staging + (range->at - first));
	}
	return result;
}

static void put_back(struct hs_holding *h)
{
	CUresult result = suit(h, h->ranges[0].backing.kind);

	if (result == CUDA_SUCCESS && !h->head.at)
		result = hs_backing_map(&h->head, h->window.start);
	for (unsigned i = 0; i < h->count && result == CUDA_SUCCESS; i++) {
		struct hs_range *range = &h->ranges[i];

		if (range->backing.at && range->backing.at != range->at)
			hs_backing_unmap(&range->backing);
		if (!range->backing.at)
			result = hs_backing_map(&range->backing, range->at);
	}
	lost(h, result);
}

/* A window in ranges becomes one in one piece. */
static CUresult gather(struct hs_holding *h, enum hs_place place, bool best)
{
	const size_t bytes = h->window.bytes - HS_GRANULE;
	const CUdeviceptr at = h->window.start + HS_GRANULE;
	struct hs_backing fresh;
	CUdeviceptr staging;
	bool same;
	CUresult result = create(&fresh, place, bytes, h->window.device, best);

	if (result != CUDA_SUCCESS)
		return result;
	same = fresh.kind->zeroed && atomic_load(&h->window.virgin);
	result = step(
		h, "reserving a second address", hs_arena_reserve(&staging, bytes, HS_ARENA_AREAS));
	if (result != CUDA_SUCCESS)
		goto destroy;
	result = put_aside(h, staging, same);
	if (result == CUDA_SUCCESS)
		result = suit(h, fresh.kind);
	if (result == CUDA_SUCCESS)
		result = hs_backing_map(&fresh, at);
	if (result == CUDA_SUCCESS && !same)
		result = hs_own_copy(at, staging, bytes);
	if (result != CUDA_SUCCESS) {
		if (fresh.at)
			hs_backing_unmap(&fresh);
		put_back(h);
		goto release;
	}
	hs_range_destroy(h);
	h->rest = fresh;
	fresh.kind = NULL;
	atomic_store(&h->window.any_order, h->rest.kind->any_order);
	atomic_store(&h->window.host, 0);
	atomic_store(&h->window.place, place);
release:
	hs_arena_release(staging);
destroy:
	hs_backing_destroy(&fresh);
	return result;
}

static CUresult either(struct hs_holding *holding, enum hs_place place, bool best)
{
	return holding->ranges ? gather(holding, place, best) : move(holding, place, best);
}

CUresult hs_move(struct hs_holding *holding, enum hs_place place)
{
	unsigned refusals;
	CUcontext popped;
	CUresult result = hs_driver.cuCtxPushCurrent_v2(holding->context);

	if (result != CUDA_SUCCESS)
		return result;
	do {
		refusals = hs_backing_refusals();
		result = either(holding, place, true);
	} while (result != CUDA_SUCCESS && refusals != hs_backing_refusals());
	/* Something else has the addresses, or the driver keeps them: its own host
	 * memory can be mapped there. */
	if (result == CUDA_ERROR_MAP_FAILED && place == HS_PLACE_HOST)
		result = either(holding, place, false);
	hs_driver.cuCtxPopCurrent_v2(&popped);
	return result;
}
