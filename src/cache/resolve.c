/* SPDX-License-Identifier: MIT */
#include "src/cache/resolve.h"

#include <errno.h>
#include "src/base/options.h"
#include "src/cache/arrive.h"
#include "src/cache/device.h"
#include "src/cache/foreign.h"
#include "src/cache/journal.h"
#include "src/cache/lane.h"
#include "src/cache/layer.h"
#include "src/cache/many.h"
#include "src/cache/remap.h"
#include "src/memory/memory.h"

#ifndef SPAN_LEAST
#define SPAN_LEAST 4u
#endif
#ifndef SHAPE_BLOCKS
#define SHAPE_BLOCKS 2u /* of a processor, at most: those of the passes run beside them */
#endif
#define PASS_ROWS (4 * HS_THREADS) /* of a layer, that a block of a pass looks at */
#define PASS_BLOCKS 64u
#define PASS_UNKNOWN 65536u /* rows of a layer that is not on when it is captured */
#define LONG_LISTS 512u	    /* more list rows than a decode step has */

/* Elements from the first of the list to the end of its last row. */
static int list_span(const struct hs_list *list, uint64_t *span)
{
	if (!list->indices || !list->outer || !list->inner || !list->k || list->k > INT32_MAX)
		return -EINVAL;
	if ((list->outer > 1 && list->outer_stride < (int64_t)list->k) ||
		(list->inner > 1 && list->inner_stride < (int64_t)list->k))
		return -EINVAL;
	if ((uint64_t)list->outer * list->inner > UINT32_MAX / 2 ||
		list->outer_stride > INT64_MAX / 8 / list->outer ||
		list->inner_stride > INT64_MAX / 8 / list->inner)
		return -EINVAL;
	*span = list->k;
	if (list->outer > 1)
		*span += (list->outer - 1) * (uint64_t)list->outer_stride;
	if (list->inner > 1)
		*span += (list->inner - 1) * (uint64_t)list->inner_stride;
	return 0;
}

/* Whether HS_EACH entries are always one aligned load. */
static bool aligned(const struct hs_resolve_args *args)
{
	return (((uintptr_t)args->indices | (uintptr_t)args->out) % (HS_EACH * sizeof(int32_t)) |
		       args->k % HS_EACH | (uint64_t)args->outer_stride % HS_EACH |
		       (uint64_t)args->inner_stride % HS_EACH) == 0;
}

/* How many entries a warp takes at once: few of short lists, so that every
 * processor has warps with misses in flight, and of lists that are more than a
 * round for all warps, many. Returns the blocks. */
static unsigned shape(struct hs_resolve_args *args, unsigned processors)
{
	const uint64_t lists = (uint64_t)args->outer * args->inner;
	const uint64_t warps = (uint64_t)SHAPE_BLOCKS * processors * HS_WARPS;
	uint64_t blocks;

	for (args->span = 32; args->span > SPAN_LEAST; args->span /= 2) {
		if (lists * ((args->k + args->span - 1) / args->span) >= 2 * processors)
			break;
	}
	args->wide = aligned(args) && lists * ((args->k + 31) / 32) > warps;
	if (args->wide)
		args->span = 32 * HS_EACH;
	args->tiles = (args->k + args->span - 1) / args->span;
	/* A warp may load some tiles beyond the last. */
	if ((lists * args->tiles + 65536) * args->tiles < UINT32_MAX)
		args->inverse = UINT32_MAX / args->tiles + UINT64_C(1);
	blocks = (lists * args->tiles + HS_WARPS - 1) / HS_WARPS;
	return (unsigned)(blocks < warps / HS_WARPS ? blocks : warps / HS_WARPS);
}

static uint32_t pass_blocks(const struct hs_layer *layer)
{
	const uint32_t rows =
		atomic_load_explicit(&layer->on, memory_order_acquire) ? layer->rows : PASS_UNKNOWN;
	const uint32_t blocks = (rows + PASS_ROWS - 1) / PASS_ROWS;

	return blocks < PASS_BLOCKS ? blocks : PASS_BLOCKS;
}

static struct hs_keep passes(const struct hs_layer *count, const struct hs_layer *evict)
{
	struct hs_keep keep = {0};

	if (count) {
		keep.count = count->id + 1;
		keep.count_blocks = pass_blocks(count);
	}
	if (evict) {
		keep.evict = evict->id + 1;
		keep.evict_blocks = pass_blocks(evict);
	}
	return keep;
}

static void pass(struct hs_device *device, const struct hs_lane_site *lane,
	struct hs_keep_args args, const struct hs_site *site)
{
	const unsigned blocks = args.keep.count_blocks + args.keep.evict_blocks;

	args.table = (struct hs_table *)(uintptr_t)device->table;
	args.lane = lane->id;
	hs_device_launch(device, HS_DEVICE_KEEP, blocks ? blocks : 1, 0, &args, sizeof(args), site);
}

/* The launch that takes along what is owed has been enqueued. */
static void took(struct hs_lane_site *lane)
{
	lane->evict = lane->count;
	lane->count = NULL;
}

/* Does what is owed to the layer (NULL: to any) by itself. */
static void pay(struct hs_device *device, struct hs_lane_site *lane, const struct hs_layer *layer,
	const struct hs_site *site)
{
	while (layer ? lane->count == layer || lane->evict == layer : lane->count || lane->evict) {
		pass(device, lane, (struct hs_keep_args){.keep = passes(lane->count, lane->evict)},
			site);
		took(lane);
	}
}

int hs_resolve_launch(struct hs_device *device, enum hs_device_kernel kernel,
	struct hs_layer *layer, struct hs_lane_site *lane, struct hs_resolve_args *args,
	const struct hs_site *site)
{
	const uint64_t lists = (uint64_t)args->outer * args->inner, entries = lists * args->k;
	uint32_t least = entries < layer->rows / 2 ? (uint32_t)entries : layer->rows / 2;
	int error;

	args->blocks = shape(args, device->processors);
	if (lists * args->tiles > UINT32_MAX / 2)
		return -EINVAL;
	pthread_mutex_lock(&lane->lock);
	pay(device, lane, layer, site);
	/* A long list comes without notice: room for it is made now. */
	if (lists > LONG_LISTS && least) {
		pass(device, lane,
			(struct hs_keep_args){.keep = passes(layer, NULL), .least = least}, site);
		pass(device, lane, (struct hs_keep_args){.keep = passes(NULL, layer)}, site);
	}
	args->keep = passes(lane->count, lane->evict);
	error = hs_device_launch(device, kernel,
		args->blocks + 1 + args->keep.count_blocks + args->keep.evict_blocks, 0, args,
		sizeof(*args), site);
	if (!error) {
		took(lane);
		lane->count = layer;
	}
	pthread_mutex_unlock(&lane->lock);
	return error;
}

int hs_cache_resolve(struct hs_layer *layer, const struct hs_list *list, const struct hs_site *site,
	CUdeviceptr *remapped)
{
	struct hs_device *device = hs_device_get(layer->device);
	struct hs_resolve_args args = {
		.layer = layer->id,
		.indices = (const int32_t *)(uintptr_t)list->indices,
		.lengths = (const int32_t *)(uintptr_t)list->lengths,
		.outer_stride = list->outer_stride,
		.inner_stride = list->inner_stride,
		.outer = list->outer,
		.inner = list->inner,
		.k = list->k,
	};
	struct hs_lane_site *lane;
	CUdeviceptr out;
	uint64_t span;
	int error;

	if (!device && hs_options()->place != HS_OPTION_DEVICE)
		return -EAGAIN;
	if (device && hs_foreign(device, site))
		return -EXDEV;
	error = list_span(list, &span);
	if (error)
		return error;
	if (!device) {
		*remapped = list->indices; /* as it will be */
		return 0;
	}
	hs_arrive_attended(device, layer, site);
	/* A replay may find the layer on, an eager launch runs before that. A
	 * recording wants the list all the same. */
	if (!site->capturing && !atomic_load_explicit(&layer->on, memory_order_acquire) &&
		!(hs_journal_on() & HS_JOURNAL_LISTS)) {
		*remapped = list->indices;
		return 0;
	}
	lane = hs_lane_find(site, layer->device, true);
	if (!lane)
		return -ENOSPC;
	error = hs_remap_find(&out, lane, list->indices, span * sizeof(int32_t));
	if (error)
		return error;
	args.table = (struct hs_table *)(uintptr_t)device->table;
	args.lane = lane->id;
	args.out = (int32_t *)(uintptr_t)out;
	error = hs_many_resolve(device, layer, lane, &args, site);
	if (error != -EAGAIN) {
		if (!error)
			*remapped = out;
		return error;
	}
	error = hs_resolve_launch(device, HS_DEVICE_RESOLVE, layer, lane, &args, site);
	if (!error)
		*remapped = out;
	return error;
}

/* The lane's last launch has been read; what it owes is taken along. */
static void release(struct hs_device *device, struct hs_lane_site *lane, const struct hs_site *site)
{
	pthread_mutex_lock(&lane->lock);
	pass(device, lane,
		(struct hs_keep_args){.keep = passes(lane->count, lane->evict), .release = true},
		site);
	took(lane);
	pthread_mutex_unlock(&lane->lock);
}

void hs_cache_attended(struct hs_layer *layer, const struct hs_site *site)
{
	struct hs_device *device = hs_device_get(layer->device);
	struct hs_lane_site *lane;

	/* Within a capture the lane's next launch releases this one, and the
	 * end of the capture the last. */
	if (!device || site->capturing || !hs_lane_many() ||
		!atomic_load_explicit(&layer->on, memory_order_acquire))
		return;
	lane = hs_lane_find(site, layer->device, false);
	if (lane)
		release(device, lane, site);
}

void hs_cache_capture_end(const struct hs_site *site)
{
	struct hs_lane_site *lane = NULL;
	struct hs_device *device;

	if (!site->capture_id)
		return;
	/* First all of them: one that is at a layer keeps the others' passes off. */
	while ((lane = hs_lane_next(lane, site->capture_id))) {
		device = hs_device_get(lane->device);
		if (device)
			release(device, lane, site);
	}
	while ((lane = hs_lane_next(lane, site->capture_id))) {
		device = hs_device_get(lane->device);
		pthread_mutex_lock(&lane->lock);
		if (device)
			pay(device, lane, NULL, site);
		pthread_mutex_unlock(&lane->lock);
	}
}

void hs_resolve_settle(struct hs_device *device)
{
	const struct hs_site site = {0};
	struct hs_lane_site *lane = NULL;

	while ((lane = hs_lane_next(lane, 0))) {
		if (lane->device != device->id)
			continue;
		pthread_mutex_lock(&lane->lock);
		pay(device, lane, NULL, &site);
		pthread_mutex_unlock(&lane->lock);
	}
}

/* Its list is read on the device, which may have no access to it. */
static void wrote_somewhere(struct hs_layer *layer, const struct hs_site *site)
{
	struct hs_window *window = atomic_load(&layer->window);

	if (window)
		hs_cache_wrote(window, window->start, 0, site);
}

void hs_cache_written(
	struct hs_layer *layer, const struct hs_slots *slots, const struct hs_site *site)
{
	struct hs_device *device = hs_device_get(layer->device);
	struct hs_invalidate_args args = {
		.slots = (const void *)(uintptr_t)slots->slots,
		.count = slots->count,
		.width = slots->width,
	};

	if (!device || !slots->count ||
		(!site->capturing && !atomic_load_explicit(&layer->on, memory_order_acquire)))
		return;
	args.entry = (struct hs_entry *)(uintptr_t)hs_device_entry(device, layer->id);
	if (hs_foreign(device, site) ||
		hs_device_launch(device, HS_DEVICE_INVALIDATE,
			(slots->count + HS_THREADS - 1) / HS_THREADS, 0, &args, sizeof(args), site))
		wrote_somewhere(layer, site);
}

void hs_cache_wrote(
	struct hs_window *window, CUdeviceptr start, size_t bytes, const struct hs_site *site)
{
	struct hs_device *device = hs_device_get(window->device);
	struct hs_drop_args args = {
		.start = bytes ? start : window->start,
		.end = bytes ? start + bytes : window->start + window->bytes,
	};

	if (!device || (!site->capturing && !hs_layer_on()))
		return;
	args.table = (struct hs_table *)(uintptr_t)device->table;
	if ((hs_foreign(device, site) ||
		    hs_device_launch(device, HS_DEVICE_DROP, 2 * device->processors, 0, &args,
			    sizeof(args), site)) &&
		hs_foreign_launch(device, HS_DEVICE_DROP, 2 * device->processors, &args,
			sizeof(args), site)) {
		/* No hot rows at all, as where nodes of a graph write that we do not see. */
		atomic_store_explicit(&window->unseen, true, memory_order_relaxed);
		hs_memory_mark();
	}
}
