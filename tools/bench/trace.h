/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_BENCH_TRACE_H
#define TOOLS_BENCH_TRACE_H

/*
 * DSAT version 1: which positions every request selects, step by step.
 *
 * File, little endian: "DSAT", u32 version 1, u32 layers, steps, batch, k,
 * u64 ctx, then int32 positions [step][layer][request][k], each below ctx and
 * none twice in one list (-1: no selection), then, if the trace carries a
 * note, "NOTE" and up to 255 bytes of UTF-8 to the end of the file. A reader starts with empty
 * caches of `hot` rows a request and layer, and times from step hs_dsat_warm() on.
 *
 * Functions return 0 or a negative errno and set outputs only on success.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hs_dsat {
	uint32_t layers, steps, batch, k;
	uint64_t ctx; /* positions a request has */
	int32_t *positions;
	bool shared;	/* one request stands for all: positions are slots */
	char note[256]; /* where the trace comes from, "" if it does not say */
};

/* What a generated trace is: `misses` new rows in every list once the cache of
 * `hot` rows is full; of the hits, `churn` per mille are rows that the step
 * before did not select. The last `sweep` steps select the k oldest cached rows
 * instead: ceil(hot / k) of them look at every row. */
struct hs_dsat_plan {
	uint32_t hot, misses, churn;
	uint64_t seed;
	uint32_t sweep;
};

/* An exact LRU cache by step of one request in one layer: a step's misses rank
 * below its hits, misses in list order, hits in their old order. */
struct hs_dsat_lru {
	uint32_t hot, size, step;
	uint64_t ctx;
	int32_t *order; /* size positions, oldest first */
	int32_t *spare;
	uint32_t *seen; /* per position: step of its last listing; top bit: cached */
};

/* Room for a trace of the shape that the fields already give. */
int hs_dsat_init(struct hs_dsat *trace);
void hs_dsat_finish(struct hs_dsat *trace);

static inline int32_t *hs_dsat_list(
	const struct hs_dsat *trace, uint32_t step, uint32_t layer, uint32_t request)
{
	return trace->positions +
	       (((size_t)step * trace->layers + layer) * trace->batch + request) * trace->k;
}

/* First step to time: the caches are full and have turned over once. */
uint32_t hs_dsat_warm(const struct hs_dsat *trace, uint32_t hot);

/* Fills the lists. -EINVAL when the plan cannot be met exactly. */
int hs_dsat_generate(struct hs_dsat *trace, const struct hs_dsat_plan *plan);

/* Runs every list through hs_dsat_lru, which shares no code with the generator.
 * misses: steps x layers x batch counts; missed: NULL, or of the size of the
 * positions: the missed ones at the start of each list. -EBADMSG when a
 * position is out of range or twice in a list. */
int hs_dsat_check(const struct hs_dsat *trace, uint32_t hot, uint32_t *misses, int32_t *missed);

int hs_dsat_write(const struct hs_dsat *trace, const char *path);
/* Version 2, recorded slots, too (tools/bench/slots.h). */
int hs_dsat_read(struct hs_dsat *trace, const char *path);

int hs_dsat_lru_init(struct hs_dsat_lru *lru, uint32_t hot, uint64_t ctx);
void hs_dsat_lru_finish(struct hs_dsat_lru *lru);

/* One step: *count missed positions go to `missed` (room for k), in list order. */
int hs_dsat_lru_step(
	struct hs_dsat_lru *lru, const int32_t *list, uint32_t k, int32_t *missed, uint32_t *count);

#endif
