/* SPDX-License-Identifier: MIT */
/* Two boards of 256 MiB, 200 free; device 0 is the stand-in's. */
#include <string.h>

#define MIB (1ull << 20)

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

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci);

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
	(void)device;
	if (!memory)
		return 2; /* NVML_ERROR_INVALID_ARGUMENT */
	*memory = (struct memory){256 * MIB, 200 * MIB, 56 * MIB};
	return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory)
{
	(void)device;
	*memory = (struct memory_v2){memory->version, 256 * MIB, 6 * MIB, 200 * MIB, 50 * MIB};
	return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci)
{
	memset(pci, 0, sizeof(*pci));
	pci->bus = device ? 7 : 0;
	return 0;
}
