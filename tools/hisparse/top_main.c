/* SPDX-License-Identifier: MIT */
#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include "src/trace/crowded.h"
#include "tools/hisparse/command.h"
#include "tools/hisparse/size.h"
#include "tools/hisparse/table.h"
#include "tools/hisparse/top.h"

#define GIB ((double)(1ull << 30))
#define PATIENCE 3 /* seconds without a new file: it is not written any more */

enum { KEY_ONCE = '1', KEY_DELAY = 'd', KEY_JSON = 256 };

static const struct argp_option options[] = {
	{"once", KEY_ONCE, NULL, 0, "look for one delay, print, end", 0},
	{"delay", KEY_DELAY, "SECONDS", 0, "between two looks; default 1", 0},
	{"json", KEY_JSON, NULL, 0, "print a JSON document each time", 0},
	{0},
};

struct ask {
	const char *what;
	double delay;
	bool once, json;
};

/* A process as it was at two looks. */
struct watch {
	struct hs_top_source source;
	struct hs_top_sample before, now;
	bool ended; /* publishes no more */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct ask *ask = state->input;
	char *end;

	switch (key) {
	case KEY_ONCE:
		ask->once = true;
		return 0;
	case KEY_DELAY:
		ask->delay = strtod(arg, &end);
		if (*end || !isfinite(ask->delay) || ask->delay < 0.1 || ask->delay > 3600)
			argp_error(state, "--delay=%s: seconds from 0.1 to 3600", arg);
		return 0;
	case KEY_JSON:
		ask->json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (ask->what)
			argp_error(state, "one process, file or port");
		ask->what = arg;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which process, file or port?");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void wait_for(double seconds)
{
	const struct timespec time = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};

	nanosleep(&time, NULL);
}

/* A file that has not been written again keeps its rates for a while. */
static void look(struct watch *watch)
{
	static struct hs_top_sample sample;
	const int error = hs_top_read(&sample, &watch->source);
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (!error && (sample.at > watch->now.at || sample.pid != watch->now.pid)) {
		watch->before = watch->now;
		watch->now = sample;
	}
	watch->ended = (error && error != -EINTR) || (double)now.tv_sec - watch->now.at > PATIENCE;
	if (watch->ended)
		watch->before = watch->now;
}

static const struct hs_top_layer *layer_before(const struct watch *watch, unsigned index)
{
	const struct hs_top_layer *now = &watch->now.layer[index];

	if (watch->before.pid != watch->now.pid)
		return NULL;
	for (unsigned i = 0; i < watch->before.layers; i++)
		if (watch->before.layer[i].device == now->device &&
			watch->before.layer[i].layer == now->layer)
			return &watch->before.layer[i];
	return NULL;
}

static double hit_rate(const double rates[HS_TOP_COUNTERS])
{
	return hs_top_hit_rate(rates[HS_TOP_HITS], rates[HS_TOP_MISSES], rates[HS_TOP_INPLACE]);
}

static double hit_rate_since_start(const struct hs_top_layer *layer)
{
	return hs_top_hit_rate((double)layer->counters[HS_TOP_HITS],
		(double)layer->counters[HS_TOP_MISSES], (double)layer->counters[HS_TOP_INPLACE]);
}

static void percent(struct hs_table *table, double rate)
{
	if (rate < 0)
		hs_table_cell(table, "-");
	else
		hs_table_cell(table, "%.2f", 100 * rate);
}

static void bytes_cell(struct hs_table *table, double bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	unsigned unit = 0;

	for (; bytes >= 1024 && unit < 4; unit++)
		bytes /= 1024;
	hs_table_cell(table, "%.*f %s/s", unit ? 1 : 0, bytes, units[unit]);
}

static void count_cell(struct hs_table *table, double count)
{
	char text[32];

	hs_table_cell(table, "%s", hs_size_text(text, (uint64_t)(count + 0.5)));
}

static void row(struct hs_table *table, const struct hs_top_layer *now,
	const struct hs_top_layer *before, double seconds)
{
	double rates[HS_TOP_COUNTERS];

	hs_top_rates(rates, before, now, seconds);
	hs_table_cell(table, now->device < 0 ? "" : "%d", now->device);
	hs_table_cell(table, now->device < 0 ? "all" : "%u", now->layer);
	count_cell(table, (double)now->hot_rows);
	count_cell(table, rates[HS_TOP_HITS]);
	count_cell(table, rates[HS_TOP_MISSES]);
	percent(table, hit_rate(rates));
	percent(table, hit_rate_since_start(now));
	bytes_cell(table, rates[HS_TOP_BYTES]);
	count_cell(table, rates[HS_TOP_EVICTIONS]);
	count_cell(table, rates[HS_TOP_INPLACE]);
}

static void heading(const struct watch *watch)
{
	const struct hs_top_sample *now = &watch->now;
	char rows[32], different[32];

	printf("%sprocess %d%s%s   windows: %llu on the device (%.1f GiB), %llu on the host (%.1f "
	       "GiB)   pool: %.1f of %.1f GiB\n",
		hs_colour(HS_BOLD), now->pid, watch->ended ? " (not publishing any more)" : "",
		hs_colour(HS_PLAIN), (unsigned long long)now->windows[0],
		(double)now->window_bytes[0] / GIB, (unsigned long long)now->windows[1],
		(double)now->window_bytes[1] / GIB, (double)now->pool_used / GIB,
		(double)now->pool / GIB);
	if (now->verify_launches)
		printf("verify: %s%s rows compared, %s differ%s\n",
			hs_colour(now->verify_different ? HS_RED : HS_GREEN),
			hs_size_text(rows, now->verify_rows),
			hs_size_text(different, now->verify_different), hs_colour(HS_PLAIN));
	if (now->unknown_kernels || now->refused)
		printf("%s%llu unknown kernels carry windows, %llu attention launches left "
		       "alone%s\n",
			hs_colour(HS_YELLOW), (unsigned long long)now->unknown_kernels,
			(unsigned long long)now->refused, hs_colour(HS_PLAIN));
}

/* What a person can do about it. */
static void advice(const struct hs_top_layer *sum)
{
	const double in_place = (double)sum->counters[HS_TOP_INPLACE];
	const double all = in_place + (double)sum->counters[HS_TOP_HITS] +
			   (double)sum->counters[HS_TOP_MISSES];

	if (in_place > all / HS_CROWDED)
		printf("%s%.0f %% of the selected rows found no hot row and were read in place: more "
		       "HISPARSE_SLOTS, or fewer requests at once%s\n",
			hs_colour(HS_YELLOW), 100 * in_place / all, hs_colour(HS_PLAIN));
}

/* The sum, then at most `most` layers. */
static void print_text(const struct watch *watch, unsigned most)
{
	const double seconds = watch->now.at - watch->before.at;
	struct hs_table *table = hs_table_create("rrrrrrrrrr");
	struct hs_top_layer sum, sum_before;

	hs_top_sum(&sum, &watch->now);
	hs_top_sum(&sum_before, &watch->before);
	heading(watch);
	advice(&sum);
	for (const char *const *head = (const char *const[]){"gpu", "layer", "hot rows", "hits/s",
		     "misses/s", "hit %", "since start", "fetched", "evictions/s", "in place/s",
		     NULL};
		*head; head++)
		hs_table_cell(table, "%s", *head);
	row(table, &sum, watch->before.pid == watch->now.pid ? &sum_before : NULL, seconds);
	for (unsigned i = 0; i < watch->now.layers && i < most; i++)
		row(table, &watch->now.layer[i], layer_before(watch, i), seconds);
	hs_table_print(table);
	hs_table_destroy(table);
	if (watch->now.layers > most)
		printf("%u more layers\n", watch->now.layers - most);
}

static json_t *layer_json(
	const struct hs_top_layer *now, const struct hs_top_layer *before, double seconds)
{
	json_t *json = json_object();
	double rates[HS_TOP_COUNTERS], rate;
	char name[64];

	if (now->device >= 0) {
		json_object_set_new(json, "device", json_integer(now->device));
		json_object_set_new(json, "layer", json_integer(now->layer));
	}
	json_object_set_new(json, "hot_rows", json_integer((json_int_t)now->hot_rows));
	hs_top_rates(rates, before, now, seconds);
	for (int i = 0; i < HS_TOP_COUNTERS; i++) {
		json_object_set_new(
			json, hs_top_names[i], json_integer((json_int_t)now->counters[i]));
		snprintf(name, sizeof(name), "%s_per_second", hs_top_names[i]);
		json_object_set_new(json, name, json_real(rates[i]));
	}
	rate = hit_rate(rates);
	json_object_set_new(json, "hit_rate", rate < 0 ? json_null() : json_real(rate));
	rate = hit_rate_since_start(now);
	json_object_set_new(json, "hit_rate_since_start", rate < 0 ? json_null() : json_real(rate));
	return json;
}

static json_t *process_json(const struct watch *watch)
{
	const struct hs_top_sample *now = &watch->now;
	const double seconds = now->at - watch->before.at;
	struct hs_top_layer sum, sum_before;
	json_t *layers = json_array();

	hs_top_sum(&sum, now);
	hs_top_sum(&sum_before, &watch->before);
	for (unsigned i = 0; i < now->layers; i++)
		json_array_append_new(
			layers, layer_json(&now->layer[i], layer_before(watch, i), seconds));
	return json_pack("{s:i, s:s, s:b, s:I, s:{s:I, s:I}, s:{s:I, s:I}, s:I, s:I, s:I, s:I, "
			 "s:{s:I, s:I, s:I}, s:o, s:o}",
		"pid", (int)now->pid, "version", now->version, "publishing", !watch->ended, "at",
		(json_int_t)now->at, "windows", "device", (json_int_t)now->windows[0], "host",
		(json_int_t)now->windows[1], "window_bytes", "device",
		(json_int_t)now->window_bytes[0], "host", (json_int_t)now->window_bytes[1],
		"host_pool_bytes", (json_int_t)now->pool, "host_pool_used_bytes",
		(json_int_t)now->pool_used, "unknown_kernels", (json_int_t)now->unknown_kernels,
		"attention_refused", (json_int_t)now->refused, "verify", "launches",
		(json_int_t)now->verify_launches, "rows", (json_int_t)now->verify_rows, "different",
		(json_int_t)now->verify_different, "total",
		layer_json(&sum, watch->before.pid == now->pid ? &sum_before : NULL, seconds),
		"layers", layers);
}

/* Lines of the terminal, or as many as there may be layers. */
static unsigned height(void)
{
	struct winsize size;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_row ? HS_TOP_LAYERS
								       : size.ws_row;
}

static int show(const struct ask *ask, const struct watch *watches, unsigned count)
{
	const bool screen = !ask->once && isatty(STDOUT_FILENO);
	const unsigned lines = height() / count;
	json_t *processes = json_array();

	for (unsigned i = 0; i < count && ask->json; i++)
		json_array_append_new(processes, process_json(&watches[i]));
	if (ask->json)
		return hs_json_print(json_pack("{s:o}", "processes", processes));
	json_decref(processes);
	if (screen)
		fputs("\033[H\033[2J", stdout);
	for (unsigned i = 0; i < count; i++) {
		print_text(&watches[i], !screen ? HS_TOP_LAYERS : lines > 8 ? lines - 7 : 1);
		if (!screen || i + 1 < count)
			putchar('\n');
	}
	return fflush(stdout) ? HS_STATUS_FINDING : HS_STATUS_OK;
}

static bool all_ended(const struct watch *watches, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (!watches[i].ended)
			return false;
	return true;
}

static int watch_all(const struct ask *ask, struct watch *watches, unsigned count)
{
	int status;

	for (unsigned i = 0; i < count; i++) {
		const int error = hs_top_read(&watches[i].now, &watches[i].source);

		if (error) {
			hs_complain("%s: %s", ask->what,
				error == -EINVAL ? "these are not the metrics of libhisparse"
				: error == -ECONNREFUSED
					? "nothing answers on this port of 127.0.0.1, and no "
					  "process of "
					  "this id was started with HISPARSE_METRICS"
					: strerror(-error));
			return HS_STATUS_FINDING;
		}
		watches[i].before = watches[i].now;
	}
	do {
		wait_for(ask->delay);
		for (unsigned i = 0; i < count; i++)
			look(&watches[i]);
		/* A file may just have been written at both looks. */
		for (unsigned i = 0; i < count && ask->once; i++)
			for (int j = 0; j < 20 && !watches[i].ended &&
					watches[i].now.at <= watches[i].before.at;
				j++) {
				wait_for(0.1);
				look(&watches[i]);
			}
		status = show(ask, watches, count);
	} while (!ask->once && !status && !all_ended(watches, count));
	return status;
}

int hs_top_main(int argc, char **argv)
{
	static const struct argp argp = {options, parse, "PID|FILE|PORT",
		"Shows hits, misses and traffic of every layer of a running server, once a second, "
		"from what HISPARSE_METRICS makes it publish. A process stands for its workers, "
		"too. Hit rates are hits / (hits + misses + in place). Ends when the process does.",
		NULL, NULL, NULL};
	static struct hs_top_source sources[HS_TOP_SOURCES];
	struct ask ask = {.delay = 1};
	struct watch *watches;
	const char *why = NULL;
	int count, status;

	if (argp_parse(&argp, argc, argv, 0, NULL, &ask))
		return HS_STATUS_USAGE;
	count = hs_top_find(sources, ask.what, &why);
	if (count <= 0) {
		hs_complain("%s: %s", ask.what, why);
		return HS_STATUS_FINDING;
	}
	watches = hs_need(calloc((size_t)count, sizeof(*watches)));
	for (int i = 0; i < count; i++)
		watches[i].source = sources[i];
	status = watch_all(&ask, watches, (unsigned)count);
	free(watches);
	return status;
}
