/* SPDX-License-Identifier: MIT */
#include "softgpu/graph.h"

#include <stdlib.h>
#include "softgpu/capture.h"

struct exec {
	struct soft_graph graph; /* a copy; `origin[i]` is what node i copies */
	struct soft_node **origin;
	struct soft_task *last; /* a graph never runs beside itself */
	struct exec *next;
};

static struct soft_graph *graphs;
static struct exec *execs;

bool soft_nodes_add(struct soft_nodes *nodes, struct soft_node *node)
{
	struct soft_node **list;

	for (unsigned i = 0; i < nodes->count; i++) {
		if (nodes->list[i] == node)
			return true;
	}
	list = realloc(nodes->list, (nodes->count + 1) * sizeof(*list));
	if (!list)
		return false;
	list[nodes->count++] = node;
	nodes->list = list;
	return true;
}

bool soft_nodes_copy(struct soft_nodes *to, const struct soft_nodes *from)
{
	*to = (struct soft_nodes){0};
	for (unsigned i = 0; i < from->count; i++) {
		if (!soft_nodes_add(to, from->list[i]))
			return false;
	}
	return true;
}

void soft_nodes_finish(struct soft_nodes *nodes)
{
	free(nodes->list);
	*nodes = (struct soft_nodes){0};
}

struct soft_graph *soft_graph_create(void)
{
	struct soft_graph *graph = calloc(1, sizeof(*graph));

	if (!graph)
		return NULL;
	graph->next = graphs;
	graphs = graph;
	return graph;
}

static void nodes_destroy(struct soft_nodes *nodes)
{
	for (unsigned i = 0; i < nodes->count; i++) {
		soft_op_finish(&nodes->list[i]->op);
		soft_nodes_finish(&nodes->list[i]->deps);
		free(nodes->list[i]);
	}
	soft_nodes_finish(nodes);
}

void soft_graph_destroy(struct soft_graph *graph)
{
	struct soft_graph **link;

	for (link = &graphs; *link != graph; link = &(*link)->next)
		continue;
	*link = graph->next;
	nodes_destroy(&graph->nodes);
	free(graph);
}

struct soft_graph *soft_graph_find(CUgraph handle)
{
	struct soft_graph *graph;

	for (graph = graphs; graph && graph != (struct soft_graph *)handle; graph = graph->next)
		continue;
	return graph;
}

struct soft_node *soft_graph_add(
	struct soft_graph *graph, struct soft_op *op, const struct soft_nodes *deps)
{
	struct soft_node *node = calloc(1, sizeof(*node));

	if (!node || !soft_nodes_copy(&node->deps, deps) || !soft_nodes_add(&graph->nodes, node)) {
		if (node)
			soft_nodes_finish(&node->deps);
		free(node);
		soft_op_finish(op);
		return NULL;
	}
	node->op = *op;
	node->graph = graph;
	node->index = graph->nodes.count - 1;
	return node;
}

static struct soft_node *node_find(CUgraphNode handle)
{
	for (struct soft_graph *graph = graphs; graph; graph = graph->next) {
		for (unsigned i = 0; i < graph->nodes.count; i++) {
			if (graph->nodes.list[i] == (struct soft_node *)handle)
				return graph->nodes.list[i];
		}
	}
	return NULL;
}

static struct exec *exec_find(CUgraphExec handle)
{
	struct exec *exec;

	for (exec = execs; exec && exec != (struct exec *)handle; exec = exec->next)
		continue;
	return exec;
}

/* Of any version of the parameters: the later ones only add kern and ctx. */
static CUresult kernel_op(
	struct soft_op *op, const CUDA_KERNEL_NODE_PARAMS_v1 *params, CUkernel kern)
{
	CUfunction function = params->func ? params->func : (CUfunction)kern;
	const unsigned grid[] = {params->gridDimX, params->gridDimY, params->gridDimZ};
	const unsigned block[] = {params->blockDimX, params->blockDimY, params->blockDimZ};

	op->kind = SOFT_OP_KERNEL;
	return soft_launch_make(&op->launch, function, grid, block, params->sharedMemBytes,
		params->kernelParams, params->extra);
}

static CUresult add_node(CUgraphNode *out, CUgraph handle, const CUgraphNode *deps, size_t count,
	const CUDA_KERNEL_NODE_PARAMS_v1 *params, CUkernel kern)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_graph *graph = soft_graph_find(handle);
	struct soft_nodes nodes = {(struct soft_node **)deps, (unsigned)count};
	struct soft_node *node;
	struct soft_op op;
	CUresult result;

	if (!out || !graph || !params || (count && !deps))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		node = node_find(deps[i]);
		if (!node || node->graph != graph)
			return CUDA_ERROR_INVALID_VALUE;
	}
	result = kernel_op(&op, params, kern);
	if (result)
		return result;
	node = soft_graph_add(graph, &op, &nodes);
	if (!node)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = (CUgraphNode)node;
	return CUDA_SUCCESS;
}

static CUresult set_node(CUgraphExec exec_handle, CUgraphNode handle,
	const CUDA_KERNEL_NODE_PARAMS_v1 *params, CUkernel kern, bool of_exec)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_node *node = node_find(handle);
	struct exec *exec = exec_find(exec_handle);
	struct soft_op op;
	CUresult result;

	if (!params || !node || (of_exec && !exec))
		return CUDA_ERROR_INVALID_VALUE;
	if (of_exec) {
		if (node->index >= exec->graph.nodes.count || exec->origin[node->index] != node)
			return CUDA_ERROR_INVALID_VALUE;
		node = exec->graph.nodes.list[node->index];
	}
	if (node->op.kind != SOFT_OP_KERNEL)
		return CUDA_ERROR_INVALID_VALUE;
	result = kernel_op(&op, params, kern);
	if (result)
		return result;
	soft_op_finish(&node->op);
	node->op = op;
	return CUDA_SUCCESS;
}

#define V1(p) ((const CUDA_KERNEL_NODE_PARAMS_v1 *)(p))
#define KERN(p) ((p) ? (p)->kern : NULL)

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
	size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	return add_node(node, graph, deps, count, params, NULL);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
	size_t count, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	return add_node(node, graph, deps, count, V1(params), KERN(params));
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,
	CUgraphNodeParams *params)
{
	if (params && params->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return CUDA_ERROR_NOT_SUPPORTED;
	return add_node(node, graph, deps, count, params ? V1(&params->kernel) : NULL,
		params ? params->kernel.kern : NULL);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
	const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
	return edges ? CUDA_ERROR_NOT_SUPPORTED : cuGraphAddNode(node, graph, deps, count, params);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	return set_node(NULL, node, params, NULL, false);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	return set_node(NULL, node, V1(params), KERN(params), false);
}

CUresult cuGraphExecKernelNodeSetParams(
	CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	return set_node(exec, node, params, NULL, true);
}

CUresult cuGraphExecKernelNodeSetParams_v2(
	CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	return set_node(exec, node, V1(params), KERN(params), true);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
	if (params && params->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return CUDA_ERROR_NOT_SUPPORTED;
	return set_node(NULL, node, params ? V1(&params->kernel) : NULL,
		params ? params->kernel.kern : NULL, false);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
	if (params && params->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return CUDA_ERROR_NOT_SUPPORTED;
	return set_node(exec, node, params ? V1(&params->kernel) : NULL,
		params ? params->kernel.kern : NULL, true);
}

/* The arrays stay the node's, as the real driver's do. */
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_node *node = node_find(handle);
	struct soft_launch *launch;
	size_t offsets[SOFT_PARAMS_MAX];

	if (!params || !node || node->op.kind != SOFT_OP_KERNEL)
		return CUDA_ERROR_INVALID_VALUE;
	launch = &node->op.launch;
	soft_kernel_layout(launch->kernel, offsets);
	for (unsigned i = 0; i < launch->kernel->count; i++)
		node->params[i] = launch->bytes + offsets[i];
	*params = (CUDA_KERNEL_NODE_PARAMS_v2){.gridDimX = launch->grid[0],
		.gridDimY = launch->grid[1],
		.gridDimZ = launch->grid[2],
		.blockDimX = launch->block[0],
		.blockDimY = launch->block[1],
		.blockDimZ = launch->block[2],
		.sharedMemBytes = (unsigned)launch->shared,
		.kernelParams = node->params};
	if (launch->by_kernel)
		params->kern = (CUkernel)launch->handle;
	else
		params->func = (CUfunction)launch->handle;
	return CUDA_SUCCESS;
}

/* Priorities, programmatic launch and the like change no result here. */
CUresult cuGraphKernelNodeSetAttribute(
	CUgraphNode handle, CUkernelNodeAttrID attribute, const CUkernelNodeAttrValue *value)
{
	SOFT_ENTER(SOFT_CONTEXT);
	(void)attribute;
	return value && node_find(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphCreate(CUgraph *out, unsigned flags)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_graph *graph;

	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	graph = soft_graph_create();
	if (!graph)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = (CUgraph)graph;
	return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_graph *graph = soft_graph_find(handle);

	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	soft_graph_destroy(graph);
	return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_graph *graph = soft_graph_find(handle);

	if (!graph || !count)
		return CUDA_ERROR_INVALID_VALUE;
	if (!nodes) {
		*count = graph->nodes.count;
		return CUDA_SUCCESS;
	}
	for (size_t i = 0; i < *count; i++)
		nodes[i] = i < graph->nodes.count ? (CUgraphNode)graph->nodes.list[i] : NULL;
	if (*count > graph->nodes.count)
		*count = graph->nodes.count;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
	static const CUgraphNodeType types[] = {
		[SOFT_OP_NOTHING] = CU_GRAPH_NODE_TYPE_EMPTY,
		[SOFT_OP_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
		[SOFT_OP_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
		[SOFT_OP_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,
		[SOFT_OP_HOST] = CU_GRAPH_NODE_TYPE_HOST,
	};

	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_node *node = node_find(handle);

	if (!node || !type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = types[node->op.kind];
	return CUDA_SUCCESS;
}

static void exec_destroy(struct exec *exec)
{
	nodes_destroy(&exec->graph.nodes);
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
		if (soft_op_copy(&op, &node->op))
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
