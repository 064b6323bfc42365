/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_SETTLE_H
#define SRC_MEMORY_SETTLE_H

/*
 * The moments at which windows may move: no capture open in the process, the
 * gate closed, every context that holds a window idle. The caller holds the
 * memory lock. True: the caller must hs_world_start(). False: not now, and
 * nothing has changed.
 *
 * waits: whether the engine's call waits for the device by nature. Then we wait
 * for up to a second, else for milliseconds; never without an end, as something
 * on the device may itself be waiting for a launch that the gate holds up.
 */

#include <stdbool.h>

bool hs_world_stop(bool waits);
void hs_world_start(void);

/* Whether this thread has stopped it (and so holds the memory lock). */
bool hs_world_stopped(void);

#endif
