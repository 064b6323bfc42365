/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_MANAGED_H
#define SRC_MEMORY_MANAGED_H

/*
 * Host memory that the GPU reads as fast in any order: the driver's managed memory,
 * told to stay on the host and to be mapped by devices for good.
 *
 * Why: the GPU reaches registered memory, and the driver's own pinned memory, by small
 * pages, managed memory by pages of 2 MiB. On an H200 (driver 580.159.04), 70,254 rows of
 * 656 bytes over 11 GiB: 20 GB/s in random order and 34 in order of their addresses from
 * the former, 45 in either from the latter. Memory is ready faster, too: a granule is made
 * and mapped where one of its bytes is touched.
 *
 * Never on the device: there, managed memory makes way for every allocation, without
 * a word.
 *
 * bytes: a multiple of HS_GRANULE.
 */

#include "hooks/driver.h"

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
