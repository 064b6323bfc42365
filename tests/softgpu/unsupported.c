/* SPDX-License-Identifier: MIT */
#include "hooks/table.h"

/*
 * Every row of the table is defined here, weakly: what no other file has a
 * body for says that it is not supported (CUDA_ERROR_NOT_SUPPORTED). Each has
 * an address of its own, as in the driver: the preload's doors tell them apart
 * by it.
 */
#define WEAK(name, proof, flags)                                                                   \
	__attribute__((weak, visibility("default"))) int name(void);                               \
	int name(void)                                                                             \
	{                                                                                          \
		return 801;                                                                        \
	}
HS_DRIVER_TABLE(WEAK, WEAK)
