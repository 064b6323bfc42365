/* SPDX-License-Identifier: MIT */
#ifndef EXAMPLES_DSA_KERNELS_H
#define EXAMPLES_DSA_KERNELS_H

/*
 * Shapes of the example's model, for its host code and its kernels. The caches
 * have the layouts of the engines: a latent KV row of 512 quantised bytes, 16
 * bytes of scales and 128 of rope; an indexer key of 128 bytes and a scale,
 * scales behind the keys of their block. All arithmetic is exact (integers
 * modulo 2^32), so that outputs can be compared bit by bit.
 */

enum {
	DSA_BLOCK = 64, /* tokens of a cache block */
	DSA_LATENT = 512,
	DSA_SCALES = 16,
	DSA_ROPE = 128,
	DSA_ROW = DSA_LATENT + DSA_SCALES + DSA_ROPE, /* bytes per token and layer */
	DSA_INDEX = 128,
	DSA_KEY = DSA_INDEX + 4, /* bytes per token and layer */
	DSA_HIDDEN = 32,	 /* words of the hidden state */
	DSA_VOCAB = 32768,
	DSA_TOPK_MAX = 2048,
	DSA_THREADS = 128,
	/* words that dsa_project makes of a hidden state */
	DSA_WEIGHTS = (DSA_LATENT + DSA_ROPE + DSA_KEY + DSA_ROW + DSA_INDEX) / 4,
};

/* Sparse attention of `batch` query rows over `topk` slots each; an index of
 * -1 is padding. Strides of the cache are bytes, of the rest elements. */
struct dsa_attend_params {
	const unsigned char *kv;
	const int *indices;
	const unsigned *query;
	unsigned *out;
	long long row_stride, block_stride;
	long long indices_stride;
	int batch, topk;
};

#endif
