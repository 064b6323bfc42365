/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_COPY_H
#define SRC_MEMORY_COPY_H

/*
 * Copies and fills that touch windows. The driver does the work; we split
 * what it refuses (a fill across a seam between backings) and drop the hot
 * rows of what was written, on the same stream.
 */

#include <stdbool.h>
#include <stddef.h>
#include "hooks/driver.h"

/* [dst, dst + bytes) was or will be written by work already enqueued on
 * `stream` (NULL stream = as the driver means it; per_thread: _ptds/_ptsz).
 * Cheap when dst is in no window. */
void hs_copy_wrote(CUdeviceptr dst, size_t bytes, CUstream stream, bool per_thread);

/* The end of the run of one backing that `ptr` lies in: fills are split here.
 * Returns ptr + bytes when nothing splits. */
CUdeviceptr hs_copy_seam(CUdeviceptr ptr, size_t bytes);

#endif
