/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/flags.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define OPT(field, kind, variable, otherwise, low, high, help)                                     \
	{#field, variable, "", HS_FLAG_##kind, help, otherwise},
static struct hs_flag flags[] = {
#include "src/base/options.def"
};
#undef OPT

/* HISPARSE_HOST_GIB is --host-gib. */
static void name_all(void)
{
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		const char *from = strchr(flags[i].variable, '_') + 1;
		size_t n = 0;

		for (; from[n] && n < sizeof(flags[i].name) - 1; n++)
			flags[i].name[n] = from[n] == '_' ? '-' : (char)tolower(from[n]);
	}
}

const struct hs_flag *hs_flag_at(unsigned index)
{
	if (!flags[0].name[0])
		name_all();
	return index < sizeof(flags) / sizeof(flags[0]) ? &flags[index] : NULL;
}

const struct hs_flag *hs_flag_field(const char *field)
{
	const struct hs_flag *flag;

	for (unsigned i = 0; (flag = hs_flag_at(i)); i++)
		if (!strcmp(flag->field, field))
			return flag;
	abort();
}
