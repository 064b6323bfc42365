/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_DOCTOR_H
#define TOOLS_HISPARSE_DOCTOR_H

/*
 * What `hisparse doctor` looks at. Each function adds findings; each finding
 * that needs attention says what to do.
 */

#include <stdbool.h>
#include <stddef.h>

enum hs_level { HS_FINE, HS_NOTE, HS_ACT };

struct hs_finding {
	enum hs_level level;
	char topic[24], text[256], advice[256]; /* advice: "" if there is nothing to do */
};

struct hs_findings {
	struct hs_finding *list;
	size_t count, room;
};

/* advice: a printf format of its own is not needed; NULL for none. */
void hs_find(struct hs_findings *findings, enum hs_level level, const char *topic,
	const char *advice, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Files are read below root ("" for the machine itself). */
void hs_doctor_memory(struct hs_findings *findings, const char *root);
void hs_doctor_limits(struct hs_findings *findings, const char *root);

/* The GPUs and their links; measure: time a copy to each. */
void hs_doctor_gpus(struct hs_findings *findings, const char *root, bool measure);

/* CUPTI and the engines of a Python interpreter. */
void hs_doctor_python(struct hs_findings *findings, const char *python);

/* The library: found, and does the dynamic linker take it? */
void hs_doctor_library(struct hs_findings *findings);

/* A dry run of a program: what is recognised, what touches windows, what would
 * move. It is told to end after so many seconds, 0: never. */
void hs_doctor_program(struct hs_findings *findings, char **program, unsigned seconds);

/* First value after `key` in a file of "key value" lines, or the file's first
 * number with key NULL; -1 if there is none. */
long long hs_doctor_number(const char *root, const char *path, const char *key);

#endif
