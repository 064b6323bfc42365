/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdatomic.h>
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/memory/budget.h"
#include "src/memory/bytes.h"
#include "src/memory/pool.h"
#include "src/memory/slack.h"
#include "src/memory/story.h"
#include "src/memory/transient.h"
#include "src/memory/window.h"

#define GIB ((double)(1ull << 30))
/* Lists, graphs, tables: of a small device relatively more. */
#define FIXED_LEAST ((size_t)32 << 20)
#define FIXED_MOST ((size_t)256 << 20)
#define SAMPLED ((size_t)16 << 20)
#define DEVICES 64

/* Of one device. */
struct book {
	_Atomic bool ready;   /* what follows up to `used` is known */
	_Atomic bool current; /* a context of it asked */
	_Atomic bool windows; /* there have been some on it */
	CUdevice device;
	size_t total; /* of the device, under the cap */
	size_t fixed; /* part of the reserve; 0 while windows may not live on the host */
	_Atomic size_t used;
	_Atomic size_t own;
	_Atomic size_t hot, mapped; /* the reserve's other parts, by the tokens told */
	_Atomic size_t maps;	    /* of the KV windows seen, if that is more */
	_Atomic size_t first_told;  /* 0: nothing told yet */
	_Atomic bool kv_seen;
};

static struct book books[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf: of measuring a device */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static size_t pool; /* of the process */
static _Atomic size_t pool_used;
static _Atomic bool pool_failed, asked; /* asked: any context */

static size_t reserved(struct book *book)
{
	return book->fixed + atomic_load(&book->hot) +
	       larger(atomic_load(&book->mapped), atomic_load(&book->maps));
}

static void measure_pool(void)
{
	const struct hs_options *options = hs_options();
	unsigned gpus = hs_pool_gpus("");
	int count = 1;

	if (options->place == HS_OPTION_DEVICE)
		return;
	if (!gpus && hs_driver.cuDeviceGetCount(&count) == CUDA_SUCCESS && count > 0)
		gpus = (unsigned)count;
	pool = hs_pool_size("", options->host_bytes, gpus) & ~(HS_GRANULE - 1);
}

static void measure(struct book *book)
{
	const bool maps = hs_driver_attribute(
		CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, book->device);

	if (hs_driver.cuDeviceTotalMem_v2(&book->total, book->device) != CUDA_SUCCESS)
		book->total = 0;
	book->total = smaller(book->total, hs_options()->gpu_bytes);
	if (pool && maps)
		book->fixed =
			smaller(larger(book->total / 64, smaller(FIXED_LEAST, book->total / 8)),
				FIXED_MOST);
}

/* The last is all those that we cannot tell apart. */
static struct book *book_of(CUdevice device)
{
	struct book *book = &books[device >= 0 && device < DEVICES ? device : DEVICES - 1];

	pthread_once(&once, measure_pool);
	if (atomic_load_explicit(&book->ready, memory_order_acquire))
		return book;
	pthread_mutex_lock(&lock);
	if (!atomic_load(&book->ready)) {
		book->device = device;
		measure(book);
		atomic_store_explicit(&book->ready, true, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	return book;
}

/* The current context's device. */
static struct book *here(void)
{
	CUdevice device;
	struct book *book;

	if (hs_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
		return book_of(0);
	book = book_of(device);
	if (!atomic_load_explicit(&book->current, memory_order_relaxed)) {
		atomic_store(&book->current, true);
		atomic_store(&asked, true);
	}
	return book;
}

static bool active(struct book *book)
{
	return book->fixed && hs_budget_active();
}

bool hs_budget_take(enum hs_place place, CUdevice device, size_t bytes)
{
	struct book *book = book_of(device);
	_Atomic size_t *used = place == HS_PLACE_HOST ? &pool_used : &book->used;
	const size_t limit = place == HS_PLACE_HOST ? pool : hs_options()->gpu_bytes;
	size_t before = atomic_load(used);

	do {
		if (bytes > above(limit, before))
			return false;
	} while (!atomic_compare_exchange_weak(used, &before, before + bytes));
	return true;
}

void hs_budget_give(enum hs_place place, CUdevice device, size_t bytes)
{
	atomic_fetch_sub(place == HS_PLACE_HOST ? &pool_used : &book_of(device)->used, bytes);
}

size_t hs_budget_pool_used(void)
{
	return atomic_load(&pool_used);
}

void hs_budget_serves(CUdevice device)
{
	atomic_store(&book_of(device)->windows, true);
}

/* Of so much of the pool what a device may count on: those that have windows share it. */
static size_t share(struct book *book, size_t bytes)
{
	size_t count = 0;

	for (size_t i = 0; i < DEVICES; i++)
		count += &books[i] == book ||
			 atomic_load_explicit(&books[i].windows, memory_order_relaxed);
	return bytes / count;
}

static size_t pool_left(void)
{
	return above(pool, hs_budget_pool_used());
}

/* Free memory of the current context's device, and never more than the cap
 * leaves. */
static CUresult device_left(struct book *book, size_t *left)
{
	const size_t cap = hs_options()->gpu_bytes;
	size_t free_bytes, all;
	const CUresult result = hs_driver.cuMemGetInfo_v2(&free_bytes, &all);

	if (result == CUDA_SUCCESS)
		*left = smaller(free_bytes, above(cap, atomic_load(&book->used)));
	return result;
}

/* Device memory that KV may have, when `left` is free: what holds nothing but
 * zeros is most likely KV already. */
static size_t for_kv(struct book *book, size_t left, struct hs_memory_counts *zeros)
{
	*zeros = (struct hs_memory_counts){.pool = 0};
	hs_window_zeros(zeros, book->device);
	return smaller(left + zeros->window_bytes[HS_PLACE_DEVICE] +
			       smaller(atomic_load(&book->own), reserved(book)),
		book->total);
}

static size_t small_only(struct book *book, size_t device)
{
	struct hs_memory_counts all = {.pool = 0}, zeros = {.pool = 0};

	hs_window_of(&all, book->device);
	hs_window_zeros(&zeros, book->device);
	return device +
	       above(all.window_bytes[HS_PLACE_DEVICE], zeros.window_bytes[HS_PLACE_DEVICE]);
}

/* Bytes of the device's windows that are on the host. */
static size_t hosted(struct book *book)
{
	struct hs_memory_counts all = {.pool = 0};

	hs_window_of(&all, book->device);
	return all.window_bytes[HS_PLACE_HOST];
}

static size_t comes_and_goes(struct book *book, size_t device)
{
	return hs_transient(book->device, device, small_only(book, device));
}

/* As long as no KV window is known: later ones find what they were promised. */
static void adjust(struct book *book, size_t left)
{
	const uint64_t row = hs_options()->row;
	struct hs_memory_counts zeros;
	size_t device, tokens, rows;

	device = for_kv(book, left, &zeros);
	device = above(device, comes_and_goes(book, device));
	rows = hs_story_promised(above(device, book->fixed));
	tokens = hs_story_told(device, share(book, pool_left()) + zeros.window_bytes[HS_PLACE_HOST],
			 book->fixed) /
		 (row + HS_STORY_KEY);
	atomic_store(&book->hot, rows ? rows : tokens / HS_HOT_ONE_IN * (row + HS_STORY_HOT));
	atomic_store(&book->mapped, tokens * HS_STORY_MAP);
}

void hs_budget_sample(size_t bytes)
{
	struct hs_memory_counts zeros;
	struct book *book = here();
	size_t left;

	if (bytes < SAMPLED || !active(book) || atomic_load(&book->kv_seen) ||
		device_left(book, &left) != CUDA_SUCCESS)
		return;
	left = for_kv(book, left, &zeros);
	hs_transient_seen(book->device, left, small_only(book, left));
}

void hs_budget_goes(size_t bytes)
{
	hs_budget_sample(bytes);
	hs_transient_window(here()->device, bytes);
}

void hs_budget_adjust(void)
{
	struct book *book = here();
	size_t left;

	if (book->fixed && !atomic_load(&book->kv_seen) && device_left(book, &left) == CUDA_SUCCESS)
		adjust(book, left);
}

static size_t kept(struct book *book)
{
	if (!atomic_load(&book->hot))
		hs_budget_adjust();
	return above(reserved(book), atomic_load(&book->own));
}

/* What hot rows and their maps leave alone beyond the reserve. */
static size_t not_ours(struct book *book, size_t slack)
{
	return larger(slack == SIZE_MAX ? 0 : slack + book->fixed, book->total / 16);
}

size_t hs_memory_reserve(void)
{
	struct book *book = here();
	const size_t bytes = kept(book), slack = hs_slack(book->device);
	size_t left;

	if (slack == SIZE_MAX || device_left(book, &left) != CUDA_SUCCESS)
		return bytes;
	return larger(bytes, above(left, not_ours(book, slack)));
}

size_t hs_budget_used(void)
{
	struct book *book = here();
	size_t left;

	if (device_left(book, &left) != CUDA_SUCCESS)
		return 0;
	return above(book->total, left + atomic_load(&book->own));
}

size_t hs_budget_grown(CUdevice device)
{
	struct book *book = book_of(device);

	return above(atomic_load(&book->own), reserved(book));
}

bool hs_budget_own(size_t bytes, bool hot)
{
	struct book *book = here();
	size_t left;

	/* Lists and graphs go on where hot rows have all of the reserve. */
	if (bytes > kept(book) && device_left(book, &left) == CUDA_SUCCESS &&
		bytes > larger(above(left, not_ours(book, hs_slack_owed(book->device))),
				hot ? 0 : smaller(left / 2, book->fixed)))
		return false;
	atomic_fetch_add(&book->own, bytes);
	return true;
}

void hs_budget_disown(CUdevice device, size_t bytes)
{
	atomic_fetch_sub(&book_of(device)->own, bytes);
}

void hs_budget_read(struct hs_memory_counts *counts)
{
	counts->pool = atomic_load(&pool_failed) ? 0 : pool;
	counts->pool_used = hs_budget_pool_used();
	counts->reserve = counts->own = 0;
	for (size_t i = 0; i < DEVICES; i++) {
		counts->reserve += reserved(&books[i]);
		counts->own += atomic_load(&books[i].own);
	}
}

bool hs_budget_active(void)
{
	pthread_once(&once, measure_pool);
	return pool > 0 && !atomic_load(&pool_failed);
}

bool hs_budget_room(size_t bytes)
{
	struct book *book = here();
	size_t left;

	if (!active(book) || device_left(book, &left) != CUDA_SUCCESS)
		return true;
	return bytes <= above(left, above(reserved(book), atomic_load(&book->own)));
}

bool hs_budget_fits(size_t bytes)
{
	size_t left;

	return device_left(here(), &left) != CUDA_SUCCESS || bytes <= left;
}

bool hs_budget_pool(size_t bytes)
{
	return hs_budget_active() && bytes <= pool_left();
}

void hs_budget_pool_failed(void)
{
	atomic_store(&pool_failed, true);
}

size_t hs_budget_kv_seen(CUdevice device, size_t bytes, uint32_t row)
{
	struct book *book = book_of(device);
	const size_t maps = bytes / (row ? row : hs_options()->row) * HS_STORY_MAP;

	atomic_fetch_add(&book->maps, maps);
	atomic_store_explicit(&book->kv_seen, true, memory_order_relaxed);
	return maps;
}

void hs_budget_kv_gone(CUdevice device, size_t maps)
{
	atomic_fetch_sub(&book_of(device)->maps, maps);
}

static size_t story_total(struct book *book)
{
	return active(book) ? hs_story_told(book->total, share(book, pool), book->fixed)
			    : book->total;
}

/* Whether anything but the driver's own word is told of it. */
static bool tells(struct book *book)
{
	return book->total && (active(book) || hs_options()->gpu_bytes != HS_AUTO);
}

/* left: of the device, under the cap. What comes and goes is in it: vLLM takes
 * that off by itself, SGLang a share of all. */
static size_t tell(struct book *book, size_t left)
{
	size_t told = smaller(left, book->total), transient, none = 0;
	struct hs_slack_story story;

	if (active(book) && !atomic_load(&book->kv_seen)) {
		adjust(book, left);
		/* As if nothing of the reserve were used, which is ours to use. */
		told = smaller(
			left + smaller(atomic_load(&book->own), reserved(book)), book->total);
		story.device = told;
		story.transient = hs_transient_most(book->device, told);
		transient = comes_and_goes(book, told);
		told = hs_story_told(told - transient, share(book, pool_left()), book->fixed) +
		       transient;
		if (!atomic_compare_exchange_strong(&book->first_told, &none, told))
			told = smaller(told, none);
		story.told = told;
		story.taken = above(book->total, left + atomic_load(&book->own)) + hosted(book);
		hs_slack_told(book->device, &story);
	}
	return told;
}

size_t hs_budget_told(void)
{
	return hs_slack_last(here()->device).told;
}

/* Other devices than those that we use may be full of another process. */
bool hs_memory_retell(CUdevice of, uint64_t *free, uint64_t *all)
{
	struct book *book = book_of(of);

	if (!tells(book) || !(asked ? atomic_load(&book->current) : of == 0))
		return false;
	*free = tell(
		book, smaller(*free, above(hs_options()->gpu_bytes, atomic_load(&book->used))));
	*all = story_total(book);
	return true;
}

CUresult hs_memory_info(size_t *free, size_t *all)
{
	struct book *book = here();
	size_t left;
	CUresult result;

	if (!tells(book))
		return hs_driver.cuMemGetInfo_v2(free, all);
	result = device_left(book, &left);
	if (result != CUDA_SUCCESS)
		return result;
	left = tell(book, left);
	if (free)
		*free = left;
	if (all)
		*all = story_total(book);
	return CUDA_SUCCESS;
}

CUresult hs_memory_total(size_t *bytes, CUdevice which)
{
	const CUresult result = hs_driver.cuDeviceTotalMem_v2(bytes, which);
	struct book *book;

	if (result == CUDA_SUCCESS && tells(book = book_of(which)))
		*bytes = story_total(book);
	return result;
}

void hs_budget_say(CUdevice device)
{
	static atomic_flag said[DEVICES];
	struct book *book = book_of(device);
	const struct hs_options *options = hs_options();

	if (atomic_flag_test_and_set(&said[book - books]))
		return;
	hs_info("memory: host pool %.2f GiB, device %d: %.2f GiB%s, reserve %.2f GiB, KV placed "
		"%s, told %.2f GiB",
		pool / GIB, device, book->total / GIB,
		options->gpu_bytes == HS_AUTO ? "" : " (HISPARSE_GPU_GIB)", reserved(book) / GIB,
		(const char *[]){"auto", "host", "device"}[options->place],
		story_total(book) / GIB);
}
