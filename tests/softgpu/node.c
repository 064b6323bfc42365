/* SPDX-License-Identifier: MIT */
#include "softgpu/graph.h"

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
		node = soft_node_find(deps[i]);
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

static CUresult set_node(CUgraphExec exec, CUgraphNode handle,
	const CUDA_KERNEL_NODE_PARAMS_v1 *params, CUkernel kern, bool of_exec)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_node *node = soft_node_find(handle);
	struct soft_op op;
	CUresult result;

	if (!params || !node)
		return CUDA_ERROR_INVALID_VALUE;
	if (of_exec)
		node = soft_exec_node(exec, node);
	if (!node || node->op.kind != SOFT_OP_KERNEL)
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
