/* SPDX-License-Identifier: MIT */
#include "src/cache/many.h"

#include <errno.h>
#include <stdatomic.h>
#include "src/base/log.h"
#include "src/cache/resolve.h"

#define RESERVE_SHARE 16
#define THREADS 1024u /* of the kernels that go through the list */
#define PAUSE 31u     /* launches of a layer whose lists do not fit */
#define NOBODY 0u
#define BROKEN UINT32_MAX /* a launch came to nothing half way: marks were left */

struct area {
	CUdeviceptr stage, slots; /* rows, and whose they are and where; 0: none */
	uint32_t rows;		  /* slots are kept of; a multiple of HS_EACH */
	size_t bytes;
	CUdeviceptr marks; /* ranks, bits, chunks and state, in that order */
	uint32_t chunks;
	size_t marks_bytes;
	_Atomic uint32_t owner;	  /* lane + 1, NOBODY or BROKEN */
	_Atomic uint32_t refused; /* launches of other lanes */
};

/* 512 query rows; a prefix of 160 Ki tokens. */
struct hs_many_limits hs_many_limits = {
	.entries = UINT64_C(1) << 20,
	.rows_least = 4096,
	.rows_most = 163840,
};

static struct area areas[HS_DEVICES];
static struct {
	_Atomic uint64_t unstaged; /* as last seen */
	_Atomic uint32_t pause;	   /* launches left of it */
} unions[HS_LAYERS];

static size_t bits_bytes(uint32_t chunks)
{
	return (size_t)chunks * (HS_MANY_CHUNK / 8);
}

static void make_stage(struct area *area, CUdeviceptr base, uint32_t row)
{
	const size_t share = hs_memory_reserve() / RESERVE_SHARE;
	size_t rows = share / row;

	if (rows > hs_many_limits.rows_most)
		rows = hs_many_limits.rows_most;
	rows -= rows % HS_EACH;
	if (!rows || rows < hs_many_limits.rows_least)
		return;
	if (hs_memory_own(&area->slots, 2 * rows * sizeof(int32_t)))
		return;
	if (hs_memory_hot(&area->stage, base, row, rows * row)) {
		hs_memory_disown(area->slots);
		area->slots = area->stage = 0;
		return;
	}
	area->rows = (uint32_t)rows;
	area->bytes = rows * row;
	hs_info("lists of %llu entries and more: %zu rows of %u bytes are staged",
		(unsigned long long)hs_many_limits.entries, rows, row);
}

static void make_marks(struct area *area, uint32_t slots)
{
	const uint32_t chunks = (slots + HS_MANY_CHUNK - 1) / HS_MANY_CHUNK;
	const size_t bytes = 3 * bits_bytes(chunks) + (chunks + 3) * sizeof(uint32_t);
	CUdeviceptr marks;

	if (chunks <= area->chunks || hs_memory_own(&marks, bytes))
		return;
	if (area->marks)
		hs_memory_disown(area->marks);
	area->marks = marks;
	area->marks_bytes = bytes;
	area->chunks = chunks;
}

void hs_many_ready(const struct hs_device *device, CUdeviceptr base, uint32_t row, uint32_t slots)
{
	struct area *area = &areas[device->id];

	if (!area->stage)
		make_stage(area, base, row);
	if (area->stage)
		make_marks(area, slots);
}

void hs_many_settle(CUdevice device)
{
	struct area *area = &areas[device];

	if (atomic_load(&area->owner) == BROKEN &&
		hs_driver.cuMemsetD8_v2(area->marks, 0, area->marks_bytes) != CUDA_SUCCESS)
		return;
	atomic_store(&area->owner, NOBODY);
}

void hs_many_forget(CUdevice device)
{
	struct area *area = &areas[device];

	if (area->stage) {
		hs_memory_cold(area->stage);
		hs_memory_disown(area->slots);
	}
	if (area->marks)
		hs_memory_disown(area->marks);
	area->stage = area->slots = area->marks = 0;
	area->chunks = area->rows = 0;
	atomic_store(&area->owner, NOBODY);
}

/* The first row at or after the area's start that is congruent to the base, and
 * rows from there on: 0 when an index does not reach all of them. */
static uint32_t room(const struct area *area, const struct hs_layer *layer, uint64_t *index)
{
	const uint64_t skip = layer->row - 1;
	uint64_t rows;

	if (!area->stage || area->stage < layer->base)
		return 0;
	*index = (area->stage - layer->base + skip) / layer->row;
	rows = (area->stage + area->bytes - (layer->base + *index * layer->row)) / layer->row;
	if (rows > area->rows)
		rows = area->rows;
	return *index + rows < INT32_MAX ? (uint32_t)rows : 0;
}

uint32_t hs_many_room(const struct hs_layer *layer, int32_t *index)
{
	const struct area *area = &areas[layer->device];
	uint64_t first;
	uint32_t rows = room(area, layer, &first);

	if (layer->slots > (uint64_t)area->chunks * HS_MANY_CHUNK)
		rows = 0;
	*index = rows ? (int32_t)first : 0;
	return rows;
}

/* Whether the area is the lane's. One that finds it taken now and then asks for
 * a safe moment, after which it may come first. */
static bool take(struct area *area, const struct hs_lane_site *lane)
{
	const uint32_t me = lane->id + 1;
	uint32_t owner = atomic_load_explicit(&area->owner, memory_order_relaxed), refused;

	if (owner == me ||
		(owner == NOBODY && atomic_compare_exchange_strong(&area->owner, &owner, me)))
		return true;
	refused = atomic_fetch_add_explicit(&area->refused, 1, memory_order_relaxed);
	if (!(refused & (refused + 1)))
		hs_memory_mark();
	return owner == me;
}

/* Whether the layer's lists lately had more rows than there is room for and the
 * hot buffer has more: many requests that decode, say. Tried again after a while. */
static bool overflows(const struct hs_device *device, const struct hs_layer *layer, uint32_t rows)
{
	const uint64_t unstaged =
		*(const volatile uint64_t *)&device->counts[layer->id][HS_COUNT_UNSTAGED];
	const uint64_t before = atomic_exchange_explicit(
		&unions[layer->id].unstaged, unstaged, memory_order_relaxed);
	uint32_t left = atomic_load_explicit(&unions[layer->id].pause, memory_order_relaxed);

	if (unstaged != before && layer->rows > rows)
		left = PAUSE;
	atomic_store_explicit(&unions[layer->id].pause, left ? left - 1 : 0, memory_order_relaxed);
	return left;
}

static unsigned blocks_for(uint64_t warps, unsigned threads, unsigned most)
{
	const uint64_t blocks = (warps * 32 + threads - 1) / threads;

	return blocks < most ? (unsigned)blocks : most;
}

/* The union as a list of its own, of as many slots as are to be made hot. */
static int make_hot(struct hs_device *device, struct hs_layer *layer, struct hs_lane_site *lane,
	const struct hs_many_args *many, const struct hs_site *site)
{
	struct hs_resolve_args args = many->list;

	args.indices = many->slots;
	args.out = many->indices;
	args.lengths = (const int32_t *)&many->state[2];
	args.outer = args.inner = 1;
	args.k = many->rows;
	return hs_resolve_launch(device, HS_DEVICE_MANY_HOT, layer, lane, &args, site);
}

static int launch(struct hs_device *device, struct hs_layer *layer, struct hs_lane_site *lane,
	struct hs_many_args *args, const struct hs_site *site)
{
	/* As the kernels deal them out: a warp takes 256 entries, a chunk, or rows. */
	const uint64_t tiles =
		(uint64_t)args->list.outer * args->list.inner * ((args->list.k + 255) / 256);
	const uint64_t chunks = (layer->slots + HS_MANY_CHUNK - 1) / HS_MANY_CHUNK;
	const unsigned lists = blocks_for(tiles, THREADS, 2 * device->processors);
	const struct {
		enum hs_device_kernel kernel;
		unsigned blocks, threads;
	} steps[] = {
		{HS_DEVICE_MANY_MARK, lists, THREADS},
		{HS_DEVICE_MANY_RANK, blocks_for(chunks, HS_THREADS, device->processors), 0},
		{HS_DEVICE_MANY_HOT, 0, 0},
		{HS_DEVICE_MANY_GATHER, blocks_for(args->rows, HS_THREADS, device->processors), 0},
		{HS_DEVICE_MANY_REMAP, lists, THREADS},
	};
	int error;

	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		error = steps[i].kernel == HS_DEVICE_MANY_HOT
				? make_hot(device, layer, lane, args, site)
				: hs_device_launch(device, steps[i].kernel, steps[i].blocks,
					  steps[i].threads, args, sizeof(*args), site);
		if (error)
			return error;
	}
	return 0;
}

int hs_many_resolve(struct hs_device *device, struct hs_layer *layer, struct hs_lane_site *lane,
	const struct hs_resolve_args *list, const struct hs_site *site)
{
	struct area *area = &areas[layer->device];
	struct hs_many_args args = {.list = *list};
	const uint64_t lists = (uint64_t)list->outer * list->inner;
	const size_t bits = bits_bytes(area->chunks);
	int error;

	if (lists * list->k < hs_many_limits.entries || site->capturing ||
		lists * ((list->k + 255) / 256) > UINT32_MAX / 2 ||
		!atomic_load_explicit(&layer->on, memory_order_acquire))
		return -EAGAIN;
	args.rows = hs_many_room(layer, &args.stage_index);
	if (!args.rows || overflows(device, layer, args.rows) || !take(area, lane))
		return -EAGAIN;
	args.stage =
		(unsigned char *)(uintptr_t)(layer->base + (uint64_t)args.stage_index * layer->row);
	args.slots = (int32_t *)(uintptr_t)area->slots;
	args.indices = args.slots + area->rows;
	args.ranked = (uint64_t *)(uintptr_t)area->marks;
	args.bits = (uint32_t *)(uintptr_t)(area->marks + 2 * bits);
	args.chunks = (uint32_t *)(uintptr_t)(area->marks + 3 * bits);
	args.state = args.chunks + area->chunks;
	error = launch(device, layer, lane, &args, site);
	if (error)
		atomic_store(&area->owner, BROKEN);
	return error;
}
