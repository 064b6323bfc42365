/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/report.h"

#include <string.h>
#include "tools/hisparse/command.h"
#include "tools/hisparse/size.h"
#include "tools/hisparse/table.h"

enum { HEAT_COLUMNS = 256 };

static double rate(uint64_t misses, uint64_t selections)
{
	return selections ? (double)misses / (double)selections : 0;
}

static json_t *rates(const uint64_t *misses, size_t count, uint64_t selections)
{
	json_t *array = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(array, json_real(rate(misses[i], selections)));
	return array;
}

static void policies_json(json_t *array, const char *buffer, uint32_t caches,
	const struct hs_replay_in *in, const struct hs_replay_sum *sum)
{
	for (size_t i = 0; i < in->sizes; i++) {
		json_t *misses = json_object();

		for (int policy = 0; policy < HS_REPLAY_POLICIES; policy++)
			if (in->policies[policy])
				json_object_set_new(misses, hs_replay_names[policy],
					json_real(rate(sum->misses[policy][i], sum->selections)));
		json_array_append_new(
			array, json_pack("{s:s, s:I, s:I, s:o}", "buffer", buffer,
				       "slots_per_request", (json_int_t)in->slots[i], "slots",
				       (json_int_t)(in->slots[i] * caches), "miss_rate", misses));
	}
}

static json_t *curve_json(const struct hs_dsat *trace, const struct hs_replay *replay,
	const struct hs_replay_sum *total, const struct hs_replay_sum *layers)
{
	json_t *slots = json_array(), *each = json_array();

	for (size_t i = 0; i < replay->count; i++)
		json_array_append_new(slots, json_integer((json_int_t)replay->points[i]));
	for (uint32_t layer = 0; layer < trace->layers; layer++)
		json_array_append_new(
			each, rates(layers[layer].curve, replay->count, layers[layer].selections));
	return json_pack("{s:o, s:o, s:o}", "slots_per_request", slots, "mean",
		rates(total->curve, replay->count, total->selections), "layers", each);
}

/* Mean misses of a request's selection, layer by layer, steps put together
 * until HEAT_COLUMNS are enough. */
static json_t *heat_json(const struct hs_dsat *trace, const struct hs_replay *replay)
{
	uint32_t width = (trace->steps + HEAT_COLUMNS - 1) / HEAT_COLUMNS;
	json_t *each = json_array();

	for (uint32_t layer = 0; layer < trace->layers; layer++) {
		const uint32_t *heat = replay->heat + (size_t)layer * trace->steps;
		json_t *line = json_array();

		for (uint32_t step = 0; step < trace->steps; step += width) {
			uint32_t n = trace->steps - step < width ? trace->steps - step : width;
			double sum = 0;

			for (uint32_t i = 0; i < n; i++)
				sum += heat[step + i];
			json_array_append_new(line, json_real(sum / n / trace->batch));
		}
		json_array_append_new(each, line);
	}
	return json_pack("{s:I, s:i, s:o}", "slots_per_request", (json_int_t)replay->heat_slots,
		"steps_per_column", (int)width, "misses", each);
}

json_t *hs_report_json(const char *path, const struct hs_dsat *trace, const struct hs_replay_in *in,
	const struct hs_replay *replay)
{
	const struct hs_replay_sum *sum = in->requests ? &replay->request : &replay->shared;
	json_t *policies = json_array();
	json_t *root = json_pack(
		"{s:{s:s, s:s, s:b, s:b, s:i, s:i, s:i, s:i, s:I}, s:i, s:I, s:f, s:f}", "trace",
		"path", path, "note", trace->note, "synthetic",
		!strncmp(trace->note, "synthetic", 9), "merged", trace->shared, "layers",
		(int)trace->layers, "steps", (int)trace->steps, "requests", (int)trace->batch,
		"top_k", (int)trace->k, "context", (json_int_t)trace->ctx, "skip", (int)in->skip,
		"selections", (json_int_t)sum->selections, "first_time",
		rate(sum->first, sum->selections), "not_in_step_before",
		rate(sum->fresh, sum->selections));

	if (in->requests)
		policies_json(policies, "request", 1, in, &replay->request);
	if (in->shared)
		policies_json(policies, "shared", trace->batch, in, &replay->shared);
	json_object_set_new(root, "policies", policies);
	if (in->requests)
		json_object_set_new(root, "curve",
			curve_json(trace, replay, &replay->request, replay->request_layers));
	if (in->shared)
		json_object_set_new(root, "shared_curve",
			curve_json(trace, replay, &replay->shared, replay->shared_layers));
	json_object_set_new(root, "heat", heat_json(trace, replay));
	return root;
}

static void policies_text(const char *buffer, uint32_t caches, const struct hs_replay_in *in,
	const struct hs_replay_sum *sum)
{
	struct hs_table *table;
	char align[HS_REPLAY_POLICIES + 2] = "l", text[32];
	size_t columns = 1;

	for (int policy = 0; policy < HS_REPLAY_POLICIES; policy++)
		if (in->policies[policy])
			align[columns++] = 'r';
	table = hs_table_create(align);
	hs_table_cell(table, "misses, %%: %s", buffer);
	for (int policy = 0; policy < HS_REPLAY_POLICIES; policy++)
		if (in->policies[policy])
			hs_table_cell(table, "%s", hs_replay_names[policy]);
	for (size_t i = 0; i < in->sizes; i++) {
		hs_table_cell(table, "  %s slots", hs_size_text(text, in->slots[i] * caches));
		for (int policy = 0; policy < HS_REPLAY_POLICIES; policy++)
			if (in->policies[policy])
				hs_table_cell(table, "%.2f",
					100 * rate(sum->misses[policy][i], sum->selections));
	}
	hs_table_print(table);
	hs_table_destroy(table);
	putchar('\n');
}

static void layers_text(const char *buffer, const struct hs_dsat *trace,
	const struct hs_replay_in *in, const struct hs_replay_sum *layers)
{
	struct hs_table *table;
	char align[HS_REPLAY_SIZES + 4] = "rr", text[32];

	for (size_t i = 0; i < in->sizes; i++)
		align[2 + i] = 'r';
	table = hs_table_create(align);
	hs_table_cell(table, "layer");
	hs_table_cell(table, "not in step before");
	for (size_t i = 0; i < in->sizes; i++)
		hs_table_cell(table, "lru %s", hs_size_text(text, in->slots[i]));
	for (uint32_t layer = 0; layer < trace->layers; layer++) {
		const struct hs_replay_sum *sum = &layers[layer];

		hs_table_cell(table, "%u", layer);
		hs_table_cell(table, "%.2f", 100 * rate(sum->fresh, sum->selections));
		for (size_t i = 0; i < in->sizes; i++)
			hs_table_cell(table, "%.2f",
				100 * rate(sum->misses[HS_REPLAY_LRU][i], sum->selections));
	}
	printf("misses, %%, layer by layer: %s\n", buffer);
	hs_table_print(table);
	hs_table_destroy(table);
}

void hs_report_text(const char *path, const struct hs_dsat *trace, const struct hs_replay_in *in,
	const struct hs_replay *replay)
{
	const struct hs_replay_sum *sum = in->requests ? &replay->request : &replay->shared;
	char text[32], context[32];

	printf("%s: %u layers, %u steps, ", path, trace->layers, trace->steps);
	if (trace->shared)
		printf("all requests together: up to %s rows a step, %s slots\n",
			hs_size_text(text, trace->k), hs_size_text(context, trace->ctx));
	else
		printf("%u requests, top-k %u, context %s\n", trace->batch, trace->k,
			hs_size_text(context, trace->ctx));
	if (trace->note[0])
		printf("%s%s%s\n", hs_colour(HS_YELLOW), trace->note, hs_colour(HS_PLAIN));
	printf("%s selections from step %u on; %.2f %% of rows never selected before\n\n",
		hs_size_text(text, sum->selections), in->skip,
		100 * rate(sum->first, sum->selections));
	if (in->requests)
		policies_text("a buffer per request", 1, in, &replay->request);
	if (in->shared)
		policies_text("one buffer shared by all", trace->batch, in, &replay->shared);
	layers_text(in->requests ? "a buffer per request" : "one shared buffer", trace, in,
		in->requests ? replay->request_layers : replay->shared_layers);
}
