/* SPDX-License-Identifier: MIT */
#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include "tools/hisparse/command.h"
#include "tools/hisparse/flags.h"
#include "tools/hisparse/plan.h"
#include "tools/hisparse/size.h"
#include "tools/hisparse/table.h"

enum {
	KEY_MODEL = 'm',
	KEY_GPU = 'g',
	KEY_GPUS = 'n',
	KEY_CONTEXT = 'l',
	KEY_CONCURRENCY = 'c',
	KEY_DP = 256,
	KEY_HOST,
	KEY_KV,
	KEY_MISS,
	KEY_WEIGHTS,
	KEY_OTHER,
	KEY_UTIL,
	KEY_SLOTS,
	KEY_MTP,
	KEY_ALL,
	KEY_JSON,
	KEY_MEMORY,
};

static const struct argp_option options[] = {
	{"model", KEY_MODEL, "PATH", 0, "config.json of the model, or its directory (needed)", 0},
	{"gpu", KEY_GPU, "NAME", 0, "H100, H200, H20, B200, B300, GH200 or GB200; default H200", 0},
	{"gpu-gib", KEY_MEMORY, "GIB", 0, "memory of a GPU, if not what the table says", 0},
	{"gpus", KEY_GPUS, "N", 0, "GPUs of the node; default 1", 0},
	{"dp", KEY_DP, "N", 0,
		"attention data parallelism: groups that hold requests of their own; default: "
		"gpus. "
		"With 1 (tensor parallel) every GPU holds every row",
		0},
	{"host-gib", KEY_HOST, "GIB", 0, "host memory of the node for the pools (host_pool_gib)",
		0},
	{"context", KEY_CONTEXT, "TOKENS", 0, "length of a request, as 32k; default 32k", 0},
	{"concurrency", KEY_CONCURRENCY, "N", 0, "requests at once on the node; default 256", 0},
	{"kv", KEY_KV, "fp8|bf16", 0, "type of the KV cache; default fp8", 0},
	{"slots", KEY_SLOTS, "N", 0, "hot rows per layer; default: requests of a GPU x 2 x top-k",
		0},
	{"miss-rate", KEY_MISS, "RATE", 0,
		"share of selected rows that must be fetched; default 13.4% (GLM-5.1, 4,096 rows a "
		"request, LRU: arXiv 2608.07009); `hisparse replay` tells yours",
		0},
	{"weights-gib", KEY_WEIGHTS, "GIB", 0,
		"weights on one GPU as the engine prints them; default: estimated", 0},
	{"other-gib", KEY_OTHER, "GIB", 0,
		"activations, graphs, communication on one GPU; default 9", 0},
	{"gpu-memory-utilization", KEY_UTIL, "RATE", 0,
		"share of the GPU that the engine takes; default 0.92", 0},
	{"mtp", KEY_MTP, NULL, 0, "the engine runs the model's MTP layers", 0},
	{"all-indexers", KEY_ALL, NULL, 0,
		"index keys also in layers that share a selection (SGLang before 0.5.18)", 0},
	{"json", KEY_JSON, NULL, 0, "print JSON", 0},
	{0},
};

struct ask {
	struct hs_plan_in in;
	struct hs_gpu gpu;
	const char *model;
	double memory;
	bool json;
};

static void count_arg(unsigned *out, const char *text, const char *flag, struct argp_state *state)
{
	uint64_t value;

	if (hs_size_count(&value, text) || !value || value > 1u << 20)
		argp_error(state, "%s=%s: a number from 1 to 1048576", flag, text);
	else
		*out = (unsigned)value;
}

static void gib_arg(double *out, const char *text, const char *flag, struct argp_state *state)
{
	if (hs_size_gib(out, text))
		argp_error(state, "%s=%s: a number of GiB, as 1000 or 1T", flag, text);
}

static void rate_arg(double *out, const char *text, const char *flag, struct argp_state *state)
{
	if (hs_size_rate(out, text))
		argp_error(state, "%s=%s: a share, as 0.134 or 13.4%%", flag, text);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct ask *ask = state->input;
	struct hs_plan_in *in = &ask->in;
	const struct hs_gpu *gpu;
	unsigned small = 0;

	switch (key) {
	case KEY_MODEL:
		ask->model = arg;
		return 0;
	case KEY_GPU:
		gpu = hs_gpu_find(arg);
		if (!gpu)
			argp_error(state,
				"--gpu=%s is not in the table; take one with the same link "
				"and give --gpu-gib",
				arg);
		else
			ask->gpu = *gpu;
		return 0;
	case KEY_MEMORY:
		gib_arg(&ask->memory, arg, "--gpu-gib", state);
		return 0;
	case KEY_GPUS:
		count_arg(&in->gpus, arg, "--gpus", state);
		return 0;
	case KEY_DP:
		count_arg(&in->replicas, arg, "--dp", state);
		return 0;
	case KEY_HOST:
		gib_arg(&in->host_gib, arg, "--host-gib", state);
		return 0;
	case KEY_CONTEXT:
		if (hs_size_count(&in->context, arg) || !in->context)
			argp_error(state, "--context=%s: a number of tokens, as 32k", arg);
		return 0;
	case KEY_CONCURRENCY:
		count_arg(&small, arg, "--concurrency", state);
		in->concurrency = small;
		return 0;
	case KEY_KV:
		if (strcmp(arg, "fp8") && strcmp(arg, "bf16"))
			argp_error(state, "--kv=%s: fp8 or bf16", arg);
		in->kv = strcmp(arg, "fp8") ? HS_KV_BF16 : HS_KV_FP8;
		return 0;
	case KEY_SLOTS:
		if (hs_size_count(&in->slots, arg) || in->slots < 2048)
			argp_error(state, "--slots=%s: a number from 2048", arg);
		return 0;
	case KEY_MISS:
		rate_arg(&in->miss_rate, arg, "--miss-rate", state);
		return 0;
	case KEY_WEIGHTS:
		gib_arg(&in->weights_gib, arg, "--weights-gib", state);
		return 0;
	case KEY_OTHER:
		gib_arg(&in->other_gib, arg, "--other-gib", state);
		return 0;
	case KEY_UTIL:
		rate_arg(&in->utilisation, arg, "--gpu-memory-utilization", state);
		return 0;
	case KEY_MTP:
		in->mtp = true;
		return 0;
	case KEY_ALL:
		in->all_index = true;
		return 0;
	case KEY_JSON:
		ask->json = true;
		return 0;
	case ARGP_KEY_END:
		if (!ask->model)
			argp_error(state, "--model is needed: the model's config.json");
		if (in->host_gib < 0)
			argp_error(state, "--host-gib is needed: host memory for the pools");
		if (!in->replicas)
			in->replicas = in->gpus;
		if (in->gpus % in->replicas)
			argp_error(
				state, "--dp=%u does not divide --gpus=%u", in->replicas, in->gpus);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static double ratio(uint64_t more, uint64_t less)
{
	return less ? (double)more / (double)less : 0;
}

static int print_json(const struct hs_plan_in *in, const struct hs_plan *plan)
{
	json_t *set = json_pack("{s:I, s:f, s:I, s:I}", hs_flag_field("slots")->variable,
		(json_int_t)plan->slots, hs_flag_field("host_bytes")->variable, plan->host_gib,
		hs_flag_field("row")->variable, (json_int_t)plan->token.row,
		hs_flag_field("layers")->variable, (json_int_t)plan->layers);

	return hs_json_print(json_pack(
		"{s:{s:s, s:i, s:i, s:i, s:f}, s:{s:I, s:I, s:I, s:I, s:I},"
		" s:{s:f, s:f, s:f, s:f, s:f, s:s}, s:{s:I, s:I, s:f, s:I, s:I, s:b},"
		" s:{s:f, s:f, s:f, s:s}, s:o}",
		"model", "name", in->model.name, "layers", (int)in->model.layers, "indexers",
		(int)in->model.indexers, "top_k", (int)in->model.topk, "parameters",
		in->model.params, "bytes_per_token", "row", (json_int_t)plan->token.row, "latent",
		(json_int_t)plan->token.latent, "index", (json_int_t)plan->token.index, "map",
		(json_int_t)plan->token.map, "engine",
		(json_int_t)(plan->token.latent + plan->token.index), "gpu_gib", "weights",
		plan->weights_gib, "kv", plan->kv_gib, "reserve", plan->reserve_gib, "hot",
		plan->hot_gib, "host_pool", plan->host_gib, "limit", plan->limit, "node",
		"tokens_plain", (json_int_t)plan->plain_tokens, "tokens", (json_int_t)plan->tokens,
		"ratio", ratio(plan->tokens, plan->plain_tokens), "requests_plain",
		(json_int_t)plan->plain_requests, "requests", (json_int_t)plan->node_requests,
		"fits", plan->fits, "step", "miss_rate", in->miss_rate, "missed_rows",
		plan->missed_rows, "link_ms", plan->link_ms, "source", in->gpu->source, "set",
		set));
}

static void row(struct hs_table *table, const char *what, uint64_t bytes, const char *where)
{
	char text[32];

	hs_table_cell(table, "  %s", what);
	hs_table_cell(table, "%s", hs_size_text(text, bytes));
	hs_table_cell(table, "%s", where);
}

static void pair(struct hs_table *table, const char *what, uint64_t plain, uint64_t with)
{
	char text[32];

	hs_table_cell(table, "  %s", what);
	hs_table_cell(table, "%s", hs_size_text(text, plain));
	hs_table_cell(table, "%s", hs_size_text(text, with));
	hs_table_cell(table, plain ? "%.1fx" : "-", ratio(with, plain));
}

static void gib_pair(struct hs_table *table, const char *what, double plain, double with)
{
	hs_table_cell(table, "  %s", what);
	hs_table_cell(table, plain < 0 ? "-" : "%.1f", plain);
	hs_table_cell(table, "%.1f", with);
	hs_table_cell(table, "%s", "");
}

static void print_text(const struct hs_plan_in *in, const struct hs_plan *plan)
{
	struct hs_table *table;
	char tokens[32];

	printf("%s: %u layers, %u with an indexer, top-k %u", in->model.name, in->model.layers,
		in->model.indexers, in->model.topk);
	if (in->model.params > 0)
		printf(", %.0f billion weights", in->model.params / 1e9);
	if (in->model.mtp)
		printf(", %u MTP layer%s%s", in->model.mtp, in->model.mtp > 1 ? "s" : "",
			in->mtp ? "" : " (not counted)");
	printf("\n%u x %s, %u request group%s; %s KV, rows of %llu B\n\n", in->gpus, in->gpu->name,
		in->replicas, in->replicas > 1 ? "s" : "", in->kv == HS_KV_FP8 ? "fp8" : "bf16",
		(unsigned long long)plan->token.row);

	table = hs_table_create("lrl");
	hs_table_cell(table, "a token");
	hs_table_cell(table, "bytes");
	hs_table_cell(table, "with hisparse in");
	row(table, "latent KV", plan->token.latent, "host memory");
	row(table, "index keys", plan->token.index, "GPU memory");
	row(table, "engine's total", plan->token.latent + plan->token.index, "");
	row(table, "slot map", plan->token.map, "GPU memory");
	hs_table_print(table);
	hs_table_destroy(table);
	putchar('\n');

	table = hs_table_create("lrrr");
	hs_table_cell(table, "a GPU, GiB");
	hs_table_cell(table, "plain");
	hs_table_cell(table, "hisparse");
	hs_table_cell(table, "%s", "");
	gib_pair(table, in->weights_gib < 0 ? "weights (estimated)" : "weights", plan->weights_gib,
		plan->weights_gib);
	gib_pair(table, "KV as the engine sees it", plan->kv_gib,
		(double)plan->tokens / in->replicas *
			(double)(plan->token.latent + plan->token.index) / 1073741824.);
	gib_pair(table, "reserve", -1, plan->reserve_gib);
	gib_pair(table, "hot buffer, in it", -1, plan->hot_gib);
	gib_pair(table, "host pool", -1, plan->host_gib);
	hs_table_cell(table, "the node");
	for (int i = 0; i < 3; i++)
		hs_table_cell(table, "%s", "");
	pair(table, "tokens", plan->plain_tokens, plan->tokens);
	pair(table, "requests", plan->plain_requests, plan->node_requests);
	hs_table_print(table);
	hs_table_destroy(table);

	printf("\nThe %s ends it. %s%s%llu requests of %s tokens %s.%s\n", plan->limit,
		hs_colour(HS_BOLD), hs_colour(plan->fits ? HS_GREEN : HS_RED),
		(unsigned long long)in->concurrency, hs_size_text(tokens, in->context),
		plan->fits ? "fit" : "do not fit", hs_colour(HS_PLAIN));
	printf("\nOne decode step of %llu requests on a GPU at %.1f %% misses: %.0f rows, %.1f "
	       "MB.\n"
	       "  %5.2f ms of link at %.0f GB/s\n"
	       "  %s: %s%s.\n",
		(unsigned long long)plan->requests, in->miss_rate * 100, plan->missed_rows,
		plan->missed_rows * (double)plan->token.row / 1e6, plan->link_ms,
		hs_gpu_rate(in->gpu, (unsigned)plan->token.row), in->gpu->link,
		in->gpu->measured ? "" : "not this GPU: ", in->gpu->source);

	printf("\nSet, for each process:\n  %s=%llu %s=%.0f %s=%llu %s=%u\n",
		hs_flag_field("slots")->variable, (unsigned long long)plan->slots,
		hs_flag_field("host_bytes")->variable, plan->host_gib,
		hs_flag_field("row")->variable, (unsigned long long)plan->token.row,
		hs_flag_field("layers")->variable, plan->layers);
}

int hs_plan_main(int argc, char **argv)
{
	static const struct argp argp = {options, parse, NULL,
		"Sizes a server before it is started: bytes of a token, tokens and requests with "
		"and "
		"without the preload, the load on the link, and what to set. Needs no GPU and no "
		"network.\vThe status is 1 when the concurrency does not fit.",
		NULL, NULL, NULL};
	struct ask ask = {.in = {.gpus = 1,
				  .host_gib = -1,
				  .context = 32768,
				  .concurrency = 256,
				  .kv = HS_KV_FP8,
				  .miss_rate = 0.134,
				  .utilisation = 0.92,
				  .weights_gib = -1,
				  .other_gib = 9}};
	struct hs_plan plan;
	const char *why;

	ask.gpu = *hs_gpu_find("H200");
	if (argp_parse(&argp, argc, argv, 0, NULL, &ask))
		return HS_STATUS_USAGE;
	if (ask.memory > 0)
		ask.gpu.memory = ask.memory;
	ask.in.gpu = &ask.gpu;
	if (hs_model_read(&ask.in.model, ask.model, &why)) {
		hs_complain("%s", why);
		return HS_STATUS_FINDING;
	}
	if (ask.in.weights_gib < 0 && ask.in.model.params <= 0) {
		hs_complain("the config does not tell the size of the weights: give --weights-gib");
		return HS_STATUS_USAGE;
	}
	if (hs_plan_make(&plan, &ask.in)) {
		hs_complain("no room for KV: about %.0f GiB of weights a GPU of %.0f GiB; "
			    "raise --gpus, or give --weights-gib and --other-gib as the engine "
			    "prints them",
			(ask.in.model.expert_bytes + ask.in.model.other_bytes) / ask.in.gpus /
				1073741824.,
			ask.gpu.memory);
		return HS_STATUS_FINDING;
	}
	if (ask.json) {
		if (print_json(&ask.in, &plan))
			return HS_STATUS_FINDING;
	} else {
		print_text(&ask.in, &plan);
	}
	return plan.fits ? HS_STATUS_OK : HS_STATUS_FINDING;
}
