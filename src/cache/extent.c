/* SPDX-License-Identifier: MIT */
#include "src/cache/layer.h"

/* What the other layers of its window tell of one. */
struct near {
	const struct hs_layer *layer;
	const struct hs_window *window;
	CUdeviceptr next;   /* the next base above, of any row */
	CUdeviceptr stride; /* the least distance of bases of its row */
};

static void look(struct hs_layer *other, void *data)
{
	struct near *near = data;
	const struct hs_layer *layer = near->layer;

	if (other == layer || atomic_load(&other->window) != near->window)
		return;
	if (other->base > layer->base && other->base < near->next)
		near->next = other->base;
	if (other->row == layer->row && other->base != layer->base) {
		const CUdeviceptr apart = other->base > layer->base ? other->base - layer->base
								    : layer->base - other->base;

		near->stride = apart < near->stride ? apart : near->stride;
	}
}

CUdeviceptr hs_layer_end(const struct hs_layer *layer)
{
	const struct hs_window *window = atomic_load(&layer->window);
	const uint64_t told = atomic_load(&layer->told);
	struct near near = {layer, window, UINT64_MAX, UINT64_MAX};
	CUdeviceptr end, tail;

	if (!window)
		return 0;
	tail = atomic_load(&window->tail);
	hs_layer_each(look, &near);
	end = window->start + window->requested;
	if (near.next < end)
		end = near.next;
	if (near.stride < end - layer->base)
		end = layer->base + near.stride;
	if (told && told < (end - layer->base) / layer->row)
		end = layer->base + told * layer->row;
	/* Launches since then rely on it. */
	if (tail && tail < end)
		end = tail > layer->base ? tail : layer->base;
	return end;
}

struct last {
	const struct hs_window *window;
	CUdeviceptr end;
	bool told;
};

static void latest(struct hs_layer *layer, void *data)
{
	struct last *last = data;
	CUdeviceptr end;

	if (atomic_load(&layer->window) != last->window || !last->told)
		return;
	last->told = atomic_load(&layer->told) != 0;
	if (!last->told)
		return;
	end = hs_layer_end(layer);
	last->end = end > last->end ? end : last->end;
}

void hs_layer_tail(struct hs_layer *layer, void *data)
{
	struct hs_window *window = atomic_load(&layer->window);
	struct last last = {window, 0, true};
	CUdeviceptr end;

	(void)data;
	if (!window || atomic_load(&window->tail) || !atomic_load(&layer->told))
		return;
	hs_layer_each(latest, &last);
	end = window->start + window->requested;
	if (last.told && last.end && end - last.end < HS_GRANULE)
		atomic_store(&window->tail, last.end);
}

struct found {
	const struct hs_window *window;
	struct hs_extent *out;
	unsigned count, most;
};

static void collect(struct hs_layer *layer, void *data)
{
	struct found *found = data;
	unsigned i;

	if (atomic_load(&layer->window) != found->window)
		return;
	if (found->count++ >= found->most)
		return;
	for (i = found->count - 1; i > 0 && found->out[i - 1].base > layer->base; i--)
		found->out[i] = found->out[i - 1];
	found->out[i] = (struct hs_extent){layer->base, hs_layer_end(layer), layer->row};
}

unsigned hs_cache_extents(const struct hs_window *window, struct hs_extent *out, unsigned most)
{
	struct found found = {window, out, 0, most};

	hs_layer_each(collect, &found);
	return found.count;
}

/* More is right, should two kernels differ: a slot beyond is only not cached. */
void hs_layer_told(struct hs_layer *layer, uint64_t slots)
{
	uint64_t before = atomic_load_explicit(&layer->told, memory_order_relaxed);

	while (slots > before) {
		if (atomic_compare_exchange_weak(&layer->told, &before, slots)) {
			hs_memory_mark();
			return;
		}
	}
}
