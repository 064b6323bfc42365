/* SPDX-License-Identifier: MIT */
/* The one image that the library carries. */
#include "kernels/resolve.cu"
#include "kernels/many.cu"
#include "kernels/drop.cu"
#include "kernels/arrive.cu"
#include "kernels/verify.cu"
