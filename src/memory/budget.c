/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdatomic.h>
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/memory/budget.h"
#include "src/memory/pool.h"
#include "src/memory/window.h"

#define GIB ((double)(1ull << 30))
/* Bytes per token and layer that stay on the device: the indexer's key
 * (DeepSeek-V3.2: 128 + 4) and our map's entry. */
#define KEY_BYTES 132
#define MAP_BYTES 4
/* What the cache notes of a hot row. */
#define HOT_BYTES 28
/* Lists, graphs, tables: of a small device relatively more. */
#define FIXED_LEAST ((size_t)32 << 20)
#define FIXED_MOST ((size_t)256 << 20)
#define SAMPLED ((size_t)16 << 20)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CUdevice device;
static size_t total; /* of the device, under the cap */
static size_t fixed; /* part of the reserve; 0 while windows may not live on the host */
static size_t pool;
static _Atomic size_t used[2]; /* by enum hs_place */
static _Atomic size_t own;
static _Atomic size_t hot, mapped;	       /* the reserve's other parts, by the tokens told */
static _Atomic size_t maps;		       /* of the KV windows seen, if that is more */
static _Atomic size_t lowest = SIZE_MAX;       /* that was left for KV */
static _Atomic size_t lowest_small = SIZE_MAX; /* the same if there were no windows */
static _Atomic size_t largest;		       /* window that went */
static _Atomic size_t first_told, last_told;   /* 0: nothing told yet */
static _Atomic bool kv_seen, pool_failed;

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

static size_t above(size_t a, size_t b)
{
	return a > b ? a - b : 0;
}

static size_t reserved(void)
{
	return fixed + atomic_load(&hot) + larger(atomic_load(&mapped), atomic_load(&maps));
}

static void measure(void)
{
	const struct hs_options *options = hs_options();
	unsigned gpus = hs_pool_gpus("");
	int count = 1, maps = 0;

	if (hs_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
		device = 0;
	if (hs_driver.cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS)
		total = 0;
	total = smaller(total, options->gpu_bytes);
	hs_driver.cuDeviceGetAttribute(
		&maps, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
	if (options->place == HS_OPTION_DEVICE || !total || !maps)
		return;
	if (!gpus && hs_driver.cuDeviceGetCount(&count) == CUDA_SUCCESS && count > 0)
		gpus = (unsigned)count;
	pool = hs_pool_size("", options->host_bytes, gpus) & ~(HS_GRANULE - 1);
	if (pool)
		fixed = smaller(larger(total / 64, smaller(FIXED_LEAST, total / 8)), FIXED_MOST);
}

static void ready(void)
{
	pthread_once(&once, measure);
}

bool hs_budget_take(enum hs_place place, size_t bytes)
{
	size_t limit, before = atomic_load(&used[place]);

	ready();
	limit = place == HS_PLACE_HOST ? pool : hs_options()->gpu_bytes;
	do {
		if (bytes > above(limit, before))
			return false;
	} while (!atomic_compare_exchange_weak(&used[place], &before, before + bytes));
	return true;
}

void hs_budget_give(enum hs_place place, size_t bytes)
{
	atomic_fetch_sub(&used[place], bytes);
}

size_t hs_budget_used(enum hs_place place)
{
	return atomic_load(&used[place]);
}

/* Free memory of the current context's device, and never more than the cap
 * leaves. */
static CUresult device_left(size_t *left)
{
	const size_t cap = hs_options()->gpu_bytes;
	size_t free_bytes, all;
	const CUresult result = hs_driver.cuMemGetInfo_v2(&free_bytes, &all);

	if (result == CUDA_SUCCESS)
		*left = smaller(free_bytes, above(cap, hs_budget_used(HS_PLACE_DEVICE)));
	return result;
}

/* The hot rows of all layers, where both numbers were given; 0: by the tokens. They
 * leave half of the room to KV. */
static size_t promised(size_t room)
{
	const struct hs_options *options = hs_options();

	if (options->slots == HS_AUTO || options->layers == HS_AUTO)
		return 0;
	return smaller(options->slots * options->layers * (options->row + HOT_BYTES), room / 2);
}

/* What is told for so much free memory: the most for which the device holds keys,
 * maps and hot rows, and the device and the pool all of it. */
static size_t story(size_t device, size_t host)
{
	const uint64_t row = hs_options()->row;
	const uint64_t told = (row + KEY_BYTES) * HS_HOT_ONE_IN;
	const size_t rows = promised(above(device, fixed));
	const uint64_t held =
		(KEY_BYTES + MAP_BYTES) * HS_HOT_ONE_IN + (rows ? 0 : row + HOT_BYTES);
	const uint64_t room = above(device, fixed) - rows;

	return smaller(room * told / held, (room + host) * told / (held + row * HS_HOT_ONE_IN));
}

/* Device memory that KV may have, when `left` is free: what holds nothing but
 * zeros is most likely KV already. */
static size_t for_kv(size_t left, struct hs_memory_counts *zeros)
{
	*zeros = (struct hs_memory_counts){.pool = 0};
	hs_window_zeros(zeros);
	return smaller(left + zeros->window_bytes[HS_PLACE_DEVICE] +
			       smaller(atomic_load(&own), reserved()),
		total);
}

static size_t small_only(size_t device)
{
	struct hs_memory_counts all = {.pool = 0}, zeros = {.pool = 0};

	hs_window_read(&all);
	hs_window_zeros(&zeros);
	return device +
	       above(all.window_bytes[HS_PLACE_DEVICE], zeros.window_bytes[HS_PLACE_DEVICE]);
}

/* What has been in use beyond what is now: it will be again. Of windows an allocator
 * hoards some, and gives them back when memory is short: the largest counts, or
 * half of them. */
static size_t comes_and_goes(size_t device)
{
	const size_t fall = above(device, atomic_load(&lowest));
	const size_t small = smaller(fall, above(small_only(device), atomic_load(&lowest_small)));
	const size_t windows = fall - small;

	return small + smaller(windows, larger(windows / 2, atomic_load(&largest)));
}

/* As long as no KV window is known: later ones find what they were promised. */
static void adjust(size_t left)
{
	const uint64_t row = hs_options()->row;
	struct hs_memory_counts zeros;
	size_t device, tokens, rows;

	device = for_kv(left, &zeros);
	device = above(device, comes_and_goes(device));
	rows = promised(above(device, fixed));
	tokens = story(device, above(pool, hs_budget_used(HS_PLACE_HOST)) +
				       zeros.window_bytes[HS_PLACE_HOST]) /
		 (row + KEY_BYTES);
	atomic_store(&hot, rows ? rows : tokens / HS_HOT_ONE_IN * (row + HOT_BYTES));
	atomic_store(&mapped, tokens * MAP_BYTES);
}

static void least(_Atomic size_t *least, size_t value)
{
	size_t before = atomic_load(least);

	while (value < before && !atomic_compare_exchange_weak(least, &before, value))
		;
}

void hs_budget_sample(size_t bytes)
{
	struct hs_memory_counts zeros;
	size_t left;

	if (bytes < SAMPLED || !hs_budget_active() || atomic_load(&kv_seen) ||
		device_left(&left) != CUDA_SUCCESS)
		return;
	left = for_kv(left, &zeros);
	least(&lowest, left);
	least(&lowest_small, small_only(left));
}

void hs_budget_goes(size_t bytes)
{
	size_t before = atomic_load(&largest);

	hs_budget_sample(bytes);
	while (bytes > before && !atomic_compare_exchange_weak(&largest, &before, bytes))
		;
}

void hs_budget_adjust(void)
{
	size_t left;

	ready();
	if (fixed && !atomic_load(&kv_seen) && device_left(&left) == CUDA_SUCCESS)
		adjust(left);
}

size_t hs_memory_reserve(void)
{
	ready();
	if (!atomic_load(&hot))
		hs_budget_adjust();
	return above(reserved(), atomic_load(&own));
}

bool hs_budget_own(size_t bytes)
{
	size_t left;

	if (bytes > hs_memory_reserve() && device_left(&left) == CUDA_SUCCESS &&
		bytes > above(left, total / 16))
		return false;
	atomic_fetch_add(&own, bytes);
	return true;
}

void hs_budget_disown(size_t bytes)
{
	atomic_fetch_sub(&own, bytes);
}

void hs_budget_read(struct hs_memory_counts *counts)
{
	counts->pool = atomic_load(&pool_failed) ? 0 : pool;
	counts->pool_used = hs_budget_used(HS_PLACE_HOST);
	counts->reserve = reserved();
	counts->own = atomic_load(&own);
}

bool hs_budget_active(void)
{
	ready();
	return pool > 0 && !atomic_load(&pool_failed);
}

bool hs_budget_room(size_t bytes)
{
	size_t left;

	if (!hs_budget_active() || device_left(&left) != CUDA_SUCCESS)
		return true;
	return bytes <= above(left, above(reserved(), atomic_load(&own)));
}

bool hs_budget_fits(size_t bytes)
{
	size_t left;

	return device_left(&left) != CUDA_SUCCESS || bytes <= left;
}

bool hs_budget_pool(size_t bytes)
{
	return hs_budget_active() && bytes <= above(pool, hs_budget_used(HS_PLACE_HOST));
}

void hs_budget_pool_failed(void)
{
	atomic_store(&pool_failed, true);
}

size_t hs_budget_kv_seen(size_t bytes, uint32_t row)
{
	const size_t share = bytes / (row ? row : hs_options()->row) * MAP_BYTES;

	atomic_fetch_add(&maps, share);
	atomic_store_explicit(&kv_seen, true, memory_order_relaxed);
	return share;
}

void hs_budget_kv_gone(size_t share)
{
	atomic_fetch_sub(&maps, share);
}

static size_t story_total(void)
{
	return hs_budget_active() ? story(total, pool) : total;
}

/* left: of the device, under the cap. What comes and goes is in it: vLLM takes
 * that off by itself, SGLang a share of all. */
static size_t tell(size_t left)
{
	size_t told = smaller(left, total), transient, none = 0;

	if (hs_budget_active() && !atomic_load(&kv_seen)) {
		adjust(left);
		/* As if nothing of the reserve were used, which is ours to use. */
		told = smaller(left + smaller(atomic_load(&own), reserved()), total);
		transient = comes_and_goes(told);
		told = story(told - transient, above(pool, hs_budget_used(HS_PLACE_HOST))) +
		       transient;
		if (!atomic_compare_exchange_strong(&first_told, &none, told))
			told = smaller(told, none);
		atomic_store(&last_told, told);
	}
	return told;
}

size_t hs_budget_told(void)
{
	return atomic_load(&last_told);
}

bool hs_memory_retell(CUdevice *of, uint64_t *free, uint64_t *all)
{
	ready();
	if (!total || (!hs_budget_active() && hs_options()->gpu_bytes == HS_AUTO))
		return false;
	*of = device;
	if (free)
		*free = tell(smaller(
			*free, above(hs_options()->gpu_bytes, hs_budget_used(HS_PLACE_DEVICE))));
	if (all)
		*all = story_total();
	return true;
}

CUresult hs_memory_info(size_t *free, size_t *all)
{
	size_t left;
	CUresult result;

	ready();
	if (!total || (!hs_budget_active() && hs_options()->gpu_bytes == HS_AUTO))
		return hs_driver.cuMemGetInfo_v2(free, all);
	result = device_left(&left);
	if (result != CUDA_SUCCESS)
		return result;
	left = tell(left);
	if (free)
		*free = left;
	if (all)
		*all = story_total();
	return CUDA_SUCCESS;
}

CUresult hs_memory_total(size_t *bytes, CUdevice which)
{
	size_t of_device = 0;
	const CUresult result = hs_driver.cuDeviceTotalMem_v2(bytes ? &of_device : NULL, which);

	if (result != CUDA_SUCCESS)
		return result;
	ready();
	/* Another model of GPU beside ours keeps its own number. */
	*bytes = smaller(of_device, hs_options()->gpu_bytes) == total ? story_total() : of_device;
	return CUDA_SUCCESS;
}

void hs_budget_say(void)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	const struct hs_options *options = hs_options();
	static const char *const places[] = {"auto", "host", "device"};

	if (atomic_flag_test_and_set(&said))
		return;
	ready();
	hs_info("memory: host pool %.2f GiB, device %.2f GiB%s, reserve %.2f GiB, KV placed %s, "
		"told %.2f GiB",
		pool / GIB, total / GIB, options->gpu_bytes == HS_AUTO ? "" : " (HISPARSE_GPU_GIB)",
		reserved() / GIB, places[options->place], story_total() / GIB);
}
