/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_SHARE_H
#define SRC_CACHE_SHARE_H

/* How many hot rows a layer gets: HISPARSE_SLOTS, or a share of the reserve. */

#include <stdint.h>

/* Of a hot area, at least, where there is memory: one request's top-k. */
#define HS_SHARE_LEAST 2048u

/* Hot rows of a layer of so many slots and bytes a row, when the reserve has `spare`
 * bytes for each layer. Not more than slots, below HS_ROWS_MAX. */
uint32_t hs_share_rows(uint64_t slots, uint32_t row, uint64_t spare);

/* The most hot rows that such a layer takes, however much there is. */
uint64_t hs_share_most(uint64_t slots);

/* Bytes that so many hot rows, their state and the layer's map take; about. */
uint64_t hs_share_bytes(uint64_t slots, uint32_t row, uint64_t rows);

#endif
