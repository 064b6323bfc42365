/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_LEAD_H
#define SRC_TRACE_LEAD_H

/*
 * How long before a swap-in its list was known: what a fetch ahead of it could
 * hide, at most. The kernels that make lists are known by their profiles; the
 * last one on the device before a swap-in made its list, on whichever stream it
 * ran. (Micro-batches that run side by side take each other's.)
 */

#include "src/trace/event.h"

struct hs_lead_mark {
	bool known;
	uint64_t end;	  /* of the kernel */
	uint64_t kernels; /* up to it */
};

/* A device. */
struct hs_lead {
	uint64_t kernels; /* so far, in the order of their starts */
	uint64_t since;	  /* what ended before belongs to an earlier step */
	bool open;	  /* positions without their list so far */
	struct hs_lead_mark positions, chosen, list;
};

/* After each kernel, ours too. */
void hs_lead_ran(struct hs_lead *lead, enum hs_trace_kind kind, uint64_t end);

/* Fills in event->list and event->topk. The swap-in's first kernel started at
 * `start`, behind so many others. */
void hs_lead_tell(
	const struct hs_lead *lead, uint64_t start, uint64_t kernels, struct hs_trace_event *event);

/* Adds a swap-in that took so many ns to its step. */
void hs_lead_sum(struct hs_trace_step *step, const struct hs_trace_event *event, uint64_t took);

#endif
