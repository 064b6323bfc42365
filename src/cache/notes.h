/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_NOTES_H
#define SRC_CACHE_NOTES_H

/*
 * Which nodes of a capture are ours, and which of the engine's we rewrote, noted
 * while it is open. Launch path but for begin and end: no allocation, one
 * question to the driver a node, and no lock that is held for long.
 */

#include <stdbool.h>
#include <stdint.h>
#include "src/cache/cache.h"

#define HS_NOTES_FIELDS 5  /* of a launch */
#define HS_NOTES_PARAMS 64 /* of a kernel */

/* What the engine's launch had in the place of what we wrote into it. */
struct hs_notes_launch {
	unsigned params; /* of the kernel; 0: not known */
	unsigned count;
	struct hs_notes_field {
		uint32_t param, offset, width; /* bytes */
		uint32_t size;		       /* of the parameter */
		int64_t value;
	} fields[HS_NOTES_FIELDS];
};

struct hs_note {
	CUgraphNode node;
	uint16_t params, count; /* of the kernel; of the fields, 0: one of ours */
	uint32_t first;		/* of the fields */
};

struct hs_notes {
	cuuint64_t capture;
	CUcontext context;
	bool spoilt; /* not all of them could be noted */
	unsigned count, nfields, theirs;
	struct hs_note *list; /* in the end the engine's first, `theirs` of them */
	struct hs_notes_field *fields;
	CUDA_KERNEL_NODE_PARAMS *params; /* of theirs; what it points to is the node's */
};

/* Notes of the capture that has just begun on the stream. */
void hs_notes_begin(CUstream stream, bool per_thread);

/* The last kernel on the site's stream, which captures: one of ours (launch NULL),
 * or one of the engine's that we rewrote. */
void hs_notes_add(const struct hs_site *site, const struct hs_notes_launch *launch);

/* It has ended. NULL: nothing of ours, or not all of it, was noted. keep false:
 * it came to nothing. */
struct hs_notes *hs_notes_end(cuuint64_t capture, bool keep);
void hs_notes_free(struct hs_notes *notes);

#endif
