/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/cache/cache.h"
#include "src/memory/arena.h"
#include "src/memory/budget.h"
#include "src/memory/capture.h"
#include "src/memory/gate.h"
#include "src/memory/own.h"
#include "src/memory/range.h"

#define LAYERS 512
#define PIECE ((size_t)64 << 20) /* an H200 has 2,256 of them */
#define UP(a) (((a) + HS_GRANULE - 1) & ~(HS_GRANULE - 1))
#define DOWN(a) ((a) & ~(HS_GRANULE - 1))

/* What may be on the host, in address order and apart from each other. */
struct layout {
	unsigned count;
	unsigned layers;
	bool fixed; /* what is not in a run belongs on the device */
	struct {
		CUdeviceptr start, end;
	} run[LAYERS];
};

/* Under the memory lock. */
static struct layout layout;
static struct hs_extent extents[LAYERS];

static size_t device_total(CUdevice device)
{
	size_t total = 0;

	if (hs_driver.cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS)
		return 0;
	return total < hs_options()->gpu_bytes ? total : hs_options()->gpu_bytes;
}

size_t hs_range_piece(size_t bytes)
{
	CUdevice device;
	size_t total, piece;

	if (!hs_budget_active() || hs_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
		return 0;
	total = device_total(device);
	if (bytes <= total / 4)
		return 0;
	piece = DOWN(total / 2048);
	return piece > PIECE ? PIECE : piece < HS_GRANULE ? HS_GRANULE : piece;
}

bool hs_range_whole(size_t bytes)
{
	return hs_budget_pool(bytes) && bytes <= hs_budget_told() / 2;
}

size_t hs_range_room(size_t bytes)
{
	const size_t piece = hs_range_piece(bytes);
	size_t low = 0, high = piece ? bytes / piece : 0;

	while (low < high) {
		const size_t middle = (low + high + 1) / 2;

		if (hs_budget_room(middle * piece))
			low = middle;
		else
			high = middle - 1;
	}
	return low * piece;
}

static CUresult create(struct hs_range *range, enum hs_place place, size_t bytes, CUdevice device)
{
	CUresult result = hs_backing_create(&range->backing, place, bytes, device);

	if (result == CUDA_SUCCESS)
		result = hs_backing_map(&range->backing, range->at);
	if (result != CUDA_SUCCESS)
		hs_backing_destroy(&range->backing);
	return result;
}

static void count_places(struct hs_holding *h)
{
	size_t host = 0;

	for (unsigned i = 0; i < h->count; i++)
		if (h->ranges[i].backing.kind->place == HS_PLACE_HOST)
			host += h->ranges[i].backing.bytes;
	atomic_store(&h->window.host, host);
	atomic_store(&h->window.place, host ? HS_PLACE_HOST : HS_PLACE_DEVICE);
}

CUresult hs_range_back(struct hs_holding *h, enum hs_place place)
{
	const size_t rest = h->window.bytes - HS_GRANULE;
	const size_t piece = hs_range_piece(h->window.bytes);
	const bool all = place == HS_PLACE_HOST && hs_budget_pool(rest);
	CUresult result = CUDA_SUCCESS;
	size_t done, bytes;

	h->ranges = calloc(rest / piece + 1, sizeof(*h->ranges));
	if (!h->ranges)
		return CUDA_ERROR_OUT_OF_MEMORY;
	atomic_store(&h->window.any_order, false);
	for (done = 0; done < rest && result == CUDA_SUCCESS; done += bytes) {
		struct hs_range *range = &h->ranges[h->count];

		bytes = rest - done < piece ? rest - done : piece;
		range->at = h->window.start + HS_GRANULE + done;
		result = CUDA_ERROR_OUT_OF_MEMORY;
		if (!all && hs_budget_room(bytes))
			result = create(range, HS_PLACE_DEVICE, bytes, h->window.device);
		if (result == CUDA_ERROR_OUT_OF_MEMORY)
			result = create(range, HS_PLACE_HOST, bytes, h->window.device);
		h->count += result == CUDA_SUCCESS;
	}
	if (result == CUDA_SUCCESS)
		count_places(h);
	else
		hs_range_destroy(h);
	return result;
}

void hs_range_destroy(struct hs_holding *h)
{
	for (unsigned i = 0; i < h->count; i++)
		hs_backing_destroy(&h->ranges[i].backing);
	free(h->ranges);
	h->ranges = NULL;
	h->count = 0;
}

/* The layers of a window, and false if it is as simple as one layer a window. */
static bool read_layout(struct hs_holding *h)
{
	const int use = atomic_load(&h->window.use);
	const CUdeviceptr first = h->window.start + HS_GRANULE,
			  end = first + h->window.bytes - HS_GRANULE;
	unsigned n = use == HS_USE_KV ? hs_cache_extents(&h->window, extents, LAYERS) : 0;

	layout.layers = n;
	layout.count = 0;
	layout.fixed = use == HS_USE_OTHER || n;
	if (!n && use != HS_USE_OTHER) {
		layout.count = 1;
		layout.run[0].start = first;
		layout.run[0].end = end;
	}
	for (unsigned i = 0; i < n && i < LAYERS; i++) {
		const CUdeviceptr from = UP(extents[i].base) + HS_GRANULE;
		const bool last = UP(extents[i].end) == end;
		const CUdeviceptr to = last ? end : DOWN(extents[i].end);

		if (from >= to)
			continue;
		layout.run[layout.count].start = from;
		layout.run[layout.count++].end = to;
	}
	return n > 1 || (n && extents[0].base != h->window.start);
}

/* The end of the part of [at, end) that begins at `at` and is all of a sort. */
static CUdeviceptr part(CUdeviceptr at, CUdeviceptr end, bool *may)
{
	*may = false;
	for (unsigned i = 0; i < layout.count; i++) {
		CUdeviceptr border = layout.run[i].start;

		if (at >= layout.run[i].end)
			continue;
		if (at >= border) {
			*may = true;
			border = layout.run[i].end;
		}
		return border < end ? border : end;
	}
	return end;
}

bool hs_range_wanted(struct hs_holding *h)
{
	return h->ranges || read_layout(h);
}

bool hs_range_layered(struct hs_holding *h)
{
	return read_layout(h);
}

/* Bytes of all ranges in `place` that may, or may not, be on the host. */
static size_t sum(struct hs_holding *h, enum hs_place place, bool movable)
{
	size_t bytes = 0;
	bool may;

	for (unsigned i = 0; i < h->count; i++) {
		const struct hs_range *range = &h->ranges[i];
		const CUdeviceptr end = range->at + range->backing.bytes;

		if (range->backing.kind->place != place)
			continue;
		for (CUdeviceptr at = range->at, to; at < end; at = to) {
			to = part(at, end, &may);
			bytes += may == movable ? to - at : 0;
		}
	}
	return bytes;
}

size_t hs_range_movable(struct hs_holding *h)
{
	if (!h->ranges)
		return atomic_load(&h->window.place) == HS_PLACE_DEVICE ? h->rest.bytes : 0;
	read_layout(h);
	return sum(h, HS_PLACE_DEVICE, true);
}

/* What stands behind the window so far becomes its only range. */
static bool turn(struct hs_holding *h)
{
	if (h->ranges)
		return true;
	h->ranges = calloc(1, sizeof(*h->ranges));
	if (!h->ranges)
		return false;
	h->ranges[0] = (struct hs_range){h->window.start + HS_GRANULE, h->rest};
	h->rest = (struct hs_backing){.kind = NULL};
	h->count = 1;
	count_places(h);
	return true;
}

size_t hs_range_strays(struct hs_holding *h)
{
	const unsigned before = h->layers;
	const bool layered = read_layout(h);

	/* More layers may come in this forward pass; what is not theirs is known
	 * when no more did. */
	h->layers = layout.layers;
	if (h->layers != before)
		hs_memory_mark();
	if (!layout.fixed || h->layers != before ||
		atomic_load(&h->window.place) != HS_PLACE_HOST || (!h->ranges && !layered))
		return 0;
	if (h->apart)
		return h->rest.bytes;
	if (!turn(h))
		return 0;
	return sum(h, HS_PLACE_HOST, false);
}

/* The bytes of a range are at a second address while its own changes hands: all
 * that ranges are made of can be mapped anywhere. */
static CUresult put_aside(CUdeviceptr *staging, struct hs_range *old)
{
	CUresult result = hs_arena_reserve(staging, old->backing.bytes, HS_ARENA_AREAS);

	if (result == CUDA_SUCCESS)
		result = hs_backing_unmap(&old->backing);
	return result == CUDA_SUCCESS ? hs_backing_map(&old->backing, *staging) : result;
}

static CUresult fill_in(CUdeviceptr staging, const struct hs_range *old, struct hs_range *fresh)
{
	const CUresult result = hs_backing_map(&fresh->backing, fresh->at);

	if (result != CUDA_SUCCESS)
		return result;
	return hs_own_copy(fresh->at, staging + (fresh->at - old->at), fresh->backing.bytes);
}

static void put_back(struct hs_holding *h, struct hs_range *old)
{
	CUresult result = CUDA_SUCCESS;

	if (old->backing.at && old->backing.at != old->at)
		hs_backing_unmap(&old->backing);
	if (!old->backing.at)
		result = hs_backing_map(&old->backing, old->at);
	if (result != CUDA_SUCCESS)
		hs_error(
			"window %u at 0x%llx: its memory could not be mapped again (CUDA error %d)",
			h->window.id, (unsigned long long)old->at, result);
}

/* The memory of `old` becomes that of n ranges, whose backings exist but are not
 * mapped. On failure it stays. */
static CUresult exchange(
	struct hs_holding *h, struct hs_range *old, struct hs_range *fresh, unsigned n)
{
	CUdeviceptr staging = 0;
	CUresult result = put_aside(&staging, old);

	for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++)
		result = fill_in(staging, old, &fresh[i]);
	if (result == CUDA_SUCCESS) {
		hs_backing_destroy(&old->backing);
	} else {
		for (unsigned i = 0; i < n; i++)
			if (fresh[i].backing.at)
				hs_backing_unmap(&fresh[i].backing);
		put_back(h, old);
	}
	if (staging)
		hs_arena_release(staging);
	return result;
}

/* Cuts range i where its parts change: those that may go to the host end up in
 * `may`, the others in `not`. Sets *out to the number of ranges that it became. */
static CUresult rebuild(
	struct hs_holding *h, unsigned i, enum hs_place may_go, enum hs_place others, unsigned *out)
{
	const CUdeviceptr start = h->ranges[i].at, end = start + h->ranges[i].backing.bytes;
	struct hs_range *fresh, *all;
	unsigned n = 0, created = 0;
	CUresult result = CUDA_SUCCESS;
	bool may;

	for (CUdeviceptr at = start; at < end; n++)
		at = part(at, end, &may);
	fresh = calloc(n, sizeof(*fresh));
	all = calloc(h->count + n, sizeof(*all));
	if (!fresh || !all)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	for (CUdeviceptr at = start; result == CUDA_SUCCESS && at < end; created++) {
		const CUdeviceptr to = part(at, end, &may);

		fresh[created].at = at;
		result = hs_backing_create(
			&fresh[created].backing, may ? may_go : others, to - at, h->window.device);
		/* Of the device's memory there may be more another time. */
		if (result == CUDA_ERROR_OUT_OF_MEMORY &&
			(may ? may_go : others) == HS_PLACE_DEVICE)
			result = CUDA_ERROR_NOT_READY;
		at = to;
	}
	if (result == CUDA_SUCCESS)
		result = exchange(h, &h->ranges[i], fresh, n);
	if (result != CUDA_SUCCESS) {
		for (unsigned j = 0; j < created; j++)
			hs_backing_destroy(&fresh[j].backing);
		goto free;
	}
	for (unsigned j = 0; j < h->count + n - 1; j++)
		all[j] = j < i ? h->ranges[j] : j < i + n ? fresh[j - i] : h->ranges[j - n + 1];
	free(h->ranges);
	h->ranges = all;
	all = NULL;
	h->count += n - 1;
	*out = n;
	count_places(h);
free:
	free(fresh);
	free(all);
	return result;
}

static bool has(const struct hs_range *range, bool wanted)
{
	const CUdeviceptr end = range->at + range->backing.bytes;
	bool may;

	for (CUdeviceptr at = range->at; at < end;) {
		at = part(at, end, &may);
		if (may == wanted)
			return true;
	}
	return false;
}

CUresult hs_range_out(struct hs_holding *h, size_t bytes, size_t *moved)
{
	CUresult result = hs_driver.cuCtxPushCurrent_v2(h->context);
	/* What the engine takes in small pieces must not be the reserve's. */
	const size_t slack = device_total(h->window.device) / 16;
	CUcontext popped;
	unsigned n;

	*moved = 0;
	if (result != CUDA_SUCCESS)
		return result;
	read_layout(h);
	if (!turn(h))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = h->count; i-- > 0 && result == CUDA_SUCCESS;) {
		const size_t before = atomic_load(&h->window.host);
		struct hs_range *range = &h->ranges[i];

		if (range->backing.kind->place != HS_PLACE_DEVICE || !has(range, true))
			continue;
		if (*moved && bytes != SIZE_MAX && hs_budget_room(bytes + slack))
			break;
		if (!hs_budget_pool(range->backing.bytes))
			break;
		result = rebuild(h, i, HS_PLACE_HOST, HS_PLACE_DEVICE, &n);
		*moved += atomic_load(&h->window.host) - before;
	}
	hs_driver.cuCtxPopCurrent_v2(&popped);
	return result;
}

CUresult hs_range_home(struct hs_holding *h, bool all)
{
	CUresult result = hs_driver.cuCtxPushCurrent_v2(h->context);
	CUcontext popped;
	unsigned n;

	if (result != CUDA_SUCCESS)
		return result;
	read_layout(h);
	if (!turn(h))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = 0; i < h->count && result == CUDA_SUCCESS; i += n) {
		struct hs_range *range = &h->ranges[i];

		n = 1;
		if (range->backing.kind->place != HS_PLACE_HOST || (!all && !has(range, false)))
			continue;
		if (!hs_budget_room(range->backing.bytes)) {
			result = CUDA_ERROR_OUT_OF_MEMORY;
			break;
		}
		result = rebuild(h, i, all ? HS_PLACE_DEVICE : HS_PLACE_HOST, HS_PLACE_DEVICE, &n);
	}
	hs_driver.cuCtxPopCurrent_v2(&popped);
	return result;
}

CUdeviceptr hs_range_seam(struct hs_window *window, CUdeviceptr ptr)
{
	struct hs_holding *h = hs_holding_of(window);
	unsigned low = 0, high = h->count;

	if (ptr < window->start + HS_GRANULE)
		return window->start + HS_GRANULE;
	if (!h->count)
		return window->start + window->bytes;
	/* A captured fill may be replayed when there are more of them. */
	if (hs_capture_count() > 0)
		return DOWN(ptr) + HS_GRANULE;
	while (low < high) {
		const unsigned middle = (low + high) / 2;

		if (h->ranges[middle].at + h->ranges[middle].backing.bytes <= ptr)
			low = middle + 1;
		else
			high = middle;
	}
	return low < h->count ? h->ranges[low].at + h->ranges[low].backing.bytes
			      : window->start + window->bytes;
}

CUdeviceptr hs_window_host_begins(struct hs_window *window, CUdeviceptr start, CUdeviceptr end)
{
	struct hs_holding *h = hs_holding_of(window);

	if (atomic_load(&window->place) != HS_PLACE_HOST)
		return end;
	if (start < window->start + HS_GRANULE)
		start = window->start + HS_GRANULE;
	for (unsigned i = 0; i < h->count; i++) {
		const struct hs_range *range = &h->ranges[i];

		if (range->at + range->backing.bytes <= start ||
			range->backing.kind->place != HS_PLACE_HOST)
			continue;
		start = range->at > start ? range->at : start;
		return start < end ? start : end;
	}
	return h->count || start > end ? end : start;
}
