/* SPDX-License-Identifier: MIT */
#include "hooks/hook.h"
#include "src/launch/launch.h"
#include "src/memory/gate.h"
#include "src/memory/memory.h"

/* Kernel nodes that are made by hand instead of captured. Since 12.0 a node may
 * name its kernel by either handle; kern counts only where func is NULL. */

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

static void see_any(const CUgraphNodeParams *node)
{
	if (node && node->type == CU_GRAPH_NODE_TYPE_KERNEL && node->kernel.kernelParams)
		hs_launch_node(
			node->kernel.func ? node->kernel.func : (CUfunction)node->kernel.kern,
			node->kernel.kernelParams);
}

#define NODE(name, look, node, params, args)                                                       \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		look(node);                                                                        \
		return hs_hook_end(HS_REAL(name) args);                                            \
	}
NODE(cuGraphAddKernelNode, see_v1, node,
	(CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count,
		const CUDA_KERNEL_NODE_PARAMS_v1 *node),
	(out, graph, after, count, node))
NODE(cuGraphAddKernelNode_v2, see, node,
	(CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count,
		const CUDA_KERNEL_NODE_PARAMS *node),
	(out, graph, after, count, node))
NODE(cuGraphKernelNodeSetParams, see_v1, params,
	(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params), (node, params))
NODE(cuGraphKernelNodeSetParams_v2, see, params,
	(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params), (node, params))
NODE(cuGraphExecKernelNodeSetParams, see_v1, params,
	(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
	(exec, node, params))
NODE(cuGraphExecKernelNodeSetParams_v2, see, params,
	(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params),
	(exec, node, params))
NODE(cuGraphAddNode, see_any, node,
	(CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count,
		CUgraphNodeParams *node),
	(out, graph, after, count, node))
NODE(cuGraphAddNode_v2, see_any, node,
	(CUgraphNode * out, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,
		size_t count, CUgraphNodeParams *node),
	(out, graph, after, edges, count, node))
NODE(cuGraphNodeSetParams, see_any, params, (CUgraphNode node, CUgraphNodeParams *params),
	(node, params))
NODE(cuGraphExecNodeSetParams, see_any, params,
	(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params), (exec, node, params))
#undef NODE

#define INSTANTIATE(name, params, args)                                                            \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		hs_hook_settle(false);                                                             \
		return hs_hook_end(HS_SPARED(0, hs_driver.name args));                             \
	}
INSTANTIATE(cuGraphInstantiate_v2,
	(CUgraphExec * exec, CUgraph graph, CUgraphNode *node, char *log, size_t bytes),
	(exec, graph, node, log, bytes))
INSTANTIATE(cuGraphInstantiateWithFlags,
	(CUgraphExec * exec, CUgraph graph, unsigned long long flags), (exec, graph, flags))
INSTANTIATE(cuGraphInstantiateWithParams,
	(CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
	(exec, graph, params))
INSTANTIATE(cuGraphInstantiateWithParams_ptsz,
	(CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
	(exec, graph, params))
#undef INSTANTIATE

/* Windows do not move while a replay is on its way into the driver. */
#define REPLAY(name)                                                                               \
	static CUresult gated_##name(CUgraphExec exec, CUstream stream)                            \
	{                                                                                          \
		hs_gate_enter();                                                                   \
		const CUresult result = hs_driver.name(exec, stream);                              \
		hs_gate_leave();                                                                   \
		return result;                                                                     \
	}                                                                                          \
	HS_EXPORT CUresult name(CUgraphExec exec, CUstream stream)                                 \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(exec, stream);                                        \
		return hs_hook_end(HS_SPARED(0, gated_##name(exec, stream)));                      \
	}
REPLAY(cuGraphLaunch)
REPLAY(cuGraphLaunch_ptsz)
#undef REPLAY
