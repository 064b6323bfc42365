/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_ARENA_H
#define SRC_MEMORY_ARENA_H

/*
 * The addresses that we hand out. Windows lie in [base, base + HS_ARENA_HOT),
 * hot areas from there on, so every hot area is above every window and its
 * rows are non-negative indices from any window's base. All sizes in bytes.
 *
 * Two int32 side by side look like a pointer: at 0x3_0760_0000 vLLM 0.26.0 gave
 * ten false hits in one run, at 0x2000_0000_0000 SGLang 0.5.17 gave hundreds,
 * because 8192 (0x2000) is a size that people like. The upper words here, 15,707
 * and the 383 after it, are not.
 */

#include <stdbool.h>
#include <stddef.h>
#include "hooks/driver.h"

#ifdef __SANITIZE_THREAD__
/* The base below is shadow there (x86-64); the program is at 0x5555_…. */
#define HS_ARENA_BASE 0x550000000000ull
#define HS_ARENA_HOT ((size_t)128 << 30)
#else
#define HS_ARENA_BASE 0x3d5b00000000ull
#define HS_ARENA_HOT ((size_t)768 << 30)
#endif

/* Driver 580.159.04 honours a hint at multiples of 32 MiB only (+480, +512 and
 * +544 MiB, but not +496), and none for sizes of which it has addresses in stock
 * (2, 6 or 8 MiB nearly always, 128 MiB in some processes). So both addresses
 * and sizes are multiples of this, and arena.c uses up that stock. */
#define HS_ARENA_STEP ((size_t)32 << 20)

enum hs_arena_part { HS_ARENA_WINDOWS, HS_ARENA_AREAS };

/* A reservation of its own, at the lowest free address of the part, for `bytes`
 * rounded up to the step. Freed addresses are used again. Outputs are set only
 * on success; MAP_FAILED when the driver gives none of the addresses that we
 * ask for. Thread-safe. */
CUresult hs_arena_reserve(CUdeviceptr *out, size_t bytes, enum hs_arena_part part);
void hs_arena_release(CUdeviceptr start);

/* cut: only the first step stays reserved with the driver, so that something
 * else than cuMemMap can back the addresses after it, which remain ours; not
 * cut: all of it again. Nothing may be mapped there. MAP_FAILED: as before, if
 * the driver still gives that. */
CUresult hs_arena_cut(CUdeviceptr start, bool cut);

#endif
