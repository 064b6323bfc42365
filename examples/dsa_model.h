/* SPDX-License-Identifier: MIT */
#ifndef EXAMPLES_DSA_MODEL_H
#define EXAMPLES_DSA_MODEL_H

/*
 * The model on the GPU: weights, caches, kernels, one captured graph per batch
 * size. A batch is described by host arrays of the caller; row r of a decode
 * batch is one request, a row with length 0 is padding.
 */

#include <stdint.h>
#include "examples/dsa_driver.h"

struct dsa_model_config {
	int layers;
	int topk;	 /* at most DSA_TOPK_MAX */
	int max_batch;	 /* decode rows */
	int max_context; /* tokens of a request */
	int threads;	 /* of a block of the kernels that make and store rows */
	size_t ballast;	 /* bytes of further weights, that nothing reads */
};

/* One row per token (prefill) or per request (decode). */
struct dsa_batch {
	int *tokens, *positions;
	unsigned *topics; /* what stays of the indexer's query from step to step */
	long long *slots; /* where the token's rows go, -1: nowhere */
	int *lengths;	  /* tokens that the row attends to, its own included */
	int *table;	  /* rows of table_stride block numbers */
	int *next;	  /* out: the sampled tokens */
};

enum { DSA_CHUNK = 512 }; /* tokens of a prefill chunk */

struct dsa_model;

/* Loads the weights and asks for the workspaces, not yet for the caches. */
struct dsa_model *dsa_model_create(const struct dsa_model_config *config);
void dsa_model_destroy(struct dsa_model *model);

/* Sizes the caches from the memory that is free, warms up and captures. */
void dsa_model_start(struct dsa_model *model);

/* Blocks of the cache, the null block 0 included. */
int dsa_model_blocks(const struct dsa_model *model);
int dsa_model_table_stride(const struct dsa_model *model);

/* The host arrays to fill before the next call. */
struct dsa_batch *dsa_model_batch(struct dsa_model *model);
void dsa_model_prefill(struct dsa_model *model, int tokens);
void dsa_model_decode(struct dsa_model *model, int rows);

#endif
