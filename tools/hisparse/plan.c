/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/plan.h"

#include <errno.h>

#define GIB 1073741824.
#define HOT_BYTES 28 /* that a hot row takes beside itself (src/memory/budget.c) */

static double weights(const struct hs_plan_in *in)
{
	double tensor_parallel = (double)in->gpus / in->replicas;

	if (in->weights_gib >= 0)
		return in->weights_gib;
	/* Experts are spread over every GPU; attention over those of a replica. */
	return (in->model.expert_bytes / in->gpus + in->model.other_bytes / tensor_parallel) / GIB;
}

/* GiB that the library keeps for lists and graphs (src/memory/budget.c). */
static double fixed(double memory)
{
	return memory / 64 < 0.25 ? memory / 64 : 0.25;
}

/*
 * GiB that the library tells the engine of so much GPU memory and host pool
 * (src/memory/budget.h), when slots and layers are set: the GPU holds keys, maps and
 * hot rows, and both together all of it.
 */
static double story(
	const struct hs_plan *plan, double memory, double device, double host, const char **limit)
{
	const double row = (double)plan->token.row, cell = row + 132;
	double room = device - fixed(memory), by_gpu, by_both;

	room -= plan->hot_gib < room / 2 ? plan->hot_gib : room / 2;
	by_gpu = room * cell / 136;
	by_both = (room + host) * cell / (136 + row);
	*limit = by_gpu < by_both ? "GPU memory" : "host pool";
	return by_gpu < by_both ? by_gpu : by_both;
}

/* GiB that the engine takes for KV: it asks what is free after loading, and leaves
 * (1 - utilisation) of the total alone. */
static double told(const struct hs_plan *plan, const struct hs_plan_in *in, const char **limit)
{
	const double memory = in->gpu->memory;
	const double total = story(plan, memory, memory, plan->host_gib, limit);
	const double free = story(
		plan, memory, memory - plan->weights_gib - in->other_gib, plan->host_gib, limit);
	const double kv = free - (1 - in->utilisation) * total;

	return kv > 0 ? kv : 0;
}

int hs_plan_make(struct hs_plan *out, const struct hs_plan_in *in)
{
	struct hs_plan plan = {.layers = in->model.layers + (in->mtp ? in->model.mtp : 0)};
	double room, cell;

	hs_model_bytes(&plan.token, &in->model, in->kv, in->mtp, in->all_index);
	plan.weights_gib = weights(in);
	plan.kv_gib = in->gpu->memory * in->utilisation - plan.weights_gib - in->other_gib;
	if (plan.kv_gib <= 0)
		return -ENOSPC;
	room = plan.kv_gib * GIB;
	cell = (double)(plan.token.latent + plan.token.index);

	plan.requests = (in->concurrency + in->replicas - 1) / in->replicas;
	plan.slots = in->slots ? in->slots : plan.requests * 2 * in->model.topk;
	plan.hot_gib =
		(double)plan.slots * plan.layers * (double)(plan.token.row + HOT_BYTES) / GIB;
	/* Each GPU of a replica keeps its own copy of every row. */
	plan.host_gib = in->host_gib / in->gpus;

	plan.plain_tokens = (uint64_t)(room / cell) / 64 * 64 * in->replicas;
	plan.reserve_gib = fixed(in->gpu->memory) + plan.hot_gib;
	plan.tokens =
		(uint64_t)(told(&plan, in, &plan.limit) * GIB / cell) / 64 * 64 * in->replicas;
	plan.plain_requests = plan.plain_tokens / in->context;
	plan.node_requests = plan.tokens / in->context;
	plan.fits = plan.node_requests >= in->concurrency;

	plan.missed_rows = in->miss_rate * in->model.topk * plan.layers * (double)plan.requests;
	plan.link_ms = plan.missed_rows * (double)plan.token.row /
		       hs_gpu_rate(in->gpu, (unsigned)plan.token.row) / 1e6;
	*out = plan;
	return 0;
}
