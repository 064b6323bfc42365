/* SPDX-License-Identifier: MIT */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/hisparse/attach.h"
#include "tools/hisparse/command.h"
#include "tools/hisparse/size.h"
#include "tools/hisparse/steps.h"

enum { KEY_OUT = 'o', KEY_WAIT = 256, KEY_REPORT, KEY_STEPS, KEY_JSON };

static const struct argp_option options[] = {
	{"output", KEY_OUT, "FILE", 0,
		"called .jsonl, .json (Chrome) or .pftrace (Perfetto), %p for the process id; "
		"default: hisparse-%p.jsonl",
		0},
	{"wait", KEY_WAIT, "SECONDS", 0, "for the answer of a running process; default 10", 0},
	{"report", KEY_REPORT, "FILE", 0,
		"traces nothing: prints what a trace (.jsonl) says of a step: swap-in, stall, and "
		"how "
		"much of it fetching ahead could hide",
		0},
	{"steps", KEY_STEPS, NULL, 0, "of a report: every step, not medians alone", 0},
	{"json", KEY_JSON, NULL, 0, "of a report: print JSON", 0},
	{0},
};

struct ask {
	const char *output, *report;
	uint64_t wait;
	bool steps, json;
	char **rest; /* what follows, NULL-terminated, a part of argv */
	int count;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct ask *ask = state->input;

	switch (key) {
	case KEY_OUT:
		ask->output = arg;
		return 0;
	case KEY_WAIT:
		if (hs_size_count(&ask->wait, arg) || ask->wait > 3600)
			argp_error(state, "--wait=%s: seconds, up to 3600", arg);
		return 0;
	case KEY_REPORT:
		ask->report = arg;
		return 0;
	case KEY_STEPS:
		ask->steps = true;
		return 0;
	case KEY_JSON:
		ask->json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (ask->report)
			argp_error(state, "a report is of a trace that is there: no program");
		ask->rest = state->argv + state->next - 1;
		ask->count = state->argc - state->next + 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		if (!ask->report)
			argp_error(state, "which program or process?");
		return 0;
	case ARGP_KEY_END:
		if (!ask->report && (ask->steps || ask->json))
			argp_error(state, "--steps and --json are of a --report");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int complain(int pid, int error, const char *answer)
{
	switch (error) {
	case -ESRCH:
		hs_complain("there is no process %d", pid);
		break;
	case -ENXIO:
		hs_complain("process %d runs without libhisparse.so (hisparse run)", pid);
		break;
	case -EBUSY:
		hs_complain("another request to process %d waits: " HS_CONTROL, pid, pid);
		break;
	case -ETIMEDOUT:
		hs_complain("process %d did not answer: it does so when its engine waits for the "
			    "GPU and has a KV cache; nothing was changed",
			pid);
		break;
	case -EREMOTEIO:
		hs_complain("process %d: %s", pid, answer);
		break;
	default:
		hs_complain("process %d: %s", pid, strerror(-error));
	}
	return HS_STATUS_FINDING;
}

/* The process's folder is not ours: the file's name is made absolute. */
static int ask_process(const struct ask *ask, int pid, const char *what)
{
	char answer[HS_CONTROL_BYTES], request[HS_CONTROL_BYTES] = "stop", folder[PATH_MAX] = "";
	const char *output = ask->output ? ask->output : "hisparse-%p.jsonl";
	int error;

	if (strcmp(what, "stop")) {
		if (*output != '/' && !getcwd(folder, sizeof(folder)))
			return complain(pid, -errno, NULL);
		if (snprintf(request, sizeof(request), "start %s%s%s", folder, *folder ? "/" : "",
			    output) >= (int)sizeof(request))
			return complain(pid, -ENAMETOOLONG, NULL);
	}
	error = hs_attach(pid, request, (unsigned)ask->wait * 1000, answer);
	if (error)
		return complain(pid, error, answer);
	puts(answer);
	return HS_STATUS_OK;
}

static int report(const struct ask *ask)
{
	struct hs_steps steps;
	int error = hs_steps_read(&steps, ask->report), status = HS_STATUS_OK;

	if (error == -ENODATA)
		hs_complain("%s has no kernel times: %s", ask->report, steps.why);
	else if (error == -EBADMSG)
		hs_complain("%s is no trace of ours that ends in .jsonl", ask->report);
	else if (error)
		hs_complain("%s: %s", ask->report, strerror(-error));
	else if (!steps.count)
		hs_complain("%s: no step of this trace swapped in", ask->report);
	else if (ask->json)
		status = hs_json_print(hs_steps_json(&steps, ask->report));
	else
		hs_steps_text(&steps, ask->steps);
	if (error || !steps.count)
		status = HS_STATUS_FINDING;
	hs_steps_free(&steps);
	return status;
}

int hs_trace_main(int argc, char **argv)
{
	static const struct argp argp = {options, parse,
		"[--] PROGRAM [ARGUMENT…]\nPID start|stop\n--report FILE",
		"Writes when swap-in and attention kernels ran, layer by layer and step by step, "
		"what they fetched and how long attention waited for it: of a program from its "
		"start to its end, or of a running server.\v"
		"The status is that of the program, or 1 if the process could not do it.",
		NULL, NULL, NULL};
	struct ask ask = {.wait = 10};
	char *end, **program;
	int status;
	long pid;

	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &ask))
		return HS_STATUS_USAGE;
	if (ask.report)
		return report(&ask);
	pid = strtol(ask.rest[0], &end, 10);
	if (!*end && pid > 0 && pid <= INT_MAX) {
		/* Options may follow, too. */
		for (int i = 2; i + 1 < ask.count; i += 2)
			if (!strcmp(ask.rest[i], "-o") || !strcmp(ask.rest[i], "--output"))
				ask.output = ask.rest[i + 1];
		if (ask.count < 2 ||
			(strcmp(ask.rest[1], "start") && strcmp(ask.rest[1], "stop"))) {
			hs_complain("hisparse trace %ld start or stop?", pid);
			return HS_STATUS_USAGE;
		}
		return ask_process(&ask, (int)pid, ask.rest[1]);
	}
	setenv("HISPARSE_TRACE", ask.output ? ask.output : "hisparse-%p.jsonl", 1);
	program = hs_need(calloc((size_t)ask.count + 3, sizeof(*program)));
	program[0] = argv[0];
	program[1] = "--";
	memcpy(program + 2, ask.rest, (size_t)ask.count * sizeof(*program));
	status = hs_run_main(ask.count + 2, program);
	free(program);
	return status;
}
