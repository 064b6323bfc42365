/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_OWN_H
#define SRC_MEMORY_OWN_H

/*
 * Behind hs_memory_own and hs_memory_hot: a stream of ours in every context,
 * on which zero fills run. It is not blocked by the engine's legacy stream and
 * is part of no capture.
 */

#include "hooks/driver.h"

/* Makes the current context's stream, ahead of the launch path. */
void hs_own_prepare(void);

/* The context goes, and its stream with it. */
void hs_own_forget(CUcontext context);

#endif
