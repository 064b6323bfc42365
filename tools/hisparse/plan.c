/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/plan.h"

#include <errno.h>

#define GIB 1073741824.

/* Misses are fetched in address order from about this many requests on: below,
 * the rows of a launch are too few for the order to matter. */
enum { SORTED_FROM = 16 };

static double weights(const struct hs_plan_in *in)
{
	double tensor_parallel = (double)in->gpus / in->replicas;

	if (in->weights_gib >= 0)
		return in->weights_gib;
	/* Experts are spread over every GPU; attention over those of a replica. */
	return (in->model.expert_bytes / in->gpus + in->model.other_bytes / tensor_parallel) / GIB;
}

/* The library keeps an eighth of the GPU for itself (src/memory/budget.h); the
 * hot buffer is the most of it. */
static double reserve(const struct hs_plan *plan, double memory)
{
	return plan->hot_gib > memory / 8 ? plan->hot_gib : memory / 8;
}

/*
 * GiB that the engine takes for KV. It asks the driver what is free after
 * loading and leaves (1 - utilisation) of the total alone; the library tells it
 * min((D - reserve) x (row + 132) / 136, D + host pool) for free and total.
 */
static double told(const struct hs_plan *plan, const struct hs_plan_in *in, const char **limit)
{
	double memory = in->gpu->memory, host = plan->host_gib;
	double gain = (double)(plan->token.row + 132) / 136;
	double free = memory - plan->weights_gib - in->other_gib;
	double by_gpu = (free - plan->reserve_gib) * gain, by_host = free + host;
	double total = (memory - plan->reserve_gib) * gain, kv;

	if (total > memory + host)
		total = memory + host;
	*limit = by_gpu < by_host ? "GPU memory" : "host pool";
	kv = (by_gpu < by_host ? by_gpu : by_host) - (1 - in->utilisation) * total;
	return kv > 0 ? kv : 0;
}

int hs_plan_make(struct hs_plan *out, const struct hs_plan_in *in)
{
	struct hs_plan plan = {0};
	unsigned layers = in->model.layers + (in->mtp ? in->model.mtp : 0);
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
	/* A hot row has an owner and a stamp, 8 bytes. */
	plan.hot_gib = (double)plan.slots * layers * (double)(plan.token.row + 8) / GIB;
	/* Each GPU of a replica keeps its own copy of every row. */
	plan.host_gib = in->host_gib / in->gpus;

	plan.plain_tokens = (uint64_t)(room / cell) / 64 * 64 * in->replicas;
	plan.reserve_gib = reserve(&plan, in->gpu->memory);
	plan.tokens =
		(uint64_t)(told(&plan, in, &plan.limit) * GIB / cell) / 64 * 64 * in->replicas;
	plan.plain_requests = plan.plain_tokens / in->context;
	plan.node_requests = plan.tokens / in->context;
	plan.fits = plan.node_requests >= in->concurrency;

	plan.missed_rows = in->miss_rate * in->model.topk * layers * (double)plan.requests;
	plan.sorted = plan.requests >= SORTED_FROM;
	plan.link_ms = plan.missed_rows * (double)plan.token.row /
		       hs_gpu_rate(in->gpu, (unsigned)plan.token.row, true) / 1e6;
	plan.link_ms_spread = plan.missed_rows * (double)plan.token.row /
			      hs_gpu_rate(in->gpu, (unsigned)plan.token.row, false) / 1e6;
	*out = plan;
	return 0;
}
