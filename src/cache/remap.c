/* SPDX-License-Identifier: MIT */
#include "src/cache/remap.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include "src/cache/device.h"
#include "src/memory/memory.h"

#define POOL_BYTES ((size_t)16 << 20)
#define LOW (POOL_BYTES / 4) /* so little left: another one is taken ahead */
#define ALIGN ((size_t)256)
#define SITES 8192 /* a power of two */

struct pool {
	CUdeviceptr at;
	size_t left;
	CUdeviceptr next; /* POOL_BYTES, taken ahead; 0: none */
	bool asked;	  /* for a safe moment */
};

struct site {
	CUdeviceptr list;
	CUstream stream;
	CUdevice device;
	CUdeviceptr buffer;
	size_t bytes;
};

static struct pool pools[HS_DEVICES];
static struct site sites[SITES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Once, and again when that moment brought one. */
static void ask(struct pool *pool)
{
	if (!pool->asked)
		hs_memory_mark();
	pool->asked = true;
}

static int cut(CUdeviceptr *out, CUdevice device, size_t bytes)
{
	struct pool *pool = &pools[device];
	CUdeviceptr fresh;
	size_t most;
	int error;

	bytes = (bytes + ALIGN - 1) & ~(ALIGN - 1);
	if (bytes > pool->left && bytes <= POOL_BYTES && pool->next) {
		pool->at = pool->next;
		pool->left = POOL_BYTES;
		pool->next = 0;
	}
	if (bytes > pool->left) {
		most = bytes > POOL_BYTES ? bytes : POOL_BYTES;
		error = hs_memory_own(&fresh, most);
		if (error) {
			ask(pool);
			return error;
		}
		if (most - bytes < pool->left) {
			/* A big list: what is left of the pool serves longer. */
			*out = fresh;
			return 0;
		}
		pool->at = fresh;
		pool->left = most;
	}
	*out = pool->at;
	pool->at += bytes;
	pool->left -= bytes;
	if (pool->left < LOW && !pool->next)
		ask(pool);
	return 0;
}

int hs_remap_ready(CUdevice device)
{
	struct pool *pool;
	int error = 0;

	if (device < 0 || device >= HS_DEVICES)
		return -ENODEV;
	pool = &pools[device];
	pthread_mutex_lock(&lock);
	if (!pool->at) {
		error = hs_memory_own(&pool->at, POOL_BYTES);
		if (!error)
			pool->left = POOL_BYTES;
	} else if (pool->left < LOW && !pool->next && !hs_memory_own(&pool->next, POOL_BYTES)) {
		pool->asked = false;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

void hs_remap_forget(CUdevice device)
{
	pthread_mutex_lock(&lock);
	pools[device] = (struct pool){0};
	/* Emptied, not freed: others may have been entered behind them. */
	for (unsigned i = 0; i < SITES; i++) {
		if (sites[i].device == device)
			sites[i].bytes = 0;
	}
	hs_lane_forget(device);
	pthread_mutex_unlock(&lock);
}

static int find_eager(CUdeviceptr *out, struct hs_lane_site *lane, size_t bytes)
{
	size_t room = ALIGN;
	CUdeviceptr buffer;
	int error;

	if (bytes > lane->list_bytes) {
		/* The old buffer may still be read; it stays. Sizes double, so
		 * all that stay are no more than the last. */
		while (room < bytes)
			room *= 2;
		error = cut(&buffer, lane->device, room);
		if (error)
			return error;
		lane->list = buffer;
		lane->list_bytes = room;
	}
	*out = lane->list;
	return 0;
}

static int find_captured(
	CUdeviceptr *out, struct hs_lane_site *lane, CUdeviceptr list, size_t bytes)
{
	uint64_t h = (list ^ (uintptr_t)lane->stream) * 0x9e3779b97f4a7c15u >> 32;
	struct site *site = NULL;
	CUdeviceptr buffer;
	int error;

	for (unsigned i = 0; i < SITES; i++) {
		site = &sites[(h + i) % SITES];
		if (!site->list)
			break;
		if (site->list == list && site->stream == lane->stream &&
			site->device == lane->device && site->bytes >= bytes) {
			*out = site->buffer;
			return 0;
		}
	}
	if (site->list)
		return -ENOSPC;
	error = cut(&buffer, lane->device, bytes);
	if (error)
		return error;
	*site = (struct site){list, lane->stream, lane->device, buffer, bytes};
	*out = buffer;
	return 0;
}

int hs_remap_find(CUdeviceptr *out, struct hs_lane_site *lane, CUdeviceptr list, size_t bytes)
{
	int error;

	pthread_mutex_lock(&lock);
	if (lane->capture_id)
		error = find_captured(out, lane, list, bytes);
	else
		error = find_eager(out, lane, bytes);
	pthread_mutex_unlock(&lock);
	return error;
}
