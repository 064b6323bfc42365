/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_FOREIGN_H
#define SRC_CACHE_FOREIGN_H

/*
 * Work of another device than the one that our kernels were loaded on touches its
 * windows: a copy from the other GPU runs on a stream of either, a kernel with peer
 * access on one of its own. Our kernels cannot follow it on that stream.
 */

#include "src/cache/device.h"

/* Whether the stream is of another device. */
bool hs_foreign(const struct hs_device *device, const struct hs_site *site);

/* As hs_device_launch, on a stream of the device that waits for this one, which
 * waits for it: for all others as if it were in order. -EXDEV under capture. */
int hs_foreign_launch(const struct hs_device *device, enum hs_device_kernel kernel, unsigned blocks,
	const void *args, size_t bytes, const struct hs_site *site);

#endif
