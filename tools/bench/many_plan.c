/* SPDX-License-Identifier: MIT */
#include "tools/bench/many_plan.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include "tools/bench/place.h"

const char hs_many_plan_usage[] =
	"usage: many [options]\n"
	"  --rows N          8192 query rows\n"
	"  --k N             2048 slots in each\n"
	"  --prefix N,N,...  4096,32768,131072 positions, multiples of 64\n"
	"  --row N           656 bytes of a KV row\n"
	"  --layers N        4, each with a window of its own\n"
	"  --window-mib N    2048\n"
	"  --staging N       163840 rows\n"
	"  --hot N           65536 hot rows a layer; unions of a quarter of them are made hot\n"
	"  --new N           0 of them, up to k, were written since the call before\n"
	"  --repeat N        10 calls a layer of each kind; medians are printed\n"
	"  --flush-mib N     256 MiB are written between two calls\n"
	"  --seed N          1\n"
	"  --memory KIND     managed or registered: of which kind the windows are\n"
	"  --json\n";

static const struct hs_many_plan defaults = {
	.rows = 8192,
	.k = 2048,
	.row = 656,
	.layers = 4,
	.window_mib = 2048,
	.staging = 163840,
	.hot = 65536,
	.repeat = 10,
	.flush_mib = 256,
	.seed = 1,
	.prefix = {4096, 32768, 131072},
	.prefixes = 3,
	.kind = HS_ROWS_MANAGED,
};

size_t hs_many_plan_entries(const struct hs_many_plan *plan)
{
	return plan->rows * plan->k;
}

static bool parse_prefixes(struct hs_many_plan *plan, char *text)
{
	plan->prefixes = 0;
	for (char *one = strtok(text, ","); one; one = strtok(NULL, ",")) {
		if (plan->prefixes == HS_MANY_PREFIXES)
			return false;
		plan->prefix[plan->prefixes++] = strtoull(one, NULL, 10);
		if (!plan->prefix[plan->prefixes - 1] ||
			plan->prefix[plan->prefixes - 1] % HS_PLACE_PAGE)
			return false;
	}
	return plan->prefixes > 0;
}

static bool parse_memory(struct hs_many_plan *plan, const char *text)
{
	const bool managed = !strcmp(text, "managed");

	plan->kind = managed ? HS_ROWS_MANAGED : HS_ROWS_REGISTERED;
	return managed || !strcmp(text, "registered");
}

bool hs_many_plan_parse(struct hs_many_plan *plan, int argc, char **argv)
{
	uint64_t *const numbers[] = {&plan->rows, &plan->k, &plan->row, &plan->layers,
		&plan->window_mib, &plan->staging, &plan->hot, &plan->repeat, &plan->flush_mib,
		&plan->seed};
	enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };
	const struct option options[] = {{"rows", 1, NULL, 0}, {"k", 1, NULL, 1},
		{"row", 1, NULL, 2}, {"layers", 1, NULL, 3}, {"window-mib", 1, NULL, 4},
		{"staging", 1, NULL, 5}, {"hot", 1, NULL, 6}, {"repeat", 1, NULL, 7},
		{"flush-mib", 1, NULL, 8}, {"seed", 1, NULL, 9}, {"prefix", 1, NULL, 10},
		{"json", 0, NULL, 11}, {"memory", 1, NULL, 12}, {"new", 1, NULL, 13}, {0}};
	int option;

	*plan = defaults;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if ((option == 10 && !parse_prefixes(plan, optarg)) ||
			(option == 12 && !parse_memory(plan, optarg)) || option > 13)
			return false;
		if (option < NUMBERS)
			*numbers[option] = strtoull(optarg, NULL, 10);
		if (option == 13)
			plan->fresh = strtoull(optarg, NULL, 10);
		plan->json |= option == 11;
	}
	for (unsigned i = 0; i < NUMBERS; i++)
		if (!*numbers[i])
			return false;
	return optind == argc && plan->layers <= HS_MANY_LAYERS && plan->row % 16 == 0 &&
	       plan->fresh <= plan->k && hs_many_plan_entries(plan) <= UINT32_MAX / 2;
}
