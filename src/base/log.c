/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "src/base/log.h"
#include "src/base/options.h"

#define UNSET (-1)

static _Atomic int threshold = UNSET;

void hs_log_set(enum hs_log_level level)
{
	atomic_store_explicit(&threshold, level, memory_order_relaxed);
}

bool hs_log_on(enum hs_log_level level)
{
	int limit = atomic_load_explicit(&threshold, memory_order_relaxed);

	if (limit == UNSET)
		limit = hs_options()->log;
	return (int)level <= limit;
}

void hs_log_write(enum hs_log_level level, const char *format, ...)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	const int saved = errno;
	char line[1024];
	size_t used;
	ssize_t wrote;
	va_list args;
	int n;

	used = (size_t)snprintf(
		line, sizeof(line), "hisparse[%d]: %s: ", (int)getpid(), names[level]);
	va_start(args, format);
	n = vsnprintf(line + used, sizeof(line) - used - 1, format, args);
	va_end(args);
	if (n < 0)
		n = 0;
	used += (size_t)n;
	if (used > sizeof(line) - 2) {
		used = sizeof(line) - 2;
		memcpy(line + used - 3, "...", 3);
	}
	line[used++] = '\n';
	wrote = write(STDERR_FILENO, line, used); /* a closed stderr is not our business */
	(void)wrote;
	errno = saved;
}
