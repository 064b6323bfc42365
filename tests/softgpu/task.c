/* SPDX-License-Identifier: MIT */
#include "softgpu/task.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "softgpu/soft.h"

#define QUEUE_MAX 4096 /* then submitting waits, as in a real driver */

static struct soft_task *first, **last = &first;
static struct soft_task *focus; /* goes on with this one for so many steps */
static unsigned patience;
static unsigned queued;

bool soft_op_copy(struct soft_op *to, const struct soft_op *from)
{
	size_t offsets[SOFT_PARAMS_MAX], bytes;

	*to = *from;
	if (from->kind != SOFT_OP_KERNEL)
		return true; /* nodes never hold staged sources */
	bytes = soft_kernel_layout(from->launch.kernel, offsets);
	to->launch.bytes = malloc(bytes + 1);
	if (!to->launch.bytes)
		return false;
	memcpy(to->launch.bytes, from->launch.bytes, bytes);
	return true;
}

void soft_op_finish(struct soft_op *op)
{
	if (op->kind == SOFT_OP_KERNEL)
		free(op->launch.bytes);
	else if (op->kind == SOFT_OP_COPY)
		free(op->box.staged);
	op->kind = SOFT_OP_NOTHING;
}

struct soft_task *soft_task_ref(struct soft_task *task)
{
	if (task)
		task->refs++;
	return task;
}

static void drop_deps(struct soft_task *task)
{
	for (unsigned i = 0; i < task->count; i++)
		soft_task_unref(task->deps[i]);
	free(task->deps);
	task->deps = NULL;
	task->count = 0;
}

void soft_task_unref(struct soft_task *task)
{
	if (!task || --task->refs)
		return;
	drop_deps(task);
	free(task);
}

static bool ready(struct soft_task *task)
{
	for (unsigned i = 0; i < task->count; i++) {
		if (!task->deps[i]->done)
			return false;
	}
	drop_deps(task);
	return true;
}

static void complete(struct soft_task *task)
{
	struct soft_task **link;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	task->when = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	task->done = true;
	if (task->grid)
		soft_grid_destroy(task->grid);
	task->grid = NULL;
	soft_op_finish(&task->op);
	for (link = &first; *link != task; link = &(*link)->next)
		continue;
	*link = task->next;
	if (last == &task->next)
		last = link;
	if (focus == task)
		focus = NULL;
	queued--;
	soft_task_unref(task);
}

/* One row, or a random part of it: a kernel beside sees a copy half done. */
static bool box_step(struct soft_task *task)
{
	struct soft_box *box = &task->op.box;
	size_t y = task->row % box->height, z = task->row / box->height;
	char *dst = box->dst + y * box->dst_pitch + z * box->dst_slice;

	if (task->op.kind == SOFT_OP_COPY) {
		memmove(dst, box->src + y * box->src_pitch + z * box->src_slice, box->width);
	} else if (box->value_bytes == 1) {
		memset(dst, (int)box->value, box->width);
	} else {
		for (size_t i = 0; i < box->width; i += box->value_bytes)
			memcpy(dst + i, &box->value, box->value_bytes);
	}
	return ++task->row == box->height * box->depth;
}

/* Splits a long single row, so that it too takes several steps. */
static void box_split(struct soft_box *box)
{
	size_t parts = 1 + soft_random(8);

	if (box->height * box->depth != 1 || box->width % (parts * 4))
		return;
	if (box->src && box->dst < box->src + box->width && box->src < box->dst + box->width)
		return; /* they overlap */
	box->width /= parts;
	box->height = parts;
	box->dst_pitch = box->src_pitch = box->width;
}

static void step(struct soft_task *task)
{
	enum soft_progress progress = SOFT_DONE;

	switch (soft.error ? SOFT_OP_NOTHING : task->op.kind) {
	case SOFT_OP_NOTHING:
		break;
	case SOFT_OP_KERNEL:
		if (!task->grid) {
			task->grid = soft_grid_create(&task->op.launch);
			soft.launches++;
		}
		progress = task->grid ? soft_grid_step(task->grid) : SOFT_STUCK;
		break;
	case SOFT_OP_COPY:
	case SOFT_OP_FILL:
		progress = box_step(task) ? SOFT_DONE : SOFT_RUNNING;
		break;
	case SOFT_OP_HOST:
		task->op.host.call(task->op.host.data);
		break;
	}
	if (progress == SOFT_STUCK)
		soft.error = CUDA_ERROR_LAUNCH_FAILED;
	if (progress != SOFT_RUNNING)
		complete(task);
}

static void choose(void)
{
	unsigned count = 0, pick;

	for (struct soft_task *task = first; task; task = task->next)
		count += ready(task);
	patience = soft_random(soft_random(2) ? 3 : 1024); /* fine and coarse mixtures */
	pick = soft_random(count); /* deps are older: the first is always ready */
	for (focus = first; focus; focus = focus->next) {
		if (ready(focus) && !pick--)
			return;
	}
}

static void step_any(void)
{
	if (soft_fuzzing() && (!focus || !patience--))
		choose();
	else if (!soft_fuzzing())
		focus = first;
	step(focus);
}

void soft_run(struct soft_task *task)
{
	while (task && !task->done)
		step_any();
}

void soft_run_all(void)
{
	while (first)
		step_any();
}

void soft_run_some(unsigned steps)
{
	while (first && steps--)
		step_any();
}

struct soft_task *soft_task_submit(
	struct soft_op *op, struct soft_task *const *deps, unsigned count)
{
	struct soft_task *task = calloc(1, sizeof(*task));
	struct soft_task **copy = calloc(count + 1, sizeof(*copy));

	if (!task || !copy) {
		free(task);
		free(copy);
		soft_op_finish(op);
		return NULL;
	}
	task->op = *op;
	task->refs = 2; /* the caller's and the queue's */
	task->deps = copy;
	for (unsigned i = 0; i < count; i++) {
		if (deps[i] && !deps[i]->done)
			copy[task->count++] = soft_task_ref(deps[i]);
	}
	*last = task;
	last = &task->next;
	queued++;
	if (soft_fuzzing() && (op->kind == SOFT_OP_COPY || op->kind == SOFT_OP_FILL))
		box_split(&task->op.box);
	if (!soft_fuzzing())
		soft_run_all();
	else if (queued > QUEUE_MAX)
		soft_run(task);
	return task;
}

struct soft_task *soft_task_barrier(void)
{
	struct soft_op nothing = {.kind = SOFT_OP_NOTHING};
	struct soft_task **deps, *task;
	unsigned count = 0;

	for (task = first; task; task = task->next)
		count++;
	deps = calloc(count + 1, sizeof(*deps));
	if (!deps)
		return NULL;
	count = 0;
	for (task = first; task; task = task->next)
		deps[count++] = task;
	task = soft_task_submit(&nothing, deps, count);
	free(deps);
	return task;
}
