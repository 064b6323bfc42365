/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "src/base/log.h"
#include "src/memory/arena.h"
#include "src/memory/memory.h"

/* Steps before giving up, over foreign mappings and to what the driver takes. */
#define TRIES 32

/* Driver 580 does not take every multiple of the granule as a hint. From one
 * refusal to the next we ask for rounder addresses, and stay with what worked. */
#define ROUND_FIRST ((CUdeviceptr)32 << 20)
#define ROUND_LAST ((CUdeviceptr)4 << 30)
static CUdeviceptr round_to = HS_GRANULE;

struct span {
	CUdeviceptr start;
	size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct span *spans; /* by address; ours and nobody else's */
static size_t count, room;

static CUdeviceptr rounded(CUdeviceptr address)
{
	return (address + round_to - 1) & ~(round_to - 1);
}

/* The lowest round address >= from where bytes are free among ours; *at: its
 * place in the list. */
static CUdeviceptr first_fit(CUdeviceptr from, size_t bytes, size_t *at)
{
	size_t i;

	from = rounded(from);
	for (i = 0; i < count; i++) {
		if (spans[i].start + spans[i].bytes <= from)
			continue;
		if (spans[i].start >= from && spans[i].start - from >= bytes)
			break;
		from = rounded(spans[i].start + spans[i].bytes);
	}
	*at = i;
	return from;
}

static bool grow(void)
{
	struct span *more;

	if (count < room)
		return true;
	more = realloc(spans, (room + 64) * sizeof(*spans));
	if (!more)
		return false;
	spans = more;
	room += 64;
	return true;
}

CUresult hs_arena_reserve(CUdeviceptr *out, size_t bytes, enum hs_arena_part part)
{
	const CUdeviceptr hot = HS_ARENA_BASE + HS_ARENA_HOT;
	const CUdeviceptr end = part == HS_ARENA_WINDOWS ? hot : hot + HS_ARENA_HOT;
	CUdeviceptr from = part == HS_ARENA_WINDOWS ? HS_ARENA_BASE : hot, got = 0;
	CUresult result = CUDA_ERROR_MAP_FAILED;
	size_t at;

	pthread_mutex_lock(&lock);
	for (int tries = 0; tries < TRIES && grow(); tries++) {
		from = first_fit(from, bytes, &at);
		if (bytes > end - from || from >= end)
			break;
		if (hs_driver.cuMemAddressReserve(&got, bytes, HS_GRANULE, from, 0) != CUDA_SUCCESS)
			got = 0;
		if (got == from) {
			memmove(spans + at + 1, spans + at, (count - at) * sizeof(*spans));
			spans[at] = (struct span){from, bytes};
			count++;
			*out = from;
			result = CUDA_SUCCESS;
			break;
		}
		if (got)
			hs_driver.cuMemAddressFree(got, bytes);
		hs_debug("address 0x%llx for %zu MiB: the driver offers 0x%llx",
			(unsigned long long)from, bytes >> 20, (unsigned long long)got);
		if (round_to < ROUND_LAST)
			round_to = round_to < ROUND_FIRST ? ROUND_FIRST : round_to * 4;
		from += round_to;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

void hs_arena_release(CUdeviceptr start)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < count; i++) {
		if (spans[i].start != start)
			continue;
		hs_driver.cuMemAddressFree(start, spans[i].bytes);
		memmove(spans + i, spans + i + 1, (count - i - 1) * sizeof(*spans));
		count--;
		break;
	}
	pthread_mutex_unlock(&lock);
}
