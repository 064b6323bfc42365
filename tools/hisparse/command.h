/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_COMMAND_H
#define TOOLS_HISPARSE_COMMAND_H

/*
 * What the subcommands of `hisparse` share. A subcommand is a main() of its
 * own; it answers one of these statuses and prints what it found to standard
 * output, what went wrong to standard error.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum hs_status {
	HS_STATUS_OK = 0,
	HS_STATUS_FINDING = 1, /* it failed, or it found something to act on */
	HS_STATUS_USAGE = 2,
};

int hs_doctor_main(int argc, char **argv);
int hs_plan_main(int argc, char **argv);
int hs_plot_main(int argc, char **argv);
int hs_record_main(int argc, char **argv);
int hs_replay_main(int argc, char **argv);
int hs_run_main(int argc, char **argv);
int hs_synth_main(int argc, char **argv);
int hs_top_main(int argc, char **argv);
int hs_trace_main(int argc, char **argv);

/* "hisparse: …" on standard error, one line. */
void hs_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* For memory that a command cannot do without: ends the command if NULL. */
void *hs_need(void *memory);

/* Prints a document to standard output and releases it. Returns a status. */
int hs_json_print(json_t *document);

/* An escape sequence, or "" where standard output is no terminal or NO_COLOR is set. */
enum hs_colour { HS_PLAIN, HS_BOLD, HS_RED, HS_YELLOW, HS_GREEN };
const char *hs_colour(enum hs_colour colour);

#endif
