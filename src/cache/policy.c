/* SPDX-License-Identifier: MIT */
#include "src/cache/policy.h"

static const enum hs_order_by orders[] = {
	[HS_POLICY_LRU] = HS_ORDER_USE,
	[HS_POLICY_FIFO] = HS_ORDER_FETCH,
	[HS_POLICY_RANDOM] = HS_ORDER_RANDOM,
	[HS_POLICY_VANILLA] = HS_ORDER_ALL,
};

enum hs_order_by hs_policy_order(int policy)
{
	if (policy < 0 || (size_t)policy >= sizeof(orders) / sizeof(*orders))
		return HS_ORDER_USE;
	return orders[policy];
}
