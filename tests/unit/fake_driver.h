/* SPDX-License-Identifier: MIT */
#ifndef TESTS_UNIT_FAKE_DRIVER_H
#define TESTS_UNIT_FAKE_DRIVER_H

/*
 * As much of a driver as src/memory calls, in the test's own process: handles
 * are memory files, addresses are mapped where the hint says, so bytes can be
 * read through any address and are kept by a handle that is not mapped. With
 * it come the options, a log that keeps its last line, and a cache that only
 * counts. One process runs one case (fake_main), since the books under test
 * are kept once per process.
 */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdint.h>
#include "hooks/driver.h"
#include "src/base/options.h"
#include "src/cache/cache.h"

#define MIB ((size_t)1 << 20)

struct fake {
	struct hs_options options;
	size_t device_bytes, device_used; /* physical */
	size_t host_used;		  /* physical */
	int fail_after;	   /* > 0: of the calls that may fail, the so-manieth from now fails */
	bool no_addresses; /* cuMemAddressReserve fails */
	bool host_refused;     /* cuMemCreate on the host fails */
	bool register_refused; /* cuMemHostRegister fails */
	bool managed;	       /* the device has managed memory that both sides use at once */
	int managed_astray;    /* so many times it has addresses and asks for none (steer.h) */
	bool managed_fixed;    /* the kernel does not make its pages on demand, as before 5.14 */
	bool managed_full;     /* nor has it memory for them */
	bool advice_refused;   /* cuMemAdvise fails */
	bool busy;	   /* kernels run; a few queries end them */
	bool endless;	   /* nothing does */
	bool capturing;	   /* a synchronise would break a capture */
	CUcontext busy_context; /* not NULL: only its kernels run */
	int events, queries, full_syncs; /* full: cuCtxSynchronize */
	int syncs, unmapped_while_busy, broken_captures, outside;
	int reservations, mappings, handles, registered, driver_allocs;
	int managed_count, managed_asked; /* alive; calls of cuMemAllocManaged */
	struct fake_advice {
		CUmem_advise advice;
		CUmemLocation location;
		CUdeviceptr at;
		size_t bytes;
	} advice[64]; /* the first ones that were taken */
	unsigned advised;
	CUdeviceptr misplace; /* this hint is not honoured */
	bool keeps;	      /* the driver, of freed addresses what follows a step */
	char line[512];	      /* the last log line */
	int lines;	      /* warn and above */
	struct hs_extent extents[4]; /* layers of any window */
	unsigned layers;
	struct hs_cache_wants wants;
	CUdeviceptr hot; /* of all layers; goes when they are stopped */
	int stopped, settled, forgotten, wrote;
	struct hs_window *wrote_window;
	CUdeviceptr wrote_start;
	size_t wrote_bytes;
	struct hs_site wrote_site;
};
extern struct fake fake;

/* Whether the call that is due to fail is this one; inside the driver only. */
bool fake_failing(void);
bool fake_mapped(CUdeviceptr at);
/* As cuMemFree_v2, of what is managed. */
bool fake_managed(CUdeviceptr at);
CUresult fake_managed_free(CUdeviceptr at);
void fake_memory_fill_in(void); /* fake_memory.c's entries of hs_driver */

/* Where the byte at an address really is. */
enum hs_place fake_place(CUdeviceptr at);

/* What the hooks do: count as inside around the call. */
#define INSIDE(call)                                                                               \
	({                                                                                         \
		hs_inside++;                                                                       \
		CUresult inside_result = (call);                                                   \
		hs_inside--;                                                                       \
		inside_result;                                                                     \
	})

/* A window of so many MiB, or 0. settle: as the hook does before it. */
CUdeviceptr fake_window(size_t mib);
void fake_free(CUdeviceptr ptr);

/* Fills a window with bytes that differ from page to page; counts those pages
 * that read otherwise. A filled window is not virgin. */
void fake_fill(CUdeviceptr start, size_t bytes, unsigned seed);
size_t fake_wrong(CUdeviceptr start, size_t bytes, unsigned seed);

/* Whether the kernel makes pages on demand (Linux 5.14), without which there is no
 * managed memory. */
bool fake_populates(void);

/* Without arguments every case in a process of its own, else the one named. */
int fake_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count);

#endif
