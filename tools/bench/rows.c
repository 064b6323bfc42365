/* SPDX-License-Identifier: MIT */
#include "tools/bench/rows.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include "hooks/driver.h"
#include "tools/bench/swapin_abi.h"
#include "tools/bench/workers.h"

/* High, as the library's windows are: hot rows go above. */
#define WINDOWS ((void *)0x200000000000)
#define GRANULE (UINT64_C(2) << 20)

struct sweep {
	uint64_t *words;
	_Atomic int error;
};

static void fill(void *data, uint32_t granule)
{
	uint64_t *words = ((struct sweep *)data)->words, each = GRANULE / sizeof(*words);

	for (uint64_t i = granule * each; i < (granule + 1) * each; i++)
		words[i] = HS_SWAPIN_WORD(i);
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

int hs_rows_open(struct hs_rows *pool, uint64_t bytes)
{
	struct sweep sweep = {0};
	CUresult result;
	void *start;

	bytes = (bytes + GRANULE - 1) & ~(GRANULE - 1);
	start = mmap(WINDOWS, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
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
	pool->start = start;
	pool->bytes = bytes;
	return 0;
}

void hs_rows_close(struct hs_rows *pool)
{
	hs_driver.cuMemHostUnregister(pool->start);
	munmap(pool->start, pool->bytes);
	*pool = (struct hs_rows){0};
}

int hs_rows_check(const struct hs_rows *pool)
{
	struct sweep sweep = {.words = pool->start};

	hs_workers_run((uint32_t)(pool->bytes / GRANULE), compare, &sweep);
	return sweep.error;
}
