/* SPDX-License-Identifier: MIT */
#ifndef TESTS_UNIT_CACHE_RIG_H
#define TESTS_UNIT_CACHE_RIG_H

/*
 * The cache and its kernels in the test's own process: one window of small
 * rows, streams whose launches run on the fibre engine in an order that a seed
 * picks, and readers that stay in flight for a while before they look at the
 * rows that their list names, as attention would.
 */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdint.h>
#include "kernels/map.h"
#include "src/base/options.h"
#include "src/cache/cache.h"

enum {
	RIG_ROW = 32,
	RIG_FIRST = 8, /* slots in the part that is always on the device */
	RIG_SLOTS = 1024,
	RIG_STREAMS = 4,
};

struct rig {
	struct hs_options options;
	struct hs_window window;
	CUdeviceptr base;
	struct hs_layer *layer;
	uint64_t seed;
	size_t reserve; /* 0: 1 MiB */
	size_t used;	/* of it, if `shrinks` */
	bool shrinks;
	int fail_own, fail_hot,
		fail_launch; /* of the calls from now on that with this number fails */
	int marked;	     /* safe moments asked for */
	/* What readers saw. */
	uint64_t read, hot, wrong;
};
extern struct rig rig;

/* A fresh cache with `slots` hot rows, settled. Once a process (rig_main). */
void rig_start(uint32_t slots, int policy, uint64_t seed);

/* The bytes that slot holds from now on. Written at once. */
void rig_fill(uint32_t slot, uint64_t value);

/* A stream of the rig, eager. */
struct hs_site rig_site(int stream);

/* The list as launches take it; entries stay the caller's until rig_run. */
struct hs_list rig_list(const int32_t *entries, uint32_t outer, uint32_t k);

/* Enqueues: the resolve; a reader of the remapped list that is in flight for
 * `steps` schedule steps; a writer of value to the slots, and what follows a
 * writer. Returns what hs_cache_resolve did. */
int rig_attend(const struct hs_list *list, const struct hs_site *site, unsigned steps,
	CUdeviceptr *remapped);
void rig_write(const int64_t *slots, uint32_t count, uint64_t value, const struct hs_site *site);

/* What is enqueued on a capturing site goes into graph 0 or 1; rig_replay
 * enqueues the graph's work. */
struct hs_site rig_capture(int stream, int graph);
void rig_capture_end(const struct hs_site *site);
void rig_replay(int graph, int stream);

/* Runs all streams to their ends. */
void rig_run(void);

/* Does what the launches so far leave to the next ones, and runs all streams. */
void rig_settle(void);

/* The layer as the device has it, and a lane. */
struct hs_entry *rig_entry(void);
struct hs_lane *rig_lane(uint32_t id);
/* Hot rows that hold nothing, and such that misses may take. */
uint32_t rig_spare(void);
uint32_t rig_listed(void);
/* Of a listed row without its mark. */
int32_t rig_map(uint32_t slot);
void rig_counts(struct hs_cache_counts *counts);

/* Counts what must never be, once settled: two rows of one slot, a map word
 * without its row, a row that is spare twice or not at all, a pass or a walk left
 * open. */
unsigned rig_faults(void);

/* Whether one of so many seeds reads wrong rows, each in a process of its own. */
bool rig_shown(void (*run)(uint64_t seed), uint64_t first, unsigned count);

/* Each case in a process of its own, or the one named. */
int rig_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count);

#endif
