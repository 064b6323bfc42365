/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_FILE_H
#define SRC_TRACE_FILE_H

/*
 * The metrics of this process in a file: always a whole one, put in place with
 * rename(2). %p in the name stands for the process id. Without it, processes
 * that share the name find out: the later one writes to NAME.PID. A file that
 * is not metrics of ours is never replaced.
 */

/* Writes the counters as they are now to the file of HISPARSE_METRICS=name.
 * One caller at a time, always with the same name. Returns 0 or a negative
 * errno; the first failure is logged. */
int hs_file_write(const char *name);

#endif
