/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_EXPORT_H
#define SRC_TRACE_EXPORT_H

/*
 * A trace as a file, in the form that its name's end asks for:
 *
 *	.jsonl    a record a line, below
 *	.json     Chrome's trace events (chrome://tracing, Perfetto)
 *	.pftrace  Perfetto's protobuf
 *
 * Every JSONL record has a "type":
 *	head    version, pid, clock, why (if there is no CUPTI)
 *	kernel  kind, name, layer, step, device, stream, start, end; graph and
 *	        node in a graph; a swap-in also hits, misses, inplace, bytes, and
 *	        topk_lead, topk_kernels, list_lead, list_kernels where profiles tell
 *	        what makes its list: ns since the positions and since the slots were
 *	        known, and the kernels that started meanwhile; an attention kernel
 *	        also stall: ns from the end of what ran before the swap-in to its own
 *	        start
 *	step    step, device, launches, start, end, swap_in, attention, stall (ns),
 *	        topk_lead, list_lead, hits, misses, inplace, bytes: sums over the
 *	        layers of a forward pass; topk_hides, list_hides: the same of the
 *	        lesser of swap-in and lead, what a fetch ahead could hide at most
 *	end     lost_kernels, lost_launches, unmatched
 * Without CUPTI "name" and "start" are missing, and swap-ins are all there is.
 */

#include "src/trace/event.h"

struct hs_export;

/* Whether the name's end is one of these. */
bool hs_export_knows(const char *path);

/* Makes the file. -EINVAL: no form goes by this name. */
int hs_export_create(struct hs_export **out, const char *path, const struct hs_trace_head *head);
void hs_export_event(struct hs_export *export, const struct hs_trace_event *event);
void hs_export_step(struct hs_export *export, const struct hs_trace_step *step);
void hs_export_flush(struct hs_export *export);

/* Returns 0 or the first error of all that was written. */
int hs_export_close(struct hs_export *export, const struct hs_trace_tail *tail);

#endif
