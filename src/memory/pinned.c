/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "src/base/log.h"
#include "src/memory/memory.h"
#include "src/memory/pinned.h"
#include "src/memory/prefault.h"

#ifndef MAP_FIXED_NOREPLACE /* Linux 4.17; before, a hint */
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#define MPOL_PREFERRED 1
#define NODES 1024

/* Of the kernel's choice, aligned as huge pages are. */
static void *room(size_t bytes)
{
	const size_t slack = HS_GRANULE;
	char *start = mmap(
		NULL, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t before;

	if (start == MAP_FAILED)
		return NULL;
	before = -(uintptr_t)start & (slack - 1);
	if (before)
		munmap(start, before);
	if (before != slack)
		munmap(start + before + bytes, slack - before);
	return start + before;
}

/* Preferred, not bound: a full node is no reason for the kernel to kill us. */
static void prefer(void *memory, size_t bytes, int node)
{
	unsigned long mask[NODES / (8 * sizeof(long))] = {0};

	if (node < 0 || node >= NODES)
		return;
	mask[(size_t)node / (8 * sizeof(long))] = 1ul << ((size_t)node % (8 * sizeof(long)));
	syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, mask, NODES, 0);
}

void *hs_pinned_create(size_t bytes, int node)
{
	const int saved = errno;
	char *memory = room(bytes);

	if (memory && mprotect(memory, bytes, PROT_READ | PROT_WRITE)) {
		munmap(memory, bytes);
		memory = NULL;
	}
	if (memory) {
		/* None of these is needed for it to work. */
		prefer(memory, bytes, node);
		madvise(memory, bytes, MADV_HUGEPAGE);
		madvise(memory, bytes, MADV_DONTFORK);
		madvise(memory, bytes, MADV_DONTDUMP);
		hs_prefault(memory, bytes, HS_PREFAULT_ALL, node);
	}
	errno = saved;
	return memory;
}

void hs_pinned_destroy(void *memory, size_t bytes)
{
	const int saved = errno;

	munmap(memory, bytes);
	errno = saved;
}

/* What has addresses in the way, if it is known at all. */
static void tell_mapped(CUdeviceptr start, size_t bytes)
{
	unsigned long long from, to;
	char line[512];
	FILE *f;

	if (!hs_log_on(HS_LOG_DEBUG) || !(f = fopen("/proc/self/maps", "re")))
		return;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%llx-%llx", &from, &to) == 2 && from < start + bytes &&
			to > start) {
			line[strcspn(line, "\n")] = '\0';
			hs_debug("in the way: %s", line);
		}
	fclose(f);
}

void *hs_pinned_move(void *memory, size_t bytes, CUdeviceptr to)
{
	const int saved = errno;
	void *place, *moved = MAP_FAILED;

	if (to) {
		place = mmap((void *)to, bytes, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
		if (place == MAP_FAILED) {
			hs_debug("host memory: nothing mapped at 0x%llx, %zu MiB (errno %d)",
				(unsigned long long)to, bytes >> 20, errno);
			tell_mapped(to, bytes);
			place = NULL;
		}
	} else {
		place = room(bytes);
	}
	if (place && (!to || place == (void *)to)) {
		moved = mremap(memory, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place);
		if (moved == MAP_FAILED)
			hs_debug("host memory: %p, %zu MiB, not moved to %p (errno %d)", memory,
				bytes >> 20, place, errno);
		if (moved == MAP_FAILED)
			tell_mapped((CUdeviceptr)memory, bytes);
	} else if (place) {
		hs_debug("host memory: mapped at %p, not at 0x%llx", place, (unsigned long long)to);
	}
	if (place && moved == MAP_FAILED)
		munmap(place, bytes);
	errno = saved;
	return moved == MAP_FAILED ? NULL : moved;
}
