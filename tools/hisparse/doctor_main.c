/* SPDX-License-Identifier: MIT */
#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include "tools/hisparse/command.h"
#include "tools/hisparse/doctor.h"
#include "tools/hisparse/size.h"

enum { KEY_PYTHON = 256, KEY_QUICK, KEY_ROOT, KEY_JSON, KEY_SECONDS };

static const struct argp_option options[] = {
	{"python", KEY_PYTHON, "PATH", 0, "the Python that runs the server; default python3", 0},
	{"quick", KEY_QUICK, NULL, 0, "measure nothing", 0},
	{"seconds", KEY_SECONDS, "N", 0,
		"tell the program to end after so long; default: it ends by itself, or by Ctrl-C",
		0},
	{"root", KEY_ROOT, "DIR", OPTION_HIDDEN, "read /proc and /sys below DIR", 0},
	{"json", KEY_JSON, NULL, 0, "print JSON", 0},
	{0},
};

struct ask {
	const char *python, *root;
	char **program; /* NULL-terminated, a part of argv, or NULL */
	uint64_t seconds;
	bool quick, json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct ask *ask = state->input;

	switch (key) {
	case KEY_PYTHON:
		ask->python = arg;
		return 0;
	case KEY_QUICK:
		ask->quick = true;
		return 0;
	case KEY_ROOT:
		ask->root = arg;
		return 0;
	case KEY_JSON:
		ask->json = true;
		return 0;
	case KEY_SECONDS:
		if (hs_size_count(&ask->seconds, arg) || ask->seconds > 86400)
			argp_error(state, "--seconds=%s: a number up to 86400", arg);
		return 0;
	case ARGP_KEY_ARG:
		/* The rest is the program's. */
		ask->program = state->argv + state->next - 1;
		state->next = state->argc;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct {
	const char *word;
	enum hs_colour colour;
} levels[] = {
	[HS_FINE] = {"ok", HS_GREEN}, [HS_NOTE] = {"note", HS_YELLOW}, [HS_ACT] = {"act", HS_RED}};

static json_t *as_json(const struct hs_findings *findings)
{
	json_t *array = json_array();

	for (size_t i = 0; i < findings->count; i++) {
		const struct hs_finding *finding = &findings->list[i];

		json_array_append_new(
			array, json_pack("{s:s, s:s, s:s, s:s}", "level",
				       levels[finding->level].word, "topic", finding->topic,
				       "finding", finding->text, "advice", finding->advice));
	}
	return json_pack("{s:o}", "findings", array);
}

static void print_text(const struct hs_findings *findings)
{
	for (size_t i = 0; i < findings->count; i++) {
		const struct hs_finding *finding = &findings->list[i];

		printf("%s%-4s%s  %-13s  %s\n", hs_colour(levels[finding->level].colour),
			levels[finding->level].word, hs_colour(HS_PLAIN), finding->topic,
			finding->text);
		if (*finding->advice)
			printf("%21s%s\n", "", finding->advice);
	}
}

int hs_doctor_main(int argc, char **argv)
{
	static const struct argp argp = {options, parse, "[-- PROGRAM [ARGUMENT…]]",
		"Looks at this machine: driver, GPUs and their links, memory and its limits, the "
		"library, the engine. Each finding says what to do. With a program: a dry run, "
		"with "
		"the library in front of it and everything left on the GPU, that lists what was "
		"recognised, what touched the large allocations and what would have moved.\v"
		"The status is 1 when something has to be acted on.",
		NULL, NULL, NULL};
	struct ask ask = {.python = "python3", .root = ""};
	struct hs_findings findings = {0};
	int status = HS_STATUS_OK;

	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &ask))
		return HS_STATUS_USAGE;
	hs_doctor_gpus(&findings, ask.root, !ask.quick);
	hs_doctor_memory(&findings, ask.root);
	hs_doctor_limits(&findings, ask.root);
	hs_doctor_library(&findings);
	hs_doctor_python(&findings, ask.python);
	if (ask.program)
		hs_doctor_program(&findings, ask.program, (unsigned)ask.seconds);
	for (size_t i = 0; i < findings.count; i++)
		if (findings.list[i].level == HS_ACT)
			status = HS_STATUS_FINDING;
	if (!ask.json)
		print_text(&findings);
	else if (hs_json_print(as_json(&findings)))
		status = HS_STATUS_FINDING;
	free(findings.list);
	return status;
}
