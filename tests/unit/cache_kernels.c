/* SPDX-License-Identifier: MIT */
/* The kernels for the CPU; HS_PLANTS puts in the switch for planted bugs. */
#include "kernels/module.cu"
