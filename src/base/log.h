/* SPDX-License-Identifier: MIT */
#ifndef SRC_BASE_LOG_H
#define SRC_BASE_LOG_H

/*
 * One line per call, one write(2) per line, to standard error, as
 * "hisparse[PID]: warn: …". Nothing is printed before the first CUDA call.
 * The level comes from HISPARSE_LOG and is compared before anything is
 * formatted. errno is preserved. Never called on the launch path.
 */

#include <stdbool.h>

enum hs_log_level { HS_LOG_ERROR, HS_LOG_WARN, HS_LOG_INFO, HS_LOG_DEBUG };

/* Sets the level from here on; the options do that when they are read. */
void hs_log_set(enum hs_log_level level);

bool hs_log_on(enum hs_log_level level);
void hs_log_write(enum hs_log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#define hs_log(level, ...)                                                                         \
	do {                                                                                       \
		if (hs_log_on(level))                                                              \
			hs_log_write(level, __VA_ARGS__);                                          \
	} while (0)
#define hs_error(...) hs_log(HS_LOG_ERROR, __VA_ARGS__)
#define hs_warn(...) hs_log(HS_LOG_WARN, __VA_ARGS__)
#define hs_info(...) hs_log(HS_LOG_INFO, __VA_ARGS__)
#define hs_debug(...) hs_log(HS_LOG_DEBUG, __VA_ARGS__)

#endif
