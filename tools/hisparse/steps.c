/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/steps.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/hisparse/command.h"
#include "tools/hisparse/size.h"
#include "tools/hisparse/table.h"

#define DEVICES 16

static const char *const names[] = {
	[HS_STEPS_TIME] = "step_us",
	[HS_STEPS_SWAP_IN] = "swap_in_us",
	[HS_STEPS_STALL] = "stall_us",
	[HS_STEPS_ATTENTION] = "attention_us",
	[HS_STEPS_MISSES] = "miss_rate",
	[HS_STEPS_TOPK_LEAD] = "topk_lead_us",
	[HS_STEPS_TOPK_KERNELS] = "topk_kernels",
	[HS_STEPS_TOPK_HIDES] = "topk_hides_us",
	[HS_STEPS_TOPK_SHARE] = "topk_hides_share",
	[HS_STEPS_LIST_LEAD] = "list_lead_us",
	[HS_STEPS_LIST_KERNELS] = "list_kernels",
	[HS_STEPS_LIST_HIDES] = "list_hides_us",
	[HS_STEPS_LIST_SHARE] = "list_hides_share",
};

/* Swap-ins of the step that is being read, of each device. */
struct seen {
	uint64_t step;
	struct {
		unsigned known;
		uint64_t kernels;
	} topk, list;
};

static uint64_t number(const json_t *record, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(record, name));
}

static void see(struct seen *seen, const json_t *record)
{
	const json_t *topk = json_object_get(record, "topk_kernels"),
		     *list = json_object_get(record, "list_kernels");

	if (number(record, "step") != seen->step)
		*seen = (struct seen){.step = number(record, "step")};
	seen->topk.known += topk != NULL;
	seen->topk.kernels += (uint64_t)json_integer_value(topk);
	seen->list.known += list != NULL;
	seen->list.kernels += (uint64_t)json_integer_value(list);
}

/* Lead, kernels and what hides: of the figures from `first` on. */
static void put_lead(
	double *figures, int first, unsigned known, uint64_t kernels, uint64_t lead, uint64_t hides)
{
	if (!known)
		return;
	figures[first] = (double)lead / 1000;
	figures[first + 1] = (double)kernels / known;
	figures[first + 2] = (double)hides / 1000;
}

static void add(struct hs_steps *steps, const json_t *record, const struct seen *seen)
{
	const uint64_t launches = number(record, "launches"), misses = number(record, "misses"),
		       rows = misses + number(record, "hits") + number(record, "inplace");
	struct hs_steps_step *step;
	double *figures;

	if (!launches || !rows)
		return;
	if (steps->count == steps->room) {
		steps->room = steps->room ? 2 * steps->room : 1024;
		steps->steps = hs_need(realloc(steps->steps, steps->room * sizeof(*steps->steps)));
	}
	step = &steps->steps[steps->count++];
	*step = (struct hs_steps_step){.number = number(record, "step"),
		.start = number(record, "start"),
		.device = (uint32_t)number(record, "device"),
		.rows = rows / launches};
	figures = step->figures;
	for (int i = 0; i < HS_STEPS_FIGURES; i++)
		figures[i] = NAN;
	/* The last one, unless another follows. */
	figures[HS_STEPS_TIME] = (double)(number(record, "end") - step->start) / 1000;
	figures[HS_STEPS_SWAP_IN] = (double)number(record, "swap_in") / 1000;
	figures[HS_STEPS_STALL] = (double)number(record, "stall") / 1000;
	figures[HS_STEPS_ATTENTION] = (double)number(record, "attention") / 1000;
	figures[HS_STEPS_MISSES] = (double)misses / (double)rows;
	if (seen->step != step->number)
		return;
	put_lead(figures, HS_STEPS_TOPK_LEAD, seen->topk.known, seen->topk.kernels,
		number(record, "topk_lead"), number(record, "topk_hides"));
	put_lead(figures, HS_STEPS_LIST_LEAD, seen->list.known, seen->list.kernels,
		number(record, "list_lead"), number(record, "list_hides"));
}

/* A step lasts until the next one of its device begins. */
static void finish(struct hs_steps *steps)
{
	struct hs_steps_step *before[DEVICES] = {NULL};

	for (size_t i = 0; i < steps->count; i++) {
		struct hs_steps_step *step = &steps->steps[i], **last = &before[step->device];

		if (*last && (*last)->number + 1 == step->number && step->start > (*last)->start)
			(*last)->figures[HS_STEPS_TIME] =
				(double)(step->start - (*last)->start) / 1000;
		*last = step;
	}
	for (size_t i = 0; i < steps->count; i++) {
		double *figures = steps->steps[i].figures;

		figures[HS_STEPS_TOPK_SHARE] =
			figures[HS_STEPS_TOPK_HIDES] / figures[HS_STEPS_TIME];
		figures[HS_STEPS_LIST_SHARE] =
			figures[HS_STEPS_LIST_HIDES] / figures[HS_STEPS_TIME];
	}
}

static int take(struct hs_steps *steps, struct seen *seen, const char *line, size_t length)
{
	json_t *record = json_loadb(line, length, 0, NULL);
	const char *type = json_string_value(json_object_get(record, "type")), *why;
	const uint64_t device = number(record, "device");
	int error = type && device < DEVICES ? 0 : -EBADMSG;

	if (!error && !strcmp(type, "head")) {
		why = json_string_value(json_object_get(record, "why"));
		if (why)
			snprintf(steps->why, sizeof(steps->why), "%s", why);
		error = why ? -ENODATA : 0;
	} else if (!error && !strcmp(type, "step")) {
		add(steps, record, &seen[device]);
	} else if (!error && !strcmp(type, "kernel")) {
		see(&seen[device], record);
	}
	json_decref(record);
	return error;
}

int hs_steps_read(struct hs_steps *steps, const char *path)
{
	struct seen seen[DEVICES] = {{0}};
	FILE *file = fopen(path, "re");
	size_t room = 0, lines = 0;
	char *line = NULL;
	ssize_t length;
	int error = file ? 0 : -errno;

	*steps = (struct hs_steps){0};
	for (; !error && (length = getline(&line, &room, file)) > 0; lines++) {
		const bool head = !strncmp(line, "{\"type\":\"head\"", 14);

		if (!lines && !head)
			error = -EBADMSG;
		/* A trace that is still written may end in half a line. */
		else if (line[length - 1] == '\n' && (head || strstr(line, "\"type\":\"step\"") ||
							     strstr(line, "\"kind\":\"swap-in\"")))
			error = take(steps, seen, line, (size_t)length);
	}
	free(line);
	if (file)
		fclose(file);
	if (!error && !lines)
		error = -EBADMSG;
	if (!error)
		finish(steps);
	return error;
}

void hs_steps_free(struct hs_steps *steps)
{
	free(steps->steps);
	*steps = (struct hs_steps){0};
}

static int compare(const void *a, const void *b)
{
	const double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

bool hs_steps_group(
	const struct hs_steps *steps, uint64_t rows, struct hs_steps_step *middle, size_t *count)
{
	double *values = hs_need(malloc((steps->count + 1) * sizeof(*values)));

	*middle = (struct hs_steps_step){.rows = rows};
	for (int figure = 0; figure < HS_STEPS_FIGURES; figure++) {
		size_t n = 0;

		*count = 0;
		for (size_t i = 0; i < steps->count; i++) {
			const struct hs_steps_step *step = &steps->steps[i];

			if (step->rows > rows || step->rows <= rows / 2)
				continue;
			++*count;
			if (!isnan(step->figures[figure]))
				values[n++] = step->figures[figure];
		}
		qsort(values, n, sizeof(*values), compare);
		middle->figures[figure] =
			n ? (values[(n - 1) / 2] + values[n / 2]) / 2 : (double)NAN;
	}
	free(values);
	return *count;
}

static json_t *figures_json(const struct hs_steps_step *step)
{
	json_t *object = json_object();

	json_object_set_new(object, "rows", json_integer((json_int_t)step->rows));
	for (int i = 0; i < HS_STEPS_FIGURES; i++)
		json_object_set_new(object, names[i],
			isnan(step->figures[i]) ? json_null() : json_real(step->figures[i]));
	return object;
}

json_t *hs_steps_json(const struct hs_steps *steps, const char *path)
{
	json_t *each = json_array(), *groups = json_array(), *object;
	struct hs_steps_step middle;
	size_t count;

	for (uint64_t rows = 1; rows; rows *= 2) {
		if (!hs_steps_group(steps, rows, &middle, &count))
			continue;
		object = figures_json(&middle);
		json_object_set_new(object, "steps", json_integer((json_int_t)count));
		json_array_append_new(groups, object);
	}
	for (size_t i = 0; i < steps->count; i++) {
		object = figures_json(&steps->steps[i]);
		json_object_set_new(
			object, "step", json_integer((json_int_t)steps->steps[i].number));
		json_object_set_new(
			object, "device", json_integer((json_int_t)steps->steps[i].device));
		json_array_append_new(each, object);
	}
	return json_pack("{s:s, s:o, s:o}", "trace", path, "medians", groups, "steps", each);
}

static void cell(struct hs_table *table, double value)
{
	if (isnan(value))
		hs_table_cell(table, "-");
	else
		hs_table_cell(table, "%.1f", value);
}

static void row(struct hs_table *table, const char *first, uint64_t second,
	const struct hs_steps_step *step)
{
	const double *figures = step->figures;
	char text[32];

	hs_table_cell(table, "%s", first);
	hs_table_cell(table, "%s", hs_size_text(text, second));
	cell(table, figures[HS_STEPS_TIME]);
	cell(table, figures[HS_STEPS_SWAP_IN]);
	cell(table, figures[HS_STEPS_STALL]);
	cell(table, 100 * figures[HS_STEPS_MISSES]);
	for (int from = HS_STEPS_TOPK_LEAD; from < HS_STEPS_FIGURES; from += 4) {
		for (int i = 0; from == HS_STEPS_LIST_LEAD && i < 6; i++)
			hs_table_cell(table, "%s", "");
		hs_table_cell(table, "%s", from == HS_STEPS_LIST_LEAD ? "slots" : "positions");
		cell(table, figures[from]);
		cell(table, figures[from + 1]);
		cell(table, figures[from + 2]);
		cell(table, 100 * figures[from + 3]);
	}
}

static struct hs_table *head(const char *first, const char *second)
{
	static const char *const rest[] = {"step us", "swap-in us", "stall us", "misses %",
		"known from", "lead us", "kernels", "hides us", "hides %"};
	struct hs_table *table = hs_table_create("rrrrrrlrrrr");

	hs_table_cell(table, "%s", first);
	hs_table_cell(table, "%s", second);
	for (size_t i = 0; i < sizeof(rest) / sizeof(*rest); i++)
		hs_table_cell(table, "%s", rest[i]);
	return table;
}

void hs_steps_text(const struct hs_steps *steps, bool each)
{
	struct hs_table *table;
	struct hs_steps_step middle;
	char text[40], size[32];
	size_t count;

	if (each) {
		table = head("step", "rows a layer");
		for (size_t i = 0; i < steps->count; i++) {
			snprintf(text, sizeof(text), "%llu",
				(unsigned long long)steps->steps[i].number);
			row(table, text, steps->steps[i].rows, &steps->steps[i]);
		}
		hs_table_print(table);
		hs_table_destroy(table);
		putchar('\n');
	}
	table = head("rows a layer", "steps");
	for (uint64_t rows = 1; rows; rows *= 2) {
		if (!hs_steps_group(steps, rows, &middle, &count))
			continue;
		snprintf(text, sizeof(text), "up to %s", hs_size_text(size, rows));
		row(table, text, count, &middle);
	}
	hs_table_print(table);
	hs_table_destroy(table);
	puts("medians of steps, sums over their layers (kernels: of a layer). hides: the lesser of "
	     "swap-in and\nlead, which is the most that fetching ahead could take off a step.");
}
