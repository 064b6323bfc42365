/* SPDX-License-Identifier: MIT */
#include "src/cache/arrive.h"

#include <pthread.h>
#include "src/base/log.h"
#include "src/cache/device.h"
#include "src/cache/lane.h"
#include "src/cache/layer.h"

#define NO_COLUMNS UINT32_MAX

static unsigned blocks_for(const struct hs_device *device, uint64_t threads)
{
	const uint64_t blocks = (threads + HS_THREADS - 1) / HS_THREADS;

	return blocks < 2 * device->processors ? (unsigned)blocks : 2 * device->processors;
}

static void drop_all(const struct hs_device *device, const struct hs_site *site)
{
	struct hs_drop_args args = {
		.table = (struct hs_table *)(uintptr_t)device->table, .end = UINT64_MAX};

	hs_device_launch(
		device, HS_DEVICE_DROP, 2 * device->processors, 0, &args, sizeof(args), site);
}

void hs_cache_arrived(const struct hs_slots *list, uint32_t unit, const struct hs_site *site)
{
	const struct hs_device *device = hs_device_current();
	struct hs_forget_args args = {
		.list = (const void *)(uintptr_t)list->slots,
		.count = list->count,
		.width = list->width,
		.unit = unit,
	};

	if (!device || (!site->capturing && !hs_layer_on()))
		return;
	if (!list->slots) {
		drop_all(device, site);
		return;
	}
	args.table = (struct hs_table *)(uintptr_t)device->table;
	if (list->count && unit)
		hs_device_launch(device, HS_DEVICE_FORGET,
			blocks_for(device, (uint64_t)list->count * unit), 0, &args, sizeof(args),
			site);
}

/* Taken once: captured launches name it. Tables have the columns of the first
 * one, since an engine's are as long as its longest context. */
static CUdeviceptr saved(struct hs_device *device, uint32_t columns)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const size_t copies =
		2 * (size_t)HS_BLOCKS_ROWS * HS_BLOCKS_STRIDE(columns) * sizeof(int32_t);
	CUdeviceptr at = 0;

	pthread_mutex_lock(&lock);
	if (!atomic_load(&device->blocks) && columns &&
		!hs_memory_own(&at, sizeof(struct hs_blocks_head) + copies)) {
		atomic_store(&device->columns, columns);
		atomic_store(&device->blocks, at);
	}
	pthread_mutex_unlock(&lock);
	return atomic_load(&device->columns) == columns ? atomic_load(&device->blocks) : 0;
}

/* Blocks of threads a row: as many as its columns keep busy, unless the rows do.
 * Lengths are not known here: a graph is replayed with others. */
static uint32_t parts_of(const struct hs_device *device, const struct hs_blocks *table)
{
	const uint32_t tiles = (table->columns + HS_BLOCKS_TILE - 1) / HS_BLOCKS_TILE;
	const uint32_t most = 8 * device->processors / table->rows;
	const uint32_t parts = tiles < most ? tiles : most;

	return parts ? parts : 1;
}

/* Both kernels. Where one does not run nothing is known of this launch, nor, if that is
 * the second one, of any that follows. */
static bool compare(struct hs_device *device, struct hs_blocks_args *args, unsigned rows,
	const struct hs_site *site)
{
	const unsigned blocks = rows * args->parts;

	if (hs_device_launch(device, HS_DEVICE_BLOCKS, blocks, 0, args, sizeof(*args), site))
		return false;
	if (!hs_device_launch(device, HS_DEVICE_BLOCKS_DONE, blocks, 0, args, sizeof(*args), site))
		return true;
	if (atomic_exchange(&device->columns, NO_COLUMNS) != NO_COLUMNS)
		hs_warn("block tables cannot be compared: all hot rows are dropped at every step");
	return false;
}

void hs_cache_tabled(const struct hs_blocks *table, const struct hs_site *site)
{
	struct hs_device *device = hs_device_current();
	struct hs_blocks_args args = {
		.blocks = (const int32_t *)(uintptr_t)table->blocks,
		.lengths = (const int32_t *)(uintptr_t)table->lengths,
		.ids = (const int32_t *)(uintptr_t)table->ids,
		.stride = (uint64_t)table->stride,
		.columns = table->columns,
		.unit = table->unit,
	};
	uint32_t rows = table->rows;
	struct hs_lane_site *lane;
	CUdeviceptr head;
	bool known;

	if (!device || !rows || (!site->capturing && !hs_layer_on()))
		return;
	lane = hs_lane_find(site, device->id, true);
	if (!lane) {
		drop_all(device, site);
		return;
	}
	if (lane->tabled == table->blocks)
		return;
	lane->tabled = table->blocks;
	head = saved(device, table->columns);
	known = head && table->unit <= HS_BLOCKS_UNIT && (table->ids || rows <= HS_BLOCKS_ROWS);
	if (!known) {
		drop_all(device, site);
		/* Rows of other tables that were saved say nothing any more. */
		head = atomic_load(&device->columns) == NO_COLUMNS ? 0
								   : atomic_load(&device->blocks);
		args.ids = args.lengths = NULL;
		args.columns = 0;
		rows = 1;
	}
	if (!head)
		return;
	args.table = (struct hs_table *)(uintptr_t)device->table;
	args.lane = lane->id;
	args.parts = known ? parts_of(device, table) : 1;
	args.head = (struct hs_blocks_head *)(uintptr_t)head;
	args.saved = (int32_t *)(uintptr_t)(head + sizeof(*args.head));
	if (!compare(device, &args, rows, site))
		drop_all(device, site);
}

/* Tables are looked at once a step, which ends with the last layer. */
void hs_arrive_attended(
	struct hs_device *device, const struct hs_layer *layer, const struct hs_site *site)
{
	struct hs_lane_site *lane;

	if (layer->id < atomic_load_explicit(&device->highest, memory_order_relaxed))
		return;
	atomic_store_explicit(&device->highest, layer->id, memory_order_relaxed);
	lane = hs_lane_find(site, layer->device, false);
	if (lane)
		lane->tabled = 0;
}
