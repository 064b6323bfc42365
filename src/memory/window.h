/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_WINDOW_H
#define SRC_MEMORY_WINDOW_H

/*
 * The table of windows, as memory.h's readers see it and with what backs them.
 * Readers take no lock: there are two sorted tables, and a reader looks again
 * if the one it searched was replaced meanwhile. Everything declared here
 * needs the memory lock.
 *
 * Lock order: the memory lock, then the gate. So nobody who is inside the gate
 * may take the memory lock.
 */

#include <stdbool.h>
#include "src/memory/arena.h"
#include "src/memory/backing.h"
#include "src/memory/memory.h"
#include "src/memory/slack.h"

/* A window begins so far into its addresses: its first granule is the end of the
 * arena's first step, and what follows, which may be of a kind that the driver
 * must not have reserved, begins with the next. */
#define HS_WINDOW_LEAD (HS_ARENA_STEP - HS_GRANULE)

struct hs_holding {
	struct hs_window window;
	CUcontext context;
	_Atomic size_t maps;	     /* what it adds to the reserve */
	struct hs_slack_story story; /* what had been told when it was made */
	/* The first granule, which never leaves the device, and what follows.
	 * One handle for all of that: a move is all or nothing. */
	struct hs_backing head, rest;
	/* Instead of rest, in address order: a window in parts (range.h). Written
	 * while the world is stopped, so that who is inside the gate may read. */
	struct hs_range *ranges;
	unsigned count;
	unsigned layers; /* seen in it when it was looked at last */
	bool apart;	 /* the driver has reserved the first step only */
	bool live;	 /* in the table */
	bool doomed;	 /* freed by the engine, still backed */
	bool stuck;	 /* a move failed for good */
	bool unable;	 /* nothing of it could move out, at this moment */
};

/* Recursive: cache callbacks made under it may call back in. */
void hs_memory_lock(void);
bool hs_memory_trylock(void);
void hs_memory_unlock(void);

/* A zeroed record that is in no table, or NULL; back with hs_holding_drop. */
struct hs_holding *hs_holding_take(void);
void hs_holding_drop(struct hs_holding *holding);

/* Into the table, where hs_window_find sees it, and out of it. */
void hs_holding_publish(struct hs_holding *holding);
void hs_holding_withdraw(struct hs_holding *holding);

/* The record of a window; every live or doomed record, NULL first and last. */
struct hs_holding *hs_holding_of(struct hs_window *window);
struct hs_holding *hs_holding_next(struct hs_holding *holding);

/* The part of hs_memory_read that is about windows. Needs no lock. */
void hs_window_read(struct hs_memory_counts *counts);

/* The same of one device's, and of those of them that saw nothing but their fill with
 * zeros. Any thread. */
void hs_window_of(struct hs_memory_counts *counts, CUdevice device);
void hs_window_zeros(struct hs_memory_counts *counts, CUdevice device);

#endif
