/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_TIMELINE_H
#define SRC_TRACE_TIMELINE_H

/*
 * Joins what the device says of resolve launches with what CUPTI says of
 * kernels. The n-th launch is the n-th resolve kernel as long as the device's
 * clock agrees; where one side lost records it finds the way back by it. An
 * attention kernel and its combine belong to the swap-in before them on their
 * stream, a writer, the invalidation, what makes the list and what stages to the
 * swap-in after it.
 *
 * One caller at a time. Memory is bounded: what does not fit is counted.
 */

#include <stddef.h>
#include "kernels/abi.h"
#include "src/trace/cupti.h"
#include "src/trace/export.h"

struct hs_timeline;

/* timed: kernels will come; else launches are all there is. Events go to export,
 * which stays the caller's. NULL when memory is out. */
struct hs_timeline *hs_timeline_create(struct hs_export *export, bool timed);
void hs_timeline_destroy(struct hs_timeline *timeline);

/* Launches from this time of CUPTI's clock on were told by the device. */
void hs_timeline_since(struct hs_timeline *timeline, uint64_t start);

/* A launch, in the order in which the device told them. row: bytes of a row;
 * base: the layer's totals before its first launch here, NULL: zero. */
void hs_timeline_launch(struct hs_timeline *timeline, uint32_t device,
	const struct hs_journal_launch *launch, uint32_t row, const uint64_t *base);

/* Kernels, in any order. */
void hs_timeline_kernels(
	struct hs_timeline *timeline, const struct hs_cupti_kernel *kernels, size_t count);

/* No kernels will come any more: tells what came, and launches by themselves. */
void hs_timeline_untimed(struct hs_timeline *timeline);

/* Tells what ended before `until` (UINT64_MAX: everything, the end). */
void hs_timeline_run(struct hs_timeline *timeline, uint64_t until);

/* End of the latest kernel so far. */
uint64_t hs_timeline_latest(const struct hs_timeline *timeline);

/* What is missing, but for kernels that CUPTI lost. */
void hs_timeline_tail(const struct hs_timeline *timeline, struct hs_trace_tail *tail);

/* What a kernel of this mangled name is to us. */
enum hs_trace_kind hs_timeline_kind(const char *name);

#endif
