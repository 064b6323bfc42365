/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_ACCOUNT_H
#define SRC_MEMORY_ACCOUNT_H

/*
 * Device memory that the driver itself gives the engine, while HISPARSE_GPU_GIB
 * is set: what is held under which key. Without a cap nothing is booked and
 * everything here is free. Any thread.
 */

#include <stddef.h>
#include <stdint.h>
#include "hooks/driver.h"

/* A pointer's key and a VMM handle's are never the same. */
#define HS_ACCOUNT_PTR(ptr) ((uint64_t)(ptr) << 1)
#define HS_ACCOUNT_HANDLE(handle) ((uint64_t)(handle) << 1 | 1)

/* Books before the driver is asked; OUT_OF_MEMORY beyond the cap. */
CUresult hs_account_take(size_t bytes);

/* What the driver answered: kept under the key, or given back. */
void hs_account_keep(CUresult result, uint64_t key, size_t bytes);

/* Before it is given back, as its key may be another's at once afterwards; the
 * bytes, which are kept again if the driver refuses. 0: not known, which is fine. */
size_t hs_account_give(uint64_t key);

#define HS_ACCOUNT_FREED(key, call)                                                                \
	({                                                                                         \
		const uint64_t key_ = key;                                                         \
		const size_t given_ = hs_account_give(key_);                                       \
		const CUresult freed_ = call;                                                      \
		if (freed_ != CUDA_SUCCESS && given_ && hs_account_take(given_) == CUDA_SUCCESS)   \
			hs_account_keep(CUDA_SUCCESS, key_, given_);                               \
		freed_;                                                                            \
	})

#endif
