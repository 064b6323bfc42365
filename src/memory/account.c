/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include "src/base/options.h"
#include "src/memory/account.h"
#include "src/memory/budget.h"

/* Open addressing, at most half full. Key 0: free. */
struct entry {
	uint64_t key;
	struct hs_account_held held;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct entry *entries;
static size_t room, count; /* room: a power of two */

static bool capped(void)
{
	return hs_options()->gpu_bytes != HS_AUTO;
}

/* Where the key is, or belongs. */
static size_t place_of(uint64_t key)
{
	size_t i = (key * 0x9e3779b97f4a7c15ull >> 32) & (room - 1);

	while (entries[i].key && entries[i].key != key)
		i = (i + 1) & (room - 1);
	return i;
}

static bool grow(void)
{
	struct entry *old = entries;
	const size_t before = room;

	if (count * 2 < room)
		return true;
	entries = calloc(room ? room * 2 : 1024, sizeof(*entries));
	if (!entries) {
		entries = old;
		return false;
	}
	room = room ? room * 2 : 1024;
	for (size_t i = 0; i < before; i++)
		if (old[i].key)
			entries[place_of(old[i].key)] = old[i];
	free(old);
	return true;
}

/* Those after it are put in again, so that no search ends too early. */
static void take_out(size_t i)
{
	entries[i].key = 0;
	count--;
	for (i = (i + 1) & (room - 1); entries[i].key; i = (i + 1) & (room - 1)) {
		const struct entry moved = entries[i];

		entries[i].key = 0;
		entries[place_of(moved.key)] = moved;
	}
}

static CUdevice which(CUdevice device)
{
	CUdevice current = 0;

	if (device == HS_ACCOUNT_HERE)
		hs_driver.cuCtxGetDevice(&current);
	return device == HS_ACCOUNT_HERE ? current : device;
}

CUresult hs_account_take(CUdevice device, size_t bytes)
{
	return !capped() || hs_budget_take(HS_PLACE_DEVICE, which(device), bytes)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_OUT_OF_MEMORY;
}

void hs_account_keep(CUresult result, CUdevice device, uint64_t key, size_t bytes)
{
	bool kept = false;

	if (!capped())
		return;
	device = which(device);
	if (result == CUDA_SUCCESS) {
		pthread_mutex_lock(&lock);
		kept = grow();
		if (kept) {
			struct entry *entry = &entries[place_of(key)];

			count += !entry->key;
			*entry = (struct entry){key, {bytes, device}};
		}
		pthread_mutex_unlock(&lock);
	}
	if (!kept)
		hs_budget_give(HS_PLACE_DEVICE, device, bytes);
}

struct hs_account_held hs_account_give(uint64_t key)
{
	struct hs_account_held held = {0, 0};
	size_t i;

	if (!capped() || !key)
		return held;
	pthread_mutex_lock(&lock);
	if (room) {
		i = place_of(key);
		if (entries[i].key) {
			held = entries[i].held;
			take_out(i);
		}
	}
	pthread_mutex_unlock(&lock);
	if (held.bytes)
		hs_budget_give(HS_PLACE_DEVICE, held.device, held.bytes);
	return held;
}
