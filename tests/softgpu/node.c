/* SPDX-License-Identifier: MIT */
#include "softgpu/graph.h"

/* One of these. Of any version of a kernel's parameters: the later ones only add
 * kern and ctx. */
struct given {
	const CUDA_KERNEL_NODE_PARAMS_v1 *kernel;
	CUkernel kern;
	const CUDA_MEMCPY3D *copy;
	const CUDA_MEMSET_NODE_PARAMS *fill;
	bool unknown;
};

static CUresult make(struct soft_op *op, const struct given *given)
{
	const CUDA_KERNEL_NODE_PARAMS_v1 *params = given->kernel;

	if (given->unknown)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (given->copy)
		return soft_copy_op(op, given->copy);
	if (given->fill)
		return soft_fill_op(op, given->fill);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	op->kind = SOFT_OP_KERNEL;
	return soft_launch_make(&op->launch, params->func ? params->func : (CUfunction)given->kern,
		(const unsigned[]){params->gridDimX, params->gridDimY, params->gridDimZ},
		(const unsigned[]){params->blockDimX, params->blockDimY, params->blockDimZ},
		params->sharedMemBytes, params->kernelParams, params->extra);
}

static struct given of_any(const CUgraphNodeParams *params)
{
	struct given given = {.unknown = false};

	if (!params)
		return given;
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		given.kernel = (const CUDA_KERNEL_NODE_PARAMS_v1 *)&params->kernel;
		given.kern = params->kernel.kern;
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		given.copy = &params->memcpy.copyParams;
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET: /* _v2 only adds ctx */
		given.fill = (const CUDA_MEMSET_NODE_PARAMS *)&params->memset;
		break;
	default:
		given.unknown = true;
	}
	return given;
}

static CUresult add_node(
	CUgraphNode *out, CUgraph handle, const CUgraphNode *deps, size_t count, struct given given)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_graph *graph = soft_graph_find(handle);
	struct soft_nodes nodes = {(struct soft_node **)deps, (unsigned)count};
	struct soft_node *node;
	struct soft_op op;
	CUresult result;

	if (!out || !graph || (count && !deps))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		node = soft_node_find(deps[i]);
		if (!node || node->graph != graph)
			return CUDA_ERROR_INVALID_VALUE;
	}
	result = make(&op, &given);
	if (result)
		return result;
	node = soft_graph_add(graph, &op, &nodes);
	if (!node)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = (CUgraphNode)node;
	return CUDA_SUCCESS;
}

static CUresult set_node(CUgraphExec exec, CUgraphNode handle, struct given given, bool of_exec)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_node *node = soft_node_find(handle);
	struct soft_op op;
	CUresult result;

	if (!node)
		return CUDA_ERROR_INVALID_VALUE;
	if (of_exec)
		node = soft_exec_node(exec, node);
	result = make(&op, &given);
	if (result)
		return result;
	if (!node || node->op.kind != op.kind) {
		soft_op_finish(&op);
		return CUDA_ERROR_INVALID_VALUE;
	}
	soft_op_finish(&node->op);
	node->op = op;
	return CUDA_SUCCESS;
}

#define KERNEL(p, k) ((struct given){.kernel = (const CUDA_KERNEL_NODE_PARAMS_v1 *)(p), .kern = k})
#define COPY(p) ((struct given){.copy = p})
#define FILL(p) ((struct given){.fill = p})
#define KERN(p) ((p) ? (p)->kern : NULL)
#define NEW CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count

CUresult cuGraphAddKernelNode(NEW, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	return add_node(node, graph, deps, count, KERNEL(params, NULL));
}

CUresult cuGraphAddKernelNode_v2(NEW, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	return add_node(node, graph, deps, count, KERNEL(params, KERN(params)));
}

CUresult cuGraphAddMemcpyNode(NEW, const CUDA_MEMCPY3D *copy, CUcontext context)
{
	return context ? add_node(node, graph, deps, count, COPY(copy)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddMemsetNode(NEW, const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
{
	return context ? add_node(node, graph, deps, count, FILL(fill)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddNode(NEW, CUgraphNodeParams *params)
{
	return add_node(node, graph, deps, count, of_any(params));
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
	const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
	return edges ? CUDA_ERROR_NOT_SUPPORTED : cuGraphAddNode(node, graph, deps, count, params);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	return set_node(NULL, node, KERNEL(params, NULL), false);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	return set_node(NULL, node, KERNEL(params, KERN(params)), false);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *copy)
{
	return set_node(NULL, node, COPY(copy), false);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill)
{
	return set_node(NULL, node, FILL(fill), false);
}

CUresult cuGraphExecKernelNodeSetParams(
	CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	return set_node(exec, node, KERNEL(params, NULL), true);
}

CUresult cuGraphExecKernelNodeSetParams_v2(
	CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	return set_node(exec, node, KERNEL(params, KERN(params)), true);
}

CUresult cuGraphExecMemcpyNodeSetParams(
	CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context)
{
	return context ? set_node(exec, node, COPY(copy), true) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecMemsetNodeSetParams(
	CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
{
	return context ? set_node(exec, node, FILL(fill), true) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
	return set_node(NULL, node, of_any(params), false);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
	return set_node(exec, node, of_any(params), true);
}

/* The arrays stay the node's, as the real driver's do. */
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_node *node = soft_node_find(handle);
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
	return value && soft_node_find(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
