/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_CONTROL_H
#define SRC_TRACE_CONTROL_H

/*
 * How `hisparse trace PID` reaches a process: a file in the folder for
 * temporary files of the process, named by its id there. It belongs to the user
 * that the process runs as (or root) and holds one line:
 *
 *	start FILE     a request; FILE is an absolute path
 *	stop           a request
 *	done TEXT      the answer: it was done
 *	failed TEXT    the answer: it was not
 *
 * The process looks for it when its engine waits for the GPU, some times a
 * second; who made the file removes it.
 */

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#define HS_CONTROL P_tmpdir "/.hisparse-%d"
#define HS_CONTROL_BYTES (PATH_MAX + 64)

/* A request that has not been answered. False: there is none. */
bool hs_control_read(char request[HS_CONTROL_BYTES]);

void hs_control_answer(bool done, const char *text);

#endif
