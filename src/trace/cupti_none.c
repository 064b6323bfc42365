/* SPDX-License-Identifier: MIT */
/* Built without CUPTI's header. */
#include <errno.h>
#include <stdio.h>
#include "src/trace/cupti.h"

int hs_cupti_start(char why[160])
{
	snprintf(why, 160, "this build has no CUPTI (cupti.h was missing)");
	return -ENOTSUP;
}

int hs_cupti_flush(bool expected)
{
	(void)expected;
	return 0;
}

void hs_cupti_stop(void)
{
}

bool hs_cupti_on(void)
{
	return false;
}

int64_t hs_cupti_ahead(void)
{
	return 0;
}

struct hs_cupti_kernel *hs_cupti_take(size_t *count)
{
	*count = 0;
	return NULL;
}

uint64_t hs_cupti_lost(void)
{
	return 0;
}
