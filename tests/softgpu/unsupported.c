/* SPDX-License-Identifier: MIT */
#include "hooks/table.h"

/*
 * Every row of the table is defined here, weakly: what no other file has a
 * body for says that it is not supported (CUDA_ERROR_NOT_SUPPORTED).
 */
int soft_unsupported(void);
int soft_unsupported(void)
{
	return 801;
}

#define WEAK(name, proof, flags)                                                                   \
	__asm__(".weak " #name "\n.type " #name ", %function\n.set " #name ", soft_unsupported");
HS_DRIVER_TABLE(WEAK, WEAK)
