/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_MODEL_H
#define TOOLS_HISPARSE_MODEL_H

/*
 * A DeepSeek-Sparse-Attention model as its config.json describes it, and the
 * bytes that a token takes in the engines' KV cache.
 */

#include <stdbool.h>
#include <stdint.h>

struct hs_model {
	char name[64];	   /* architecture */
	unsigned layers;   /* without the MTP layers */
	unsigned indexers; /* of them, layers that keep index keys of their own */
	unsigned mtp;	   /* multi-token-prediction layers the checkpoint has */
	unsigned topk, latent, rope, index_dim;
	uint64_t context;		  /* max_position_embeddings, 0 if not given */
	double params;			  /* weights, without MTP; 0 if the config does not tell */
	double expert_bytes, other_bytes; /* of the weights: feed-forward, all else */
};

enum hs_kv { HS_KV_FP8, HS_KV_BF16 };

/* Per token, all layers. Rows are what the preload keeps in host memory. */
struct hs_token_bytes {
	uint64_t row;	 /* one layer's latent row */
	uint64_t latent; /* every layer's rows */
	uint64_t index;	 /* index keys */
	uint64_t map;	 /* the preload's own: 4 per layer */
};

/*
 * Reads a config.json, or the one in the directory `path`. Returns 0 or a
 * negative errno; *why is then a line for people (static storage).
 */
int hs_model_read(struct hs_model *out, const char *path, const char **why);

/* with_mtp: count the MTP layers too. all_index: index keys also in layers that
 * share another's selection (SGLang before 0.5.18 allocates them). */
void hs_model_bytes(struct hs_token_bytes *out, const struct hs_model *model, enum hs_kv kv,
	bool with_mtp, bool all_index);

#endif
