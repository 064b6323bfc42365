/* SPDX-License-Identifier: MIT */
#ifndef SRC_LAUNCH_LAUNCH_H
#define SRC_LAUNCH_LAUNCH_H

/*
 * What a kernel launch touches, decided once per function handle, and what is
 * done about it. The only module that joins profiles, windows and the cache.
 */

#include <stdbool.h>
#include "hooks/driver.h"

/* One launch as any of the driver's entry points carries it. The first group
 * is filled by the hook; forward() issues the real call with the params and
 * extra that the struct holds at that time. */
struct hs_launch {
	CUfunction function;
	unsigned grid[3], block[3];
	CUstream stream;
	bool per_thread; /* the _ptsz form */
	void **params;
	void **extra;
	CUresult (*forward)(struct hs_launch *launch);
	const void *config; /* CUlaunchConfig of the Ex forms, else NULL */
	unsigned shared;
};

/* Issues the launch with whatever has to go before and after it. Returns what
 * the driver returned for the engine's own kernel. */
CUresult hs_launch(struct hs_launch *launch);

/* A function handle may be reused from here on: a module or library goes. */
void hs_launch_forget(void);

/* Captures: around cuStreamBeginCapture* / cuStreamEndCapture. */
void hs_launch_capture_began(CUstream stream, bool per_thread);
void hs_launch_capture_ending(CUstream stream, bool per_thread);

/* Parameters of a kernel node that is added or set by hand: returns the params
 * to use (the caller's own, or a copy in `copy`, CU_MAX bytes) or the caller's
 * when nothing applies. Only marks and counts; never swaps in. */
void hs_launch_node(CUfunction function, void **params);

#endif
