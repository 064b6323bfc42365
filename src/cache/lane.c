/* SPDX-License-Identifier: MIT */
#include "src/cache/lane.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include "kernels/abi.h"
#include "src/memory/memory.h"

#define BUCKETS 1024 /* a power of two, above HS_LANES */

static struct hs_lane_site lanes[HS_LANES];
static _Atomic uint32_t count;
static struct hs_lane_site *_Atomic buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread char self __attribute__((tls_model("initial-exec")));

/* A per-thread default stream is another one in each thread. */
static const void *thread_of(const struct hs_site *site)
{
	if (site->capturing)
		return NULL;
	if ((!site->stream && site->per_thread) || site->stream == CU_STREAM_PER_THREAD)
		return &self;
	return NULL;
}

static uint32_t hash(const struct hs_site *site, const void *thread, CUdevice device)
{
	uint64_t h = (uintptr_t)site->stream ^ site->capture_id * 0x9e3779b97f4a7c15u;

	h ^= (uintptr_t)thread ^ (uint64_t)device << 56;
	return (uint32_t)(h * 0xd6e8feb86659fd93u >> 40);
}

static bool same(const struct hs_lane_site *lane, const struct hs_site *site, const void *thread,
	CUdevice device)
{
	return lane->stream == site->stream && lane->capture_id == site->capture_id &&
	       lane->thread == thread && lane->device == device;
}

struct hs_lane_site *hs_lane_find(const struct hs_site *site, CUdevice device, bool create)
{
	const void *thread = thread_of(site);
	struct hs_lane_site *lane;
	uint32_t at = hash(site, thread, device), n;

	for (;; at++) {
		lane = atomic_load_explicit(&buckets[at % BUCKETS], memory_order_acquire);
		if (!lane)
			break;
		if (same(lane, site, thread, device))
			return lane;
	}
	if (!create)
		return NULL;
	pthread_mutex_lock(&lock);
	while ((lane = buckets[at % BUCKETS]) && !same(lane, site, thread, device))
		at++;
	n = atomic_load_explicit(&count, memory_order_relaxed);
	if (!lane && n < HS_LANES) {
		lane = &lanes[n];
		lane->stream = site->stream;
		lane->capture_id = site->capture_id;
		lane->thread = thread;
		lane->device = device;
		lane->id = n;
		pthread_mutex_init(&lane->lock, NULL);
		atomic_store_explicit(&count, n + 1, memory_order_release);
		atomic_store_explicit(&buckets[at % BUCKETS], lane, memory_order_release);
		/* What the only lane so far held was never released: the next
		 * safe moment does it for all (hs_cache_settle). */
		if (n)
			hs_memory_mark();
	}
	pthread_mutex_unlock(&lock);
	return lane;
}

struct hs_lane_site *hs_lane_next(struct hs_lane_site *last, unsigned long long capture_id)
{
	struct hs_lane_site *end = &lanes[atomic_load_explicit(&count, memory_order_acquire)];

	for (last = last ? last + 1 : lanes; last < end; last++) {
		if (last->capture_id == capture_id)
			return last;
	}
	return NULL;
}

void hs_lane_forget(CUdevice device)
{
	uint32_t n = atomic_load_explicit(&count, memory_order_acquire);

	for (uint32_t i = 0; i < n; i++) {
		if (lanes[i].device != device)
			continue;
		lanes[i].list_bytes = 0;
		lanes[i].count = lanes[i].evict = NULL;
	}
}

bool hs_lane_many(void)
{
	return atomic_load_explicit(&count, memory_order_relaxed) > 1;
}
