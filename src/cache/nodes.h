/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_NODES_H
#define SRC_CACHE_NODES_H

/*
 * Our nodes in the engine's graphs rest while no layer swaps: all that they would
 * do is copy lists and find no hot row. In a graph that is instantiated
 * in that time they are disabled, and attention gets the engine's own list and
 * bounds back. Before the first layer swaps all of them go on, in all graphs at
 * once, with launches gated and the device idle, and the other way round when the
 * last one has stopped. So what runs is as in eager launches, which leave our
 * kernels out while no layer swaps.
 *
 * A node is told to the driver by the graph that it was captured in, so such a
 * graph stays after the engine has destroyed it, as long as what was made of it.
 * Only what came of an ordinary capture and is as it was rests: nodes of clones,
 * of child graphs, and of what the engine updates afterwards stay enabled, which
 * is always right. So they do when the driver refuses, when launches are verified,
 * and while they are traced or recorded.
 */

#include <stdbool.h>
#include <stdint.h>
#include "src/cache/cache.h"

/* A capture of its own graph has begun; it has ended, NULL: in no graph. */
void hs_nodes_capture_began(CUstream stream, bool per_thread);
void hs_nodes_captured(cuuint64_t id, CUgraph graph);

/* Whatever the driver made of it may be launched after this. flags: as given. */
void hs_nodes_instantiated(CUgraphExec exec, CUgraph graph, uint64_t flags);

/* These go, or are about to be changed by the engine (any may be NULL): before
 * the driver does it. Nodes that rest there go on. */
void hs_nodes_exec_goes(CUgraphExec exec);
void hs_nodes_changes(CUgraphExec exec, CUgraphNode node, CUgraph graph);

/* True: the graph is ours now, the driver is not to destroy it. */
bool hs_nodes_graph_goes(CUgraph graph);
void hs_nodes_context_gone(CUcontext context);

/* Safe moments with the device idle: all nodes go on, or rest. False: some do
 * not go on, so no layer may swap. */
bool hs_nodes_wake(void);
void hs_nodes_rest(void);

#endif
