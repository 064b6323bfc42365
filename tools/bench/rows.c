/* SPDX-License-Identifier: MIT */
#include "tools/bench/rows.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include "hooks/driver.h"
#include "src/memory/managed.h"
#include "tools/bench/swapin_abi.h"
#include "tools/bench/workers.h"

/* High, as the library's windows are: hot rows go above. A multiple of 32 MiB, or
 * managed memory is not steered there. A second pool has no hot rows. */
#define WINDOWS UINT64_C(0x200000000000)
#define BESIDE ((void *)0x180000000000)
#define GRANULE (UINT64_C(2) << 20)
#define CHUNK (UINT64_C(64) << 20)

struct sweep {
	uint64_t *words;
	uint64_t first; /* the pool's number of words[0] */
	_Atomic int error;
};

static void fill(void *data, uint32_t granule)
{
	struct sweep *sweep = data;
	uint64_t each = GRANULE / sizeof(*sweep->words);

	for (uint64_t i = granule * each; i < (granule + 1) * each; i++)
		sweep->words[i] = HS_SWAPIN_WORD(sweep->first + i);
}

static void compare(void *data, uint32_t granule)
{
	struct sweep *sweep = data;
	uint64_t each = GRANULE / sizeof(*sweep->words), wrong = 0;

	for (uint64_t i = granule * each; i < (granule + 1) * each; i++)
		wrong |= sweep->words[i] ^ HS_SWAPIN_WORD(i);
	if (wrong)
		sweep->error = -EBADMSG;
}

/*
 * By way of the device, which then is the only one to touch the pool: what the
 * processor had filled, the GPU read more slowly (17,560 rows of 8 GiB in 322 us instead
 * of 255; H200, driver 580.159.04).
 */
static CUresult fill_managed(CUdeviceptr pool, uint64_t bytes)
{
	struct sweep sweep = {0};
	CUdeviceptr device = 0;
	CUresult result =
		hs_driver.cuMemHostAlloc((void **)&sweep.words, CHUNK, CU_MEMHOSTALLOC_PORTABLE);

	if (result == CUDA_SUCCESS)
		result = hs_driver.cuMemAlloc_v2(&device, CHUNK);
	for (uint64_t at = 0; at < bytes && result == CUDA_SUCCESS; at += CHUNK) {
		uint64_t part = bytes - at < CHUNK ? bytes - at : CHUNK;

		sweep.first = at / sizeof(*sweep.words);
		hs_workers_run((uint32_t)(part / GRANULE), fill, &sweep);
		result = hs_driver.cuMemcpyHtoD_v2(device, sweep.words, part);
		if (result == CUDA_SUCCESS)
			result = hs_driver.cuMemcpyDtoD_v2(pool + at, device, part);
		/* Copies inside the device do not wait. */
		if (result == CUDA_SUCCESS)
			result = hs_driver.cuCtxSynchronize();
	}
	if (device)
		hs_driver.cuMemFree_v2(device);
	if (sweep.words)
		hs_driver.cuMemFreeHost(sweep.words);
	return result;
}

static CUresult open_managed(struct hs_rows *pool, uint64_t bytes)
{
	CUdeviceptr at = WINDOWS;
	CUdevice device;
	CUresult result = hs_driver.cuCtxGetDevice(&device);

	if (result == CUDA_SUCCESS)
		result = hs_managed_create(&at, bytes, device);
	if (result != CUDA_SUCCESS)
		return result;
	result = fill_managed(at, bytes);
	if (result != CUDA_SUCCESS) {
		hs_managed_destroy(at);
		return result;
	}
	*pool = (struct hs_rows){(void *)(uintptr_t)at, bytes, HS_ROWS_MANAGED};
	return CUDA_SUCCESS;
}

static int open_registered(struct hs_rows *pool, uint64_t bytes, enum hs_rows_kind kind)
{
	const bool beside = kind == HS_ROWS_BESIDE;
	struct sweep sweep = {0};
	CUresult result;
	void *start = mmap(beside ? BESIDE : (void *)(uintptr_t)WINDOWS, bytes,
		PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (beside ? 0 : MAP_FIXED_NOREPLACE),
		-1, 0);

	if (start == MAP_FAILED) {
		int error = errno;

		perror("swapin: host pool: mmap");
		return -error;
	}
	madvise(start, bytes, MADV_HUGEPAGE);
	madvise(start, bytes, MADV_DONTFORK);
	/* Touching the pages from all processors is what makes registration fast. */
	sweep.words = start;
	hs_workers_run((uint32_t)(bytes / GRANULE), fill, &sweep);
	result = hs_driver.cuMemHostRegister_v2(
		start, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "swapin: host pool: registering %llu MiB: CUDA error %d\n",
			(unsigned long long)(bytes >> 20), result);
		munmap(start, bytes);
		return -ENOMEM;
	}
	*pool = (struct hs_rows){start, bytes, kind};
	return 0;
}

int hs_rows_open(struct hs_rows *pool, uint64_t bytes, enum hs_rows_kind kind)
{
	CUresult result;

	bytes = (bytes + GRANULE - 1) & ~(GRANULE - 1);
	if (kind == HS_ROWS_MANAGED) {
		result = open_managed(pool, bytes);
		if (result == CUDA_SUCCESS)
			return 0;
		fprintf(stderr,
			"swapin: no managed memory for %llu MiB of rows (CUDA error %d): "
			"registered memory instead\n",
			(unsigned long long)(bytes >> 20), result);
		kind = HS_ROWS_REGISTERED;
	}
	return open_registered(pool, bytes, kind);
}

void hs_rows_close(struct hs_rows *pool)
{
	if (pool->kind == HS_ROWS_MANAGED) {
		hs_managed_destroy((CUdeviceptr)(uintptr_t)pool->start);
	} else {
		hs_driver.cuMemHostUnregister(pool->start);
		munmap(pool->start, pool->bytes);
	}
	*pool = (struct hs_rows){0};
}

int hs_rows_check(const struct hs_rows *pool)
{
	struct sweep sweep = {.words = pool->start};

	hs_workers_run((uint32_t)(pool->bytes / GRANULE), compare, &sweep);
	return sweep.error;
}
