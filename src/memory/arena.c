/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "src/base/log.h"
#include "src/memory/arena.h"
#include "src/memory/memory.h"
#include "src/memory/steer.h"

/* Steps before giving up, over foreign mappings and to what the driver takes. */
#define TRIES 32
#define GAPS 32 /* of a size that is asked for, 1 GiB at least */

/* When another address is offered we ask for rounder ones, and stay with what
 * worked: other drivers may want more than 580 does. */
#define ROUND_LAST ((CUdeviceptr)4 << 30)
static CUdeviceptr round_to = HS_ARENA_STEP;

struct span {
	CUdeviceptr start;
	size_t bytes;
	size_t held; /* of them, what the driver has reserved for us */
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

/*
 * The driver's reservation of exactly these addresses; *got: what it offers.
 * Driver 580.159.04 looks among the addresses that it keeps in stock before it
 * looks at a hint, so a small size gets its hint only once no gap there is large
 * enough (in PyTorch processes gaps of some 200 MiB were seen). We fill the gaps
 * meanwhile: addresses cost nothing.
 */
static bool hold(CUdeviceptr start, size_t bytes, CUdeviceptr *got)
{
	CUdeviceptr gaps[GAPS];
	CUresult result;
	size_t n = 0;

	for (;;) {
		*got = 0;
		result = hs_driver.cuMemAddressReserve(got, bytes, HS_GRANULE, start, 0);
		if (result != CUDA_SUCCESS)
			*got = 0;
		if (!*got || *got == start || n == GAPS)
			break;
		gaps[n++] = *got;
	}
	if (*got != start)
		hs_debug("address 0x%llx for %zu MiB: the driver offers 0x%llx (CUDA error %d)",
			(unsigned long long)start, bytes >> 20, (unsigned long long)*got, result);
	if (*got && *got != start)
		hs_driver.cuMemAddressFree(*got, bytes);
	while (n)
		hs_driver.cuMemAddressFree(gaps[--n], bytes);
	return *got == start;
}

CUresult hs_arena_reserve(CUdeviceptr *out, size_t bytes, enum hs_arena_part part)
{
	const CUdeviceptr hot = HS_ARENA_BASE + HS_ARENA_HOT;
	const CUdeviceptr end = part == HS_ARENA_WINDOWS ? hot : hot + HS_ARENA_HOT;
	CUdeviceptr from = part == HS_ARENA_WINDOWS ? HS_ARENA_BASE : hot, got;
	CUresult result = CUDA_ERROR_MAP_FAILED;
	size_t at;

	bytes = (bytes + HS_ARENA_STEP - 1) & ~(HS_ARENA_STEP - 1);
	if (part == HS_ARENA_WINDOWS)
		bytes += HS_STEER_SLACK;
	pthread_mutex_lock(&lock);
	for (int tries = 0; tries < TRIES && grow(); tries++) {
		from = first_fit(from, bytes, &at);
		if (bytes > end - from || from >= end)
			break;
		if (hold(from, bytes, &got)) {
			memmove(spans + at + 1, spans + at, (count - at) * sizeof(*spans));
			spans[at] = (struct span){from, bytes, bytes};
			count++;
			*out = from;
			result = CUDA_SUCCESS;
			break;
		}
		from += round_to;
		if (got && round_to < ROUND_LAST)
			round_to *= 4;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

/* The place in the list, or count. */
static size_t find(CUdeviceptr start)
{
	size_t i;

	for (i = 0; i < count && spans[i].start != start; i++)
		;
	return i;
}

/* A reservation is freed and made as a whole (580: only at its start, with its
 * size). */
static bool rehold(struct span *span, size_t bytes)
{
	const size_t before = span->held;
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr got;

	if (before == bytes)
		return true;
	if (before)
		result = hs_driver.cuMemAddressFree(span->start, before);
	if (result != CUDA_SUCCESS) {
		hs_debug("address 0x%llx for %zu MiB: not given back (CUDA error %d)",
			(unsigned long long)span->start, before >> 20, result);
		return false;
	}
	span->held = hold(span->start, bytes, &got)		 ? bytes
		     : before && hold(span->start, before, &got) ? before
								 : 0;
	return span->held == bytes;
}

CUresult hs_arena_cut(CUdeviceptr start, bool cut)
{
	bool done;
	size_t i;

	pthread_mutex_lock(&lock);
	i = find(start);
	done = i < count && rehold(&spans[i], cut ? HS_ARENA_STEP : spans[i].bytes);
	pthread_mutex_unlock(&lock);
	return done ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
}

void hs_arena_release(CUdeviceptr start)
{
	size_t i;

	pthread_mutex_lock(&lock);
	i = find(start);
	if (i < count) {
		if (spans[i].held)
			hs_driver.cuMemAddressFree(start, spans[i].held);
		memmove(spans + i, spans + i + 1, (count - i - 1) * sizeof(*spans));
		count--;
	}
	pthread_mutex_unlock(&lock);
}
