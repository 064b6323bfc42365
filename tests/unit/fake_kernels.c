/* SPDX-License-Identifier: MIT */
/* The kernels that profiles know, for tests of traces. */
#include "src/launch/kernel.h"

void hs_kernel_each(void (*visit)(struct hs_kernel *kernel, void *data), void *data)
{
	static const struct hs_profile attention = {.role = HS_ROLE_ATTENTION},
				       writer = {.role = HS_ROLE_WRITER},
				       combine = {.label = "some-combine", .role = HS_ROLE_READER},
				       topk = {.role = HS_ROLE_TOPK, .makes = HS_MAKES_POSITIONS},
				       list = {.role = HS_ROLE_TABLE, .makes = HS_MAKES_SLOTS},
				       table = {.role = HS_ROLE_TABLE};
	struct hs_kernel kernels[] = {{.name = (char *)(uintptr_t) "attend", .profile = &attention},
		{.name = (char *)(uintptr_t) "store", .profile = &writer},
		{.name = (char *)(uintptr_t) "merge", .profile = &combine},
		{.name = (char *)(uintptr_t) "choose", .profile = &topk},
		{.name = (char *)(uintptr_t) "convert", .profile = &list},
		{.name = (char *)(uintptr_t) "plan", .profile = &table},
		{.name = (char *)(uintptr_t) "other"}};

	for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++)
		visit(&kernels[i], data);
}
