/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <time.h>
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/cache/cache.h"
#include "src/memory/arena.h"
#include "src/memory/budget.h"
#include "src/memory/move.h"
#include "src/memory/place.h"
#include "src/memory/range.h"
#include "src/memory/settle.h"
#include "src/memory/slack.h"

#define GIB ((double)(1ull << 30))
#define SIZES 64

/* Sizes of KV windows that have been freed; the oldest makes room. */
static size_t sizes[SIZES];
static size_t learnt;

/* The allocation that was refused, until the thread's next one. */
static struct {
	size_t bytes;
	pthread_t thread;
} refused;

static _Atomic bool waiting;		/* a window on the host wants to move back */
static _Atomic bool away;		/* KV is on the host that could live on the device */
static _Atomic int64_t calm, next_look; /* when it may come back; when that is looked at */
int64_t hs_place_calm_ns = 10000000000ll;

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

void hs_place_learn(struct hs_holding *holding)
{
	if (atomic_load(&holding->window.use) != HS_USE_KV)
		return;
	for (size_t i = 0; i < SIZES; i++)
		if (sizes[i] == holding->window.bytes)
			return;
	sizes[learnt++ % SIZES] = holding->window.bytes;
}

static bool known(size_t bytes)
{
	for (struct hs_holding *h = hs_holding_next(NULL); h; h = hs_holding_next(h))
		if (h->window.bytes == bytes && atomic_load(&h->window.use) == HS_USE_KV)
			return true;
	for (size_t i = 0; i < SIZES; i++)
		if (sizes[i] == bytes)
			return true;
	return false;
}

void hs_place_host_failed(size_t bytes, CUresult result)
{
	if (!hs_budget_active())
		return;
	hs_budget_pool_failed();
	hs_warn("no %.1f GiB of host memory for a window although the pool has room (CUDA error "
		"%d); HISPARSE_HOST_GIB is more than can be pinned, %.1f GiB are: nothing more "
		"moves to the host",
		bytes / GIB, result, hs_budget_pool_used() / GIB);
}

/* Whether a window in ranges goes as a whole, into memory of the best kind. */
static bool all_of_it(struct hs_holding *h, size_t bytes)
{
	return bytes >= h->window.bytes / 2 && hs_range_whole(h->window.bytes) &&
	       !hs_range_layered(h);
}

/* Of a window in parts so many that `bytes` more fit. */
static bool move_out(struct hs_holding *holding, size_t bytes)
{
	size_t moved = holding->rest.bytes;
	bool parts = false;
	CUresult result;

	if (holding->ranges && all_of_it(holding, bytes))
		moved = holding->window.bytes - HS_GRANULE;
	else if (hs_range_wanted(holding))
		parts = true;
	if (parts)
		result = hs_range_out(holding, bytes, &moved);
	else
		result = hs_move(holding, HS_PLACE_HOST);
	if (result == CUDA_SUCCESS && moved) {
		hs_debug("window %u: %.2f GiB moved to the host", holding->window.id, moved / GIB);
		atomic_store(&calm, now_ns() + hs_place_calm_ns);
		atomic_store(&away, hs_options()->place == HS_OPTION_AUTO);
		return true;
	}
	holding->unable = true;
	holding->stuck = result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		hs_place_host_failed(hs_range_movable(holding), result);
	else if (holding->stuck)
		hs_warn("window %u stays on the device: moving it failed (CUDA error %d)",
			holding->window.id, result);
	return false;
}

static bool zeros(struct hs_holding *h)
{
	return atomic_load(&h->window.use) == HS_USE_UNKNOWN && atomic_load(&h->window.virgin);
}

/* 2: KV, 1: only a fill seen, 0: stays. */
static int evictable(struct hs_holding *h)
{
	const bool may = h->live && !h->stuck && !h->unable;
	const size_t movable = may ? hs_range_movable(h) : 0;

	if (!movable || !hs_budget_pool(h->ranges ? HS_GRANULE : movable))
		return 0;
	if (atomic_load(&h->window.use) == HS_USE_KV)
		return 2;
	return zeros(h);
}

/* The rows of a layer are several times its indexer's keys: of windows that saw
 * nothing but zeros those that are much smaller than others are not for the host. */
static size_t keys_at_most(size_t incoming)
{
	size_t most = incoming;

	for (struct hs_holding *h = hs_holding_next(NULL); h; h = hs_holding_next(h))
		if (h->live && (zeros(h) || atomic_load(&h->window.use) == HS_USE_KV) &&
			h->window.bytes > most)
			most = h->window.bytes;
	return most / 2;
}

/* The largest of the most evictable: fewest moves. */
static struct hs_holding *victim(CUdevice device, int least, size_t incoming)
{
	const size_t keys = least < 2 ? keys_at_most(incoming) : 0;
	struct hs_holding *best = NULL;
	int rank, best_rank = least - 1;

	for (struct hs_holding *h = hs_holding_next(NULL); h; h = hs_holding_next(h)) {
		if (h->window.device != device)
			continue;
		rank = evictable(h);
		if (rank == 1 && h->window.bytes <= keys)
			continue;
		if (rank > best_rank || (best && rank == best_rank &&
						hs_range_movable(h) > hs_range_movable(best))) {
			best = h;
			best_rank = rank;
		}
	}
	return best;
}

/* What could not move a while ago may now: the pool has an end that comes and goes. */
static bool try_again(void)
{
	for (struct hs_holding *h = hs_holding_next(NULL); h; h = hs_holding_next(h))
		h->unable = false;
	return true;
}

/* Whether `bytes` fit if we go back to the reserve. */
static bool shrinks(CUdevice device, size_t bytes)
{
	const size_t grown = hs_budget_grown(device);

	return grown && hs_budget_fits(bytes > grown ? bytes - grown : 0);
}

/* Hot rows have grown into what the engine turns out to need: all start anew, with what is
 * left then, which is the reserve at least. */
static bool shrink(CUdevice device, size_t bytes)
{
	if (!shrinks(device, bytes))
		return false;
	hs_slack_short(device, hs_budget_used(), bytes);
	hs_cache_stop(device);
	hs_debug("device %d: hot rows make way for %.2f GiB", device, bytes / GIB);
	return true;
}

bool hs_place_evict(size_t bytes)
{
	struct hs_holding *h;
	CUdevice device;
	bool moved = false;

	if (!hs_budget_active() || hs_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
		!try_again() || (!victim(device, 1, bytes) && !shrinks(device, bytes)) ||
		!hs_world_stop(true))
		return false;
	do {
		h = victim(device, 1, bytes);
		if (h)
			moved |= move_out(h, bytes);
	} while (h && !hs_budget_room(bytes));
	if (!hs_budget_room(bytes))
		moved |= shrink(device, bytes);
	if (moved)
		hs_cache_settle();
	hs_world_start();
	return moved;
}

bool hs_place_yield(size_t bytes)
{
	struct hs_holding *h;
	CUdevice device;

	if (!hs_budget_active() || hs_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
		return false;
	while ((h = victim(device, 2, 0)))
		if (move_out(h, bytes)) {
			hs_memory_mark(); /* its layers are to have hot rows, too */
			return true;
		}
	return false;
}

/* Whether the pool can take what the device has no room for. */
static bool pool_takes(size_t bytes)
{
	return hs_budget_pool(bytes) ||
	       (hs_range_piece(bytes) && hs_budget_pool(bytes - hs_range_room(bytes)));
}

CUresult hs_place_choose(enum hs_place *place, size_t bytes)
{
	const bool retry = refused.bytes == bytes && pthread_equal(refused.thread, pthread_self());
	const bool kv = known(bytes);

	refused.bytes = 0;
	*place = HS_PLACE_DEVICE;
	if (!hs_budget_active())
		return CUDA_SUCCESS;
	hs_budget_adjust();
	if (kv && hs_options()->place == HS_OPTION_HOST && pool_takes(bytes)) {
		*place = HS_PLACE_HOST;
		return CUDA_SUCCESS;
	}
	if (hs_budget_room(bytes))
		return CUDA_SUCCESS;
	if (kv && pool_takes(bytes)) {
		*place = HS_PLACE_HOST;
		return CUDA_SUCCESS;
	}
	if (hs_place_evict(bytes) && hs_budget_room(bytes))
		return CUDA_SUCCESS;
	if (kv || !pool_takes(bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!retry) {
		refused.bytes = bytes;
		refused.thread = pthread_self();
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*place = HS_PLACE_HOST;
	return CUDA_SUCCESS;
}

void hs_place_reap(struct hs_holding *h)
{
	CUcontext popped;
	const bool pushed = h->context && hs_driver.cuCtxPushCurrent_v2(h->context) == CUDA_SUCCESS;

	hs_cache_forget(&h->window);
	hs_range_destroy(h);
	hs_backing_destroy(&h->rest);
	hs_backing_destroy(&h->head);
	hs_arena_release(h->window.start - HS_WINDOW_LEAD);
	hs_holding_drop(h);
	if (pushed)
		hs_driver.cuCtxPopCurrent_v2(&popped);
}

/* Room for so much that leaves the engine its slack. */
static bool roomy(CUdevice device, size_t bytes)
{
	const size_t slack = hs_slack(device);

	return hs_budget_room(bytes + (slack == SIZE_MAX ? 0 : slack));
}

/* Room for so much, and for what else may come. */
static bool ample(size_t bytes)
{
	size_t total = 0;
	CUdevice device;

	if (hs_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
		hs_driver.cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS)
		return false;
	total = total < hs_options()->gpu_bytes ? total : hs_options()->gpu_bytes;
	return hs_budget_room(bytes + total / 8);
}

void hs_place_freed(void)
{
	int64_t now;

	if (atomic_load_explicit(&waiting, memory_order_relaxed)) {
		hs_memory_mark();
	} else if (atomic_load_explicit(&away, memory_order_relaxed)) {
		now = now_ns();
		if (now < atomic_load(&calm) || now < atomic_load(&next_look))
			return;
		atomic_store(&next_look, now + hs_place_calm_ns / 10);
		if (ample(hs_options()->window_bytes))
			hs_memory_mark();
	}
}

/* KV makes way for what must not be on the host. */
static bool make_room(size_t bytes)
{
	struct hs_holding *h;
	CUdevice device;

	if (hs_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
		return false;
	while (!hs_budget_room(bytes) && (h = victim(device, 2, 0)))
		move_out(h, bytes);
	return hs_budget_room(bytes);
}

static bool move_back(struct hs_holding *h)
{
	CUcontext popped;
	bool fits;

	if (hs_driver.cuCtxPushCurrent_v2(h->context) != CUDA_SUCCESS)
		return false;
	fits = make_room(h->rest.bytes);
	hs_driver.cuCtxPopCurrent_v2(&popped);
	if (!fits || hs_move(h, HS_PLACE_DEVICE) != CUDA_SUCCESS)
		return false;
	hs_debug("window %u: %.2f GiB moved to the device", h->window.id, h->rest.bytes / GIB);
	return true;
}

static size_t host_bytes(struct hs_holding *h)
{
	if (atomic_load(&h->window.place) != HS_PLACE_HOST)
		return 0;
	return h->ranges ? atomic_load(&h->window.host) : h->rest.bytes;
}

/* What hot rows lack when so much less is free for them, if KV that is on the device is to make
 * room for them: they serve all of it that is on the host, a window only itself. Until
 * they have three quarters of what they would take; and not where that is as much as the KV. */
static size_t lacking(CUdevice device, size_t less)
{
	const struct hs_cache_wants wants = hs_cache_wants(device);
	const size_t reserve = hs_memory_reserve(), free = reserve > less ? reserve - less : 0;
	const size_t has = wants.has + free - free / 8;

	if (hs_options()->place != HS_OPTION_AUTO || hs_slack(device) == SIZE_MAX ||
		wants.most > wants.bytes / 2 || has >= wants.most - wants.most / 4)
		return 0;
	return wants.most - has;
}

/* Room for what is on the host of a window, and afterwards for the engine's slack and for
 * hot rows: or for all that any of the device's windows has there, when nothing asks for
 * that any more. */
static bool welcome(struct hs_holding *home)
{
	const CUdevice device = home->window.device;
	const size_t bytes = host_bytes(home), slack = hs_slack(device);
	size_t all = 0;

	for (struct hs_holding *h = hs_holding_next(NULL); h; h = hs_holding_next(h))
		all += h->window.device == device ? host_bytes(h) : 0;
	return ample(all) ||
	       (ample(bytes + (slack == SIZE_MAX ? 0 : slack)) && !lacking(device, bytes));
}

/* KV on the host, of which nothing needs to be there. */
static void come_home(struct hs_holding *h)
{
	const size_t host = host_bytes(h);
	CUcontext popped;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (hs_driver.cuCtxPushCurrent_v2(h->context) != CUDA_SUCCESS)
		return;
	if (welcome(h))
		result = h->ranges ? hs_range_home(h, true) : hs_move(h, HS_PLACE_DEVICE);
	hs_driver.cuCtxPopCurrent_v2(&popped);
	if (result == CUDA_SUCCESS)
		hs_debug("window %u: %.2f GiB moved back to the device", h->window.id, host / GIB);
	else if (result != CUDA_ERROR_OUT_OF_MEMORY) /* it may have cost two copies */
		atomic_store(&calm, now_ns() + hs_place_calm_ns);
}

static void come_back(void)
{
	const bool due = now_ns() >= atomic_load(&calm);
	bool some = false;

	if (hs_options()->place != HS_OPTION_AUTO)
		return;
	for (struct hs_holding *h = hs_holding_next(NULL); h; h = hs_holding_next(h)) {
		if (h->doomed || atomic_load(&h->window.use) != HS_USE_KV ||
			atomic_load(&h->window.place) != HS_PLACE_HOST)
			continue;
		if (due)
			come_home(h);
		some |= atomic_load(&h->window.place) == HS_PLACE_HOST;
	}
	atomic_store(&away, some);
}

/* What does not belong on the host of a window in parts; for its sake others of
 * its parts leave the device. */
static bool part_back(struct hs_holding *h)
{
	const size_t strays = hs_range_strays(h);
	CUcontext popped;
	size_t moved;

	if (!strays)
		return true;
	/* Memory that is not the driver's stays in one piece: all of it to the
	 * device, and its rows out again if need be. */
	if (h->apart)
		return move_back(h);
	if (hs_driver.cuCtxPushCurrent_v2(h->context) != CUDA_SUCCESS)
		return false;
	if (!hs_budget_room(strays))
		hs_range_out(h, strays, &moved);
	hs_driver.cuCtxPopCurrent_v2(&popped);
	return hs_range_home(h, false) == CUDA_SUCCESS;
}

/* On the window's device: what the reserve, the engine's slack and hot rows need. */
static void keep_reserve(struct hs_holding *h)
{
	const CUdevice device = h->window.device;
	CUcontext popped;
	size_t lack;

	if (hs_driver.cuCtxPushCurrent_v2(h->context) != CUDA_SUCCESS)
		return;
	hs_slack_settle(device, hs_budget_used());
	while (!roomy(device, HS_GRANULE) && (h = victim(device, 2, 0))) {
		move_out(h, HS_GRANULE);
		hs_slack_settle(device, hs_budget_used());
	}
	while ((lack = lacking(device, 0)) && (h = victim(device, 2, 0))) {
		move_out(h, lack);
		hs_slack_settle(device, hs_budget_used());
	}
	hs_driver.cuCtxPopCurrent_v2(&popped);
}

void hs_place_balance(void)
{
	struct hs_holding *h;
	uint64_t seen = 0; /* devices */
	bool left = false;

	try_again();
	for (h = hs_holding_next(NULL); h; h = hs_holding_next(h)) {
		if (h->doomed)
			hs_place_reap(h);
		else if (hs_options()->place == HS_OPTION_HOST && evictable(h) == 2)
			move_out(h, SIZE_MAX);
	}
	for (h = hs_holding_next(NULL); h; h = hs_holding_next(h)) {
		const uint64_t device = 1ull << (h->window.device & 63);

		if (!h->doomed && !(seen & device))
			keep_reserve(h);
		seen |= h->doomed ? 0 : device;
	}
	for (h = hs_holding_next(NULL); h; h = hs_holding_next(h))
		if (!h->doomed &&
			(h->ranges || atomic_load(&h->window.use) != HS_USE_OTHER
					? !part_back(h)
					: atomic_load(&h->window.place) == HS_PLACE_HOST &&
						  !move_back(h)))
			left = true;
	atomic_store(&waiting, left);
	if (!left)
		come_back();
}
