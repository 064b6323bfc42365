/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_STEER_H
#define SRC_MEMORY_STEER_H

/*
 * Where the driver puts its next managed allocation. cuMemAllocManaged takes no
 * address: libcuda (580.159.04) asks the kernel for the bytes, rounded up to
 * HS_STEER_SLACK, and nearly that much again, at NULL and with PROT_NONE, cuts off both
 * ends at multiples of it, and maps its device file there. So whoever answers that one mmap
 * decides; hooks/map.c lends us the name. Of the calling thread only, between begin and end.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Must be free behind what is steered, rounded up to it. The driver gives it back. */
#define HS_STEER_SLACK ((size_t)32 << 20)

/* at: a multiple of HS_STEER_SLACK. */
void hs_steer_begin(uint64_t at, size_t bytes);
/* Whether anybody asked. */
bool hs_steer_end(void);

/* What mmap is to be called with in place of `address`. Any caller's any call. */
void *hs_steer(void *address, size_t bytes, int protection);

#endif
