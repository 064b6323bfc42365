/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/command.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

void hs_complain(const char *format, ...)
{
	va_list list;

	fflush(stdout);
	fputs("hisparse: ", stderr);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
}

void *hs_need(void *memory)
{
	if (!memory) {
		hs_complain("out of memory");
		exit(HS_STATUS_FINDING);
	}
	return memory;
}

int hs_json_print(json_t *document)
{
	int failed =
		!document || json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));

	json_decref(document);
	if (failed || putchar('\n') == EOF || fflush(stdout)) {
		hs_complain("cannot write the JSON document");
		return HS_STATUS_FINDING;
	}
	return HS_STATUS_OK;
}

const char *hs_colour(enum hs_colour colour)
{
	static const char *const sequence[] = {
		"\033[0m", "\033[1m", "\033[31m", "\033[33m", "\033[32m"};

	return isatty(STDOUT_FILENO) && !getenv("NO_COLOR") ? sequence[colour] : "";
}
