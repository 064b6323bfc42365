/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <string.h>
#include "src/memory/budget.h"
#include "src/memory/window.h"

struct entry {
	_Atomic CUdeviceptr start, end;
	struct hs_window *_Atomic window;
};

struct table {
	_Atomic size_t count;
	struct entry entries[HS_WINDOW_MAX];
};

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct hs_holding holdings[HS_WINDOW_MAX];
static bool taken[HS_WINDOW_MAX];
static size_t last_taken = HS_WINDOW_MAX - 1, most_taken;

/* tables[generation & 1] is the current one; the other is written, then the
 * generation goes up. A reader whose generation still stands at the end read a
 * table that nobody wrote. */
static struct table tables[2];
static _Atomic unsigned generation;
static _Atomic CUdeviceptr highest; /* end of the highest window ever; 0: none yet */

void hs_memory_lock(void)
{
	pthread_mutex_lock(&lock);
}

bool hs_memory_trylock(void)
{
	return pthread_mutex_trylock(&lock) == 0;
}

void hs_memory_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* Round robin, so that a record is not used again soon after its window. */
struct hs_holding *hs_holding_take(void)
{
	for (size_t tries = 0; tries < HS_WINDOW_MAX; tries++) {
		struct hs_holding *holding;

		last_taken = (last_taken + 1) % HS_WINDOW_MAX;
		if (taken[last_taken])
			continue;
		taken[last_taken] = true;
		if (last_taken >= most_taken)
			most_taken = last_taken + 1;
		holding = &holdings[last_taken];
		holding->context = NULL;
		atomic_store(&holding->maps, 0);
		holding->head = holding->rest = (struct hs_backing){.kind = NULL};
		holding->ranges = NULL;
		holding->count = holding->layers = 0;
		holding->apart = holding->live = holding->doomed = false;
		holding->stuck = holding->unable = false;
		atomic_store(&holding->window.use, HS_USE_UNKNOWN);
		atomic_store(&holding->window.place, HS_PLACE_DEVICE);
		atomic_store(&holding->window.host, 0);
		atomic_store(&holding->window.virgin, true);
		atomic_store(&holding->window.filled, false);
		atomic_store(&holding->window.unseen, false);
		atomic_store(&holding->window.any_order, false);
		atomic_store(&holding->window.row, 0);
		atomic_store(&holding->window.tail, 0);
		holding->window.id = (uint32_t)last_taken;
		return holding;
	}
	return NULL;
}

void hs_holding_drop(struct hs_holding *holding)
{
	holding->live = holding->doomed = false;
	taken[holding - holdings] = false;
}

struct hs_holding *hs_holding_of(struct hs_window *window)
{
	return (struct hs_holding *)window;
}

struct hs_holding *hs_holding_next(struct hs_holding *holding)
{
	size_t i = holding ? (size_t)(holding - holdings) + 1 : 0;

	for (; i < most_taken; i++)
		if (taken[i] && (holdings[i].live || holdings[i].doomed))
			return &holdings[i];
	return NULL;
}

static void copy_entry(struct entry *to, struct entry *from)
{
	atomic_store_explicit(&to->start, from->start, memory_order_relaxed);
	atomic_store_explicit(&to->end, from->end, memory_order_relaxed);
	atomic_store_explicit(&to->window, from->window, memory_order_relaxed);
}

/* The other table becomes the current one without `out` and with `in`. */
static void replace(struct hs_window *out, struct hs_window *in)
{
	const unsigned now = atomic_load(&generation);
	struct table *old = &tables[now & 1], *fresh = &tables[~now & 1];
	const size_t count = old->count;
	size_t n = 0;

	/* Readers of the table before last notice: the generation has moved. */
	atomic_thread_fence(memory_order_seq_cst);
	for (size_t i = 0; i <= count; i++) {
		if (in && (i == count || old->entries[i].start > in->start)) {
			fresh->entries[n].start = in->start;
			fresh->entries[n].end = in->start + in->bytes;
			fresh->entries[n++].window = in;
			in = NULL;
		}
		if (i < count && old->entries[i].window != out)
			copy_entry(&fresh->entries[n++], &old->entries[i]);
	}
	fresh->count = n;
	atomic_store_explicit(&generation, now + 1, memory_order_release);
}

void hs_holding_publish(struct hs_holding *holding)
{
	const CUdeviceptr end = holding->window.start + holding->window.bytes;

	replace(NULL, &holding->window);
	holding->live = true;
	if (end > atomic_load(&highest))
		atomic_store(&highest, end);
}

void hs_holding_withdraw(struct hs_holding *holding)
{
	replace(&holding->window, NULL);
	hs_budget_kv_gone(holding->window.device, atomic_exchange(&holding->maps, 0));
	holding->live = false;
}

static struct hs_window *search(struct table *table, CUdeviceptr ptr)
{
	size_t low = 0, high = atomic_load_explicit(&table->count, memory_order_relaxed);
	struct entry *entry = NULL;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		entry = &table->entries[middle];
		if (ptr < atomic_load_explicit(&entry->start, memory_order_relaxed))
			high = middle;
		else if (ptr >= atomic_load_explicit(&entry->end, memory_order_relaxed))
			low = middle + 1;
		else
			return atomic_load_explicit(&entry->window, memory_order_relaxed);
	}
	return NULL;
}

struct hs_window *hs_window_find(CUdeviceptr ptr)
{
	struct hs_window *window;
	unsigned seen;

	if (ptr - HS_ARENA_BASE >=
		atomic_load_explicit(&highest, memory_order_relaxed) - HS_ARENA_BASE)
		return NULL;
	do {
		seen = atomic_load_explicit(&generation, memory_order_acquire);
		window = search(&tables[seen & 1], ptr);
		atomic_thread_fence(memory_order_acquire);
	} while (atomic_load_explicit(&generation, memory_order_relaxed) != seen);
	return window;
}

static bool zeros(struct hs_window *window)
{
	return atomic_load_explicit(&window->virgin, memory_order_relaxed) &&
	       atomic_load_explicit(&window->filled, memory_order_relaxed) &&
	       atomic_load_explicit(&window->use, memory_order_relaxed) == HS_USE_UNKNOWN;
}

/* device < 0: of all of them */
static void count(struct table *table, struct hs_memory_counts *counts, CUdevice device, bool all)
{
	const size_t n = atomic_load_explicit(&table->count, memory_order_relaxed);

	memset(counts->windows, 0, sizeof(counts->windows));
	memset(counts->window_bytes, 0, sizeof(counts->window_bytes));
	for (size_t i = 0; i < n; i++) {
		struct entry *entry = &table->entries[i];
		struct hs_window *window =
			atomic_load_explicit(&entry->window, memory_order_relaxed);
		size_t bytes, host;
		int place;

		/* NULL: a table that is being written: it is read again */
		if (!window || (device >= 0 && window->device != device) ||
			(!all && !zeros(window)))
			continue;
		place = atomic_load_explicit(&window->place, memory_order_relaxed);
		counts->windows[place]++;
		bytes = atomic_load_explicit(&entry->end, memory_order_relaxed) -
			atomic_load_explicit(&entry->start, memory_order_relaxed);
		host = atomic_load_explicit(&window->host, memory_order_relaxed);
		if (!host)
			host = place == HS_PLACE_HOST ? bytes : 0;
		counts->window_bytes[HS_PLACE_HOST] += host;
		counts->window_bytes[HS_PLACE_DEVICE] += bytes - host;
	}
}

static void count_current(struct hs_memory_counts *counts, CUdevice device, bool all)
{
	unsigned seen;

	do {
		seen = atomic_load_explicit(&generation, memory_order_acquire);
		count(&tables[seen & 1], counts, device, all);
		atomic_thread_fence(memory_order_acquire);
	} while (atomic_load_explicit(&generation, memory_order_relaxed) != seen);
}

void hs_window_read(struct hs_memory_counts *counts)
{
	count_current(counts, -1, true);
}

void hs_window_of(struct hs_memory_counts *counts, CUdevice device)
{
	count_current(counts, device, true);
}

void hs_window_zeros(struct hs_memory_counts *counts, CUdevice device)
{
	count_current(counts, device, false);
}

bool hs_window_any(void)
{
	return atomic_load_explicit(&highest, memory_order_relaxed) != 0;
}

void hs_window_span(CUdeviceptr *low, size_t *span)
{
	const CUdeviceptr end = atomic_load_explicit(&highest, memory_order_relaxed);

	*low = HS_ARENA_BASE;
	*span = end ? end - HS_ARENA_BASE : 0;
}

/* KV is the stronger finding: an unknown kernel may read KV too. */
void hs_window_reveal(struct hs_window *window, enum hs_use use, uint32_t row)
{
	int seen = atomic_load_explicit(&window->use, memory_order_relaxed);

	if (row && atomic_load_explicit(&window->row, memory_order_relaxed) != row)
		atomic_store_explicit(&window->row, row, memory_order_relaxed);
	if (use == HS_USE_UNKNOWN || seen == (int)use || seen == HS_USE_KV)
		return;
	do {
		if (seen == HS_USE_KV)
			return;
	} while (!atomic_compare_exchange_weak(&window->use, &seen, (int)use));
	atomic_store_explicit(&window->virgin, false, memory_order_relaxed);
	if (use == HS_USE_KV)
		atomic_store(&hs_holding_of(window)->maps,
			hs_budget_kv_seen(window->device, window->bytes, row));
	if (use == HS_USE_KV || atomic_load(&window->place) == HS_PLACE_HOST)
		hs_memory_mark();
}

void hs_window_each(void (*visit)(struct hs_window *window, void *data), void *data)
{
	hs_memory_lock();
	for (struct hs_holding *h = hs_holding_next(NULL); h; h = hs_holding_next(h))
		if (h->live)
			visit(&h->window, data);
	hs_memory_unlock();
}
