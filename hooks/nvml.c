/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>
#include "hooks/hook.h"
#include "hooks/nvml.h"
#include "src/memory/memory.h"

struct memory {
	unsigned long long total, free, used;
};

struct memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

struct pci {
	char legacy[16];
	unsigned domain, bus, device, ids, subsystem;
	char id[32];
};

static struct {
	int (*nvmlDeviceGetMemoryInfo)(void *device, struct memory *memory);
	int (*nvmlDeviceGetMemoryInfo_v2)(void *device, struct memory_v2 *memory);
	int (*pci)(void *device, struct pci *pci);
} real;

/* Both name the same board. */
static bool same(void *device, CUdevice ours)
{
	unsigned domain, bus, slot;
	struct pci pci;
	char id[32];

	return real.pci && real.pci(device, &pci) == 0 &&
	       hs_driver.cuDeviceGetPCIBusId(id, sizeof(id), ours) == CUDA_SUCCESS &&
	       sscanf(id, "%x:%x:%x", &domain, &bus, &slot) == 3 && pci.domain == domain &&
	       pci.bus == bus && pci.device == slot;
}

static bool retell(void *device, unsigned long long *total, unsigned long long *left)
{
	uint64_t all = *total, free_bytes = *left;
	bool told = false;
	int count = 0;

	/* Asking NVML must not be what wakes us. */
	if (hs_inside || atomic_load(&hs_hook_state) != HS_HOOK_LIVE || !hs_hook_begin())
		return false;
	hs_driver.cuDeviceGetCount(&count);
	for (CUdevice ours = 0; ours < count && !told; ours++)
		told = same(device, ours) && hs_memory_retell(ours, &free_bytes, &all);
	if (told) {
		*total = all;
		*left = free_bytes;
	}
	hs_hook_end(CUDA_SUCCESS);
	return told;
}

static int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
	const int result = real.nvmlDeviceGetMemoryInfo(device, memory);

	if (!result && memory && retell(device, &memory->total, &memory->free))
		memory->used = memory->total - memory->free;
	return result;
}

static int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory)
{
	const int result = real.nvmlDeviceGetMemoryInfo_v2(device, memory);
	unsigned long long rest;

	if (result || !memory || !retell(device, &memory->total, &memory->free))
		return result;
	/* total = reserved + free + used */
	rest = memory->total - memory->free;
	memory->reserved = memory->reserved < rest ? memory->reserved : rest;
	memory->used = rest - memory->reserved;
	return result;
}

static const struct {
	const char *name;
	void *ours;
	void **real;
} hooks[] = {
#define HOOK(name) {#name, (void *)name, (void **)&real.name},
	HS_NVML_TABLE(HOOK)
#undef HOOK
};

bool hs_nvml_knows(const char *name)
{
	for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++)
		if (!strcmp(hooks[i].name, name))
			return true;
	return false;
}

void *hs_nvml_door(void *handle, const char *name, void *entry)
{
	void *pci = hs_dlsym_real(handle, "nvmlDeviceGetPciInfo_v3");

	for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++) {
		if (strcmp(hooks[i].name, name))
			continue;
		__atomic_store_n((void **)&real.pci, pci, __ATOMIC_RELAXED);
		__atomic_store_n(hooks[i].real, entry, __ATOMIC_RELEASE);
		return hooks[i].ours;
	}
	return NULL;
}
