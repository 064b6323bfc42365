/* SPDX-License-Identifier: MIT */
#ifndef SOFTGPU_SOFTGPU_H
#define SOFTGPU_SOFTGPU_H

/*
 * The stand-in driver's own entries, for tests that link with it. From the
 * environment, read at the first call of the driver:
 *	SOFTGPU_DEVICES		devices, default 1, at most 8
 *	SOFTGPU_MEMORY_MIB	memory of each, default 256
 *	SOFTGPU_HOST_MIB	memory that may be pinned, default 1024
 *	SOFTGPU_SEED		not 0: everything asynchronous in a random order
 *	SOFTGPU_NAME		what cuDeviceGetName answers
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "softgpu/kernel.h"

#pragma GCC visibility push(default)
/* Finishes all work, then goes on in the order of this seed (0: plain). */
void soft_seed(uint64_t seed);
/* Bytes of all devices' and of pinned memory in use. Either may be NULL. */
void soft_usage(size_t *device, size_t *host);
/* Kernels launched so far, replayed nodes included. */
uint64_t soft_launches(void);
/* Whether these bytes lie in one allocation of cuMemAllocManaged. */
bool soft_managed(uintptr_t start, size_t bytes);
#pragma GCC visibility pop

#endif
