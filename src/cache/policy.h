/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_POLICY_H
#define SRC_CACHE_POLICY_H

/*
 * The policies as the kernels know them. A new one is a row here, a choice in
 * options.def, and what its order means in kernels/keep.h.
 */

#include "kernels/abi.h"
#include "src/base/options.h"

enum hs_order_by hs_policy_order(int policy);

#endif
