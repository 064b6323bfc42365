/* SPDX-License-Identifier: MIT */
#include "src/cache/layer.h"

struct sum {
	const struct hs_layer *layer; /* or NULL: all */
	struct hs_cache_counts counts;
};

static void add(
	const struct hs_layer *layer, const struct hs_device *device, struct hs_cache_counts *sum)
{
	const volatile uint64_t *c = device->counts[layer->id];

	sum->launches += c[HS_COUNT_LAUNCHES];
	sum->hits += c[HS_COUNT_HITS];
	sum->misses += c[HS_COUNT_MISSES];
	sum->duplicates += c[HS_COUNT_DUPLICATES];
	sum->inplace += c[HS_COUNT_INPLACE];
	sum->evictions += c[HS_COUNT_EVICTIONS];
	sum->invalidated += c[HS_COUNT_INVALIDATED];
	sum->padding += c[HS_COUNT_PADDING];
	sum->staged += c[HS_COUNT_STAGED];
	sum->bytes += (c[HS_COUNT_MISSES] + c[HS_COUNT_STAGED]) * layer->row;
}

static void add_layer(struct hs_layer *layer, void *data)
{
	const struct hs_device *device = hs_device_newest();
	struct sum *sum = data;

	for (; device && (!sum->layer || layer == sum->layer); device = device->next)
		add(layer, device, &sum->counts);
}

void hs_cache_read(const struct hs_layer *layer, struct hs_cache_counts *counts)
{
	struct sum sum = {.layer = layer};

	hs_layer_each(add_layer, &sum);
	*counts = sum.counts;
}
