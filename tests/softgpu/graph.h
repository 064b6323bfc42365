/* SPDX-License-Identifier: MIT */
#ifndef SOFTGPU_GRAPH_H
#define SOFTGPU_GRAPH_H

/* Graphs: kernel, copy, fill, host and empty nodes and their edges. */

#include "softgpu/soft.h"

struct soft_node;
struct soft_nodes {
	struct soft_node **list;
	unsigned count;
};

struct soft_node {
	struct soft_op op;
	struct soft_nodes deps;
	struct soft_graph *graph;
	unsigned index;
	bool off; /* of an executable graph: does nothing */
	void *params[SOFT_PARAMS_MAX]; /* what GetParams hands out */
};

struct soft_graph {
	struct soft_nodes nodes; /* deps come before what waits for them */
	struct soft_graph *next;
};

struct soft_graph *soft_graph_create(void);
void soft_graph_destroy(struct soft_graph *graph);
struct soft_graph *soft_graph_find(CUgraph handle);
struct soft_node *soft_node_find(CUgraphNode handle);
/* The executable graph's copy of a node, or NULL. */
struct soft_node *soft_exec_node(CUgraphExec handle, const struct soft_node *origin);
/* Takes the op over. NULL without memory. */
struct soft_node *soft_graph_add(
	struct soft_graph *graph, struct soft_op *op, const struct soft_nodes *deps);

bool soft_nodes_add(struct soft_nodes *nodes, struct soft_node *node); /* once each */
bool soft_nodes_copy(struct soft_nodes *to, const struct soft_nodes *from);
void soft_nodes_finish(struct soft_nodes *nodes);
void soft_nodes_destroy(struct soft_nodes *nodes); /* and the nodes */

#endif
