/* SPDX-License-Identifier: MIT */
#ifndef SRC_BASE_OPTIONS_H
#define SRC_BASE_OPTIONS_H

/*
 * The options of this process, from the environment (options.def is the one
 * table). Parsed once, at the first CUDA call. A value that is out of range or
 * unknown gets one clear line (what, limit, variable) and the default.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hs_policy { HS_POLICY_LRU, HS_POLICY_FIFO, HS_POLICY_RANDOM, HS_POLICY_VANILLA };
enum hs_place_option { HS_OPTION_AUTO, HS_OPTION_HOST, HS_OPTION_DEVICE };
/* What host memory is tried first: each falls back to those after it. */
enum hs_host_memory { HS_OPTION_MANAGED, HS_OPTION_REGISTERED, HS_OPTION_DRIVER };

/* An unset SIZE or GIB whose default is "" reads as this. */
#define HS_AUTO UINT64_MAX

struct hs_options {
	uint64_t slots, host_bytes, gpu_bytes, row, layers;
	const char *profiles;
	int policy, place, host_memory;
	uint64_t window_bytes; /* in bytes, although the variable counts MiB */
	uint64_t verify;
	const char *trace, *record, *metrics;
	uint64_t record_every;
	int log;
	bool disable;
};

const struct hs_options *hs_options(void);

/* The parser behind it: fills options from the environment and returns the
 * number of lines that it had to write. Paths are copies from malloc. */
unsigned hs_options_read(struct hs_options *options);

#endif
