/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "src/base/log.h"
#include "src/base/options.h"

enum kind { SIZE, GIB, CHOICE, PATH, FLAG };

struct option {
	enum kind kind;
	const char *variable, *fallback;
	uint64_t low, high;
	const char *help; /* a CHOICE begins with its '|' list */
	size_t at;
};

static const struct option table[] = {
#define OPT(field, kind, variable, fallback, low, high, help)                                      \
	{kind, variable, fallback, low, high, help, offsetof(struct hs_options, field)},
#include "src/base/options.def"
#undef OPT
};
#define COUNT (sizeof(table) / sizeof(table[0]))

#define PREFIX "HISPARSE_"
#define KEPT "the default stays"

static void complain(const struct option *option, const char *text)
{
	const int list = (int)strcspn(option->help, ": ");
	const char *unit = option->kind == GIB ? " GiB" : "";

	if (option->kind == SIZE || option->kind == GIB)
		hs_warn("%s='%s' is not a number from %" PRIu64 " to %" PRIu64 "%s; " KEPT,
			option->variable, text, option->low, option->high, unit);
	else if (option->kind == CHOICE)
		hs_warn("%s='%s' is none of %.*s; " KEPT, option->variable, text, list,
			option->help);
	else
		hs_warn("%s='%s' is neither 0 nor 1; " KEPT, option->variable, text);
}

/* Digits, and for GIB a fraction; no sign, no spaces, no locale. `value` counts
 * in units of 1 << shift. */
static bool number(const char *text, unsigned shift, const struct option *option, uint64_t *value)
{
	const char *digit = text;
	uint64_t whole = 0;
	double part = 0, weight = 0.1;

	for (; *digit >= '0' && *digit <= '9'; digit++)
		if (__builtin_mul_overflow(whole, 10, &whole) ||
			__builtin_add_overflow(whole, *digit - '0', &whole))
			return false;
	if (digit == text)
		return false;
	if (option->kind == GIB && *digit == '.')
		for (digit++; *digit >= '0' && *digit <= '9'; digit++, weight /= 10)
			part += weight * (*digit - '0');
	if (*digit || whole < option->low || whole > option->high ||
		(whole == option->high && part > 0))
		return false;
	*value = (whole << shift) + (uint64_t)(part * (double)(1ull << shift));
	return true;
}

static bool choice(const char *text, const struct option *option, int *value)
{
	const char *item = option->help;
	const size_t length = strlen(text);

	for (int i = 0;; i++) {
		const size_t width = strcspn(item, "|: ");

		if (width == length && !strncmp(item, text, width)) {
			*value = i;
			return true;
		}
		if (item[width] != '|')
			return false;
		item += width + 1;
	}
}

static bool flag(const char *text, bool *value)
{
	static const char *const off[] = {"0", "no", "off", "false"};
	static const char *const on[] = {"1", "yes", "on", "true"};

	for (size_t i = 0; i < sizeof(on) / sizeof(on[0]); i++) {
		if (!strcmp(text, on[i]) || !strcmp(text, off[i])) {
			*value = !strcmp(text, on[i]);
			return true;
		}
	}
	return false;
}

/* Variables in _MIB and of the kind GIB are kept in bytes. */
static unsigned shift(const struct option *option)
{
	const size_t length = strlen(option->variable);

	if (option->kind == GIB)
		return 30;
	return length > 4 && !strcmp(option->variable + length - 4, "_MIB") ? 20 : 0;
}

static bool parse(const char *text, const struct option *option, void *field)
{
	switch (option->kind) {
	case SIZE:
	case GIB:
		if (!*text) {
			*(uint64_t *)field = HS_AUTO;
			return true;
		}
		return number(text, shift(option), option, field);
	case CHOICE:
		return choice(text, option, field);
	case PATH:
		*(const char **)field = *text ? strdup(text) : NULL;
		return true;
	case FLAG:
		return flag(text, field);
	}
	return false;
}

static unsigned unknown(void)
{
	unsigned found = 0;

	for (char **entry = environ; entry && *entry; entry++) {
		const size_t length = strcspn(*entry, "=");
		size_t i = 0;

		if (strncmp(*entry, PREFIX, strlen(PREFIX)))
			continue;
		while (i < COUNT && (strlen(table[i].variable) != length ||
					    strncmp(table[i].variable, *entry, length)))
			i++;
		if (i < COUNT)
			continue;
		hs_warn("%.*s is not an option of this version; it is ignored", (int)length,
			*entry);
		found++;
	}
	return found;
}

/* An empty variable is an unset one. The log level is known before the first
 * line is written. */
unsigned hs_options_read(struct hs_options *options)
{
	const char *wrong[COUNT] = {NULL};
	unsigned complaints = 0;

	for (size_t i = 0; i < COUNT; i++) {
		void *field = (char *)options + table[i].at;
		const char *text = getenv(table[i].variable);

		parse(table[i].fallback, &table[i], field);
		if (text && *text && !parse(text, &table[i], field))
			wrong[i] = text;
	}
	hs_log_set((enum hs_log_level)options->log);
	for (size_t i = 0; i < COUNT; i++) {
		if (wrong[i]) {
			complain(&table[i], wrong[i]);
			complaints++;
		}
	}
	return complaints + unknown();
}

static struct hs_options options;

static void read_once(void)
{
	hs_options_read(&options);
}

/* glibc starts a pthread_once again in a child that was forked during it. */
const struct hs_options *hs_options(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_once);
	return &options;
}
