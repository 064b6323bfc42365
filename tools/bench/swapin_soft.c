/* SPDX-License-Identifier: MIT */
/* The benchmark's kernels for the stand-in driver. */

#include "tools/bench/swapin.cu"
