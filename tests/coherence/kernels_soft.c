/* SPDX-License-Identifier: MIT */
/* The stand-in driver's rows for this test's kernels, and for our own with the
 * switch for planted bugs. */
#include "kernels.cu"
#include "kernels/module.cu"
