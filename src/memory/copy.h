/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_COPY_H
#define SRC_MEMORY_COPY_H

/*
 * Copies and fills that touch windows. The driver does the work; we split
 * what it refuses (a fill across a seam between backings) and drop the hot
 * rows of what was written, on the same stream. The caller is inside the gate
 * from before the driver's call until after these. Addresses outside every
 * window are fine and cheap.
 */

#include <stdbool.h>
#include <stddef.h>
#include "hooks/driver.h"

/* [dst, dst + bytes) was or will be written by work already enqueued on
 * `stream` (NULL stream = as the driver means it; per_thread: _ptds/_ptsz). */
void hs_copy_wrote(CUdeviceptr dst, size_t bytes, CUstream stream, bool per_thread);

/* The same for a fill with zeros: a window that saw nothing else stays virgin. */
void hs_copy_filled(CUdeviceptr dst, size_t bytes, CUstream stream, bool per_thread);

/* The end of the run that a fill from `ptr` may cover in one call, at most ptr +
 * bytes. A window splits after its first granule wherever it lives: a captured
 * fill may be replayed after it has moved. */
CUdeviceptr hs_copy_seam(CUdeviceptr ptr, size_t bytes);

/* Streams cannot write values there: managed memory. Inside the gate. */
bool hs_copy_no_values(CUdeviceptr dst);

/*
 * Graph nodes that are made by hand and not captured. A window that one may
 * write to has no hot rows from the next safe moment on (hs_window.unseen);
 * until then they are dropped after every launch of a graph.
 */

/* The node writes to [dst, dst + bytes). Not from inside the gate. */
void hs_copy_node(CUdeviceptr dst, size_t bytes);

/* Takes note of the windows that are known to be written by nodes. True if there
 * are any. Not from inside the gate. */
bool hs_copy_unseen(void);

/* A graph has been launched. */
void hs_copy_replayed(CUstream stream, bool per_thread);

#endif
