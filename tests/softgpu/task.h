/* SPDX-License-Identifier: MIT */
#ifndef SOFTGPU_TASK_H
#define SOFTGPU_TASK_H

/*
 * Work and what it waits for. A stream's order, an event, a graph's edges are
 * all dependencies between tasks. Without a seed a task runs when it is
 * submitted; with one it waits, and whoever needs it done runs a random choice
 * of whatever may run, so that streams overtake and interleave each other.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "softgpu/grid.h"

enum soft_op_kind { SOFT_OP_NOTHING, SOFT_OP_KERNEL, SOFT_OP_COPY, SOFT_OP_FILL, SOFT_OP_HOST };

/* A box of rows; `width` bytes each. */
struct soft_box {
	char *dst;
	const char *src; /* copies */
	size_t width, height, depth;
	size_t dst_pitch, src_pitch, dst_slice, src_slice;
	uint32_t value; /* fills: width is in bytes, the value repeats */
	unsigned value_bytes;
	void *staged; /* owned copy of a pageable source, or NULL */
};

/* What a task does, and what a graph's node holds. */
struct soft_op {
	enum soft_op_kind kind;
	union {
		struct soft_launch launch;
		struct soft_box box;
		struct {
			void (*call)(void *data);
			void *data;
		} host;
	};
};

bool soft_op_copy(struct soft_op *to, const struct soft_op *from);
void soft_op_finish(struct soft_op *op);

struct soft_task {
	unsigned refs;
	bool done;
	uint64_t when; /* ns, when it was done */
	struct soft_op op;
	struct soft_grid *grid;
	size_t row; /* of a box: next to do */
	struct soft_task **deps;
	unsigned count;
	struct soft_task *next; /* of those not done, in the order submitted */
};

/* Takes over the op. Refers to deps (NULLs allowed). NULL without memory. The
 * caller holds a reference. */
struct soft_task *soft_task_submit(
	struct soft_op *op, struct soft_task *const *deps, unsigned count);
struct soft_task *soft_task_ref(struct soft_task *task); /* NULL-safe */
void soft_task_unref(struct soft_task *task);		 /* NULL-safe */

/* Done when everything so far is; as soft_task_submit. */
struct soft_task *soft_task_barrier(void);

void soft_run(struct soft_task *task); /* until done; NULL-safe */
void soft_run_all(void);
void soft_run_some(unsigned steps);

#endif
