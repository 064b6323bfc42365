/* SPDX-License-Identifier: MIT */
#ifndef UNIT_MOCK_HOOKS_H
#define UNIT_MOCK_HOOKS_H

/*
 * Both sides of the hook bodies: a driver that notes what it was asked, and
 * policy modules that note what they were told. One window lies at WINDOW,
 * with a seam after its first granule.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>
#include "hooks/hook.h"
#include "src/base/options.h"
#include "src/memory/memory.h"

#define WINDOW ((CUdeviceptr)0x200000000000)
#define BYTES ((size_t)64 << 20)
#define OTHER ((CUdeviceptr)0x7f0000000000)
#define STREAM ((CUstream)0x51)

extern struct told {
	bool settle_waits;
	int opened, spared;
	bool can_spare;
	size_t spare_bytes, account, cap;
	uint64_t key, given;
	int inside_gate, entered, captures, settled, forgot, gone, launches, nodes, began, ending;
	int replayed;
	bool unseen;
	int wrote, filled, waited; /* waited: for the default stream, after wrote */
	CUdeviceptr start;
	size_t bytes;
	CUstream stream;
	bool per_thread;
	CUfunction node;
	int fresh; /* captures of their own graphs */
	CUgraph captured, kept, changed_graph;
	CUgraphExec exec, changed_exec;
	CUgraphNode changed_node;
	uint64_t flags;
} told;

extern struct asked {
	CUresult result;
	int calls;
	CUcontext current;
	CUstreamCaptureStatus capture;
	int active;
	struct {
		CUdeviceptr dst;
		size_t pitch, count, height;
		unsigned value;
		CUstream stream;
	} fills[16];
	int inside; /* hs_inside at the last call */
} driver;

extern struct hs_options mock_options;
extern bool mock_whole; /* what hs_driver_whole answers */

/* mock_driver.c: the driver's entries are its. */
void mock_driver(void);

/* For cmocka: everything as at the start; fails if a gate was left open. */
int mock_reset(void **state);
int mock_balanced(void **state);

#endif
