/* SPDX-License-Identifier: MIT */
#ifndef HOOKS_NVML_H
#define HOOKS_NVML_H

/*
 * NVML tells memory sizes too, and engines believe it: the entries that do, which
 * are only reached through dlsym. Structs are laid out as nvml.h 12 and 13 have
 * them. Before CUDA is in use in the process they answer as NVML does.
 */

#include <stdbool.h>

#define HS_NVML_TABLE(HOOK) \
	HOOK(nvmlDeviceGetMemoryInfo) \
	HOOK(nvmlDeviceGetMemoryInfo_v2)

/* Whether the name is one of the table. */
bool hs_nvml_knows(const char *name);

/* Our function in front of `real`, which `handle` gave for the name. */
void *hs_nvml_door(void *handle, const char *name, void *real);

#endif
