/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_OWN_H
#define SRC_MEMORY_OWN_H

/*
 * Behind hs_memory_own and hs_memory_hot: a stream of ours in every context,
 * on which zero fills run. It is not blocked by the engine's legacy stream and
 * is part of no capture.
 */

#include <stddef.h>
#include "hooks/driver.h"

/* Makes the current context's stream, ahead of the launch path. */
void hs_own_prepare(void);

/* Copies on that stream and waits for the copy alone. Either side may be any
 * memory that the device reads or writes at this address. */
CUresult hs_own_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes);

/* The context goes, and its stream with it. */
void hs_own_forget(CUcontext context);

#endif
