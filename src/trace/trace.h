/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_TRACE_H
#define SRC_TRACE_TRACE_H

/*
 * What this process tells about itself while it runs and when it ends. The
 * work is done by one thread of ours, which blocks every signal, calls no
 * driver and is not there in a forked child.
 */

/* A safe moment of a process that has windows: the first one takes note of the
 * process and starts what HISPARSE_METRICS asks for; then see session.h. */
void hs_trace_settle(void);

#endif
