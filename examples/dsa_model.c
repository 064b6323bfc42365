/* SPDX-License-Identifier: MIT */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "examples/dsa_kernels.h"
#include "examples/dsa_model.h"

#define KERNELS(K)                                                                                 \
	K(dsa_load_weights)                                                                        \
	K(dsa_embed)                                                                               \
	K(dsa_project)                                                                             \
	K(dsa_write_kv)                                                                            \
	K(dsa_write_key)                                                                           \
	K(dsa_index)                                                                               \
	K(dsa_topk)                                                                                \
	K(dsa_convert)                                                                             \
	K(dsa_attend)                                                                              \
	K(dsa_mix)                                                                                 \
	K(dsa_sample)

enum { SIZES_MAX = 16, PIECE = 64 << 20 };

/* What a device buffer of the batch holds per row. */
struct buffers {
	CUdeviceptr tokens, positions, topics, slots, lengths, table, next;
	CUdeviceptr hidden, latent, rope, key, query, index_query;
	CUdeviceptr scores, chosen, indices, out;
};

struct dsa_model {
	struct dsa_model_config config;
#define K(name) CUfunction name;
	KERNELS(K)
#undef K
	CUstream stream;
	CUdeviceptr weights;
	struct buffers buffers;
	struct dsa_batch host;
	CUdeviceptr *kv, *keys; /* per layer */
	int blocks, table_stride;
	int sizes; /* captured batch sizes, ascending */
	int size[SIZES_MAX];
	CUgraphExec graph[SIZES_MAX];
};

extern const unsigned char dsa_kernels_image[];

#define LAUNCH(model, kernel, grid_x, grid_y, block, ...)                                          \
	do {                                                                                       \
		void *launch_params[] = {__VA_ARGS__};                                             \
		dsa_check(                                                                         \
			dsa.cuLaunchKernel((model)->kernel, (unsigned)(grid_x), grid_y, 1,         \
				(unsigned)(block), 1, 1, 0, (model)->stream, launch_params, NULL), \
			#kernel);                                                                  \
	} while (0)

static void *host_alloc(size_t count, size_t size)
{
	void *p = calloc(count, size);

	if (!p)
		abort();
	return p;
}

static void load_weights(struct dsa_model *model, CUdeviceptr weights, size_t bytes)
{
	unsigned long long words = bytes / 4;
	unsigned seed = 1;

	LAUNCH(model, dsa_load_weights, 132, 1, 128, &weights, &words, &seed);
	DSA_CHECK(dsa.cuStreamSynchronize(model->stream));
}

static void create_buffers(struct dsa_model *model)
{
	const struct dsa_model_config *c = &model->config;
	struct buffers *b = &model->buffers;
	size_t decode = (size_t)c->max_batch;
	size_t rows = decode > DSA_CHUNK ? decode : DSA_CHUNK;

	model->table_stride = (c->max_context + DSA_BLOCK - 1) / DSA_BLOCK;
	b->tokens = dsa_alloc(rows * sizeof(int));
	b->positions = dsa_alloc(rows * sizeof(int));
	b->topics = dsa_alloc(rows * sizeof(int));
	b->slots = dsa_alloc(rows * sizeof(long long));
	b->lengths = dsa_alloc(decode * sizeof(int));
	b->table = dsa_alloc(decode * (size_t)model->table_stride * sizeof(int));
	b->next = dsa_alloc(decode * sizeof(int));
	b->hidden = dsa_alloc(rows * DSA_HIDDEN * 4);
	b->latent = dsa_alloc(rows * DSA_LATENT);
	b->rope = dsa_alloc(rows * DSA_ROPE);
	b->key = dsa_alloc(rows * DSA_KEY);
	b->query = dsa_alloc(rows * DSA_ROW);
	b->index_query = dsa_alloc(rows * DSA_INDEX);
	b->scores = dsa_alloc(decode * (size_t)c->max_context * 4);
	b->chosen = dsa_alloc(decode * (size_t)c->topk * 4);
	b->indices = dsa_alloc(decode * (size_t)c->topk * 4);
	b->out = dsa_alloc(decode * DSA_LATENT);

	model->host.tokens = host_alloc(rows, sizeof(int));
	model->host.positions = host_alloc(rows, sizeof(int));
	model->host.topics = host_alloc(rows, sizeof(int));
	model->host.slots = host_alloc(rows, sizeof(long long));
	model->host.lengths = host_alloc(decode, sizeof(int));
	model->host.table = host_alloc(decode * (size_t)model->table_stride, sizeof(int));
	model->host.next = host_alloc(decode, sizeof(int));
}

struct dsa_model *dsa_model_create(const struct dsa_model_config *config)
{
	struct dsa_model *model = host_alloc(1, sizeof(*model));
	size_t bytes = (size_t)config->layers * DSA_WEIGHTS * 4;
	CUmodule module;

	model->config = *config;
	DSA_CHECK(dsa.cuModuleLoadData(&module, dsa_kernels_image));
#define K(name) DSA_CHECK(dsa.cuModuleGetFunction(&model->name, module, #name));
	KERNELS(K)
#undef K
	DSA_CHECK(dsa.cuStreamCreate(&model->stream, CU_STREAM_NON_BLOCKING));
	model->weights = dsa_alloc(bytes);
	load_weights(model, model->weights, bytes);
	for (size_t left = config->ballast; left > 0;) {
		size_t piece = left < PIECE ? left : PIECE;

		load_weights(model, dsa_alloc(piece), piece);
		left -= piece;
	}
	create_buffers(model);
	return model;
}

void dsa_model_destroy(struct dsa_model *model)
{
	for (int i = 0; i < model->sizes; i++)
		DSA_CHECK(dsa.cuGraphExecDestroy(model->graph[i]));
	DSA_CHECK(dsa.cuStreamDestroy(model->stream));
	dsa_alloc_finish();
	free(model->host.tokens);
	free(model->host.positions);
	free(model->host.topics);
	free(model->host.slots);
	free(model->host.lengths);
	free(model->host.table);
	free(model->host.next);
	free(model->kv);
	free(model->keys);
	free(model);
}

/* The rows of one layer from the hidden state, into both caches. */
static void write_rows(struct dsa_model *model, int layer, int rows)
{
	struct buffers *b = &model->buffers;
	CUdeviceptr weights = model->weights + (size_t)layer * DSA_WEIGHTS * 4;
	CUdeviceptr kv = model->kv[layer], keys = model->keys[layer];
	long long block_stride = DSA_BLOCK * DSA_ROW, row_stride = DSA_ROW;
	long long latent_stride = DSA_LATENT, rope_stride = DSA_ROPE;
	int latent_bytes = DSA_LATENT, rope_bytes = DSA_ROPE, block_size = DSA_BLOCK;
	unsigned scale = 2654435761u;

	LAUNCH(model, dsa_project, rows, 1, model->config.threads, &b->hidden, &b->topics, &weights,
		&b->latent, &b->rope, &b->key, &b->query, &b->index_query);
	LAUNCH(model, dsa_write_key, rows, 1, model->config.threads, &b->key, &keys, &b->slots);
	LAUNCH(model, dsa_write_kv, rows, 1, model->config.threads, &b->latent, &b->rope, &kv,
		&b->slots, &block_stride, &row_stride, &latent_stride, &rope_stride, &latent_bytes,
		&rope_bytes, &block_size, &scale);
}

static void attend(struct dsa_model *model, int layer, int rows)
{
	const struct dsa_model_config *c = &model->config;
	struct buffers *b = &model->buffers;
	CUdeviceptr keys = model->keys[layer];
	int topk = c->topk, table_stride = model->table_stride, scores_stride = c->max_context;
	struct dsa_attend_params attention = {
		.kv = (const unsigned char *)model->kv[layer],
		.indices = (const int *)b->indices,
		.query = (const unsigned *)b->query,
		.out = (unsigned *)b->out,
		.row_stride = DSA_ROW,
		.block_stride = DSA_BLOCK * DSA_ROW,
		.indices_stride = topk,
		.batch = rows,
		.topk = topk,
	};

	LAUNCH(model, dsa_index, rows, 8, DSA_THREADS, &b->index_query, &keys, &b->table,
		&table_stride, &b->lengths, &b->scores, &scores_stride);
	LAUNCH(model, dsa_topk, rows, 1, DSA_THREADS, &b->scores, &scores_stride, &b->lengths,
		&topk, &b->chosen);
	LAUNCH(model, dsa_convert, rows, 1, DSA_THREADS, &b->chosen, &b->table, &table_stride,
		&topk, &b->indices);
	LAUNCH(model, dsa_attend, rows, 1, DSA_THREADS, &attention);
	LAUNCH(model, dsa_mix, rows, 1, DSA_HIDDEN, &b->out, &b->hidden);
}

static void decode_forward(struct dsa_model *model, int rows)
{
	struct buffers *b = &model->buffers;

	LAUNCH(model, dsa_embed, rows, 1, model->config.threads, &b->tokens, &b->positions,
		&b->hidden);
	for (int layer = 0; layer < model->config.layers; layer++) {
		write_rows(model, layer, rows);
		attend(model, layer, rows);
	}
	LAUNCH(model, dsa_sample, rows, 1, 1, &b->hidden, &b->next);
}

static void upload(struct dsa_model *model, CUdeviceptr to, const void *from, size_t bytes)
{
	DSA_CHECK(dsa.cuMemcpyHtoDAsync(to, from, bytes, model->stream));
}

static void upload_tokens(struct dsa_model *model, int rows)
{
	struct buffers *b = &model->buffers;
	struct dsa_batch *h = &model->host;
	size_t n = (size_t)rows;

	upload(model, b->tokens, h->tokens, n * sizeof(*h->tokens));
	upload(model, b->positions, h->positions, n * sizeof(*h->positions));
	upload(model, b->topics, h->topics, n * sizeof(*h->topics));
	upload(model, b->slots, h->slots, n * sizeof(*h->slots));
}

static void upload_rows(struct dsa_model *model, int rows)
{
	struct buffers *b = &model->buffers;
	struct dsa_batch *h = &model->host;
	size_t n = (size_t)rows;

	upload_tokens(model, rows);
	upload(model, b->lengths, h->lengths, n * sizeof(*h->lengths));
	upload(model, b->table, h->table, n * (size_t)model->table_stride * sizeof(*h->table));
}

void dsa_model_prefill(struct dsa_model *model, int tokens)
{
	struct buffers *b = &model->buffers;

	upload_tokens(model, tokens);
	LAUNCH(model, dsa_embed, tokens, 1, model->config.threads, &b->tokens, &b->positions,
		&b->hidden);
	for (int layer = 0; layer < model->config.layers; layer++)
		write_rows(model, layer, tokens);
	DSA_CHECK(dsa.cuStreamSynchronize(model->stream));
}

/* Makes rows [from, to) of the batch padding. */
static void pad(struct dsa_model *model, int from, int to)
{
	struct dsa_batch *h = &model->host;

	for (int r = from; r < to; r++) {
		h->tokens[r] = h->positions[r] = h->lengths[r] = 0;
		h->topics[r] = 0;
		h->slots[r] = -1;
		memset(&h->table[r * model->table_stride], 0,
			(size_t)model->table_stride * sizeof(*h->table));
	}
}

void dsa_model_decode(struct dsa_model *model, int rows)
{
	int i = 0;

	while (model->size[i] < rows)
		i++;
	pad(model, rows, model->size[i]);
	upload_rows(model, model->size[i]);
	DSA_CHECK(dsa.cuGraphLaunch(model->graph[i], model->stream));
	DSA_CHECK(dsa.cuStreamSynchronize(model->stream));
	DSA_CHECK(dsa.cuMemcpyDtoH(
		model->host.next, model->buffers.next, (size_t)rows * sizeof(*model->host.next)));
}

/* Largest first, as engines do, each after an eager run of the same size. */
static void capture(struct dsa_model *model)
{
	int max = model->config.max_batch;

	for (int size = 1; size < max && model->sizes < SIZES_MAX - 1; size *= 2)
		model->size[model->sizes++] = size;
	model->size[model->sizes++] = max;
	pad(model, 0, max);
	upload_rows(model, max);
	for (int i = model->sizes - 1; i >= 0; i--) {
		CUgraph graph;

		decode_forward(model, model->size[i]);
		DSA_CHECK(dsa.cuStreamSynchronize(model->stream));
		DSA_CHECK(dsa.cuStreamBeginCapture(
			model->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		decode_forward(model, model->size[i]);
		DSA_CHECK(dsa.cuStreamEndCapture(model->stream, &graph));
		DSA_CHECK(dsa.cuGraphInstantiateWithFlags(&model->graph[i], graph, 0));
		DSA_CHECK(dsa.cuGraphDestroy(graph));
	}
}

/* A run at the largest shapes, whose workspace stays in the allocator. */
static void profile(struct dsa_model *model)
{
	size_t bytes = (size_t)DSA_CHUNK * DSA_ROW * 8;
	CUdeviceptr workspace = dsa_alloc(bytes);

	load_weights(model, workspace, bytes);
	dsa_free(workspace);
}

void dsa_model_start(struct dsa_model *model)
{
	size_t layers = (size_t)model->config.layers, free_bytes, total, block;

	profile(model);
	DSA_CHECK(dsa.cuMemGetInfo(&free_bytes, &total));
	block = layers * DSA_BLOCK * (DSA_ROW + DSA_KEY);
	if (free_bytes / 10 * 9 / block < 2) {
		fprintf(stderr, "dsa_decode: %zu MiB of free GPU memory hold no cache\n",
			free_bytes >> 20);
		exit(1);
	}
	model->blocks = (int)(free_bytes / 10 * 9 / block);
	model->kv = host_alloc(layers, sizeof(*model->kv));
	model->keys = host_alloc(layers, sizeof(*model->keys));
	for (size_t i = 0; i < layers; i++) {
		model->kv[i] = dsa_alloc((size_t)model->blocks * DSA_BLOCK * DSA_ROW);
		model->keys[i] = dsa_alloc((size_t)model->blocks * DSA_BLOCK * DSA_KEY);
	}
	for (size_t i = 0; i < layers; i++) {
		DSA_CHECK(dsa.cuMemsetD8Async(model->kv[i], 0,
			(size_t)model->blocks * DSA_BLOCK * DSA_ROW, model->stream));
		DSA_CHECK(dsa.cuMemsetD8Async(model->keys[i], 0,
			(size_t)model->blocks * DSA_BLOCK * DSA_KEY, model->stream));
	}
	DSA_CHECK(dsa.cuStreamSynchronize(model->stream));
	capture(model);
}

int dsa_model_blocks(const struct dsa_model *model)
{
	return model->blocks;
}

int dsa_model_table_stride(const struct dsa_model *model)
{
	return model->table_stride;
}

struct dsa_batch *dsa_model_batch(struct dsa_model *model)
{
	return &model->host;
}
