/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_SUMMARY_H
#define TOOLS_HISPARSE_SUMMARY_H

/*
 * One line about a program's KV cache, from the counters that its processes
 * publish: once it stands, which is when the counters of memory and layers have
 * stopped changing, or else at the program's end.
 */

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>
#include "tools/hisparse/top.h"

#define HS_SUMMARY_MS 250

/* What the processes have, added up. */
struct hs_summary_facts {
	unsigned processes;
	uint64_t windows, device_bytes, host_bytes, pool;
	uint64_t layers, swapping; /* of all processes */
	uint64_t hot_rows, slots;  /* of a layer that swaps; the least */
	uint64_t refused, unknown_kernels;
};

struct hs_summary {
	char folder[PATH_MAX]; /* for the counters; "": HISPARSE_METRICS was set */
	double began;
	struct hs_top_source sources[HS_TOP_SOURCES];
	size_t count;
	struct hs_summary_facts facts;
	unsigned same; /* looks since they changed */
	bool said;
};

/* Before the program is started: sets HISPARSE_METRICS where nobody has.
 * Returns 0 or a negative errno; there is no summary then. */
int hs_summary_begin(struct hs_summary *summary);

/* While it runs, every HS_SUMMARY_MS, and when it has ended. */
void hs_summary_look(struct hs_summary *summary, pid_t program, bool ended);

/* Takes the counters away, unless a process that outlives the program writes them. */
void hs_summary_end(struct hs_summary *summary);

void hs_summary_add(struct hs_summary_facts *facts, const struct hs_top_sample *sample);

/* The line; -ENODATA: there is nothing to say. Returns 0 or -ENODATA. */
int hs_summary_print(char *line, size_t room, const struct hs_summary_facts *facts);

/* Reads what a folder of counters holds; returns how many processes. */
size_t hs_summary_sources(struct hs_top_source sources[HS_TOP_SOURCES], const char *folder);

/* A folder for counters; HISPARSE_METRICS names a file in it for each process.
 * Returns 0 or a negative errno. */
int hs_summary_folder(char folder[PATH_MAX]);
void hs_summary_remove(const char *folder);

#endif
