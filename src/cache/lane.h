/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_LANE_H
#define SRC_CACHE_LANE_H

/*
 * Lanes: streams of launches that never overlap themselves. One for each eager
 * stream, and one for each stream of each capture, since a replay may overlap
 * eager work and other graphs. Launch path: no allocation, no driver call.
 */

#include <pthread.h>
#include <stdbool.h>
#include "src/cache/cache.h"

struct hs_lane_site {
	CUstream stream;
	unsigned long long capture_id; /* 0: eager */
	const void *thread;	       /* of a per-thread default stream */
	CUdevice device;
	uint32_t id;
	CUdeviceptr list; /* eager: where its remapped lists go */
	size_t list_bytes;
	CUdeviceptr tabled; /* the block table looked at in this step */
	/* The layers that are owed a pass: the next launch takes both along. The
	 * lock is held until it is enqueued. */
	pthread_mutex_t lock;
	struct hs_layer *count, *evict;
};

/* The lane of a site on a device, made on first sight; NULL when all are taken. */
struct hs_lane_site *hs_lane_find(const struct hs_site *site, CUdevice device, bool create);

/* The lanes of a capture, one after the other: start with NULL. */
struct hs_lane_site *hs_lane_next(struct hs_lane_site *last, unsigned long long capture_id);

/* Lists that eager lanes of the device had are gone, and what they owed. */
void hs_lane_forget(CUdevice device);

/* Whether launches may ever overlap: more than one lane was seen. */
bool hs_lane_many(void);

#endif
