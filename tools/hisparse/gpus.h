/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_GPUS_H
#define TOOLS_HISPARSE_GPUS_H

/*
 * What a plan must know of a GPU. Memory is what nvidia-smi shows, in GiB.
 * Link rates are GB/s (10^9) of one direction for gathers of single rows by
 * the SMs.
 * `measured` says whether this project measured them on that GPU, or whether
 * they were carried over from one with the same link.
 */

#include <stdbool.h>

struct hs_gpu {
	const char *name, *link, *source;
	double memory;
	double rate_656, rate_1152;
	bool measured;
};

/* By name, whatever the case; NULL if unknown. index: the n-th, NULL past the end. */
const struct hs_gpu *hs_gpu_find(const char *name);
const struct hs_gpu *hs_gpu_at(unsigned index);

/* GB/s for rows of so many bytes. */
double hs_gpu_rate(const struct hs_gpu *gpu, unsigned row);

#endif
