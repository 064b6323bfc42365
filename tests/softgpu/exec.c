/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include "softgpu/capture.h"
#include "softgpu/graph.h"

struct exec {
	struct soft_graph graph; /* a copy; `origin[i]` is what node i copies */
	struct soft_node **origin;
	struct soft_task *last; /* a graph never runs beside itself */
	struct exec *next;
};

static struct exec *execs;

static struct exec *exec_find(CUgraphExec handle)
{
	struct exec *exec;

	for (exec = execs; exec && exec != (struct exec *)handle; exec = exec->next)
		continue;
	return exec;
}

struct soft_node *soft_exec_node(CUgraphExec handle, const struct soft_node *origin)
{
	struct exec *exec = exec_find(handle);

	if (!exec || origin->index >= exec->graph.nodes.count ||
		exec->origin[origin->index] != origin)
		return NULL;
	return exec->graph.nodes.list[origin->index];
}

static void exec_destroy(struct exec *exec)
{
	soft_nodes_destroy(&exec->graph.nodes);
	free(exec->origin);
	soft_task_unref(exec->last);
	free(exec);
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	struct soft_graph *graph = soft_graph_find(handle);
	struct exec *exec;

	if (!out || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		return CUDA_ERROR_NOT_SUPPORTED;
	exec = calloc(1, sizeof(*exec));
	if (!exec || !(exec->origin = calloc(graph->nodes.count + 1, sizeof(*exec->origin))))
		goto fail;
	for (unsigned i = 0; i < graph->nodes.count; i++) {
		struct soft_node *from = graph->nodes.list[i], *to;
		const struct soft_nodes none = {0};
		struct soft_op op;

		exec->origin[i] = from;
		if (!soft_op_copy(&op, &from->op) ||
			!(to = soft_graph_add(&exec->graph, &op, &none)))
			goto fail;
		for (unsigned j = 0; j < from->deps.count; j++) {
			if (!soft_nodes_add(
				    &to->deps, exec->graph.nodes.list[from->deps.list[j]->index]))
				goto fail;
		}
	}
	exec->next = execs;
	execs = exec;
	*out = (CUgraphExec)exec;
	return CUDA_SUCCESS;
fail:
	if (exec)
		exec_destroy(exec);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphInstantiate_v2(
	CUgraphExec *exec, CUgraph graph, CUgraphNode *error, char *log, size_t bytes)
{
	(void)error, (void)log, (void)bytes;
	return instantiate(exec, graph, 0);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	return instantiate(exec, graph, flags);
}

CUresult cuGraphInstantiateWithParams(
	CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	CUresult result =
		params ? instantiate(exec, graph, params->flags) : CUDA_ERROR_INVALID_VALUE;

	if (params) {
		params->hErrNode_out = NULL;
		params->result_out =
			result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
	}
	return result;
}

CUresult cuGraphInstantiateWithParams_ptsz(
	CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	return cuGraphInstantiateWithParams(exec, graph, params);
}

/* Nodes in the same order, of the same kinds: what they do is replaced. */
CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph source, CUgraphExecUpdateResultInfo *info)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	struct exec *exec = exec_find(handle);
	struct soft_graph *graph = soft_graph_find(source);
	struct soft_op op;

	if (!exec || !graph || !info)
		return CUDA_ERROR_INVALID_VALUE;
	info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	if (exec->graph.nodes.count != graph->nodes.count)
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	for (unsigned i = 0; i < graph->nodes.count; i++)
		if (exec->graph.nodes.list[i]->op.kind != graph->nodes.list[i]->op.kind ||
			exec->graph.nodes.list[i]->deps.count != graph->nodes.list[i]->deps.count)
			return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	for (unsigned i = 0; i < graph->nodes.count; i++) {
		if (!soft_op_copy(&op, &graph->nodes.list[i]->op))
			return CUDA_ERROR_OUT_OF_MEMORY;
		soft_op_finish(&exec->graph.nodes.list[i]->op);
		exec->graph.nodes.list[i]->op = op;
	}
	info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
	return CUDA_SUCCESS;
}

/* Of an executable graph's node, by the node that it was made of. Only these kinds. */
static struct soft_node *switchable(CUgraphExec exec, CUgraphNode handle)
{
	struct soft_node *origin = soft_node_find(handle);
	struct soft_node *node = origin ? soft_exec_node(exec, origin) : NULL;

	return node && (node->op.kind == SOFT_OP_KERNEL || node->op.kind == SOFT_OP_COPY ||
			       node->op.kind == SOFT_OP_FILL)
		       ? node
		       : NULL;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned enabled)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	struct soft_node *node = switchable(exec, handle);

	if (!node)
		return CUDA_ERROR_INVALID_VALUE;
	node->off = !enabled;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned *enabled)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_node *node = switchable(exec, handle);

	if (!node || !enabled)
		return CUDA_ERROR_INVALID_VALUE;
	*enabled = !node->off;
	return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec handle)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct exec *exec = exec_find(handle), **link;

	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	for (link = &execs; *link != exec; link = &(*link)->next)
		continue;
	*link = exec->next;
	exec_destroy(exec);
	return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec handle, CUstream stream_handle, bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_stream *stream = soft_stream_find(stream_handle, per_thread);
	struct exec *exec = exec_find(handle);
	struct soft_op op = {.kind = SOFT_OP_NOTHING};
	struct soft_task **tasks, *head = NULL, **deps;
	CUresult result;
	unsigned i, count;

	if (!exec || !stream)
		return exec ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
	if (stream->capture) /* it would be a child graph */
		return soft_capture_spoil(stream->capture, CUDA_ERROR_NOT_SUPPORTED);
	if (soft_stream_legacy(stream) && (result = soft_capture_implicit()))
		return result;
	count = exec->graph.nodes.count;
	tasks = calloc(2 * (size_t)count + 2, sizeof(*tasks));
	if (!tasks)
		return CUDA_ERROR_OUT_OF_MEMORY;
	deps = tasks + count;
	result = soft_enqueue(stream, &op, &exec->last, 1, &head);
	for (i = 0; i < count && !result; i++) {
		struct soft_node *node = exec->graph.nodes.list[i];
		unsigned n = 0;

		deps[n++] = head;
		for (unsigned j = 0; j < node->deps.count; j++)
			deps[n++] = tasks[node->deps.list[j]->index];
		op = (struct soft_op){.kind = SOFT_OP_NOTHING};
		if (node->off || soft_op_copy(&op, &node->op))
			tasks[i] = soft_task_submit(&op, deps, n);
		result = tasks[i] ? soft.error : CUDA_ERROR_OUT_OF_MEMORY;
	}
	soft_task_unref(exec->last);
	exec->last = NULL;
	op.kind = SOFT_OP_NOTHING;
	if (!result)
		result = soft_enqueue(stream, &op, tasks, count, &exec->last);
	for (i = 0; i < count; i++)
		soft_task_unref(tasks[i]);
	soft_task_unref(head);
	free(tasks);
	return result;
}

SOFT_BOTH(
	cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream stream), launch(exec, stream, per_thread))
