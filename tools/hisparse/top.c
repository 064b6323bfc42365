/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/top.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const hs_top_names[HS_TOP_COUNTERS] = {
	[HS_TOP_HITS] = "hits",
	[HS_TOP_MISSES] = "misses",
	[HS_TOP_BYTES] = "fetched_bytes",
	[HS_TOP_EVICTIONS] = "evictions",
	[HS_TOP_INPLACE] = "inplace_reads",
	[HS_TOP_INVALIDATED] = "invalidated",
	[HS_TOP_STAGED] = "staged",
	[HS_TOP_LAUNCHES] = "launches",
};

#define AT(field) offsetof(struct hs_top_sample, field)
static const struct {
	const char *series; /* as it stands in the text, past "hisparse_"; the pid is cut out */
	size_t at;
} fields[] = {
	{"windows{place=\"device\"}", AT(windows[0])},
	{"windows{place=\"host\"}", AT(windows[1])},
	{"window_bytes{place=\"device\"}", AT(window_bytes[0])},
	{"window_bytes{place=\"host\"}", AT(window_bytes[1])},
	{"host_pool_bytes{}", AT(pool)},
	{"host_pool_used_bytes{}", AT(pool_used)},
	{"unknown_kernels{}", AT(unknown_kernels)},
	{"attention_refused_total{}", AT(refused)},
	{"verify_launches_total{}", AT(verify_launches)},
	{"verify_rows_total{}", AT(verify_rows)},
	{"verify_different_rows_total{}", AT(verify_different)},
};

/* The layer of a series, entered if it is new; NULL when there is no room. */
static struct hs_top_layer *layer_at(struct hs_top_sample *sample, int device, unsigned layer)
{
	for (unsigned i = 0; i < sample->layers; i++)
		if (sample->layer[i].device == device && sample->layer[i].layer == layer)
			return &sample->layer[i];
	if (sample->layers == HS_TOP_LAYERS)
		return NULL;
	sample->layer[sample->layers] = (struct hs_top_layer){.device = device, .layer = layer};
	return &sample->layer[sample->layers++];
}

static void take_layer(struct hs_top_sample *sample, const char *name, uint64_t value)
{
	const size_t length = strcspn(name, "{");
	struct hs_top_layer *layer;
	unsigned number;
	char series[64];
	int device;

	if (sscanf(name + length, "{device=\"%d\",layer=\"%u\"}", &device, &number) != 2)
		return;
	layer = layer_at(sample, device, number);
	if (!layer)
		return;
	if (!strncmp(name, "hot_rows{", 9))
		layer->hot_rows = value;
	if (!strncmp(name, "slots{", 6))
		layer->slots = value;
	for (int i = 0; i < HS_TOP_COUNTERS; i++) {
		snprintf(series, sizeof(series), "%s_total", hs_top_names[i]);
		if (strlen(series) == length && !strncmp(series, name, length))
			layer->counters[i] = value;
	}
}

/* Takes pid="N" and a comma after it out of the labels of a series. */
static void cut_pid(char *series)
{
	char *from = strstr(series, "pid=\""), *to = from ? strchr(from + 5, '"') : NULL;

	if (!to)
		return;
	to += to[1] == ',' ? 2 : 1;
	memmove(from, to, strlen(to) + 1);
}

static void take(struct hs_top_sample *sample, char *series, uint64_t value)
{
	if (!strncmp(series, "layer_", 6)) {
		take_layer(sample, series + 6, value);
		return;
	}
	sscanf(series, "build_info{pid=\"%d\",version=\"%31[^\"]", &sample->pid, sample->version);
	cut_pid(series);
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (!strcmp(series, fields[i].series))
			*(uint64_t *)(void *)((char *)sample + fields[i].at) = value;
}

int hs_top_parse(struct hs_top_sample *sample, const char *text)
{
	char line[512];

	memset(sample, 0, sizeof(*sample));
	while (*text) {
		const size_t length = strcspn(text, "\n");
		char *end;

		snprintf(line, sizeof(line), "%.*s", (int)length, text);
		text += length + (text[length] == '\n');
		end = strrchr(line, ' ');
		if (strncmp(line, "hisparse_", 9) || !end)
			continue;
		*end = '\0';
		take(sample, line + 9, strtoull(end + 1, NULL, 10));
	}
	return sample->pid ? 0 : -EINVAL;
}

void hs_top_sum(struct hs_top_layer *sum, const struct hs_top_sample *sample)
{
	*sum = (struct hs_top_layer){.device = -1};
	for (unsigned i = 0; i < sample->layers; i++) {
		sum->hot_rows += sample->layer[i].hot_rows;
		for (int j = 0; j < HS_TOP_COUNTERS; j++)
			sum->counters[j] += sample->layer[i].counters[j];
	}
}

void hs_top_rates(double rates[HS_TOP_COUNTERS], const struct hs_top_layer *before,
	const struct hs_top_layer *now, double seconds)
{
	for (int i = 0; i < HS_TOP_COUNTERS; i++)
		rates[i] = before && seconds > 0 && now->counters[i] >= before->counters[i]
				   ? (double)(now->counters[i] - before->counters[i]) / seconds
				   : 0;
}

double hs_top_hit_rate(double hits, double misses, double inplace)
{
	const double all = hits + misses + inplace;

	return all > 0 ? hits / all : -1;
}
