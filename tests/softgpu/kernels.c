/* SPDX-License-Identifier: MIT */
/* The library's own kernels, compiled for the CPU; they register themselves. */
#include "kernels/module.cu"
