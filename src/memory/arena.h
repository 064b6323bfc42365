/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_ARENA_H
#define SRC_MEMORY_ARENA_H

/*
 * The addresses that we hand out. Windows lie in [base, base + HS_ARENA_HOT),
 * hot areas from there on, so every hot area is above every window and its
 * rows are non-negative indices from any window's base. All sizes in bytes,
 * multiples of HS_GRANULE.
 *
 * The base is high because two small int32 side by side look like a pointer to
 * a low address (vLLM 0.26.0: ten false hits in one run at 0x3_0760_0000).
 */

#include <stddef.h>
#include "hooks/driver.h"

#ifdef __SANITIZE_THREAD__
/* 0x2000_0000_0000 is shadow there (x86-64); the program is at 0x5555_…. */
#define HS_ARENA_BASE 0x550000000000ull
#define HS_ARENA_HOT ((size_t)128 << 30)
#else
#define HS_ARENA_BASE 0x200000000000ull
#define HS_ARENA_HOT ((size_t)768 << 30)
#endif

enum hs_arena_part { HS_ARENA_WINDOWS, HS_ARENA_AREAS };

/* A reservation of its own, at the lowest free address of the part. Freed
 * addresses are used again. Outputs are set only on success; MAP_FAILED when
 * the driver gives none of the addresses that we ask for. Thread-safe. */
CUresult hs_arena_reserve(CUdeviceptr *out, size_t bytes, enum hs_arena_part part);
void hs_arena_release(CUdeviceptr start);

#endif
