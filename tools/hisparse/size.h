/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_SIZE_H
#define TOOLS_HISPARSE_SIZE_H

/*
 * Numbers as people write them. Outputs are set only on success; the result is
 * 0 or -EINVAL.
 */

#include <stddef.h>
#include <stdint.h>

/* "32k" is 32,768, "1M" is 1,048,576. */
int hs_size_count(uint64_t *out, const char *text);

/* GiB: "1000", "1.5", "512G", "512GiB", "2T", "2TiB". */
int hs_size_gib(double *out, const char *text);

/* A fraction: "0.134" or "13.4%". */
int hs_size_rate(double *out, const char *text);

/* "4096,8192" or "2k,4k": at most `room` counts; *count is how many. */
int hs_size_list(uint64_t *out, size_t *count, size_t room, const char *text);

/* 48068 as "48,068". The buffer must hold 32 bytes; returns it. */
const char *hs_size_text(char buffer[32], uint64_t value);

#endif
