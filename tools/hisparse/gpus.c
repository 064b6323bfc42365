/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/gpus.h"

#include <stddef.h>
#include <strings.h>

/*
 * Swap-ins of 656 and 1,152 B rows over 15 GiB of managed memory on one H200, driver
 * 580.159.04, from batch 64 on (a plain gather: 45 and 50 GB/s, the copy engine 55.4).
 * Same link, same figures.
 */
#define PCIE5 "PCIe 5 x16", "measured on an H200", .rate_656 = 43, .rate_1152 = 49
/* 29 us against 112 us for the same misses of 1,152 B (arXiv 2608.07009): 174 GB/s.
 * Nothing is known about shorter rows. */
#define C2C "NVLink-C2C", "derived from arXiv 2608.07009 (GH200)", .rate_656 = 174, .rate_1152 = 174

#define GPU(called, mib, known, ...)                                                               \
	{                                                                                          \
		.name = called, .memory = (mib) / 1024., .measured = known, GPU_LINK(__VA_ARGS__)  \
	}
#define GPU_LINK(kind, from, ...) .link = kind, .source = from, __VA_ARGS__

static const struct hs_gpu gpus[] = {
	GPU("H100", 81559, false, PCIE5),
	GPU("H200", 143771, true, PCIE5),
	GPU("H20", 97871, false, PCIE5),
	GPU("B200", 183359, false, PCIE5),
	GPU("B300", 275040, false, PCIE5),
	GPU("GH200", 97871, false, C2C),
	GPU("GB200", 189471, false, C2C),
};

const struct hs_gpu *hs_gpu_at(unsigned index)
{
	return index < sizeof(gpus) / sizeof(gpus[0]) ? &gpus[index] : NULL;
}

const struct hs_gpu *hs_gpu_find(const char *name)
{
	for (unsigned i = 0; i < sizeof(gpus) / sizeof(gpus[0]); i++)
		if (!strcasecmp(gpus[i].name, name))
			return &gpus[i];
	return NULL;
}

double hs_gpu_rate(const struct hs_gpu *gpu, unsigned row)
{
	return row > 900 ? gpu->rate_1152 : gpu->rate_656;
}
