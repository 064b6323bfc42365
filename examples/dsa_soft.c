/* SPDX-License-Identifier: MIT */
/* The example's kernels for the stand-in driver, which links this file. */

#include "examples/dsa_kernels.cu"

SOFT_KERNEL(dsa_load_weights, unsigned *, unsigned long long, unsigned)
SOFT_KERNEL(dsa_embed, const int *, const int *, unsigned *)
SOFT_KERNEL(dsa_project, const unsigned *, const unsigned *, const unsigned *, unsigned *,
	unsigned *, unsigned *, unsigned *, unsigned *)
SOFT_KERNEL(dsa_write_kv, const unsigned *, const unsigned *, unsigned char *, const long long *,
	long long, long long, long long, long long, int, int, int, unsigned)
SOFT_KERNEL(dsa_write_key, const unsigned *, unsigned char *, const long long *)
SOFT_KERNEL(dsa_index, const unsigned *, const unsigned char *, const int *, int, const int *,
	unsigned *, int)
SOFT_KERNEL(dsa_topk, const unsigned *, int, const int *, int, int *)
SOFT_KERNEL(dsa_convert, const int *, const int *, int, int, int *)
SOFT_KERNEL(dsa_attend, struct dsa_attend_params)
SOFT_KERNEL(dsa_mix, const unsigned *, unsigned *)
SOFT_KERNEL(dsa_sample, const unsigned *, int *)
