/* SPDX-License-Identifier: MIT */
#include "src/trace/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "src/cache/layer.h"
#include "src/launch/kernel.h"

/* Series: one of the process, one for each place of windows, one a layer. */
enum series { PROCESS, PLACES, LAYERS };

struct family {
	const char *name, *type;
	enum series series;
	size_t at; /* of a uint64_t (PLACES: two) in struct hs_metrics or hs_metrics_layer */
	const char *help;
};

#define PROCESS(field) PROCESS, offsetof(struct hs_metrics, field)
#define PLACES(field) PLACES, offsetof(struct hs_metrics, field)
#define LAYERS(field) LAYERS, offsetof(struct hs_metrics_layer, field)

static const struct family families[] = {
	{"windows", "gauge", PLACES(memory.windows), "Watched allocations, by where they live."},
	{"window_bytes", "gauge", PLACES(memory.window_bytes),
		"Bytes of watched allocations, by where they live."},
	{"host_pool_bytes", "gauge", PROCESS(memory.pool),
		"Pinned host memory that windows may take."},
	{"host_pool_used_bytes", "gauge", PROCESS(memory.pool_used),
		"Pinned host memory that windows have taken."},
	{"reserve_bytes", "gauge", PROCESS(memory.reserve),
		"Device memory that is kept for hot rows, maps and lists."},
	{"reserve_used_bytes", "gauge", PROCESS(memory.own),
		"Device memory taken for hot rows, maps and lists."},
	{"attention_launches_total", "counter", PROCESS(launch.attention),
		"Launches of attention kernels on a window; a captured one counts once."},
	{"attention_remapped_total", "counter", PROCESS(launch.remapped),
		"Of these, launches that read a remapped list."},
	{"attention_refused_total", "counter", PROCESS(launch.refused),
		"Of these, launches that were left alone and read in place."},
	{"unknown_launches_total", "counter", PROCESS(launch.unknown),
		"Launches of kernels that no profile knows and that carry a window."},
	{"unknown_kernels", "gauge", PROCESS(unknown_kernels),
		"Kernels that no profile knows and that were seen to carry a window."},
	{"verify_launches_total", "counter", PROCESS(verify.launches),
		"Attention launches issued or captured to be checked (HISPARSE_VERIFY)."},
	{"verify_skipped_total", "counter", PROCESS(verify.skipped),
		"Attention launches that were due to be checked and were not."},
	{"verify_rows_total", "counter", PROCESS(verify.rows),
		"Output rows compared with those of the engine's own list."},
	{"verify_different_rows_total", "counter", PROCESS(verify.different),
		"Of these, rows that differ."},
	{"layer_hot_rows", "gauge", LAYERS(hot_rows),
		"KV rows that the layer's hot buffer holds; 0 while it does not swap."},
	{"layer_slots", "gauge", LAYERS(slots), "KV rows of the layer in its window."},
	{"layer_launches_total", "counter", LAYERS(counts.launches),
		"Attention launches that were resolved, replays included."},
	{"layer_hits_total", "counter", LAYERS(counts.hits),
		"Selected rows that were on the device."},
	{"layer_misses_total", "counter", LAYERS(counts.misses),
		"Selected rows that were fetched into the hot buffer."},
	{"layer_fetched_bytes_total", "counter", LAYERS(counts.bytes),
		"Bytes fetched into the hot buffer, or staged."},
	{"layer_inplace_reads_total", "counter", LAYERS(counts.inplace),
		"Selected rows that attention read from host memory, for want of a free row."},
	{"layer_duplicates_total", "counter", LAYERS(counts.duplicates),
		"Further mentions of a row that the same launch fetched."},
	{"layer_evictions_total", "counter", LAYERS(counts.evictions),
		"Hot rows given up for others."},
	{"layer_invalidated_total", "counter", LAYERS(counts.invalidated),
		"Hot rows dropped because their slot was written."},
	{"layer_padding_total", "counter", LAYERS(counts.padding),
		"Entries of lists that select nothing."},
	{"layer_staged_total", "counter", LAYERS(counts.staged),
		"Rows fetched for one launch alone, whose lists are long: a prefill's."},
};

static void add(struct hs_cache_counts *sum, const struct hs_cache_counts *counts)
{
	sum->launches += counts->launches;
	sum->hits += counts->hits;
	sum->misses += counts->misses;
	sum->duplicates += counts->duplicates;
	sum->inplace += counts->inplace;
	sum->evictions += counts->evictions;
	sum->invalidated += counts->invalidated;
	sum->padding += counts->padding;
	sum->bytes += counts->bytes;
	sum->staged += counts->staged;
}

static void read_layer(struct hs_layer *layer, void *data)
{
	struct hs_metrics *metrics = data;
	struct hs_metrics_layer *out = &metrics->layer[metrics->layers];
	const bool on = atomic_load_explicit(&layer->on, memory_order_acquire);

	if (metrics->layers == HS_LAYERS)
		return;
	metrics->layers++;
	out->device = layer->device;
	out->id = layer->id;
	out->hot_rows = on ? layer->rows : 0;
	out->slots = on ? layer->slots : 0;
	hs_cache_read(layer, &out->counts);
	add(&metrics->total, &out->counts);
}

static void read_kernel(struct hs_kernel *kernel, void *data)
{
	*(uint64_t *)data +=
		!kernel->profile && atomic_load_explicit(&kernel->touched, memory_order_relaxed);
}

void hs_metrics_read(struct hs_metrics *metrics)
{
	metrics->pid = getpid();
	metrics->layers = 0;
	metrics->unknown_kernels = 0;
	metrics->total = (struct hs_cache_counts){0};
	hs_memory_read(&metrics->memory);
	hs_launch_read(&metrics->launch);
	hs_verify_read(&metrics->verify);
	hs_kernel_each(read_kernel, &metrics->unknown_kernels);
	hs_layer_each(read_layer, metrics);
}

double hs_metrics_hit_rate(const struct hs_cache_counts *counts)
{
	const uint64_t all = counts->hits + counts->misses + counts->inplace;

	return all ? (double)counts->hits / (double)all : 0;
}

static uint64_t value(const void *base, size_t at, unsigned index)
{
	return ((const uint64_t *)(const void *)((const char *)base + at))[index];
}

static void print_family(FILE *file, const struct family *family, const struct hs_metrics *metrics)
{
	static const char *const places[] = {"device", "host"};

	fprintf(file, "# HELP hisparse_%s %s\n# TYPE hisparse_%s %s\n", family->name, family->help,
		family->name, family->type);
	switch (family->series) {
	case PROCESS:
		fprintf(file, "hisparse_%s{pid=\"%d\"} %" PRIu64 "\n", family->name, metrics->pid,
			value(metrics, family->at, 0));
		break;
	case PLACES:
		for (unsigned i = 0; i < 2; i++)
			fprintf(file, "hisparse_%s{pid=\"%d\",place=\"%s\"} %" PRIu64 "\n",
				family->name, metrics->pid, places[i],
				value(metrics, family->at, i));
		break;
	case LAYERS:
		for (unsigned i = 0; i < metrics->layers; i++)
			fprintf(file, "hisparse_%s{device=\"%d\",layer=\"%u\"} %" PRIu64 "\n",
				family->name, metrics->layer[i].device, metrics->layer[i].id,
				value(&metrics->layer[i], family->at, 0));
		break;
	}
}

int hs_metrics_print(const struct hs_metrics *metrics, char **text, size_t *length)
{
	FILE *file = open_memstream(text, length);
	bool failed;

	if (!file)
		return -ENOMEM;
	fprintf(file,
		"# HELP hisparse_build_info The library that counts here.\n"
		"# TYPE hisparse_build_info gauge\n" HS_METRICS_PID "%d\",version=\"" HS_VERSION
		"\"} 1\n",
		metrics->pid);
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		print_family(file, &families[i], metrics);
	failed = ferror(file);
	if (fclose(file) || failed) {
		free(*text);
		return -ENOMEM;
	}
	return 0;
}

int hs_metrics_text(char **text, size_t *length)
{
	struct hs_metrics *metrics = malloc(sizeof(*metrics));
	int error;

	if (!metrics)
		return -ENOMEM;
	hs_metrics_read(metrics);
	error = hs_metrics_print(metrics, text, length);
	free(metrics);
	return error;
}
