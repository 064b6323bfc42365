/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_ACCOUNT_H
#define SRC_MEMORY_ACCOUNT_H

/*
 * Device memory that the driver itself gives the engine, while HISPARSE_GPU_GIB
 * is set: what is held of which device under which key. Without a cap nothing is booked and
 * everything here is free. Any thread.
 */

#include <stddef.h>
#include <stdint.h>
#include "hooks/driver.h"

/* A pointer's key and a VMM handle's are never the same. */
#define HS_ACCOUNT_PTR(ptr) ((uint64_t)(ptr) << 1)
#define HS_ACCOUNT_HANDLE(handle) ((uint64_t)(handle) << 1 | 1)

#define HS_ACCOUNT_HERE (-1) /* the current context's device */

/* Books before the driver is asked; OUT_OF_MEMORY beyond the cap. */
CUresult hs_account_take(CUdevice device, size_t bytes);

/* What the driver answered: kept under the key, or given back. */
void hs_account_keep(CUresult result, CUdevice device, uint64_t key, size_t bytes);

/* Before it is given back, as its key may be another's at once afterwards; what is
 * kept again if the driver refuses. 0 bytes: not known, which is fine. */
struct hs_account_held {
	size_t bytes;
	CUdevice device;
};
struct hs_account_held hs_account_give(uint64_t key);

#define HS_ACCOUNT_FREED(key, call)                                                                \
	({                                                                                         \
		const uint64_t key_ = key;                                                         \
		const struct hs_account_held held_ = hs_account_give(key_);                        \
		const CUresult freed_ = call;                                                      \
		if (freed_ != CUDA_SUCCESS && held_.bytes &&                                       \
			hs_account_take(held_.device, held_.bytes) == CUDA_SUCCESS)                \
			hs_account_keep(CUDA_SUCCESS, held_.device, key_, held_.bytes);            \
		freed_;                                                                            \
	})

#endif
