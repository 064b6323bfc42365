/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_MANAGED_H
#define SRC_MEMORY_MANAGED_H

/*
 * Host memory that the GPU reads as fast in any order: the driver's managed memory,
 * told to stay on the host and to be mapped by devices for good.
 *
 * Why: on an H200 (driver 580.159.04), rows of 656 bytes over 11 GiB come at 34 GB/s from
 * registered memory and from the driver's own pinned memory, in order of their addresses
 * (at 20 in random order), and at 45 in any order from this. Over 1 GiB all are alike: so
 * it is taken that the GPU maps the former in small pages and this in pages of 2 MiB, which
 * no tool shows. Memory needs fewer touches, too: a granule is made and mapped where one
 * of its bytes is.
 *
 * Never on the device: there, managed memory makes way for every allocation, without
 * a word.
 *
 * bytes: a multiple of HS_GRANULE.
 */

#include <stdbool.h>
#include "hooks/driver.h"

/* Whether the device is of those that have it. */
bool hs_managed_able(CUdevice device);

/*
 * Zeros, resident and mapped for `device`, on the NUMA node of its GPU. *at: where, or 0:
 * anywhere. NOT_SUPPORTED: not with this driver, device or kernel, or never at an address
 * of choice; MAP_FAILED: not now, or something else is at that one; OUT_OF_MEMORY: the
 * machine has no pages.
 */
CUresult hs_managed_create(CUdeviceptr *at, size_t bytes, CUdevice device);
CUresult hs_managed_destroy(CUdeviceptr at);

/* Mapped for one more device. Kernels may be running. */
CUresult hs_managed_share(CUdeviceptr at, size_t bytes, CUdevice with);

#endif
