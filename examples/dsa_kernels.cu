/* SPDX-License-Identifier: MIT */
/* The model's kernels, in the common subset of CUDA C++ and C. */

#include "examples/dsa_kernels.h"
#include "examples/dsa_port.h"

DSA_DEVICE unsigned dsa_hash(unsigned x)
{
	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	x *= 0x846ca68bu;
	return x ^ x >> 16;
}

DSA_KERNEL(dsa_load_weights, unsigned *weights, unsigned long long words, unsigned seed)
{
	unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;

	for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
		i < words; i += step)
		weights[i] = dsa_hash((unsigned)i * 0x9e3779b9u + seed);
}

/* grid (tokens) */
DSA_KERNEL(dsa_embed, const int *tokens, const int *positions, unsigned *hidden)
{
	unsigned t = blockIdx.x;

	for (unsigned i = threadIdx.x; i < DSA_HIDDEN; i += blockDim.x)
		hidden[t * DSA_HIDDEN + i] = dsa_hash(
			dsa_hash((unsigned)tokens[t] * DSA_HIDDEN + i) + (unsigned)positions[t]);
}

DSA_DEVICE unsigned dsa_word(const unsigned *hidden, const unsigned *weights, unsigned w)
{
	return dsa_hash(hidden[w % DSA_HIDDEN] + weights[w]) + hidden[(w * 5 + 1) % DSA_HIDDEN];
}

/* The latent row, the indexer's key and both queries of every token. A query
 * of the indexer changes little from step to step (topics: what stays), so
 * that neighbouring steps select much the same rows. grid (tokens) */
DSA_KERNEL(dsa_project, const unsigned *hidden, const unsigned *topics, const unsigned *weights,
	unsigned *latent, unsigned *rope, unsigned *key, unsigned *query, unsigned *index_query)
{
	unsigned t = blockIdx.x;
	const unsigned *h = hidden + t * DSA_HIDDEN;

	for (unsigned w = threadIdx.x; w < DSA_WEIGHTS; w += blockDim.x) {
		unsigned v = dsa_word(h, weights, w), i = w;

		if (i < DSA_LATENT / 4) {
			latent[t * (DSA_LATENT / 4) + i] = v;
			continue;
		}
		i -= DSA_LATENT / 4;
		if (i < DSA_ROPE / 4) {
			rope[t * (DSA_ROPE / 4) + i] = v;
			continue;
		}
		i -= DSA_ROPE / 4;
		if (i < DSA_KEY / 4) {
			key[t * (DSA_KEY / 4) + i] = i < DSA_INDEX / 4 ? v : v % 4 + 1;
			continue;
		}
		i -= DSA_KEY / 4;
		if (i < DSA_ROW / 4) {
			query[t * (DSA_ROW / 4) + i] = v | 1;
			continue;
		}
		i -= DSA_ROW / 4;
		index_query[t * (DSA_INDEX / 4) + i] =
			(dsa_hash(topics[t] + weights[w] + i) & 0xf8f8f8f8u) | (v & 0x07070707u);
	}
}

/* Stores latent KV rows where slot_mapping says (-1: nowhere). Strides in
 * bytes. grid (tokens) */
DSA_KERNEL(dsa_write_kv, const unsigned *latent, const unsigned *rope, unsigned char *kv,
	const long long *slot_mapping, long long block_stride, long long row_stride,
	long long latent_stride, long long rope_stride, int latent_bytes, int rope_bytes,
	int block_size, unsigned scale)
{
	unsigned t = blockIdx.x;
	long long slot = slot_mapping[t];
	const unsigned *l = (const unsigned *)((const char *)latent + t * latent_stride);
	const unsigned *r = (const unsigned *)((const char *)rope + t * rope_stride);
	unsigned *row;

	if (slot < 0)
		return;
	row = (unsigned *)(kv + slot / block_size * block_stride + slot % block_size * row_stride);
	for (int i = (int)threadIdx.x; i < latent_bytes / 4; i += (int)blockDim.x)
		row[i] = l[i];
	for (int i = (int)threadIdx.x; i < DSA_SCALES / 4; i += (int)blockDim.x)
		row[latent_bytes / 4 + i] = l[i * (latent_bytes / DSA_SCALES)] * scale;
	for (int i = (int)threadIdx.x; i < rope_bytes / 4; i += (int)blockDim.x)
		row[(latent_bytes + DSA_SCALES) / 4 + i] = r[i];
}

/* grid (tokens) */
DSA_KERNEL(dsa_write_key, const unsigned *key, unsigned char *keys, const long long *slot_mapping)
{
	unsigned t = blockIdx.x;
	long long slot = slot_mapping[t];
	const unsigned *k = key + t * (DSA_KEY / 4);
	unsigned *block;

	if (slot < 0)
		return;
	block = (unsigned *)(keys + slot / DSA_BLOCK * (DSA_BLOCK * DSA_KEY));
	for (unsigned i = threadIdx.x; i < DSA_INDEX / 4; i += blockDim.x)
		block[slot % DSA_BLOCK * (DSA_INDEX / 4) + i] = k[i];
	if (threadIdx.x == 0)
		block[DSA_BLOCK * (DSA_INDEX / 4) + slot % DSA_BLOCK] = k[DSA_INDEX / 4];
}

/* scores[row][position], 24 bits each. grid (batch, any) */
DSA_KERNEL(dsa_index, const unsigned *index_query, const unsigned char *keys,
	const int *block_table, int table_stride, const int *lengths, unsigned *scores,
	int scores_stride)
{
	unsigned b = blockIdx.x;
	const signed char *q = (const signed char *)(index_query + b * (DSA_INDEX / 4));
	int step = (int)(gridDim.y * blockDim.x);

	for (int p = (int)(blockIdx.y * blockDim.x + threadIdx.x); p < lengths[b]; p += step) {
		const unsigned char *block =
			keys + (long long)block_table[(long long)b * table_stride + p / DSA_BLOCK] *
				       (DSA_BLOCK * DSA_KEY);
		const signed char *k = (const signed char *)block + p % DSA_BLOCK * DSA_INDEX;
		const int *scales = (const int *)(block + DSA_BLOCK * DSA_INDEX);
		int dot = 0;

		for (int i = 0; i < DSA_INDEX; i++)
			dot += q[i] * k[i];
		scores[(long long)b * scores_stride + p] =
			(unsigned)(dot * scales[p % DSA_BLOCK] + (1 << 23));
	}
}

struct dsa_topk_shared {
	int above[DSA_THREADS], equal[DSA_THREADS];
	int total_above, total_equal;
};

/* Exclusive prefix sums of both counters; every thread takes part. */
DSA_DEVICE void dsa_topk_scan(struct dsa_topk_shared *s)
{
	__syncthreads();
	if (threadIdx.x == 0) {
		int above = 0, equal = 0;

		for (int i = 0; i < DSA_THREADS; i++) {
			int a = s->above[i], e = s->equal[i];

			s->above[i] = above;
			s->equal[i] = equal;
			above += a;
			equal += e;
		}
		s->total_above = above;
		s->total_equal = equal;
	}
	__syncthreads();
}

/* The topk highest scores of a row; among equals the lower position. The list
 * is the same whatever the batch. grid (batch), DSA_THREADS threads */
DSA_KERNEL(dsa_topk, const unsigned *scores, int scores_stride, const int *lengths, int topk,
	int *positions)
{
	unsigned b = blockIdx.x;
	int t = (int)threadIdx.x, length = lengths[b], part, first, last, above, equal;
	const unsigned *score = scores + (long long)b * scores_stride;
	int *out = positions + (long long)b * topk;
	unsigned least = 0;
	DSA_SHARED(struct dsa_topk_shared, s);

	if (length <= topk) {
		for (int i = t; i < topk; i += DSA_THREADS)
			out[i] = i < length ? i : -1;
		return;
	}
	part = (length + DSA_THREADS - 1) / DSA_THREADS;
	first = t * part < length ? t * part : length;
	last = first + part < length ? first + part : length;

	/* the score of the last one chosen, bit by bit */
	for (int bit = 23; bit >= 0; bit--) {
		unsigned candidate = least | 1u << bit;

		above = 0;
		for (int p = first; p < last; p++)
			above += score[p] >= candidate;
		s->above[t] = above;
		s->equal[t] = 0;
		dsa_topk_scan(s);
		if (s->total_above >= topk)
			least = candidate;
		__syncthreads();
	}
	above = equal = 0;
	for (int p = first; p < last; p++) {
		above += score[p] > least;
		equal += score[p] == least;
	}
	s->above[t] = above;
	s->equal[t] = equal;
	dsa_topk_scan(s);
	above = s->above[t];
	equal = s->total_above + s->equal[t];
	for (int p = first; p < last; p++) {
		if (score[p] > least)
			out[above++] = p;
		else if (score[p] == least && equal < topk)
			out[equal++] = p;
	}
}

/* Positions to slots. grid (batch) */
DSA_KERNEL(dsa_convert, const int *positions, const int *block_table, int table_stride, int topk,
	int *slots)
{
	unsigned b = blockIdx.x;
	const int *table = block_table + (long long)b * table_stride;

	for (int i = (int)threadIdx.x; i < topk; i += (int)blockDim.x) {
		int p = positions[(long long)b * topk + i];

		slots[(long long)b * topk + i] =
			p < 0 ? -1 : table[p / DSA_BLOCK] * DSA_BLOCK + p % DSA_BLOCK;
	}
}

struct dsa_attend_shared {
	unsigned weight[DSA_TOPK_MAX];
};

DSA_DEVICE const unsigned *dsa_row(const struct dsa_attend_params *p, int slot)
{
	long long s = slot < 0 ? 0 : slot; /* like the engines' kernels: padding reads slot 0 */

	return (const unsigned *)(p->kv + s / DSA_BLOCK * p->block_stride +
				  s % DSA_BLOCK * p->row_stride);
}

/* out[row] = sum over the list of weight(query, row) * latent(row). Sums are
 * modulo 2^32, so the order of the list does not matter. grid (batch),
 * DSA_THREADS threads */
DSA_KERNEL(dsa_attend, const struct dsa_attend_params p)
{
	unsigned b = blockIdx.x, t = threadIdx.x, sum = 0;
	const int *slots = p.indices + b * p.indices_stride;
	const unsigned *query = p.query + b * (DSA_ROW / 4);
	DSA_SHARED(struct dsa_attend_shared, s);

	for (int i = (int)t; i < p.topk; i += DSA_THREADS) {
		const unsigned *row = dsa_row(&p, slots[i]);
		unsigned dot = 0;

		for (int w = 0; w < DSA_ROW / 4; w++)
			dot += query[w] * row[w];
		s->weight[i] = slots[i] < 0 ? 0 : dsa_hash(dot);
	}
	__syncthreads();
	for (int i = 0; i < p.topk; i++)
		sum += s->weight[i] * dsa_row(&p, slots[i])[t];
	p.out[b * DSA_THREADS + t] = sum;
}

/* Attention's output into the hidden state. grid (batch), DSA_HIDDEN threads */
DSA_KERNEL(dsa_mix, const unsigned *out, unsigned *hidden)
{
	unsigned b = blockIdx.x, i = threadIdx.x, sum = 0;

	for (unsigned w = i; w < DSA_THREADS; w += DSA_HIDDEN)
		sum = dsa_hash(sum + out[b * DSA_THREADS + w]);
	hidden[b * DSA_HIDDEN + i] = dsa_hash(hidden[b * DSA_HIDDEN + i] + sum);
}

/* grid (batch), one thread */
DSA_KERNEL(dsa_sample, const unsigned *hidden, int *tokens)
{
	unsigned b = blockIdx.x, sum = 0;

	for (unsigned i = 0; i < DSA_HIDDEN; i++)
		sum = dsa_hash(sum + hidden[b * DSA_HIDDEN + i]);
	tokens[b] = (int)(sum % DSA_VOCAB);
}
