/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include "src/memory/arena.h"
#include "src/memory/budget.h"
#include "src/memory/own.h"
#include "src/memory/place.h"
#include "src/memory/settle.h"
#include "src/memory/window.h"

#define CONTEXTS 64
#define ROW_ALIGN 16

struct block {
	CUdeviceptr ptr, reserved; /* reserved: of hot areas */
	size_t bytes;
	CUdevice device;
	struct hs_backing backing; /* of hot areas */
	struct block *next;
};

/* A leaf lock: own memory may be asked for from inside the gate. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static struct {
	CUcontext context;
	CUstream stream;
} streams[CONTEXTS];

static CUresult own_stream(CUstream *stream)
{
	CUcontext context;
	CUresult result = hs_driver.cuCtxGetCurrent(&context);
	size_t i;

	if (result != CUDA_SUCCESS)
		return result;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&lock);
	for (i = 0; i < CONTEXTS && streams[i].context && streams[i].context != context; i++)
		;
	if (i == CONTEXTS) {
		result = CUDA_ERROR_NOT_SUPPORTED;
	} else if (!streams[i].context) {
		result = hs_driver.cuStreamCreate(&streams[i].stream, CU_STREAM_NON_BLOCKING);
		if (result == CUDA_SUCCESS)
			streams[i].context = context;
	}
	if (result == CUDA_SUCCESS)
		*stream = streams[i].stream;
	pthread_mutex_unlock(&lock);
	return result;
}

void hs_own_prepare(void)
{
	CUstream stream;

	own_stream(&stream);
}

CUresult hs_own_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	CUstream stream;
	CUresult result = own_stream(&stream);

	if (result == CUDA_SUCCESS)
		result = hs_driver.cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
	return result == CUDA_SUCCESS ? hs_driver.cuStreamSynchronize(stream) : result;
}

void hs_own_forget(CUcontext context)
{
	size_t i, n;

	pthread_mutex_lock(&lock);
	for (n = 0; n < CONTEXTS && streams[n].context; n++)
		;
	for (i = 0; i < n && streams[i].context != context; i++)
		;
	if (i < n) {
		streams[i] = streams[n - 1];
		streams[n - 1].context = NULL;
	}
	pthread_mutex_unlock(&lock);
}

static void enter(struct block *block)
{
	pthread_mutex_lock(&lock);
	block->next = blocks;
	blocks = block;
	pthread_mutex_unlock(&lock);
}

static struct block *leave(CUdeviceptr ptr)
{
	struct block **at, *block;

	pthread_mutex_lock(&lock);
	for (at = &blocks; *at && (*at)->ptr != ptr; at = &(*at)->next)
		;
	block = *at;
	if (block)
		*at = block->next;
	pthread_mutex_unlock(&lock);
	return block;
}

static int error_of(CUresult result)
{
	return result == CUDA_SUCCESS ? 0 : result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
}

/* The fill is waited for on our stream alone, and that one never waits for
 * another. */
static CUresult zeroed(CUdeviceptr *out, size_t bytes)
{
	CUstream stream;
	CUdeviceptr ptr;
	CUresult result = own_stream(&stream);

	if (result == CUDA_SUCCESS)
		result = hs_driver.cuMemAlloc_v2(&ptr, bytes);
	if (result != CUDA_SUCCESS)
		return result;
	result = hs_driver.cuMemsetD8Async(ptr, 0, bytes, stream);
	if (result == CUDA_SUCCESS)
		result = hs_driver.cuStreamSynchronize(stream);
	if (result == CUDA_SUCCESS)
		*out = ptr;
	else
		hs_driver.cuMemFree_v2(ptr);
	return result;
}

/* Hot rows and their maps are worth more than rows that happen to be on the device. */
static bool own_room(size_t bytes)
{
	if (hs_world_stopped())
		do {
			if (hs_budget_fits(bytes) && hs_budget_own(bytes, true))
				return true;
		} while (hs_place_yield(bytes));
	return hs_budget_own(bytes, hs_world_stopped());
}

int hs_memory_own(CUdeviceptr *out, size_t bytes)
{
	/* Another thread's capture does not mind what a relaxed one does. */
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct block *block;
	int error = -ENOMEM;

	if (!bytes)
		return -EINVAL;
	block = calloc(1, sizeof(*block));
	if (!block)
		return -ENOMEM;
	hs_inside++;
	if (hs_driver.cuCtxGetDevice(&block->device) != CUDA_SUCCESS || !own_room(bytes))
		goto free_block;
	if (!hs_budget_take(HS_PLACE_DEVICE, block->device, bytes))
		goto disown;
	error = error_of(hs_driver.cuThreadExchangeStreamCaptureMode(&mode));
	if (error)
		goto give;
	error = error_of(zeroed(&block->ptr, bytes));
	hs_driver.cuThreadExchangeStreamCaptureMode(&mode);
	if (error)
		goto give;
	block->bytes = bytes;
	enter(block);
	*out = block->ptr;
	hs_inside--;
	return 0;
give:
	hs_budget_give(HS_PLACE_DEVICE, block->device, bytes);
disown:
	hs_budget_disown(block->device, bytes);
free_block:
	hs_inside--;
	free(block);
	return error;
}

void hs_memory_disown(CUdeviceptr ptr)
{
	struct block *block = leave(ptr);

	if (!block)
		return;
	hs_inside++;
	hs_driver.cuMemFree_v2(ptr);
	hs_inside--;
	hs_budget_give(HS_PLACE_DEVICE, block->device, block->bytes);
	hs_budget_disown(block->device, block->bytes);
	free(block);
}

/* The first address >= from that is congruent to base and aligned, 0: none. */
static CUdeviceptr congruent(CUdeviceptr from, CUdeviceptr base, uint32_t row)
{
	CUdeviceptr at = base + (from - base + row - 1) / row * row;

	for (int i = 0; i < ROW_ALIGN; i++, at += row)
		if (at % ROW_ALIGN == 0)
			return at;
	return 0;
}

int hs_memory_hot(CUdeviceptr *out, CUdeviceptr base, uint32_t row, size_t bytes)
{
	struct block *block;
	size_t span;
	int error;

	if (!row || !bytes || base < HS_ARENA_BASE || base >= HS_ARENA_BASE + HS_ARENA_HOT)
		return -EINVAL;
	span = bytes + (size_t)row * ROW_ALIGN;
	span = (span + HS_GRANULE - 1) & ~(HS_GRANULE - 1);
	block = calloc(1, sizeof(*block));
	if (!block)
		return -ENOMEM;
	hs_inside++;
	error = error_of(hs_driver.cuCtxGetDevice(&block->device));
	if (!error && !own_room(span))
		error = -ENOMEM;
	if (error)
		goto free_block;
	error = error_of(hs_arena_reserve(&block->reserved, span, HS_ARENA_AREAS));
	if (error)
		goto disown;
	block->bytes = span;
	block->ptr = congruent(block->reserved, base, row);
	error = !block->ptr ? -EINVAL : 0;
	if (!error && (block->ptr - base) / row + bytes / row >= (CUdeviceptr)1 << 31)
		error = -ERANGE;
	if (error)
		goto release;
	error = error_of(hs_backing_create(&block->backing, HS_PLACE_DEVICE, span, block->device));
	if (!error)
		error = error_of(hs_backing_map(&block->backing, block->reserved));
	if (error)
		goto destroy;
	enter(block);
	*out = block->ptr;
	hs_inside--;
	return 0;
destroy:
	hs_backing_destroy(&block->backing);
release:
	hs_arena_release(block->reserved);
disown:
	hs_budget_disown(block->device, span);
free_block:
	hs_inside--;
	free(block);
	return error;
}

void hs_memory_cold(CUdeviceptr hot)
{
	struct block *block = leave(hot);

	if (!block)
		return;
	hs_inside++;
	hs_backing_destroy(&block->backing);
	hs_arena_release(block->reserved);
	hs_inside--;
	hs_budget_disown(block->device, block->bytes);
	free(block);
}
