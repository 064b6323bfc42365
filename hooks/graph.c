/* SPDX-License-Identifier: MIT */
#include "hooks/copy.h"
#include "src/cache/nodes.h"
#include "src/launch/launch.h"

/*
 * Nodes that are made by hand instead of captured. Since 12.0 one may name its
 * kernel by either handle; kern counts only where func is NULL. Copies and fills
 * that cross a seam are the driver's to take or refuse: the engine has one handle
 * for the node, and so there can be no second one.
 */

static void see_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *node)
{
	if (node && node->kernelParams)
		hs_launch_node(node->func, node->kernelParams);
}

static void see(const CUDA_KERNEL_NODE_PARAMS *node)
{
	if (node && node->kernelParams)
		hs_launch_node(
			node->func ? node->func : (CUfunction)node->kern, node->kernelParams);
}

static void see_copy(const CUDA_MEMCPY3D *copy)
{
	struct hs_span to = {0, 0};

	if (copy)
		to = hs_box_written(copy);
	hs_copy_node(to.start, to.bytes);
}

static void see_fill(const CUDA_MEMSET_NODE_PARAMS *fill)
{
	if (fill)
		hs_copy_node(fill->dst, (fill->height - 1) * (fill->height > 1 ? fill->pitch : 0) +
						fill->width * fill->elementSize);
}

static void see_any(const CUgraphNodeParams *node)
{
	if (!node)
		return;
	switch (node->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		if (node->kernel.kernelParams)
			hs_launch_node(node->kernel.func ? node->kernel.func
							 : (CUfunction)node->kernel.kern,
				node->kernel.kernelParams);
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		see_copy(&node->memcpy.copyParams);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET: /* _v2 only adds ctx */
		see_fill((const CUDA_MEMSET_NODE_PARAMS *)&node->memset);
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH: /* it may be its new owner's from here on */
		hs_nodes_changes(NULL, NULL, node->graph.graph);
		break;
	default:
		break;
	}
}

/* A window that is found to be written by nodes stops to have hot rows now, if
 * it can be: a graph that exists may be launched next. */
static void seen(void)
{
	if (hs_copy_unseen())
		hs_hook_settle(true);
}

#define NODE(name, look, what, exec, node, params, args)                                           \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		look(what);                                                                        \
		hs_nodes_changes(exec, node, NULL);                                                \
		seen();                                                                            \
		return hs_hook_end(HS_REAL(name) args);                                            \
	}
NODE(cuGraphAddKernelNode, see_v1, node, NULL, NULL,
	(CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count,
		const CUDA_KERNEL_NODE_PARAMS_v1 *node),
	(out, graph, after, count, node))
NODE(cuGraphAddKernelNode_v2, see, node, NULL, NULL,
	(CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count,
		const CUDA_KERNEL_NODE_PARAMS *node),
	(out, graph, after, count, node))
NODE(cuGraphKernelNodeSetParams, see_v1, params, NULL, node,
	(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params), (node, params))
NODE(cuGraphKernelNodeSetParams_v2, see, params, NULL, node,
	(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params), (node, params))
NODE(cuGraphExecKernelNodeSetParams, see_v1, params, exec, NULL,
	(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
	(exec, node, params))
NODE(cuGraphExecKernelNodeSetParams_v2, see, params, exec, NULL,
	(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params),
	(exec, node, params))
NODE(cuGraphAddNode, see_any, node, NULL, NULL,
	(CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count,
		CUgraphNodeParams *node),
	(out, graph, after, count, node))
NODE(cuGraphAddNode_v2, see_any, node, NULL, NULL,
	(CUgraphNode * out, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,
		size_t count, CUgraphNodeParams *node),
	(out, graph, after, edges, count, node))
NODE(cuGraphNodeSetParams, see_any, params, NULL, node,
	(CUgraphNode node, CUgraphNodeParams *params), (node, params))
NODE(cuGraphExecNodeSetParams, see_any, params, exec, NULL,
	(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params), (exec, node, params))
NODE(cuGraphAddMemcpyNode, see_copy, copy, NULL, NULL,
	(CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count,
		const CUDA_MEMCPY3D *copy, CUcontext context),
	(out, graph, after, count, copy, context))
NODE(cuGraphMemcpyNodeSetParams, see_copy, copy, NULL, node,
	(CUgraphNode node, const CUDA_MEMCPY3D *copy), (node, copy))
NODE(cuGraphExecMemcpyNodeSetParams, see_copy, copy, exec, NULL,
	(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context),
	(exec, node, copy, context))
NODE(cuGraphAddMemsetNode, see_fill, fill, NULL, NULL,
	(CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count,
		const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context),
	(out, graph, after, count, fill, context))
NODE(cuGraphMemsetNodeSetParams, see_fill, fill, NULL, node,
	(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill), (node, fill))
NODE(cuGraphExecMemsetNodeSetParams, see_fill, fill, exec, NULL,
	(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill,
		CUcontext context),
	(exec, node, fill, context))
#undef NODE

#define INSTANTIATE(name, flags, params, args)                                                     \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		hs_hook_settle(hs_copy_unseen());                                                  \
		const CUresult result = HS_SPARED(0, hs_driver.name args);                         \
		if (result == CUDA_SUCCESS)                                                        \
			hs_nodes_instantiated(*exec, graph, flags);                                \
		return hs_hook_end(result);                                                        \
	}
INSTANTIATE(cuGraphInstantiate_v2, 0,
	(CUgraphExec * exec, CUgraph graph, CUgraphNode *node, char *log, size_t bytes),
	(exec, graph, node, log, bytes))
INSTANTIATE(cuGraphInstantiateWithFlags, flags,
	(CUgraphExec * exec, CUgraph graph, unsigned long long flags), (exec, graph, flags))
INSTANTIATE(cuGraphInstantiateWithParams, params->flags,
	(CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
	(exec, graph, params))
INSTANTIATE(cuGraphInstantiateWithParams_ptsz, params->flags,
	(CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
	(exec, graph, params))
#undef INSTANTIATE

/* What takes a graph, or what was made of it, from under nodes that rest in it. */
#define CHANGE(name, exec, node, params, args)                                                     \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		hs_nodes_changes(exec, node, NULL);                                                \
		return hs_hook_end(HS_SPARED(0, hs_driver.name args));                             \
	}
CHANGE(cuGraphExecUpdate, exec, NULL,
	(CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *info),
	(exec, graph, node, info))
CHANGE(cuGraphExecUpdate_v2, exec, NULL,
	(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info), (exec, graph, info))
CHANGE(cuGraphDestroyNode, NULL, node, (CUgraphNode node), (node))
#undef CHANGE

HS_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	if (!hs_hook_begin())
		return HS_REAL(cuGraphExecDestroy)(exec);
	hs_nodes_exec_goes(exec);
	return hs_hook_end(hs_driver.cuGraphExecDestroy(exec));
}

HS_EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
	if (!hs_hook_begin())
		return HS_REAL(cuGraphDestroy)(graph);
	if (hs_nodes_graph_goes(graph))
		return hs_hook_end(CUDA_SUCCESS);
	return hs_hook_end(hs_driver.cuGraphDestroy(graph));
}

/* Windows do not move while a replay is on its way into the driver. */
#define REPLAY(name, per_thread)                                                                   \
	static CUresult gated_##name(CUgraphExec exec, CUstream stream)                            \
	{                                                                                          \
		hs_gate_enter();                                                                   \
		const CUresult result = hs_driver.name(exec, stream);                              \
		if (result == CUDA_SUCCESS)                                                        \
			hs_copy_replayed(stream, per_thread);                                      \
		hs_gate_leave();                                                                   \
		return result;                                                                     \
	}                                                                                          \
	HS_EXPORT CUresult name(CUgraphExec exec, CUstream stream)                                 \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(exec, stream);                                        \
		return hs_hook_end(HS_SPARED(0, gated_##name(exec, stream)));                      \
	}
REPLAY(cuGraphLaunch, false)
REPLAY(cuGraphLaunch_ptsz, true)
#undef REPLAY
