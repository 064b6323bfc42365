/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/size.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int count_in(uint64_t *out, const char *text, const char **end)
{
	char *rest;
	uint64_t value;
	unsigned shift = 0;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &rest, 10);
	if (errno)
		return -EINVAL;
	if (*rest == 'k' || *rest == 'K')
		shift = 10;
	else if (*rest == 'm' || *rest == 'M')
		shift = 20;
	if (shift)
		rest++;
	if (value > UINT64_MAX >> shift)
		return -EINVAL;
	*out = value << shift;
	*end = rest;
	return 0;
}

int hs_size_count(uint64_t *out, const char *text)
{
	const char *end;
	uint64_t value;

	if (count_in(&value, text, &end) || *end)
		return -EINVAL;
	*out = value;
	return 0;
}

int hs_size_gib(double *out, const char *text)
{
	char *end;
	double value, scale = 1;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	value = strtod(text, &end);
	if (*end == 'T' || *end == 't')
		scale = 1024;
	if (*end && strchr("TtGg", *end))
		end++;
	if (!strcasecmp(end, "ib") || !strcasecmp(end, "b"))
		end += strlen(end);
	if (*end || !isfinite(value))
		return -EINVAL;
	*out = value * scale;
	return 0;
}

int hs_size_rate(double *out, const char *text)
{
	char *end;
	double value;

	if ((*text < '0' || *text > '9') && *text != '.')
		return -EINVAL;
	value = strtod(text, &end);
	if (*end == '%') {
		value /= 100;
		end++;
	}
	if (*end || !(value >= 0 && value <= 1))
		return -EINVAL;
	*out = value;
	return 0;
}

int hs_size_list(uint64_t *out, size_t *count, size_t room, const char *text)
{
	size_t n = 0;

	for (;;) {
		if (n == room || count_in(&out[n], text, &text))
			return -EINVAL;
		n++;
		if (!*text)
			break;
		if (*text++ != ',')
			return -EINVAL;
	}
	*count = n;
	return 0;
}

const char *hs_size_text(char buffer[32], uint64_t value)
{
	char digits[24];
	int length = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value), at = 0;

	for (int i = 0; i < length; i++) {
		if (i && (length - i) % 3 == 0)
			buffer[at++] = ',';
		buffer[at++] = digits[i];
	}
	buffer[at] = '\0';
	return buffer;
}
