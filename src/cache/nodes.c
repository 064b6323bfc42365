/* SPDX-License-Identifier: MIT */
#include "src/cache/nodes.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/cache/notes.h"

#define BYTES 4096 /* of the parameters that are not as the node has them */

struct graph {
	CUgraph handle;
	bool doomed; /* the engine has destroyed it */
	unsigned execs;
	struct hs_notes *notes;
	struct graph *next;
};

struct exec {
	CUgraphExec handle;
	struct graph *graph; /* NULL: gone without a word */
	unsigned resting;    /* so many of its notes, from the first */
	struct exec *next;
};

/* A leaf but for the driver. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph *graphs;
static struct exec *execs;
static bool awake;  /* a layer swaps, or may */
static bool unable; /* the driver has refused */
static bool stuck;  /* some nodes could not be enabled again */

static struct graph *graph_find(CUgraph handle)
{
	struct graph *graph = graphs;

	while (graph && graph->handle != handle)
		graph = graph->next;
	return graph;
}

/* Out of the list, and away. */
static void graph_drop(struct graph *graph)
{
	struct graph **link = &graphs;

	while (*link != graph)
		link = &(*link)->next;
	*link = graph->next;
	for (struct exec *e = execs; e; e = e->next)
		if (e->graph == graph)
			e->graph = NULL;
	if (graph->doomed)
		hs_driver.cuGraphDestroy(graph->handle);
	hs_notes_free(graph->notes);
	free(graph);
}

static struct exec *exec_find(CUgraphExec handle)
{
	struct exec *exec = execs;

	while (exec && exec->handle != handle)
		exec = exec->next;
	return exec;
}

static void exec_drop(struct exec *exec)
{
	struct exec **link = &execs;
	struct graph *graph = exec->graph;

	while (*link != exec)
		link = &(*link)->next;
	*link = exec->next;
	free(exec);
	if (graph && !--graph->execs && graph->doomed)
		graph_drop(graph);
}

/* The note's launch with the engine's own values. */
static CUresult set_engines(CUgraphExec exec, const struct hs_notes *notes, unsigned i)
{
	const struct hs_note *note = &notes->list[i];
	CUDA_KERNEL_NODE_PARAMS params = notes->params[i];
	_Alignas(16) unsigned char bytes[BYTES];
	void *pointers[HS_NOTES_PARAMS];
	size_t used = 0;

	memcpy(pointers, params.kernelParams, note->params * sizeof(*pointers));
	for (unsigned j = note->first; j < note->first + note->count; j++) {
		const struct hs_notes_field *f = &notes->fields[j];

		if (pointers[f->param] == params.kernelParams[f->param]) {
			used = (used + 15) & ~(size_t)15;
			if (used + f->size > BYTES)
				return CUDA_ERROR_INVALID_VALUE;
			pointers[f->param] = memcpy(bytes + used, pointers[f->param], f->size);
			used += f->size;
		}
		memcpy((char *)pointers[f->param] + f->offset, &f->value, f->width);
	}
	params.kernelParams = pointers;
	return hs_driver.cuGraphExecKernelNodeSetParams_v2(exec, note->node, &params);
}

static bool turn_note(const struct exec *exec, unsigned i, bool on)
{
	const struct hs_notes *notes = exec->graph->notes;
	const CUgraphNode node = notes->list[i].node;
	CUresult result;

	if (i >= notes->theirs)
		result = hs_driver.cuGraphNodeSetEnabled(exec->handle, node, on);
	else if (on)
		result = hs_driver.cuGraphExecKernelNodeSetParams_v2(
			exec->handle, node, &notes->params[i]);
	else
		result = set_engines(exec->handle, notes, i);
	return result == CUDA_SUCCESS;
}

/* Attention gets the engine's list back before ours stops to be filled, and ours
 * when it is filled again: as long as no layer swaps any number of notes may rest. */
static bool rest_notes(struct exec *exec)
{
	while (exec->resting < exec->graph->notes->count) {
		if (!turn_note(exec, exec->resting, false))
			return false;
		exec->resting++;
	}
	return true;
}

static bool wake_notes(struct exec *exec)
{
	while (exec->resting) {
		if (!turn_note(exec, exec->resting - 1, true))
			return false;
		exec->resting--;
	}
	return true;
}

/* Other threads may be capturing, in global mode. */
static bool turn(struct exec *exec, bool on)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext popped;
	bool turned;

	if (on && !exec->resting)
		return true;
	if (!exec->graph ||
		hs_driver.cuCtxPushCurrent_v2(exec->graph->notes->context) != CUDA_SUCCESS)
		return false;
	hs_driver.cuThreadExchangeStreamCaptureMode(&mode);
	turned = on ? wake_notes(exec) : rest_notes(exec);
	if (!turned && !on)
		wake_notes(exec);
	hs_driver.cuThreadExchangeStreamCaptureMode(&mode);
	hs_driver.cuCtxPopCurrent_v2(&popped);
	return turned;
}

/* Refused once, refused always: everything stays as it was captured. */
static void give_up(void)
{
	if (!unable)
		hs_info("this driver does not disable nodes of ours in graphs: they run also while "
			"everything fits");
	unable = true;
}

static void leave_on(struct exec *exec)
{
	if (turn(exec, true))
		exec_drop(exec);
	else
		stuck = true; /* stays listed, so that no layer swaps */
}

/* All that was made of it stays enabled from here on. */
static void graph_leave_on(struct graph *graph)
{
	struct exec *next;

	/* Not by the last of its execs. */
	graph->execs++;
	for (struct exec *e = execs; e; e = next) {
		next = e->next;
		if (e->graph == graph)
			leave_on(e);
	}
	graph->execs--;
	graph_drop(graph);
}

void hs_nodes_capture_began(CUstream stream, bool per_thread)
{
	bool rests;

	if (!hs_window_any() || hs_options()->verify)
		return;
	pthread_mutex_lock(&lock);
	rests = !awake && !unable;
	pthread_mutex_unlock(&lock);
	if (rests)
		hs_notes_begin(stream, per_thread);
}

void hs_nodes_captured(cuuint64_t id, CUgraph handle)
{
	struct hs_notes *notes = hs_notes_end(id, handle != NULL);
	struct graph *graph = notes ? calloc(1, sizeof(*graph)) : NULL, *old;

	if (!graph) {
		hs_notes_free(notes);
		return;
	}
	pthread_mutex_lock(&lock);
	old = graph_find(handle);
	if (old) { /* has gone without a word */
		old->doomed = false;
		graph_drop(old);
	}
	*graph = (struct graph){.handle = handle, .notes = notes, .next = graphs};
	graphs = graph;
	pthread_mutex_unlock(&lock);
}

void hs_nodes_instantiated(CUgraphExec handle, CUgraph from, uint64_t flags)
{
	struct graph *graph;
	struct exec *exec;

	pthread_mutex_lock(&lock);
	exec = exec_find(handle);
	if (exec) /* that one is gone */
		exec_drop(exec);
	graph = graph_find(from);
	if (!graph || awake || unable || flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		goto unlock;
	exec = calloc(1, sizeof(*exec));
	if (!exec)
		goto unlock;
	*exec = (struct exec){.handle = handle, .graph = graph, .next = execs};
	graph->execs++;
	execs = exec;
	if (!turn(exec, false)) {
		give_up();
		leave_on(exec);
	}
unlock:
	pthread_mutex_unlock(&lock);
}

void hs_nodes_exec_goes(CUgraphExec handle)
{
	struct exec *exec;

	pthread_mutex_lock(&lock);
	exec = exec_find(handle);
	if (exec)
		exec_drop(exec);
	pthread_mutex_unlock(&lock);
}

static bool has(const struct graph *graph, CUgraphNode node)
{
	for (unsigned i = 0; i < graph->notes->count; i++)
		if (graph->notes->list[i].node == node)
			return true;
	return false;
}

void hs_nodes_changes(CUgraphExec handle, CUgraphNode node, CUgraph of)
{
	struct exec *exec;
	struct graph *graph;

	pthread_mutex_lock(&lock);
	exec = handle ? exec_find(handle) : NULL;
	if (exec)
		leave_on(exec);
	graph = of ? graph_find(of) : node ? graphs : NULL;
	while (graph && !of && !has(graph, node))
		graph = graph->next;
	if (graph)
		graph_leave_on(graph);
	pthread_mutex_unlock(&lock);
}

bool hs_nodes_graph_goes(CUgraph handle)
{
	struct graph *graph;
	bool ours = false;

	pthread_mutex_lock(&lock);
	graph = graph_find(handle);
	if (graph && !graph->doomed) {
		ours = graph->doomed = graph->execs > 0;
		if (!ours)
			graph_drop(graph);
	}
	pthread_mutex_unlock(&lock);
	return ours;
}

void hs_nodes_context_gone(CUcontext context)
{
	struct exec *next_exec;
	struct graph *next;

	pthread_mutex_lock(&lock);
	for (struct exec *e = execs; e; e = next_exec) {
		next_exec = e->next;
		if (e->graph && e->graph->notes->context == context)
			exec_drop(e);
	}
	for (struct graph *g = graphs; g; g = next) {
		next = g->next;
		if (g->notes->context == context)
			graph_drop(g);
	}
	pthread_mutex_unlock(&lock);
}

bool hs_nodes_wake(void)
{
	static bool said;
	unsigned count = 0;
	bool was;

	pthread_mutex_lock(&lock);
	if (!awake || stuck) {
		stuck = false;
		for (struct exec *e = execs; e; e = e->next) {
			count++;
			stuck |= !turn(e, true);
		}
		if (!awake && count)
			hs_debug("%u graphs: our nodes go on", count);
		if (stuck && !said)
			hs_warn("nodes of ours in graphs cannot be enabled again: rows are read in "
				"place");
		said |= stuck;
		awake = true;
	}
	was = stuck;
	pthread_mutex_unlock(&lock);
	return !was;
}

void hs_nodes_rest(void)
{
	struct exec *next;
	unsigned count = 0;

	pthread_mutex_lock(&lock);
	if (awake && !unable) {
		for (struct exec *e = execs; e && !unable; e = next) {
			next = e->next;
			count++;
			if (!turn(e, false)) {
				give_up();
				leave_on(e);
			}
		}
		if (count)
			hs_debug("%u graphs: our nodes rest", count);
	}
	awake = false;
	pthread_mutex_unlock(&lock);
}
