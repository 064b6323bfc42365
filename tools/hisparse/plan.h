/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_PLAN_H
#define TOOLS_HISPARSE_PLAN_H

/*
 * How many tokens a server holds with and without the preload, and what its
 * link has to carry: arithmetic only. Byte counts are bytes, rates GB/s (10^9),
 * times milliseconds; "per GPU" unless a name says node.
 */

#include <stdbool.h>
#include <stdint.h>
#include "tools/hisparse/gpus.h"
#include "tools/hisparse/model.h"

struct hs_plan_in {
	struct hs_model model;
	const struct hs_gpu *gpu;
	unsigned gpus;
	unsigned replicas;	       /* groups of GPUs that each hold tokens of their own (DP) */
	double host_gib;	       /* pinned host memory of the node */
	uint64_t context, concurrency; /* tokens of a request; requests of the node */
	enum hs_kv kv;
	double miss_rate, utilisation;
	double weights_gib, other_gib; /* weights_gib < 0: from the config */
	uint64_t slots;		       /* 0: concurrency x 2 x top-k */
	bool mtp, all_index;
};

struct hs_plan {
	struct hs_token_bytes token;
	double weights_gib, kv_gib, hot_gib, host_gib;
	double reserve_gib; /* what the library keeps, the hot buffer in it */
	unsigned layers;    /* that have KV */
	uint64_t requests;  /* of one replica */
	uint64_t slots;
	uint64_t plain_tokens, tokens; /* of the node */
	uint64_t plain_requests, node_requests;
	const char *limit;  /* what ends the tokens: "GPU memory" or "host pool" */
	double missed_rows; /* of one step, all layers and requests */
	double link_ms;	    /* of one step */
	bool fits;	    /* the asked concurrency fits */
};

/* Returns 0, or -ENOSPC when the weights alone do not fit. */
int hs_plan_make(struct hs_plan *out, const struct hs_plan_in *in);

#endif
