/* SPDX-License-Identifier: MIT */
/* Makes, checks and describes DSAT traces. */

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/bench/trace.h"

static const char usage[] =
	"usage: dsat make FILE [options]    write a trace with exact LRU miss counts\n"
	"       dsat check FILE [--hot N]   run it through an exact LRU, print the misses\n"
	"\n"
	"  --layers N    8\n"
	"  --steps N     20, the first ceil(hot / k) + 2 of them fill the caches\n"
	"  --batch N     16 requests\n"
	"  --k N         2048 selected positions in each list\n"
	"  --ctx N       65536 positions in each request\n"
	"  --hot N       4096 cached rows for each request and layer\n"
	"  --misses N    274 of k once the cache is full\n"
	"  --churn N     150 per mille of the hits were not in the step before\n"
	"  --seed N      1\n";

struct arguments {
	struct hs_dsat trace;
	struct hs_dsat_plan plan;
};

static int parse(struct arguments *arguments, int argc, char **argv)
{
	struct option options[] = {{"layers", required_argument, NULL, 'l'},
		{"steps", required_argument, NULL, 's'}, {"batch", required_argument, NULL, 'b'},
		{"k", required_argument, NULL, 'k'}, {"ctx", required_argument, NULL, 'c'},
		{"hot", required_argument, NULL, 'h'}, {"misses", required_argument, NULL, 'm'},
		{"churn", required_argument, NULL, 'u'}, {"seed", required_argument, NULL, 'r'},
		{0}};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		char *end;
		uint64_t value;

		if (option == '?')
			return -EINVAL;
		errno = 0;
		value = strtoull(optarg, &end, 10);
		if (errno || *end || end == optarg || (option != 'r' && value > INT32_MAX)) {
			fprintf(stderr, "dsat: '%s' is not a number below 2^31\n", optarg);
			return -EINVAL;
		}
		switch (option) {
		case 'l':
			arguments->trace.layers = (uint32_t)value;
			break;
		case 's':
			arguments->trace.steps = (uint32_t)value;
			break;
		case 'b':
			arguments->trace.batch = (uint32_t)value;
			break;
		case 'k':
			arguments->trace.k = (uint32_t)value;
			break;
		case 'c':
			arguments->trace.ctx = value;
			break;
		case 'h':
			arguments->plan.hot = (uint32_t)value;
			break;
		case 'm':
			arguments->plan.misses = (uint32_t)value;
			break;
		case 'u':
			arguments->plan.churn = (uint32_t)value;
			break;
		case 'r':
			arguments->plan.seed = value;
			break;
		}
	}
	return argc - optind == 2 ? 0 : -EINVAL;
}

static int report(const struct hs_dsat *trace, uint32_t hot)
{
	uint32_t streams = trace->layers * trace->batch;
	uint32_t *misses = malloc((size_t)trace->steps * streams * sizeof(*misses));
	int error = misses ? hs_dsat_check(trace, hot, misses, NULL) : -ENOMEM;

	if (error)
		goto out;
	printf("%" PRIu32 " layers, %" PRIu32 " steps, batch %" PRIu32 ", k %" PRIu32
	       ", ctx %" PRIu64 ", timed from step %" PRIu32 "\n",
		trace->layers, trace->steps, trace->batch, trace->k, trace->ctx,
		hs_dsat_warm(trace, hot));
	for (uint32_t step = 0; step < trace->steps; step++) {
		uint32_t low = UINT32_MAX, high = 0;

		for (uint32_t i = 0; i < streams; i++) {
			uint32_t count = misses[(size_t)step * streams + i];

			low = count < low ? count : low;
			high = count > high ? count : high;
		}
		printf("step %" PRIu32 ": %" PRIu32 " to %" PRIu32 " misses in a list\n", step, low,
			high);
	}
out:
	free(misses);
	return error;
}

int main(int argc, char **argv)
{
	struct arguments arguments = {
		.trace = {.layers = 8, .steps = 20, .batch = 16, .k = 2048, .ctx = 65536},
		.plan = {.hot = 4096, .misses = 274, .churn = 150, .seed = 1}};
	const char *path;
	int error;

	if (parse(&arguments, argc, argv) != 0) {
		fputs(usage, stderr);
		return 2;
	}
	path = argv[optind + 1];
	if (strcmp(argv[optind], "make") == 0) {
		error = hs_dsat_init(&arguments.trace);
		if (!error)
			error = hs_dsat_generate(&arguments.trace, &arguments.plan);
		if (!error)
			error = hs_dsat_write(&arguments.trace, path);
	} else if (strcmp(argv[optind], "check") == 0) {
		error = hs_dsat_read(&arguments.trace, path);
		if (!error)
			error = report(&arguments.trace, arguments.plan.hot);
	} else {
		fputs(usage, stderr);
		return 2;
	}
	hs_dsat_finish(&arguments.trace);
	if (error) {
		fprintf(stderr, "dsat: %s: %s\n", path,
			error == -EINVAL ? "hot >= k, misses <= k and hot + k <= ctx must hold"
					 : strerror(-error));
		return 1;
	}
	return 0;
}
