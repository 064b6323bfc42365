/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_DRYRUN_H
#define TOOLS_HISPARSE_DRYRUN_H

/*
 * A program run with the library in front of it that leaves every window on the
 * GPU, and what the library said of it (src/launch/seen.h).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hs_dry_kernel {
	char name[512], role[16], profile[64];
	uint64_t launches; /* 0: not told, the process was killed */
	bool kv;	   /* no profile knows it, and it carried a window of KV */
};

struct hs_dry_window {
	int pid;
	unsigned id, row;
	size_t mib;
	bool kv;
};

struct hs_dry {
	struct hs_dry_kernel *kernels;
	struct hs_dry_window *windows;
	char (*lines)[256]; /* warnings and errors, each once */
	size_t kernel_count, window_count, line_count;
	unsigned processes; /* that had windows */
	uint64_t layers;
	int status; /* as a shell tells it */
	bool stopped;
};

/* One line that a process wrote; false: it is not the library's. */
bool hs_dry_line(struct hs_dry *dry, const char *line);

/*
 * Runs the program, its standard output and what else it writes to standard
 * error go to ours. After so many seconds (0: never) it is told to end.
 * Returns 0 or a negative errno.
 */
int hs_dry_run(struct hs_dry *dry, char **program, const char *library, unsigned seconds);
void hs_dry_finish(struct hs_dry *dry);

#endif
