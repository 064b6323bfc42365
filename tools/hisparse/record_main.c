/* SPDX-License-Identifier: MIT */
#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include "tools/hisparse/command.h"
#include "tools/hisparse/size.h"

enum { KEY_OUT = 'o', KEY_EVERY = 'n' };

static const struct argp_option options[] = {
	{"output", KEY_OUT, "FILE", 0, "%p for the process id; default: hisparse-%p.dsat", 0},
	{"every", KEY_EVERY, "N", 0, "record every n-th launch of a layer; default 1", 0},
	{0},
};

struct ask {
	const char *output, *every;
	char **program; /* NULL-terminated, a part of argv */
	int count;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct ask *ask = state->input;
	uint64_t n;

	switch (key) {
	case KEY_OUT:
		ask->output = arg;
		return 0;
	case KEY_EVERY:
		if (hs_size_count(&n, arg) || !n || n > 1u << 30)
			argp_error(state, "--every=%s: a number of launches", arg);
		ask->every = arg;
		return 0;
	case ARGP_KEY_ARG:
		ask->program = state->argv + state->next - 1;
		ask->count = state->argc - state->next + 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which program? hisparse record -o FILE -- vllm serve MODEL …");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int hs_record_main(int argc, char **argv)
{
	static const struct argp argp = {options, parse, "[--] PROGRAM [ARGUMENT…]",
		"Starts a program and records which slots its attention selects, layer by layer "
		"and step by step, for hisparse replay.\v"
		"A full ring costs records, never time; the file says how many. The status is that "
		"of the program.",
		NULL, NULL, NULL};
	struct ask ask = {.output = "hisparse-%p.dsat"};
	char **program;
	int status;

	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &ask))
		return HS_STATUS_USAGE;
	setenv("HISPARSE_RECORD", ask.output, 1);
	if (ask.every)
		setenv("HISPARSE_RECORD_EVERY", ask.every, 1);
	program = hs_need(calloc((size_t)ask.count + 3, sizeof(*program)));
	program[0] = argv[0];
	program[1] = "--";
	memcpy(program + 2, ask.program, (size_t)ask.count * sizeof(*program));
	status = hs_run_main(ask.count + 2, program);
	free(program);
	return status;
}
