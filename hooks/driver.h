/* SPDX-License-Identifier: MIT */
#ifndef HOOKS_DRIVER_H
#define HOOKS_DRIVER_H

/*
 * The real driver as one struct of typed pointers, filled once from the table.
 * Every module calls hs_driver.cuXxx(...), never a dlsym'ed cast. An entry that
 * this driver does not have is NULL; table.h says which may be.
 */

/* Declares every ABI variant under its ELF name, with no renaming macros. */
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>
#include <stdbool.h>
#include "hooks/table.h"

struct hs_driver {
#define HOOK(name, proof, flags) __typeof__(name) *name;
#define USE(name, proof, flags) __typeof__(name) *name;
	HS_DRIVER_TABLE(HOOK, USE)
#undef HOOK
#undef USE
};

extern struct hs_driver hs_driver;

/* What a sanitizer's start-up may call, by way of dlsym, before it is ready. */
#define HS_UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

/* Opens libcuda.so.1 and fills the struct, once. False when there is none. */
bool hs_driver_open(void);

/* True once the struct is filled and every row that is not OPTIONAL is there. */
bool hs_driver_whole(void);

/* 0 also where the driver does not know the attribute. */
static inline int hs_driver_attribute(CUdevice_attribute which, CUdevice device)
{
	int value = 0;

	return hs_driver.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

/* True while this thread is inside a call of our own: hooks then forward
 * untouched. Nested calls count. */
extern __thread int hs_inside __attribute__((tls_model("initial-exec")));

#endif
