/* SPDX-License-Identifier: MIT */
#include "tools/bench/place.h"

#include <errno.h>
#include <stdlib.h>
#include "src/memory/memory.h"
#include "tools/bench/workers.h"

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

int hs_places_init(
	struct hs_places *places, uint32_t batch, uint64_t ctx, uint32_t row, uint64_t seed)
{
	uint64_t count = batch * (ctx / HS_PLACE_PAGE);
	uint64_t skip = (HS_GRANULE + row - 1) / row;
	uint32_t *pages;

	skip = (skip + HS_PLACE_PAGE - 1) / HS_PLACE_PAGE * HS_PLACE_PAGE;
	if (!count || ctx % HS_PLACE_PAGE || skip + count * HS_PLACE_PAGE > INT32_MAX)
		return -EINVAL;
	pages = malloc(count * sizeof(*pages));
	if (!pages)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t j = (uint32_t)(draw(&seed) % (i + 1));

		pages[i] = pages[j];
		pages[j] = i;
	}
	*places = (struct hs_places){batch, ctx, skip, skip + batch * ctx, pages};
	return 0;
}

void hs_places_finish(struct hs_places *places)
{
	free(places->pages);
	places->pages = NULL;
}

struct table {
	const struct hs_places *places;
	int64_t *slots;
};

static void table_request(void *data, uint32_t request)
{
	struct table *table = data;
	uint64_t ctx = table->places->ctx;

	for (uint64_t p = 0; p < ctx; p++)
		table->slots[request * ctx + p] =
			hs_places_slot(table->places, request, (int32_t)p);
}

void hs_places_table(const struct hs_places *places, int64_t *slots)
{
	struct table table = {places, slots};

	hs_workers_run(places->batch, table_request, &table);
}
