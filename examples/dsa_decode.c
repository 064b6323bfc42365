/* SPDX-License-Identifier: MIT */
/*
 * A small decode server loop for a model with sparse attention, on the CUDA
 * driver API: it sizes its paged KV cache from the free memory, admits
 * requests while blocks last, prefills them, and decodes all of them step by
 * step with a captured graph. What it answers depends on the requests alone,
 * neither on the batch nor on which blocks a request got.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "examples/dsa_kernels.h"
#include "examples/dsa_model.h"

struct options {
	struct dsa_model_config model;
	int requests, prompt, tokens;
	const char *json;
	bool probe;
	int hold;
};

struct request {
	int prompt, tokens; /* lengths */
	int done;
	int last;      /* the token that the next step takes */
	int *blocks;   /* while it runs */
	uint64_t hash; /* of all output tokens */
};

struct server {
	struct dsa_model *model;
	struct request *requests, **running;
	int count, next, rows;
	int *free_blocks, free_count;
	int max_batch, admitted, steps;
};

static unsigned mix(unsigned a, unsigned b)
{
	unsigned x = a * 0x9e3779b9u + b;

	x = (x ^ x >> 16) * 0x7feb352du;
	x = (x ^ x >> 15) * 0x846ca68bu;
	return x ^ x >> 16;
}

static int id_of(const struct server *s, const struct request *r)
{
	return (int)(r - s->requests);
}

static int blocks_of(const struct request *r)
{
	return (r->prompt + r->tokens + DSA_BLOCK - 1) / DSA_BLOCK;
}

/* Row i of the batch is the token at a position of a request. */
static void put(struct server *s, int i, const struct request *r, int position, int token)
{
	struct dsa_batch *b = dsa_model_batch(s->model);
	unsigned id = (unsigned)id_of(s, r);

	b->tokens[i] = token;
	b->positions[i] = position;
	b->topics[i] = mix(id, (unsigned)position / 16);
	b->slots[i] = (long long)r->blocks[position / DSA_BLOCK] * DSA_BLOCK + position % DSA_BLOCK;
}

static int prompt_token(const struct server *s, const struct request *r, int position)
{
	return (int)(mix(mix((unsigned)id_of(s, r), 7), (unsigned)position) % DSA_VOCAB);
}

static void prefill(struct server *s, const struct request *r)
{
	for (int start = 0; start < r->prompt; start += DSA_CHUNK) {
		int n = r->prompt - start < DSA_CHUNK ? r->prompt - start : DSA_CHUNK;

		for (int i = 0; i < n; i++)
			put(s, i, r, start + i, prompt_token(s, r, start + i));
		dsa_model_prefill(s->model, n);
	}
}

static void admit(struct server *s)
{
	while (s->next < s->count && s->rows < s->max_batch) {
		struct request *r = &s->requests[s->next];
		int blocks = blocks_of(r);

		if (blocks > s->free_count)
			break;
		r->blocks = malloc((size_t)blocks * sizeof(*r->blocks));
		if (!r->blocks)
			abort();
		for (int i = 0; i < blocks; i++)
			r->blocks[i] = s->free_blocks[--s->free_count];
		prefill(s, r);
		r->last = prompt_token(s, r, r->prompt);
		s->running[s->rows++] = r;
		s->next++;
	}
	if (s->rows > s->admitted)
		s->admitted = s->rows;
}

static void retire(struct server *s, struct request *r)
{
	for (int i = blocks_of(r) - 1; i >= 0; i--)
		s->free_blocks[s->free_count++] = r->blocks[i];
	free(r->blocks);
	r->blocks = NULL;
}

static void step(struct server *s)
{
	struct dsa_batch *b = dsa_model_batch(s->model);
	int stride = dsa_model_table_stride(s->model), left = 0;

	for (int i = 0; i < s->rows; i++) {
		const struct request *r = s->running[i];
		int blocks = blocks_of(r);

		put(s, i, r, r->prompt + r->done, r->last);
		b->lengths[i] = r->prompt + r->done + 1;
		memset(&b->table[i * stride], 0, (size_t)stride * sizeof(*b->table));
		memcpy(&b->table[i * stride], r->blocks, (size_t)blocks * sizeof(*b->table));
	}
	dsa_model_decode(s->model, s->rows);
	for (int i = 0; i < s->rows; i++) {
		struct request *r = s->running[i];

		r->last = b->next[i];
		r->hash = (r->hash ^ (uint64_t)r->last) * 0x100000001b3u;
		if (++r->done == r->tokens)
			retire(s, r);
		else
			s->running[left++] = r;
	}
	s->rows = left;
	s->steps++;
}

static void serve(struct server *s, const struct options *o)
{
	int blocks = dsa_model_blocks(s->model);

	s->count = o->requests;
	s->max_batch = o->model.max_batch;
	s->requests = calloc((size_t)s->count, sizeof(*s->requests));
	s->running = calloc((size_t)s->max_batch, sizeof(*s->running));
	s->free_blocks = calloc((size_t)blocks, sizeof(*s->free_blocks));
	if (!s->requests || !s->running || !s->free_blocks)
		abort();
	for (int i = blocks - 1; i > 0; i--)
		s->free_blocks[s->free_count++] = i;
	for (int i = 0; i < s->count; i++) {
		struct request *r = &s->requests[i];

		/* from 3/4 to 5/4 of the given lengths */
		r->prompt = o->prompt * 3 / 4 + (int)(mix((unsigned)i, 1) % (o->prompt / 2 + 1u));
		r->tokens = o->tokens * 3 / 4 + (int)(mix((unsigned)i, 2) % (o->tokens / 2 + 1u));
		r->hash = 0xcbf29ce484222325u;
		if (blocks_of(r) > s->free_count) {
			fprintf(stderr, "dsa_decode: request %d needs %d blocks, there are %d\n", i,
				blocks_of(r), s->free_count);
			exit(1);
		}
	}
	do {
		admit(s);
		step(s);
	} while (s->rows || s->next < s->count);
}

static void report(const struct server *s, FILE *json)
{
	int blocks = dsa_model_blocks(s->model);

	for (int i = 0; i < s->count; i++)
		printf("request %d: %d tokens, %016" PRIx64 "\n", i, s->requests[i].tokens,
			s->requests[i].hash);
	printf("%d requests at once, %d in all, %d steps, %d blocks\n", s->admitted, s->count,
		s->steps, blocks);
	if (!json)
		return;
	fprintf(json, "{\"admitted\": %d, \"steps\": %d, \"blocks\": %d, \"requests\": [",
		s->admitted, s->steps, blocks);
	for (int i = 0; i < s->count; i++)
		fprintf(json, "%s\n{\"id\": %d, \"tokens\": %d, \"hash\": \"%016" PRIx64 "\"}",
			i ? "," : "", i, s->requests[i].tokens, s->requests[i].hash);
	fprintf(json, "]}\n");
}

static void usage(FILE *to)
{
	fprintf(to,
		"usage: dsa_decode [options]\n"
		"  --requests N   requests in all (48)\n"
		"  --prompt N     tokens of a prompt, give or take a quarter (4096)\n"
		"  --tokens N     tokens of an answer, give or take a quarter (16)\n"
		"  --layers N     layers (2)\n"
		"  --topk N       rows that attention selects, at most 2048 (512)\n"
		"  --max-batch N  requests at once, as far as memory holds them (64)\n"
		"  --threads N    threads a block of the kernels that write rows (64)\n"
		"  --ballast MIB  further weights, which limit the memory left for the cache (0)\n"
		"  --json FILE    also write the report as JSON\n"
		"  --hold MIB     serve nothing: hold so much GPU memory until standard input "
		"ends\n"
		"  --probe        print the GPU's name and free MiB, and end\n");
}

static int number(const char *text, const char *option, int low, int high)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (end == text || *end || value < low || value > high) {
		fprintf(stderr, "dsa_decode: --%s takes %d to %d\n", option, low, high);
		exit(2);
	}
	return (int)value;
}

static void parse(struct options *o, int argc, char **argv)
{
	static const struct option names[] = {
		{"requests", required_argument, NULL, 'r'},
		{"prompt", required_argument, NULL, 'p'},
		{"tokens", required_argument, NULL, 't'},
		{"layers", required_argument, NULL, 'l'},
		{"topk", required_argument, NULL, 'k'},
		{"max-batch", required_argument, NULL, 'b'},
		{"threads", required_argument, NULL, 'T'},
		{"ballast", required_argument, NULL, 'B'},
		{"hold", required_argument, NULL, 'H'},
		{"json", required_argument, NULL, 'j'},
		{"probe", no_argument, NULL, 'P'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int which, c;

	while ((c = getopt_long(argc, argv, "", names, &which)) != -1) {
		switch (c) {
		case 'r':
			o->requests = number(optarg, names[which].name, 1, 1 << 20);
			break;
		case 'p':
			o->prompt = number(optarg, names[which].name, 4, 1 << 20);
			break;
		case 't':
			o->tokens = number(optarg, names[which].name, 2, 1 << 16);
			break;
		case 'l':
			o->model.layers = number(optarg, names[which].name, 1, 128);
			break;
		case 'k':
			o->model.topk = number(optarg, names[which].name, 1, DSA_TOPK_MAX);
			break;
		case 'b':
			o->model.max_batch = number(optarg, names[which].name, 1, 4096);
			break;
		case 'T':
			o->model.threads = number(optarg, names[which].name, 1, 1024);
			break;
		case 'B':
			o->model.ballast = (size_t)number(optarg, names[which].name, 0, 1 << 24)
					   << 20;
			break;
		case 'H':
			o->hold = number(optarg, names[which].name, 1, 1 << 24);
			break;
		case 'j':
			o->json = optarg;
			break;
		case 'P':
			o->probe = true;
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			exit(2);
		}
	}
	if (optind < argc) {
		usage(stderr);
		exit(2);
	}
}

static int probe(CUdevice device)
{
	char name[128];
	size_t free_bytes, total;

	DSA_CHECK(dsa.cuDeviceGetName(name, sizeof(name), device));
	DSA_CHECK(dsa.cuMemGetInfo(&free_bytes, &total));
	printf("%zu %s\n", free_bytes >> 20, name);
	return 0;
}

/* Another tenant of the GPU. */
static int hold(int mib)
{
	for (; mib > 0; mib -= 64)
		dsa_alloc((size_t)(mib < 64 ? mib : 64) << 20);
	puts("holding");
	fflush(stdout);
	while (getchar() != EOF)
		continue;
	dsa_alloc_finish();
	return 0;
}

int main(int argc, char **argv)
{
	struct options o = {
		.model = {.layers = 2, .topk = 512, .max_batch = 64, .threads = 64},
		.requests = 48,
		.prompt = 4096,
		.tokens = 16,
	};
	struct server server = {0};
	FILE *json = NULL;
	CUdevice device;

	parse(&o, argc, argv);
	if (o.json && !(json = fopen(o.json, "w"))) {
		perror(o.json);
		return 2;
	}
	device = dsa_driver_init();
	if (o.probe)
		return probe(device);
	if (o.hold)
		return hold(o.hold);
	o.model.max_context = o.prompt * 5 / 4 + o.tokens * 5 / 4 + 2;
	if (o.model.max_batch > o.requests)
		o.model.max_batch = o.requests;
	server.model = dsa_model_create(&o.model);
	dsa_model_start(server.model);
	serve(&server, &o);
	report(&server, json);
	if (json && fclose(json)) {
		perror(o.json);
		return 1;
	}
	dsa_model_destroy(server.model);
	DSA_CHECK(dsa.cuDevicePrimaryCtxRelease(device));
	free(server.requests);
	free(server.running);
	free(server.free_blocks);
	return 0;
}
