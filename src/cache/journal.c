/* SPDX-License-Identifier: MIT */
#include "src/cache/journal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "src/base/log.h"

/* Launches of some seconds; lists of 2,048 slots of some 8,000 rows. */
#define LAUNCH_WORDS ((size_t)1 << 18)
#define LIST_WORDS ((size_t)1 << 24)
/* Before the ring, on a page of its own: how far the host has read. */
#define HEAD_BYTES ((size_t)4096)

struct hs_journal_ring {
	_Atomic uint64_t *taken;
	uint32_t *words;
	uint32_t *record; /* the one that is handed out, in one piece */
	CUdeviceptr device;
	uint32_t mask;
	uint64_t base[HS_LAYERS][HS_COUNTS];
};

static _Atomic unsigned asked, on;
static _Atomic uint32_t asked_every = 1;
static _Atomic uint64_t since;

void hs_journal_ask(unsigned what, uint32_t every)
{
	atomic_store(&asked_every, every ? every : 1);
	atomic_store(&asked, what);
	hs_memory_mark();
}

unsigned hs_journal_on(void)
{
	return atomic_load_explicit(&on, memory_order_relaxed);
}

unsigned hs_journal_asked(void)
{
	return atomic_load_explicit(&asked, memory_order_relaxed);
}

uint64_t hs_journal_since(void)
{
	return atomic_load(&since);
}

const uint64_t *hs_journal_base(CUdevice id, uint32_t layer)
{
	struct hs_device *device = hs_device_get(id);
	struct hs_journal_ring *ring = device ? atomic_load(&device->ring) : NULL;

	return ring && layer < HS_LAYERS ? ring->base[layer] : NULL;
}

/* Registered memory of ours, so that it can be read at exit. */
static int make(struct hs_device *device, size_t words)
{
	const size_t bytes = HEAD_BYTES + words * sizeof(uint32_t);
	struct hs_journal_ring *ring = calloc(1, sizeof(*ring));
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (!ring || memory == MAP_FAILED)
		goto free_ring;
	ring->record = malloc(words / 4 * sizeof(uint32_t) + HEAD_BYTES);
	if (!ring->record)
		goto unmap;
	if (hs_driver.cuMemHostRegister_v2(memory, bytes,
		    CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE) != CUDA_SUCCESS)
		goto free_record;
	if (hs_driver.cuMemHostGetDevicePointer_v2(&ring->device, memory, 0) != CUDA_SUCCESS)
		goto unregister;
	ring->taken = memory;
	ring->words = (uint32_t *)(void *)((char *)memory + HEAD_BYTES);
	ring->mask = (uint32_t)words - 1;
	atomic_store_explicit(&device->ring, ring, memory_order_release);
	return 0;

unregister:
	hs_driver.cuMemHostUnregister(memory);
free_record:
	free(ring->record);
unmap:
	munmap(memory, bytes);
free_ring:
	free(ring);
	return -ENOMEM;
}

void hs_journal_settle(struct hs_device *device)
{
	struct hs_journal_ring *ring = atomic_load(&device->ring);
	struct hs_journal journal = {
		.what = atomic_load(&asked), .every = atomic_load(&asked_every)};
	const CUdeviceptr at = device->table + offsetof(struct hs_table, journal);
	struct timespec now;

	if (journal.what == device->told)
		return;
	if (!ring) {
		if (make(device, journal.what & HS_JOURNAL_LISTS ? LIST_WORDS : LAUNCH_WORDS)) {
			hs_warn("no mapped host memory for records of launches: none on device %d",
				device->id);
			device->told = journal.what;
			return;
		}
		ring = atomic_load(&device->ring);
	}
	journal.mask = ring->mask;
	journal.ring = (uint32_t *)(uintptr_t)(ring->device + HEAD_BYTES);
	journal.taken = (const uint64_t *)(uintptr_t)ring->device;
	if (hs_driver.cuMemcpyHtoD_v2(at, &journal, offsetof(struct hs_journal, given)) !=
		CUDA_SUCCESS)
		return;
	memcpy(ring->base, device->counts, sizeof(ring->base));
	clock_gettime(CLOCK_MONOTONIC, &now);
	device->told = journal.what;
	atomic_store(&since, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
	atomic_store(&on, journal.what);
}

unsigned hs_journal_read(CUdevice id,
	void (*take)(CUdevice device, const struct hs_journal_head *record, void *data), void *data)
{
	struct hs_device *device = hs_device_get(id);
	struct hs_journal_ring *ring =
		device ? atomic_load_explicit(&device->ring, memory_order_acquire) : NULL;
	unsigned count = 0;
	uint64_t taken;
	uint32_t words;

	if (!ring)
		return 0;
	taken = atomic_load(ring->taken);
	while ((words = __atomic_load_n(&ring->words[taken & ring->mask], __ATOMIC_ACQUIRE))) {
		if (words > ring->mask / 4 + HEAD_BYTES / sizeof(uint32_t))
			break; /* not what a kernel of ours wrote */
		for (uint32_t i = 0; i < words; i++) {
			uint32_t *word = &ring->words[(taken + i) & ring->mask];

			ring->record[i] = *word;
			*word = 0;
		}
		taken += words;
		atomic_store(ring->taken, taken);
		take(id, (const struct hs_journal_head *)(const void *)ring->record, data);
		count++;
	}
	return count;
}
