/* SPDX-License-Identifier: MIT */
#ifndef SOFTGPU_CAPTURE_H
#define SOFTGPU_CAPTURE_H

/*
 * Stream captures, and which calls they forbid to whom (CUDA 13.0, the text of
 * cuThreadExchangeStreamCaptureMode and the programming guide's section on
 * stream capture).
 */

#include "softgpu/graph.h"
#include "softgpu/soft.h"

struct soft_capture {
	unsigned long long id;
	CUstreamCaptureMode mode;
	const void *thread; /* that began it */
	bool invalid;
	bool to_graph; /* the graph is the caller's */
	struct soft_graph *graph;
	struct soft_stream *origin;
	struct soft_capture *next;
};

/* An error if this thread may make no unsafe call now; the captures that it
 * would disturb are invalid then. */
CUresult soft_capture_unsafe(void);
/* Fails if any capture is open: for calls that cover all streams. */
CUresult soft_capture_any(void);
/* The legacy stream may not be used beside a capture on a blocking stream. */
CUresult soft_capture_implicit(void);
/* Marks it invalid and returns the error. */
CUresult soft_capture_spoil(struct soft_capture *capture, CUresult error);
/* A node behind what the capturing stream has so far. Takes the op over. */
CUresult soft_capture_add(struct soft_stream *stream, struct soft_op *op);
/* An open capture by its id (events remember that), or NULL. */
struct soft_capture *soft_capture_find(unsigned long long id);
/* `stream` joins, its next node comes after these as well. */
CUresult soft_capture_join(
	struct soft_stream *stream, struct soft_capture *capture, const struct soft_nodes *nodes);

#endif
