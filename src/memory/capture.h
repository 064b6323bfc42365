/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_CAPTURE_H
#define SRC_MEMORY_CAPTURE_H

/*
 * The captures that are open anywhere in the process: while there is one,
 * windows stay where they are. A capture need not end as it should: it can be
 * invalidated and left, or go with its stream or context. So each is known by
 * its id, and what the driver no longer has is forgotten when somebody waits
 * for it. Not noticed: the end of a thread that captures on its per-thread
 * default stream, which no other thread can ask about.
 */

#include <stdbool.h>
#include "hooks/driver.h"

/* began: before the driver's own begin, so that no capture opens while the gate
 * is closed (it waits for that). Then one of the two: the driver has opened it
 * on this stream, or not. */
void hs_capture_began(void);
void hs_capture_opened(CUstream stream, bool per_thread);
void hs_capture_failed(void);

/* After the driver's end. An id that is not known is fine. */
void hs_capture_ended(cuuint64_t id);

/* The capture on a stream that is about to be destroyed, 0: none. If the driver
 * does destroy it, the capture has ended. */
cuuint64_t hs_capture_of(CUstream stream);
void hs_capture_context_gone(CUcontext context);

/* How many are thought to be open. One load. */
int hs_capture_count(void);

/* Whether there is none, after asking the driver about those that are thought
 * to be open. */
bool hs_capture_none(void);

#endif
