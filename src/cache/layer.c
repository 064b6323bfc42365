/* SPDX-License-Identifier: MIT */
#include "src/cache/layer.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/cache/journal.h"
#include "src/cache/many.h"
#include "src/cache/nodes.h"
#include "src/cache/policy.h"
#include "src/cache/remap.h"
#include "src/cache/resolve.h"
#include "src/cache/share.h"

#define BUCKETS 2048 /* a power of two, above HS_LAYERS */
#define ALIGN(bytes) (((bytes) + 255) & ~(size_t)255)

static struct hs_layer layers[HS_LAYERS];
static _Atomic uint32_t count;
static struct hs_layer *_Atomic buckets[BUCKETS];
static _Atomic unsigned on;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t hash(CUdeviceptr base, uint32_t row)
{
	return (uint32_t)((base ^ (uint64_t)row << 40) * 0x9e3779b97f4a7c15u >> 40);
}

static uint64_t slots_of(const struct hs_window *window, CUdeviceptr base, uint32_t row)
{
	return (window->start + window->requested - base) / row;
}

static bool fits(const struct hs_window *window, CUdeviceptr base, uint32_t row)
{
	return row && row % 16 == 0 && base % 16 == 0 && base >= window->start &&
	       base < window->start + window->requested && slots_of(window, base, row) > 0 &&
	       slots_of(window, base, row) < INT32_MAX;
}

static struct hs_layer *enter(struct hs_window *window, CUdeviceptr base, uint32_t row, uint32_t at)
{
	uint32_t n = atomic_load_explicit(&count, memory_order_relaxed);
	struct hs_layer *layer;

	while ((layer = buckets[at % BUCKETS]) && (layer->base != base || layer->row != row))
		at++;
	if (layer) {
		atomic_store(&layer->window, window);
		layer->device = window->device;
		layer->refused = false;
		atomic_store(&layer->told, 0);
	} else {
		if (n == HS_LAYERS)
			return NULL;
		layer = &layers[n];
		layer->base = base;
		layer->row = row;
		layer->id = n;
		layer->device = window->device;
		atomic_store(&layer->window, window);
		atomic_store_explicit(&count, n + 1, memory_order_release);
		atomic_store_explicit(&buckets[at % BUCKETS], layer, memory_order_release);
	}
	hs_memory_mark();
	return layer;
}

struct hs_layer *hs_layer_find(
	struct hs_window *window, CUdeviceptr base, uint32_t row, bool create)
{
	struct hs_layer *layer;
	uint32_t at;

	for (at = hash(base, row);; at++) {
		layer = atomic_load_explicit(&buckets[at % BUCKETS], memory_order_acquire);
		if (!layer || (layer->base == base && layer->row == row))
			break;
	}
	if (layer && atomic_load_explicit(&layer->window, memory_order_relaxed) == window)
		return layer;
	if (!create || !fits(window, base, row))
		return NULL;
	pthread_mutex_lock(&lock);
	layer = enter(window, base, row, at);
	pthread_mutex_unlock(&lock);
	return layer;
}

unsigned hs_layer_on(void)
{
	return atomic_load_explicit(&on, memory_order_relaxed);
}

uint32_t hs_layer_id(const struct hs_layer *layer)
{
	return layer->id;
}

void hs_layer_each(void (*visit)(struct hs_layer *layer, void *data), void *data)
{
	uint32_t n = atomic_load_explicit(&count, memory_order_acquire);

	for (uint32_t i = 0; i < n; i++)
		visit(&layers[i], data);
}

static uint32_t slots_in(const struct hs_layer *layer)
{
	return (uint32_t)((hs_layer_end(layer) - layer->base) / layer->row);
}

/* Slots before the first byte on the host: always on the device. */
static uint32_t first_in(const struct hs_layer *layer)
{
	const CUdeviceptr end = hs_layer_end(layer);

	return (uint32_t)((hs_window_host_begins(atomic_load(&layer->window), layer->base, end) -
				  layer->base) /
			  layer->row);
}

/* Bytes of everything but the hot rows, and where each part begins. */
static size_t lay_out(struct hs_entry *entry, CUdeviceptr start)
{
	size_t map = ALIGN(entry->slots * sizeof(int32_t));
	size_t word = ALIGN(entry->rows * sizeof(uint32_t));
	size_t bits = ALIGN((entry->slots + 31) / 32 * sizeof(uint32_t));
	size_t place = 2 * HS_AGES * sizeof(uint32_t);

	entry->map = (int32_t *)(uintptr_t)start;
	entry->owner = (int32_t *)(uintptr_t)(start + map);
	entry->stamp = (uint32_t *)(uintptr_t)(start + map + word);
	entry->born = (uint32_t *)(uintptr_t)(start + map + 2 * word);
	entry->bits = (uint32_t *)(uintptr_t)(start + map + 3 * word);
	entry->place = (uint32_t *)(uintptr_t)(start + map + 3 * word + bits);
	entry->ring = (uint64_t *)(uintptr_t)(start + map + 3 * word + bits + place);
	return map + 3 * word + bits + place + (entry->mask + 1) * sizeof(uint64_t);
}

static int write_entry(struct hs_layer *layer, struct hs_device *device, struct hs_entry *entry)
{
	struct hs_site site = {0};
	struct hs_prepare_args args = {
		.entry = (struct hs_entry *)(uintptr_t)hs_device_entry(device, layer->id),
		.any_order = layer->any_order};

	if (hs_driver.cuMemcpyHtoD_v2(hs_device_entry(device, layer->id), entry,
		    offsetof(struct hs_entry, free)) != CUDA_SUCCESS)
		return -EIO;
	return hs_device_launch(
		device, HS_DEVICE_PREPARE, 4 * device->processors, 0, &args, sizeof(args), &site);
}

static int start(struct hs_layer *layer, struct hs_device *device, uint32_t rows)
{
	struct hs_entry entry = {
		.state = HS_ENTRY_ON,
		.order = hs_policy_order(hs_options()->policy),
		.row = layer->row,
		.inverse = UINT32_MAX / (layer->row / 16) + UINT64_C(1),
		.rows = rows,
		.mask = 1,
		.base = (const unsigned char *)(uintptr_t)layer->base,
		.slots = slots_in(layer),
		.first = first_in(layer),
		.counts = (uint64_t *)(uintptr_t)(device->counts_device +
						  layer->id * sizeof(*device->counts)),
	};
	CUdeviceptr hot, state;
	int error;

	while (entry.mask < rows)
		entry.mask *= 2;
	entry.mask--;
	error = hs_memory_own(&state, lay_out(&entry, 0));
	if (error)
		return error;
	error = hs_memory_hot(&hot, layer->base, layer->row, (size_t)rows * layer->row);
	if (error)
		goto disown;
	lay_out(&entry, state);
	layer->any_order = atomic_load(&atomic_load(&layer->window)->any_order);
	entry.hot = (unsigned char *)(uintptr_t)hot;
	entry.hot_index = (int32_t)((hot - layer->base) / layer->row);
	error = write_entry(layer, device, &entry);
	if (error)
		goto cold;
	layer->slots = entry.slots;
	layer->rows = rows;
	layer->first = entry.first;
	layer->hot = hot;
	layer->state = state;
	atomic_store(&layer->on, true);
	atomic_fetch_add(&on, 1);
	return 0;

cold:
	hs_memory_cold(hot);
disown:
	hs_memory_disown(state);
	return error;
}

/* The entry goes off first, then what it points to. */
static void stop(struct hs_layer *layer, struct hs_device *device)
{
	const uint32_t off = HS_ENTRY_OFF;

	hs_driver.cuMemcpyHtoD_v2(hs_device_entry(device, layer->id), &off, sizeof(off));
	hs_memory_cold(layer->hot);
	hs_memory_disown(layer->state);
	layer->hot = layer->state = 0;
	atomic_store(&layer->on, false);
	atomic_fetch_sub(&on, 1);
}

static bool wants(const struct hs_layer *layer)
{
	const CUdeviceptr end = hs_layer_end(layer);
	struct hs_window *window = atomic_load(&layer->window);

	return end && !atomic_load(&window->unseen) &&
	       hs_window_host_begins(window, layer->base, end) < end;
}

/* Goes on as it is: its window may be in other parts than when it started. */
static bool keeps(const struct hs_layer *layer)
{
	return wants(layer) && layer->slots == slots_in(layer) && layer->first == first_in(layer) &&
	       layer->any_order == atomic_load(&atomic_load(&layer->window)->any_order);
}

static void start_or_say(struct hs_layer *layer, struct hs_device *device, uint32_t rows)
{
	const uint32_t least = rows < HS_SHARE_LEAST ? rows : HS_SHARE_LEAST;
	const uint32_t asked = rows;
	int error = start(layer, device, rows);

	while (error == -ENOMEM && rows / 2 >= least) {
		rows /= 2;
		error = start(layer, device, rows);
	}
	layer->refused = error != 0;
	if (error)
		hs_warn("layer %u: no hot buffer of %u rows of %u bytes (%s): its rows are read in "
			"place; HISPARSE_SLOTS sets the rows",
			layer->id, rows, layer->row,
			error == -ENOMEM ? "out of GPU memory" : "not addressable");
	else if (rows < asked)
		hs_warn("layer %u: GPU memory for %u hot rows, not %u (HISPARSE_SLOTS)", layer->id,
			rows, asked);
	else
		hs_info("layer %u: %u slots of %u bytes, %u hot rows", layer->id, layer->slots,
			layer->row, rows);
}

/*
 * What the reserve has for each layer, those that swap and those that start now.
 * Who came first had more, or less if KV has made way since. Where one has more than
 * twice as much as who starts, or less than half of what it would have now, all start
 * anew, and what was hot is fetched again: a few times while layers come.
 */
static uint64_t level(struct hs_device *device, uint32_t *starting)
{
	const uint64_t left = hs_memory_reserve();
	uint32_t n = atomic_load(&count), swapping = 0;
	uint64_t held = 0, spare;
	bool uneven = false;

	if (hs_options()->slots != HS_AUTO)
		return 0; /* nobody asks */
	for (uint32_t i = 0; i < n; i++) {
		const struct hs_layer *layer = &layers[i];

		if (layer->device != device->id || !atomic_load(&layer->on))
			continue;
		held += hs_share_bytes(layer->slots, layer->row, layer->rows);
		swapping++;
	}
	spare = (left + held) / (swapping + *starting);
	for (uint32_t i = 0; i < n; i++) {
		const struct hs_layer *layer = &layers[i];
		uint32_t even, theirs;

		if (layer->device != device->id || !atomic_load(&layer->on))
			continue;
		even = hs_share_rows(slots_in(layer), layer->row, spare);
		theirs = hs_share_rows(slots_in(layer), layer->row, left / *starting);
		uneven |= layer->rows / 2 > theirs || even / 2 > layer->rows;
	}
	for (uint32_t i = 0; i < n && uneven; i++) {
		if (layers[i].device != device->id || !atomic_load(&layers[i].on))
			continue;
		stop(&layers[i], device);
		++*starting;
	}
	return spare;
}

struct hs_cache_wants hs_cache_wants(CUdevice device)
{
	const uint32_t n = atomic_load(&count);
	struct hs_cache_wants all = {0};

	for (uint32_t i = 0; i < n; i++) {
		const struct hs_layer *layer = &layers[i];
		uint32_t slots;

		if (layer->device != device || layer->refused || !wants(layer))
			continue;
		slots = slots_in(layer);
		all.bytes += (uint64_t)slots * layer->row;
		all.most += hs_share_bytes(slots, layer->row, hs_share_most(slots));
		if (atomic_load(&layer->on))
			all.has += hs_share_bytes(layer->slots, layer->row, layer->rows);
	}
	return all;
}

void hs_cache_stop(CUdevice id)
{
	struct hs_device *device = hs_device_get(id);
	const uint32_t n = atomic_load(&count);
	CUcontext popped;

	if (!device || hs_driver.cuCtxPushCurrent_v2(device->context) != CUDA_SUCCESS)
		return;
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < n; i++)
		if (layers[i].device == id && atomic_load(&layers[i].on))
			stop(&layers[i], device);
	pthread_mutex_unlock(&lock);
	hs_driver.cuCtxPopCurrent_v2(&popped);
}

/* may: layers may start. */
static void settle_device(struct hs_device *device, bool may)
{
	uint32_t n = atomic_load(&count), starting = 0;
	uint64_t spare, left;

	hs_remap_ready(device->id);
	/* Nothing is in flight. What eager lanes have left to do is done first. */
	hs_driver.cuMemsetD8_v2(
		hs_device_word(device, 0), 0, sizeof(((struct hs_table *)0)->words));
	hs_resolve_settle(device);
	hs_driver.cuStreamSynchronize(NULL);
	hs_driver.cuMemsetD8_v2(device->table + offsetof(struct hs_table, lanes), 0,
		sizeof(((struct hs_table *)0)->lanes));
	for (uint32_t i = 0; i < n; i++) {
		struct hs_layer *layer = &layers[i];

		if (layer->device != device->id)
			continue;
		if (atomic_load(&layer->on) && !keeps(layer))
			stop(layer, device);
		if (!may || atomic_load(&layer->on) || !wants(layer) || layer->refused)
			continue;
		starting++;
		hs_many_ready(device, layer->base, layer->row, slots_in(layer));
	}
	spare = starting ? level(device, &starting) : 0;
	for (uint32_t i = 0; i < n && starting; i++) {
		struct hs_layer *layer = &layers[i];

		if (layer->device != device->id || atomic_load(&layer->on) || !wants(layer) ||
			layer->refused)
			continue;
		/* What was taken since is a little more than was reckoned. */
		left = hs_memory_reserve() / starting--;
		start_or_say(layer, device,
			hs_share_rows(slots_in(layer), layer->row, left < spare ? left : spare));
	}
	hs_many_settle(device->id);
	hs_journal_settle(device);
	/* Streams that do not wait for the default one see it all done. */
	hs_driver.cuStreamSynchronize(NULL);
}

/* Where windows never go to the host nothing is swapped, and the engine was told of all
 * memory: ours is taken only for those who want to know what is asked for. */
static bool needless(void)
{
	const struct hs_options *options = hs_options();

	return options->place == HS_OPTION_DEVICE && !options->record && !options->trace &&
	       !hs_journal_asked() && !hs_device_current();
}

int hs_cache_ready(void)
{
	CUdevice id;
	int error;

	if (needless())
		return 0;
	error = hs_device_ready();
	if (error)
		return error;
	return hs_driver.cuCtxGetDevice(&id) == CUDA_SUCCESS ? hs_remap_ready(id) : -ENODEV;
}

/* Whether a layer may swap when this moment is over. */
static bool swaps(void)
{
	const uint32_t n = atomic_load(&count);

	for (uint32_t i = 0; i < n; i++)
		if (wants(&layers[i]) && !layers[i].refused && hs_device_get(layers[i].device))
			return true;
	return false;
}

/* Our nodes in graphs go on before the first layer swaps, and rest after the last. */
void hs_cache_settle(void)
{
	CUcontext popped;
	bool busy, may;

	hs_cache_ready();
	pthread_mutex_lock(&lock);
	hs_layer_each(hs_layer_tail, NULL);
	busy = swaps() || hs_journal_asked();
	may = !busy || hs_nodes_wake();
	for (CUdevice id = 0; id < HS_DEVICES; id++) {
		struct hs_device *device = hs_device_get(id);

		if (!device || hs_driver.cuCtxPushCurrent_v2(device->context) != CUDA_SUCCESS)
			continue;
		settle_device(device, may);
		hs_driver.cuCtxPopCurrent_v2(&popped);
	}
	if (!busy && !hs_layer_on())
		hs_nodes_rest();
	pthread_mutex_unlock(&lock);
}

void hs_cache_forget(struct hs_window *window)
{
	uint32_t n = atomic_load(&count);
	struct hs_device *device;
	CUcontext popped;

	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < n; i++) {
		struct hs_layer *layer = &layers[i];

		if (atomic_load(&layer->window) != window)
			continue;
		device = hs_device_get(layer->device);
		if (atomic_load(&layer->on) && device &&
			hs_driver.cuCtxPushCurrent_v2(device->context) == CUDA_SUCCESS) {
			stop(layer, device);
			hs_driver.cuCtxPopCurrent_v2(&popped);
			hs_memory_mark(); /* it may have been the last */
		}
		atomic_store(&layer->window, NULL);
	}
	pthread_mutex_unlock(&lock);
}

void hs_cache_context_gone(CUcontext context)
{
	CUdevice id = hs_device_gone(context);
	uint32_t n = atomic_load(&count);

	hs_nodes_context_gone(context);
	if (id < 0)
		return;
	hs_remap_forget(id);
	hs_many_forget(id);
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < n; i++) {
		if (layers[i].device != id || !atomic_load(&layers[i].on))
			continue;
		/* Its window is freed later; the memory went with the context. */
		atomic_store(&layers[i].on, false);
		atomic_fetch_sub(&on, 1);
		hs_memory_cold(layers[i].hot);
		hs_memory_disown(layers[i].state);
	}
	pthread_mutex_unlock(&lock);
}
