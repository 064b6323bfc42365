/* SPDX-License-Identifier: MIT */
#include "softgpu/grid.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "softgpu/cuda_cpu.h"
#include "softgpu/fibre.h"
#include "softgpu/random.h"
#undef min
#undef max

#define RESIDENT_MAX (SOFT_SM_COUNT * SOFT_SM_THREADS)
/* Without a seed a thread goes on past this many points, and a block that
 * lets this many turns pass is taken to wait for one that is not in yet. */
#define POINTS_PER_TURN 64
#define PATIENCE 4096
#define POISON 0xa5

enum wait { WAIT_NONE, WAIT_BARRIER, WAIT_WARP };

struct thread {
	struct soft_thread self; /* first: soft_self points here */
	struct block *block;
	struct soft_fibre *fibre;
	enum wait wait;
	unsigned lane;
	bool exited, slow;
	/* Of the warp call or barrier that it waits in, then its result. */
	enum soft_collective what;
	unsigned mask, source;
	uint64_t value, result;
	int any, all;
};

struct block {
	struct soft_grid *grid;
	struct block *next;
	unsigned count, live, arrived, votes, in_warp; /* in_warp: wait in a warp call */
	void *shared, *dynamic;
	size_t shared_bytes;
	struct thread threads[];
};

struct soft_grid {
	const struct soft_launch *launch;
	void *params[SOFT_PARAMS_MAX];
	uint64_t next, total; /* blocks */
	unsigned resident, turns;
	struct block *blocks;
	struct thread **ready; /* a ring */
	unsigned capacity, head, count;
};

struct soft_thread *soft_self;
static unsigned points;

static struct thread *running(void)
{
	return (struct thread *)soft_self;
}

static void push(struct thread *thread)
{
	struct soft_grid *grid = thread->block->grid;

	grid->ready[(grid->head + grid->count++) % grid->capacity] = thread;
}

static struct thread *pop(struct soft_grid *grid)
{
	struct thread **first = &grid->ready[grid->head], *thread = *first, **other;

	if (soft_fuzzing()) {
		other = &grid->ready[(grid->head + soft_random(grid->count)) % grid->capacity];
		/* Some threads lag far behind the others. */
		if ((*other)->slow && soft_random(16))
			other = &grid->ready[(grid->head + soft_random(grid->count)) %
					     grid->capacity];
		thread = *other;
		*other = *first;
	}
	grid->head = (grid->head + 1) % grid->capacity;
	grid->count--;
	return thread;
}

void soft_point(void)
{
	if (!soft_self) /* device code that the host calls */
		return;
	if (soft_fuzzing() ? soft_random(2) : ++points % POINTS_PER_TURN)
		return;
	push(running());
	soft_fibre_leave();
}

/* It waits for another thread, maybe one of a block that is not there yet. */
void soft_sleep(void)
{
	if (!soft_self)
		return;
	running()->block->grid->turns = PATIENCE + 1;
	push(running());
	soft_fibre_leave();
}

void *soft_shared(size_t bytes)
{
	struct block *block = running()->block;

	if (!block->shared) {
		block->shared = malloc(bytes);
		block->shared_bytes = bytes;
		memset(block->shared, POISON, bytes);
	}
	return bytes <= block->shared_bytes ? block->shared : NULL;
}

void *soft_shared_dynamic(void)
{
	return running()->block->dynamic;
}

static void barrier_open(struct block *block)
{
	for (unsigned i = 0; i < block->count; i++) {
		struct thread *thread = &block->threads[i];

		if (thread->wait != WAIT_BARRIER)
			continue;
		thread->wait = WAIT_NONE;
		thread->result = block->votes;
		thread->any = block->votes > 0;
		thread->all = block->votes == block->arrived;
		push(thread);
	}
	block->arrived = block->votes = 0;
}

int soft_barrier(int predicate, int *any, int *all)
{
	struct thread *thread = running();
	struct block *block = thread->block;

	thread->wait = WAIT_BARRIER;
	block->votes += !!predicate;
	if (++block->arrived == block->live)
		barrier_open(block);
	soft_fibre_leave();
	if (any)
		*any = thread->any;
	if (all)
		*all = thread->all;
	return (int)thread->result;
}

/* Ballot, any, all: by the lanes' predicates. Shuffle: the source lane's
 * value, poison if it takes no part. Match: the lanes of the same value. Sum: of
 * the values. */
static uint64_t warp_result(const struct thread *lanes, const struct thread *thread, unsigned mask)
{
	unsigned yes = 0, same = 0;
	uint64_t sum = 0;

	for (unsigned i = 0; i < 32; i++) {
		if (!(mask >> i & 1))
			continue;
		yes |= lanes[i].value ? 1u << i : 0;
		same |= lanes[i].value == thread->value ? 1u << i : 0;
		sum += lanes[i].value;
	}
	switch (thread->what) {
	case SOFT_BALLOT:
		return yes;
	case SOFT_ANY:
		return yes != 0;
	case SOFT_ALL:
		return yes == mask;
	case SOFT_MATCH:
		return same;
	case SOFT_SUM:
		return sum;
	case SOFT_SHUFFLE:
		break;
	}
	if (mask >> thread->source & 1)
		return lanes[thread->source].value;
	return 0xa5a5a5a5a5a5a5a5;
}

/* The group that waits with this thread goes on once all its lanes that have
 * not exited make the same call (what CUDA asks of the mask). */
static void warp_check(struct thread *thread)
{
	struct block *block = thread->block;
	struct thread *lanes = thread - thread->lane;
	unsigned first = (unsigned)(lanes - block->threads), mask = 0;

	for (unsigned i = 0; i < 32 && first + i < block->count; i++) {
		if (!(thread->mask >> i & 1) || lanes[i].exited)
			continue;
		if (lanes[i].wait != WAIT_WARP || lanes[i].mask != thread->mask ||
			lanes[i].what != thread->what)
			return;
		mask |= 1u << i;
	}
	for (unsigned i = 0; i < 32; i++) {
		if (mask >> i & 1)
			lanes[i].result = warp_result(lanes, &lanes[i], mask);
	}
	for (unsigned i = 0; i < 32; i++) {
		if (mask >> i & 1) {
			lanes[i].wait = WAIT_NONE;
			block->in_warp--;
			push(&lanes[i]);
		}
	}
}

uint64_t soft_warp(enum soft_collective what, unsigned mask, uint64_t value, unsigned source)
{
	struct thread *thread = running();

	thread->wait = WAIT_WARP;
	thread->block->in_warp++;
	thread->what = what;
	thread->mask = mask;
	thread->value = value;
	thread->source = source & 31;
	warp_check(thread);
	soft_fibre_leave();
	return thread->result;
}

static void thread_main(void *data)
{
	struct thread *thread = data;
	struct soft_grid *grid = thread->block->grid;

	grid->launch->kernel->run(grid->params);
}

static void block_destroy(struct block *block)
{
	for (unsigned i = 0; i < block->count; i++) {
		if (block->threads[i].fibre)
			soft_fibre_destroy(block->threads[i].fibre);
	}
	free(block->shared);
	free(block->dynamic);
	free(block);
}

static bool admit(struct soft_grid *grid)
{
	const unsigned *size = grid->launch->block, *blocks = grid->launch->grid;
	unsigned count = size[0] * size[1] * size[2];
	struct block *block = calloc(1, sizeof(*block) + count * sizeof(block->threads[0]));

	if (!block)
		return false;
	block->grid = grid;
	block->count = block->live = count;
	if (grid->launch->shared) {
		block->dynamic = malloc(grid->launch->shared);
		memset(block->dynamic, POISON, grid->launch->shared);
	}
	for (unsigned i = 0; i < count; i++) {
		struct thread *thread = &block->threads[i];

		thread->self.thread_idx =
			(uint3){i % size[0], i / size[0] % size[1], i / size[0] / size[1]};
		thread->self.block_idx = (uint3){(unsigned)(grid->next % blocks[0]),
			(unsigned)(grid->next / blocks[0] % blocks[1]),
			(unsigned)(grid->next / blocks[0] / blocks[1])};
		thread->self.block_dim = (uint3){size[0], size[1], size[2]};
		thread->self.grid_dim = (uint3){blocks[0], blocks[1], blocks[2]};
		thread->block = block;
		thread->lane = i & 31;
		thread->slow = soft_fuzzing() && !soft_random(16);
	}
	for (unsigned i = 0; i < count; i++)
		push(&block->threads[i]);
	block->next = grid->blocks;
	grid->blocks = block;
	grid->resident += count;
	grid->next++;
	return true;
}

static bool wants_block(const struct soft_grid *grid)
{
	const unsigned *size = grid->launch->block;

	if (grid->next == grid->total ||
		grid->resident + size[0] * size[1] * size[2] > RESIDENT_MAX)
		return false;
	if (!grid->count)
		return true;
	return soft_fuzzing() ? !soft_random(32) : grid->turns > PATIENCE;
}

static void thread_exit(struct soft_grid *grid, struct thread *thread)
{
	struct block *block = thread->block, **link;
	struct thread *lanes = thread - thread->lane;

	thread->exited = true;
	soft_fibre_destroy(thread->fibre);
	thread->fibre = NULL;
	grid->turns = 0;
	if (--block->live) {
		if (block->arrived == block->live)
			barrier_open(block);
		for (unsigned i = 0;
			block->in_warp && i < 32 && &lanes[i] < block->threads + block->count;
			i++) {
			if (lanes[i].wait == WAIT_WARP)
				warp_check(&lanes[i]);
		}
		return;
	}
	for (link = &grid->blocks; *link != block; link = &(*link)->next)
		continue;
	*link = block->next;
	grid->resident -= block->count;
	block_destroy(block);
}

static enum soft_progress stuck(const struct soft_grid *grid)
{
	unsigned barrier = 0, warp = 0;

	for (const struct block *block = grid->blocks; block; block = block->next) {
		for (unsigned i = 0; i < block->count; i++) {
			barrier += block->threads[i].wait == WAIT_BARRIER;
			warp += block->threads[i].wait == WAIT_WARP;
		}
	}
	fprintf(stderr,
		"softgpu: kernel %s cannot go on: %u threads wait at a barrier, %u in a warp "
		"call\n",
		grid->launch->kernel->name, barrier, warp);
	return SOFT_STUCK;
}

enum soft_progress soft_grid_step(struct soft_grid *grid)
{
	struct thread *thread;
	bool ended;

	if (wants_block(grid)) {
		grid->turns = 0;
		if (!admit(grid) && !grid->count)
			return SOFT_STUCK;
	}
	if (!grid->count)
		return grid->blocks ? stuck(grid) : SOFT_DONE;
	thread = pop(grid);
	grid->turns++;
	/* Only now: threads that never wait use one stack after the other. */
	if (!thread->fibre)
		thread->fibre = soft_fibre_create(thread_main, thread);
	if (!thread->fibre)
		return SOFT_STUCK;
	soft_self = &thread->self;
	ended = soft_fibre_enter(thread->fibre);
	soft_self = NULL;
	if (ended)
		thread_exit(grid, thread);
	return SOFT_RUNNING;
}

struct soft_grid *soft_grid_create(const struct soft_launch *launch)
{
	struct soft_grid *grid = calloc(1, sizeof(*grid));
	size_t offsets[SOFT_PARAMS_MAX];
	uint64_t threads;

	if (!grid)
		return NULL;
	grid->launch = launch;
	grid->total = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
	threads = grid->total * launch->block[0] * launch->block[1] * launch->block[2];
	grid->capacity = threads < RESIDENT_MAX ? (unsigned)threads : RESIDENT_MAX;
	grid->ready = malloc(grid->capacity * sizeof(struct thread *));
	if (!grid->ready) {
		free(grid);
		return NULL;
	}
	soft_kernel_layout(launch->kernel, offsets);
	for (unsigned i = 0; i < launch->kernel->count; i++)
		grid->params[i] = launch->bytes + offsets[i];
	return grid;
}

void soft_grid_destroy(struct soft_grid *grid)
{
	for (struct block *block = grid->blocks, *next; block; block = next) {
		next = block->next;
		block_destroy(block);
	}
	free(grid->ready);
	free(grid);
}

size_t soft_kernel_layout(const struct soft_kernel *kernel, size_t offsets[SOFT_PARAMS_MAX])
{
	size_t end = 0;

	for (unsigned i = 0; i < kernel->count; i++) {
		const struct soft_param *param = &kernel->params[i];

		end = (end + param->align - 1) / param->align * param->align;
		offsets[i] = end;
		end += param->size;
	}
	return end;
}
