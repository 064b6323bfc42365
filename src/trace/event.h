/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_EVENT_H
#define SRC_TRACE_EVENT_H

/* What a trace consists of. Times are ns of one clock, hs_trace_head says which. */

#include <stdbool.h>
#include <stdint.h>

enum hs_trace_kind {
	HS_TRACE_SWAP_IN,
	HS_TRACE_STAGE, /* what goes before the swap-in of a long list, and is part of it */
	HS_TRACE_INVALIDATE,
	HS_TRACE_DROP,
	HS_TRACE_RELEASE,
	HS_TRACE_VERIFY,
	HS_TRACE_TOPK, /* chooses positions */
	HS_TRACE_LIST, /* makes the list of slots */
	HS_TRACE_WRITER,
	HS_TRACE_ATTENTION,
	HS_TRACE_COMBINE, /* merges attention's splits */
	HS_TRACE_READER,
	HS_TRACE_OTHER, /* not told, but its time counts */
};
extern const char *const hs_trace_kinds[];

struct hs_trace_head {
	int pid;
	const char *version;
	const char *clock; /* "cupti", or "device": no times but when a launch ended */
	const char *why;   /* no CUPTI: the reason, else NULL */
};

/* From the end of a kernel that a swap-in depends on to its start, and how many
 * kernels started in between. */
struct hs_trace_lead {
	bool known;
	uint32_t kernels;
	uint64_t time;
};

/* A kernel; without CUPTI a swap-in launch with its end only. */
struct hs_trace_event {
	enum hs_trace_kind kind;
	const char *name; /* as the driver mangles it; NULL without CUPTI */
	int32_t layer;	  /* -1: not known */
	uint64_t step;	  /* 0: not known */
	uint32_t device, stream, graph;
	uint64_t node; /* of the graph; 0: launched eagerly */
	uint64_t start, end;
	bool counted; /* a swap-in whose counts are known */
	uint64_t hits, misses, inplace, bytes;
	struct hs_trace_lead topk, list; /* swap-in: since positions, since slots were known */
	bool stalled; /* the first attention after a swap-in */
	uint64_t stall;
};

/* A forward pass: sums over its layers. */
struct hs_trace_step {
	uint64_t step;
	uint32_t device, launches; /* swap-ins */
	uint64_t start, end;
	uint64_t swap_in, attention, stall; /* ns */
	uint64_t topk_lead, list_lead;
	uint64_t topk_hides, list_hides; /* of each swap-in no more than its lead */
	uint64_t hits, misses, inplace, bytes;
};

/* What is missing at the end. */
struct hs_trace_tail {
	uint64_t lost_kernels, lost_launches;
	uint64_t unmatched; /* swap-ins without their counts */
};

#endif
