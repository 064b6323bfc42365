/* SPDX-License-Identifier: MIT */
#include "src/cache/share.h"

#include "kernels/abi.h"
#include "src/base/options.h"
#include "src/memory/memory.h"

#define ROWS_MOST 262144u	     /* left to ourselves */
#define STATE (7 * sizeof(uint32_t)) /* of a row: owner, stamp, born, ring; about */

uint64_t hs_share_bytes(uint64_t slots, uint32_t row, uint64_t rows)
{
	return slots * sizeof(int32_t) + rows * (row + STATE);
}

/* Rows for which so many bytes are enough. */
static uint64_t rows_in(uint64_t slots, uint32_t row, uint64_t bytes)
{
	const uint64_t map = hs_share_bytes(slots, row, 0);

	return map < bytes ? (bytes - map) / (row + STATE) : 0;
}

uint64_t hs_share_most(uint64_t slots)
{
	const uint64_t asked = hs_options()->slots;
	const uint64_t most = asked == HS_AUTO ? ROWS_MOST : asked;

	if (slots < most)
		return slots;
	return most < HS_ROWS_MAX ? most : HS_ROWS_MAX - 1;
}

/* Its share of the reserve, which was made for all of the cache's slots, or if that is
 * more most of what there is for it: lists and graphs live there, too. */
uint32_t hs_share_rows(uint64_t slots, uint32_t row, uint64_t spare)
{
	const uint64_t share = slots / HS_HOT_ONE_IN;
	uint64_t rows = hs_options()->slots, most;

	if (rows == HS_AUTO) {
		rows = rows_in(slots, row, spare - spare / 8);
		most = rows_in(slots, row, spare);
		most = most < share ? most : share;
		rows = rows > most ? rows : most;
		rows = rows > ROWS_MOST ? ROWS_MOST : rows & ~(uint64_t)1023;
		rows = rows < HS_SHARE_LEAST ? HS_SHARE_LEAST : rows;
	}
	if (rows > slots)
		rows = slots;
	return rows < HS_ROWS_MAX ? (uint32_t)rows : HS_ROWS_MAX - 1;
}
