/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_STEPS_H
#define TOOLS_HISPARSE_STEPS_H

/*
 * The steps of a trace (.jsonl) in figures: what swapping in cost each, and how
 * much of it could at most have been hidden by fetching ahead, from when the
 * positions (top-k) or the slots (list) of each layer were known.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hs_steps_figure {
	HS_STEPS_TIME,	    /* us from the start of its first swap-in to the next step's */
	HS_STEPS_SWAP_IN,   /* us */
	HS_STEPS_STALL,	    /* us */
	HS_STEPS_ATTENTION, /* us */
	HS_STEPS_MISSES,    /* share of the selected rows */
	HS_STEPS_TOPK_LEAD, /* us; this and what follows: NAN where no profile tells */
	HS_STEPS_TOPK_KERNELS,
	HS_STEPS_TOPK_HIDES, /* us */
	HS_STEPS_TOPK_SHARE, /* of the step */
	HS_STEPS_LIST_LEAD,
	HS_STEPS_LIST_KERNELS,
	HS_STEPS_LIST_HIDES,
	HS_STEPS_LIST_SHARE,
	HS_STEPS_FIGURES
};

struct hs_steps_step {
	uint64_t number, start;
	uint32_t device;
	uint64_t rows; /* selected, of a launch */
	double figures[HS_STEPS_FIGURES];
};

struct hs_steps {
	struct hs_steps_step *steps;
	size_t count, room;
	char why[256]; /* no times were traced: the reason */
};

/* 0; -EBADMSG: no trace of ours; -ENODATA: no kernel times; or another negative errno. */
int hs_steps_read(struct hs_steps *steps, const char *path);
void hs_steps_free(struct hs_steps *steps);

/* Steps of much the same size together: medians of those whose launches select more
 * than half as many rows as `rows`, a power of two, and no more. False: none do. */
bool hs_steps_group(
	const struct hs_steps *steps, uint64_t rows, struct hs_steps_step *middle, size_t *count);

/* A new reference. */
json_t *hs_steps_json(const struct hs_steps *steps, const char *path);
void hs_steps_text(const struct hs_steps *steps, bool each);

#endif
