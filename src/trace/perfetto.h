/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_PERFETTO_H
#define SRC_TRACE_PERFETTO_H

/*
 * A trace in Perfetto's protobuf: a track for each stream, one for the steps,
 * and counters of misses and of bytes fetched a launch. Field numbers are those
 * of perfetto/trace/trace_packet.proto of 2024 and later; they never change.
 */

#include <stdio.h>
#include "src/trace/event.h"

void hs_perfetto_head(FILE *file, const struct hs_trace_head *head);
void hs_perfetto_event(FILE *file, const struct hs_trace_event *event);
void hs_perfetto_step(FILE *file, const struct hs_trace_step *step);
void hs_perfetto_tail(FILE *file, const struct hs_trace_tail *tail);

#endif
