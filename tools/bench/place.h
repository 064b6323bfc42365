/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_BENCH_PLACE_H
#define TOOLS_BENCH_PLACE_H

/*
 * Which slot holds a request's position: pages of 64 positions in random order
 * over the window, as an engine's block tables leave them after a while. The
 * first 2 MiB of a window hold no page, as the library keeps those on the
 * device.
 */

#include <stdint.h>

enum { HS_PLACE_PAGE = 64 };

struct hs_places {
	uint32_t batch;
	uint64_t ctx;	     /* a multiple of HS_PLACE_PAGE */
	uint64_t skip;	     /* first slot in use */
	uint64_t slot_count; /* of the window */
	uint32_t *pages;     /* [batch * ctx / 64] -> page behind `skip` */
};

/* Returns 0 or a negative errno. */
int hs_places_init(
	struct hs_places *places, uint32_t batch, uint64_t ctx, uint32_t row, uint64_t seed);
void hs_places_finish(struct hs_places *places);

static inline int32_t hs_places_slot(
	const struct hs_places *places, uint32_t request, int32_t position)
{
	uint64_t page =
		request * (places->ctx / HS_PLACE_PAGE) + (uint32_t)position / HS_PLACE_PAGE;

	return (int32_t)(places->skip + (uint64_t)places->pages[page] * HS_PLACE_PAGE +
			 (uint32_t)position % HS_PLACE_PAGE);
}

/* slots: int64 [batch][ctx]. */
void hs_places_table(const struct hs_places *places, int64_t *slots);

#endif
