/* SPDX-License-Identifier: MIT */
#include "softgpu/graph.h"

#include <stdlib.h>

static struct soft_graph *graphs;

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

void soft_nodes_destroy(struct soft_nodes *nodes)
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
	soft_nodes_destroy(&graph->nodes);
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

struct soft_node *soft_node_find(CUgraphNode handle)
{
	for (struct soft_graph *graph = graphs; graph; graph = graph->next) {
		for (unsigned i = 0; i < graph->nodes.count; i++) {
			if (graph->nodes.list[i] == (struct soft_node *)handle)
				return graph->nodes.list[i];
		}
	}
	return NULL;
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
	struct soft_node *node = soft_node_find(handle);

	if (!node || !type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = types[node->op.kind];
	return CUDA_SUCCESS;
}
