/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_TRANSIENT_H
#define SRC_MEMORY_TRANSIENT_H

/* What an engine had in use for a while before its KV, as a trial run does: it will be in
 * use again. Bytes; any thread. */

#include "hooks/driver.h"

/* So much of a device is left for KV now, and would be if there were no windows. */
void hs_transient_seen(CUdevice device, size_t left, size_t small);

/* A window of so many bytes is about to be given back. */
void hs_transient_window(CUdevice device, size_t bytes);

/* What has been in use beyond what is now. Of windows an allocator hoards some, and gives
 * them back when memory is short: the largest counts, or half of them. */
size_t hs_transient(CUdevice device, size_t left, size_t small);

/* All of it, what was hoarded included: it was needed to get along without looking back. */
size_t hs_transient_most(CUdevice device, size_t left);

#endif
