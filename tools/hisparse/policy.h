/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_POLICY_H
#define TOOLS_HISPARSE_POLICY_H

/*
 * Caches run over a stream, step by step: a step's rows are looked up
 * together, then the missing ones replace rows that the step does not select.
 * LRU is not here: stream.h answers it for every size at once.
 */

#include <stdint.h>
#include "tools/hisparse/stream.h"

enum hs_replay_policy {
	HS_REPLAY_VANILLA, /* keeps exactly the step before (the seed's Swap-vanilla) */
	HS_REPLAY_FIFO,
	HS_REPLAY_RANDOM,
	HS_REPLAY_LRU,
	HS_REPLAY_BELADY, /* knows the future: no policy misses less */
	HS_REPLAY_POLICIES,
};

extern const char *const hs_replay_names[HS_REPLAY_POLICIES];

/*
 * Misses of the steps from `skip` on, of a cache of `slots` rows. A cache that
 * is smaller than a step's selection holds as much of it as fits and misses
 * the rest. Returns 0, -ENOMEM, or -EINVAL for LRU.
 */
int hs_replay_run(uint64_t *misses, const struct hs_stream *stream, enum hs_replay_policy policy,
	uint64_t slots, uint32_t skip, uint64_t seed);

#endif
