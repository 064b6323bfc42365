/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_REPLAY_H
#define TOOLS_HISPARSE_REPLAY_H

/*
 * A whole trace run through every policy and size asked for, on all
 * processors. The result does not depend on how many there are.
 */

#include <stdbool.h>
#include <stdint.h>
#include "tools/bench/trace.h"
#include "tools/hisparse/policy.h"

enum { HS_REPLAY_SIZES = 8, HS_REPLAY_POINTS = 40 };

struct hs_replay_in {
	uint64_t slots[HS_REPLAY_SIZES]; /* of one request; a shared buffer has batch times that */
	size_t sizes;
	bool policies[HS_REPLAY_POLICIES];
	bool requests, shared; /* which buffers */
	uint32_t skip;	       /* first step that counts */
	uint64_t seed;
};

/* What a cache of one layer, or the sum over all layers, did. */
struct hs_replay_sum {
	uint64_t selections, first, fresh; /* first: never selected before; fresh: not last step */
	uint64_t misses[HS_REPLAY_POLICIES][HS_REPLAY_SIZES];
	uint64_t curve[HS_REPLAY_POINTS]; /* misses of LRU */
};

struct hs_replay {
	uint64_t points[HS_REPLAY_POINTS]; /* slots of one request */
	size_t count;
	struct hs_replay_sum request, shared;		      /* over all layers */
	struct hs_replay_sum *request_layers, *shared_layers; /* [layers] */
	uint64_t heat_slots;				      /* LRU, a buffer per request, or the shared one */
	uint32_t *heat; /* [layers][steps] misses of all requests */
};

/* Returns 0 or a negative errno: -EINVAL when a size is below k. */
int hs_replay_make(
	struct hs_replay *out, const struct hs_dsat *trace, const struct hs_replay_in *in);
void hs_replay_finish(struct hs_replay *replay);

#endif
