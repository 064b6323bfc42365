/* SPDX-License-Identifier: MIT */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tools/hisparse/command.h"
#include "tools/hisparse/replay.h"
#include "tools/hisparse/report.h"
#include "tools/hisparse/size.h"

enum { KEY_SLOTS = 's', KEY_POLICY = 'p', KEY_SKIP = 256, KEY_BUFFER, KEY_SEED, KEY_JSON };

static const struct argp_option options[] = {
	{"slots", KEY_SLOTS, "N,…", 0,
		"hot rows of one request (device_buffer_size); default: 1, 2 and 4 x top-k", 0},
	{"policy", KEY_POLICY, "NAME,…", 0, "of vanilla,fifo,random,lru,belady; default: all", 0},
	{"buffer", KEY_BUFFER, "request|shared|both", 0,
		"a buffer for each request, one that all share, or both; default: both", 0},
	{"skip", KEY_SKIP, "STEPS", 0,
		"steps that fill the caches and do not count; default: largest size / top-k + 2",
		0},
	{"seed", KEY_SEED, "N", 0, "of the random policy; default 1", 0},
	{"json", KEY_JSON, NULL, 0, "print JSON", 0},
	{0},
};

struct ask {
	struct hs_replay_in in;
	const char *path;
	bool skip_given, json;
};

static int choose_policies(bool policies[HS_REPLAY_POLICIES], const char *text)
{
	memset(policies, 0, HS_REPLAY_POLICIES * sizeof(*policies));
	for (;;) {
		size_t length = strcspn(text, ",");
		int policy = 0;

		while (policy < HS_REPLAY_POLICIES &&
			(strlen(hs_replay_names[policy]) != length ||
				strncmp(hs_replay_names[policy], text, length)))
			policy++;
		if (policy == HS_REPLAY_POLICIES)
			return -EINVAL;
		policies[policy] = true;
		if (!text[length])
			return 0;
		text += length + 1;
	}
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct ask *ask = state->input;
	uint64_t value;

	switch (key) {
	case KEY_SLOTS:
		if (hs_size_list(ask->in.slots, &ask->in.sizes, HS_REPLAY_SIZES, arg))
			argp_error(state, "--slots=%s: at most %d sizes, as 4096,8192", arg,
				HS_REPLAY_SIZES);
		return 0;
	case KEY_POLICY:
		if (choose_policies(ask->in.policies, arg))
			argp_error(state, "--policy=%s: of vanilla,fifo,random,lru,belady", arg);
		return 0;
	case KEY_BUFFER:
		ask->in.requests = !strcmp(arg, "request") || !strcmp(arg, "both");
		ask->in.shared = !strcmp(arg, "shared") || !strcmp(arg, "both");
		if (!ask->in.requests && !ask->in.shared)
			argp_error(state, "--buffer=%s: request, shared or both", arg);
		return 0;
	case KEY_SKIP:
		if (hs_size_count(&value, arg) || value > UINT32_MAX)
			argp_error(state, "--skip=%s: a number of steps", arg);
		ask->in.skip = (uint32_t)value;
		ask->skip_given = true;
		return 0;
	case KEY_SEED:
		if (hs_size_count(&ask->in.seed, arg))
			argp_error(state, "--seed=%s: a number", arg);
		return 0;
	case KEY_JSON:
		ask->json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num)
			argp_usage(state);
		ask->path = arg;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which trace? (of `hisparse record` or synth)");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Whether a recording has its head and its note, and nothing in between. */
static bool is_empty(const char *path)
{
	char bytes[36] = "";
	FILE *file = fopen(path, "re");
	bool empty = file && fread(bytes, 1, sizeof(bytes), file) == sizeof(bytes) &&
		     !memcmp(bytes, "DSAT\2", 5) && !memcmp(bytes + 32, "NOTE", 4);

	if (file)
		fclose(file);
	return empty;
}

/* Returns a status; *trace is open only with HS_STATUS_OK. */
static int open_trace(struct hs_dsat *trace, const char *path)
{
	int err = hs_dsat_read(trace, path);

	if (!err)
		return HS_STATUS_OK;
	hs_complain("%s: %s", path,
		is_empty(path) ? "nothing was recorded: no attention of this program swapped in"
		: err == -EBADMSG || err == -EINVAL
			? "not a DSAT version 1 or 2 trace, or cut short"
			: strerror(-err));
	return HS_STATUS_FINDING;
}

/* Sizes and warm-up that were not given. Returns a status. */
static int complete(struct ask *ask, const struct hs_dsat *trace)
{
	uint64_t largest = 0;

	if (!ask->in.sizes)
		for (int i = 0; i < 3; i++)
			ask->in.slots[ask->in.sizes++] = (uint64_t)trace->k << i;
	for (size_t i = 0; i < ask->in.sizes; i++) {
		if (ask->in.slots[i] < trace->k) {
			hs_complain("--slots: %llu is below the trace's top-k %u",
				(unsigned long long)ask->in.slots[i], trace->k);
			return HS_STATUS_USAGE;
		}
		if (ask->in.slots[i] > largest)
			largest = ask->in.slots[i];
	}
	if (!ask->skip_given)
		ask->in.skip =
			hs_dsat_warm(trace, largest < UINT32_MAX / 2 ? (uint32_t)largest : 0);
	if (ask->in.skip >= trace->steps) {
		hs_complain("%u steps are too few: %u fill the caches (--skip)", trace->steps,
			ask->in.skip);
		return HS_STATUS_FINDING;
	}
	return HS_STATUS_OK;
}

int hs_replay_main(int argc, char **argv)
{
	static const struct argp argp = {options, parse, "TRACE",
		"Runs a recorded stream of selected rows through cache policies and sizes, without "
		"a "
		"GPU: miss rates, a miss-ratio curve of LRU for every layer, and Belady's bound.",
		NULL, NULL, NULL};
	struct ask ask = {.in = {.requests = true, .shared = true, .seed = 1}};
	struct hs_dsat trace = {0};
	struct hs_replay replay;
	int status, err;

	for (int policy = 0; policy < HS_REPLAY_POLICIES; policy++)
		ask.in.policies[policy] = true;
	if (argp_parse(&argp, argc, argv, 0, NULL, &ask))
		return HS_STATUS_USAGE;
	status = open_trace(&trace, ask.path);
	if (status)
		return status;
	status = complete(&ask, &trace);
	if (status)
		goto out;
	/* One request: its buffer is the shared one. */
	if (trace.batch == 1) {
		ask.in.requests = !trace.shared;
		ask.in.shared = trace.shared;
	}
	err = hs_replay_make(&replay, &trace, &ask.in);
	if (err) {
		hs_complain("%s: %s", ask.path,
			err == -EBADMSG ? "a position is beyond the trace's context"
					: strerror(-err));
		status = HS_STATUS_FINDING;
		goto out;
	}
	if (ask.json)
		status = hs_json_print(hs_report_json(ask.path, &trace, &ask.in, &replay));
	else
		hs_report_text(ask.path, &trace, &ask.in, &replay);
	hs_replay_finish(&replay);
out:
	hs_dsat_finish(&trace);
	return status;
}
