/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/flags.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPT(field, kind, variable, otherwise, low, high, help)                                     \
	{#field, variable, "", HS_FLAG_##kind, otherwise, low, high, help},
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

/* The names of a choice end where its help begins: "lru|fifo: which …". */
static int check_choice(const struct hs_flag *flag, const char *text)
{
	const char *at = flag->help;

	for (;;) {
		size_t length = strcspn(at, "|: ");

		if (length == strlen(text) && !strncmp(at, text, length))
			return 0;
		if (at[length] != '|')
			return -EINVAL;
		at += length + 1;
	}
}

int hs_flag_check(const struct hs_flag *flag, const char *text, const char **why)
{
	static char reason[256];
	char *end = NULL;
	bool good = true;

	*why = reason;
	errno = 0;
	switch (flag->kind) {
	case HS_FLAG_SIZE: {
		unsigned long long value = strtoull(text, &end, 10);

		good = isdigit((unsigned char)*text) && !*end && !errno && value <= flag->high &&
		       value >= flag->low;
		snprintf(reason, sizeof(reason), "--%s=%s: a number from %" PRIu64 " to %" PRIu64,
			flag->name, text, flag->low, flag->high);
		break;
	}
	case HS_FLAG_GIB: {
		double value = strtod(text, &end);

		good = (isdigit((unsigned char)*text) || *text == '.') && !*end &&
		       isfinite(value) && value <= (double)flag->high && value >= (double)flag->low;
		snprintf(reason, sizeof(reason),
			"--%s=%s: a number of GiB from %" PRIu64 " to %" PRIu64, flag->name, text,
			flag->low, flag->high);
		break;
	}
	case HS_FLAG_CHOICE:
		good = !check_choice(flag, text);
		snprintf(reason, sizeof(reason), "--%s=%s: one of %.*s", flag->name, text,
			(int)strcspn(flag->help, ": "), flag->help);
		break;
	case HS_FLAG_PATH:
		good = *text;
		snprintf(reason, sizeof(reason), "--%s: empty", flag->name);
		break;
	case HS_FLAG_FLAG:
		good = !strcmp(text, "0") || !strcmp(text, "1");
		snprintf(reason, sizeof(reason), "--%s=%s: 0 or 1", flag->name, text);
		break;
	}
	return good ? 0 : -EINVAL;
}
