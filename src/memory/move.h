/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_MOVE_H
#define SRC_MEMORY_MOVE_H

/*
 * Moves a window between device and host under its constant address, its bytes
 * kept. The caller holds the memory lock, has closed the gate and waited for
 * the device. One in ranges is in one piece afterwards. On any failure the old memory is back at
 * the address, with its bytes, and the driver's error is returned.
 */

#include "src/memory/window.h"

CUresult hs_move(struct hs_holding *holding, enum hs_place place);

/* Maps what the record has, of which nothing or only the first granule is
 * mapped. On failure either may be. */
CUresult hs_move_in(struct hs_holding *holding);

#endif
