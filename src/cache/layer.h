/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_LAYER_H
#define SRC_CACHE_LAYER_H

/*
 * The layers of all windows. A layer that was entered keeps its number for the
 * life of the process, since captured launches name it; when its window comes
 * back at the same address, it goes on.
 */

#include <stdatomic.h>
#include "src/cache/cache.h"
#include "src/cache/device.h"

struct hs_layer {
	CUdeviceptr base;
	uint32_t row;
	uint32_t id; /* of its entry in the layer table */
	CUdevice device;
	struct hs_window *_Atomic window; /* NULL while forgotten */
	_Atomic bool on;		  /* swaps; changes at safe moments */
	bool refused;			  /* no room for hot rows: said, not tried again */
	_Atomic uint64_t told;		  /* slots, by a kernel; 0: by none */
	/* While it is on: */
	uint32_t slots, rows, first;
	bool any_order; /* as its window says */
	CUdeviceptr hot, state;
};

/* Where the layer ends, 0 while it has no window. Safe moments. */
CUdeviceptr hs_layer_end(const struct hs_layer *layer);

/* Sets where the last layer of its window ends, once kernels have told of all that are
 * known and less than a granule is left, which no layer fits into: PyTorch's allocator
 * rounds a segment up to 2 MiB and lends what is left of it, from 1 MiB on (2.11). For
 * hs_layer_each at safe moments. */
void hs_layer_tail(struct hs_layer *layer, void *data);

/* Layers that are on, in the whole process. */
unsigned hs_layer_on(void);

#endif
