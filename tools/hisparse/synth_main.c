/* SPDX-License-Identifier: MIT */
#include <argp.h>
#include <errno.h>
#include <string.h>
#include "tools/hisparse/command.h"
#include "tools/hisparse/size.h"
#include "tools/hisparse/table.h"
#include "tools/hisparse/targets.h"

enum {
	KEY_OUTPUT = 'o',
	KEY_CALIBRATION = 'c',
	KEY_LAYERS = 256,
	KEY_STEPS,
	KEY_BATCH,
	KEY_CONTEXT,
	KEY_TOPK,
	KEY_SEED,
	KEY_FIT,
	KEY_JSON
};

static const struct argp_option options[] = {
	{"calibration", KEY_CALIBRATION, "easy|hard", 0,
		"easy: a prose prompt (GLM-5.1, LongBench); hard: a code prompt (DeepSeek-V3.2, "
		"SWE-bench); default easy",
		0},
	{"output", KEY_OUTPUT, "FILE", 0, "write a trace of the shape below; replay reads it", 0},
	{"layers", KEY_LAYERS, "N", 0, "default 8", 0},
	{"steps", KEY_STEPS, "N", 0, "default 500", 0},
	{"requests", KEY_BATCH, "N", 0, "default 1", 0},
	{"context", KEY_CONTEXT, "TOKENS", 0, "prompt of each request; default 32k", 0},
	{"top-k", KEY_TOPK, "N", 0, "default 2048", 0},
	{"seed", KEY_SEED, "N", 0, "default 1", 0},
	{"fit", KEY_FIT, NULL, 0, "find the calibration's numbers again; takes minutes", 0},
	{"json", KEY_JSON, NULL, 0, "print JSON", 0},
	{0},
};

struct ask {
	struct hs_dsat trace;
	enum hs_calibration_index which;
	const char *output;
	uint64_t prompt, seed;
	bool fit, json;
};

static void number(uint32_t *out, char *arg, const char *flag, struct argp_state *state)
{
	uint64_t value;

	if (hs_size_count(&value, arg) || !value || value > 1u << 20)
		argp_error(state, "%s=%s: a number from 1 to 1048576", flag, arg);
	else
		*out = (uint32_t)value;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct ask *ask = state->input;

	switch (key) {
	case KEY_CALIBRATION:
		if (strcmp(arg, "easy") && strcmp(arg, "hard"))
			argp_error(state, "--calibration=%s: easy or hard", arg);
		ask->which = strcmp(arg, "easy") ? HS_HARD : HS_EASY;
		return 0;
	case KEY_OUTPUT:
		ask->output = arg;
		return 0;
	case KEY_LAYERS:
		number(&ask->trace.layers, arg, "--layers", state);
		return 0;
	case KEY_STEPS:
		number(&ask->trace.steps, arg, "--steps", state);
		return 0;
	case KEY_BATCH:
		number(&ask->trace.batch, arg, "--requests", state);
		return 0;
	case KEY_CONTEXT:
		if (hs_size_count(&ask->prompt, arg) || ask->prompt > 1u << 24)
			argp_error(state, "--context=%s: at most 16M tokens, as 32k", arg);
		return 0;
	case KEY_TOPK:
		number(&ask->trace.k, arg, "--top-k", state);
		return 0;
	case KEY_SEED:
		if (hs_size_count(&ask->seed, arg))
			argp_error(state, "--seed=%s: a number", arg);
		return 0;
	case KEY_FIT:
		ask->fit = true;
		return 0;
	case KEY_JSON:
		ask->json = true;
		return 0;
	case ARGP_KEY_END:
		if (ask->prompt < ask->trace.k)
			argp_error(state, "--context=%llu is below --top-k=%u",
				(unsigned long long)ask->prompt, ask->trace.k);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const char *const uses[] = {
	[HS_TARGET_HELD_OUT] = "held out",
	[HS_TARGET_FITTED] = "fitted",
	[HS_TARGET_SHAPE] = "layer shape",
};

static void print_text(
	const struct hs_calibration *calibration, const struct hs_target *targets, int count)
{
	struct hs_table *table = hs_table_create("llrrrll");

	printf("synthetic selections, calibration %s: drift %.2f steps, noise %.4f "
	       "(fitted to %s)\n\n",
		calibration->name, calibration->drift, calibration->noise, calibration->fitted_to);
	for (const char *const *head = (const char *const[]){"", "statistic", "published",
		     "synthetic", "error", "use", "published for", NULL};
		*head; head++)
		hs_table_cell(table, "%s", *head);
	for (int i = 0; i < count; i++) {
		const struct hs_target *target = &targets[i];
		const char *unit = target->rate ? " %" : "";
		double scale = target->rate ? 100 : 1;

		hs_table_cell(table, "%s", target->id);
		hs_table_cell(table, "%s", target->what);
		if (target->low < target->high)
			hs_table_cell(
				table, "%g-%g%s", target->low * scale, target->high * scale, unit);
		else
			hs_table_cell(table, "%.4g%s", target->low * scale, unit);
		hs_table_cell(table, "%.1f%s", target->got * scale, unit);
		hs_table_cell(table, "%+.1f", hs_target_error(target) * scale);
		hs_table_cell(table, "%s", uses[target->use]);
		hs_table_cell(table, "%s", target->source);
	}
	hs_table_print(table);
	hs_table_destroy(table);
	printf("\nmean distance of the rates: fitted %.1f points, held out %.1f\n",
		100 * hs_target_mean(targets, count, HS_TARGET_FITTED),
		100 * hs_target_mean(targets, count, HS_TARGET_HELD_OUT));
	puts("\nA range has no error inside. Nothing in the column `synthetic` is measured; the "
	     "rows "
	     "that are\nheld out say how far it may be trusted. Drift and noise were fitted to the "
	     "rows that say so, by\n`--fit`; the half of the score that never changes was set "
	     "beforehand. The layers' paces were\nread from the rows D by eye.");
}

static json_t *as_json(
	const struct hs_calibration *calibration, const struct hs_target *targets, int count)
{
	json_t *rows = json_array();

	for (int i = 0; i < count; i++)
		json_array_append_new(
			rows, json_pack("{s:s, s:s, s:s, s:s, s:b, s:[f,f], s:f, s:f}", "id",
				      targets[i].id, "statistic", targets[i].what, "published_for",
				      targets[i].source, "use", uses[targets[i].use], "rate",
				      targets[i].rate, "published", targets[i].low, targets[i].high,
				      "synthetic", targets[i].got, "error",
				      hs_target_error(&targets[i])));
	return json_pack("{s:b, s:s, s:s, s:f, s:f, s:f, s:{s:f, s:f}, s:o}", "synthetic", 1,
		"calibration", calibration->name, "fitted_to", calibration->fitted_to, "drift",
		calibration->drift, "noise", calibration->noise, "fixed", HS_SYNTH_FIXED,
		"mean_error", "fitted", hs_target_mean(targets, count, HS_TARGET_FITTED),
		"held_out", hs_target_mean(targets, count, HS_TARGET_HELD_OUT), "targets", rows);
}

static int write_trace(struct ask *ask, const struct hs_calibration *calibration)
{
	int err;

	ask->trace.ctx = ask->prompt + ask->trace.steps;
	err = hs_dsat_init(&ask->trace);
	if (!err)
		err = hs_synth_fill(&ask->trace, calibration, ask->seed);
	if (!err)
		err = hs_dsat_write(&ask->trace, ask->output);
	hs_dsat_finish(&ask->trace);
	if (err) {
		hs_complain("%s: %s", ask->output, strerror(-err));
		return HS_STATUS_FINDING;
	}
	return HS_STATUS_OK;
}

int hs_synth_main(int argc, char **argv)
{
	static const struct argp argp = {options, parse, NULL,
		"Makes selections from a model that is fitted to some published miss rates, and "
		"says "
		"how far it is from every published one, fitted or held out. With --output it "
		"writes "
		"such a trace instead. Synthetic in name and note: never a measurement.",
		NULL, NULL, NULL};
	struct ask ask = {.trace = {.layers = 8, .steps = 500, .batch = 1, .k = HS_SYNTH_TOPK},
		.prompt = 32768,
		.seed = 1};
	struct hs_calibration calibration;
	struct hs_target targets[HS_TARGETS];
	int err, count;

	if (argp_parse(&argp, argc, argv, 0, NULL, &ask))
		return HS_STATUS_USAGE;
	calibration = hs_calibrations[ask.which];
	if (ask.fit) {
		err = hs_targets_fit(&calibration, ask.which, ask.seed);
		if (err) {
			hs_complain("the fit does not settle: %s", strerror(-err));
			return HS_STATUS_FINDING;
		}
	}
	if (ask.output)
		return write_trace(&ask, &calibration);
	count = hs_targets_measure(targets, ask.which, &calibration, ask.seed);
	if (count < 0) {
		hs_complain("%s", strerror(-count));
		return HS_STATUS_FINDING;
	}
	if (ask.json)
		return hs_json_print(as_json(&calibration, targets, count));
	print_text(&calibration, targets, count);
	return HS_STATUS_OK;
}
