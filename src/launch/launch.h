/* SPDX-License-Identifier: MIT */
#ifndef SRC_LAUNCH_LAUNCH_H
#define SRC_LAUNCH_LAUNCH_H

/*
 * What a kernel launch touches, decided once per function handle, and what is
 * done about it. The only module that joins profiles, windows and the cache.
 */

#include <stdbool.h>
#include <stdint.h>
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

/* Logs, once each, what the launch path found and could not say: profiles with
 * mistakes, unknown kernels that touch KV windows, launches left alone. Called
 * at safe moments (it may take memory for HISPARSE_VERIFY). */
void hs_launch_report(void);

/* Launches since start. */
struct hs_launch_counts {
	uint64_t attention;	  /* attention profiles on a window */
	uint64_t remapped;	  /* of these: with a list of ours */
	uint64_t refused;	  /* of these: left alone */
	uint64_t written, filled; /* writers and fills on a window */
	uint64_t unknown;	  /* kernels without a profile that carry a window */
	uint64_t nodes;		  /* graph nodes made by hand that may write to one */
};
void hs_launch_read(struct hs_launch_counts *counts);

/* Captures: around cuStreamBeginCapture* / cuStreamEndCapture. */
void hs_launch_capture_began(CUstream stream, bool per_thread);
void hs_launch_capture_ending(CUstream stream, bool per_thread);

/* A kernel node that is added or set by hand. Only marks and counts: it reads
 * in place. */
void hs_launch_node(CUfunction function, void **params);

#endif
