/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/model.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static unsigned number(const json_t *config, const char *key, unsigned otherwise)
{
	const json_t *value = json_object_get(config, key);
	json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;

	return n >= 0 && n <= INT32_MAX ? (unsigned)n : otherwise;
}

/*
 * Which layers keep index keys: GLM-5.2 and later share a selection between
 * layers. In the order in which vLLM and transformers look: a list of "full"
 * and "shared", a pattern of F and S, else every freq-th layer after the
 * first `offset` ones.
 */
static bool has_indexer(const json_t *config, unsigned layer)
{
	const json_t *types = json_object_get(config, "indexer_types");
	const json_t *pattern = json_object_get(config, "index_topk_pattern");
	unsigned freq = number(config, "index_topk_freq", 1);
	unsigned offset = number(config, "index_skip_topk_offset", 2);
	const char *text;

	if (json_array_size(types)) {
		text = json_string_value(json_array_get(types, layer));
		return !text || strcmp(text, "shared");
	}
	if (json_is_string(pattern))
		return layer >= json_string_length(pattern) ||
		       json_string_value(pattern)[layer] != 'S';
	if (freq <= 1 || layer + 1 <= offset)
		return true;
	return (layer + 1 - offset) % freq == 0;
}

/* Bytes of a weight: quantization_config as the published checkpoints have it. */
static void weigh(struct hs_model *model, const json_t *config, double experts, double other,
	double embeddings)
{
	const json_t *quant = json_object_get(config, "quantization_config");
	const char *method = json_string_value(json_object_get(quant, "quant_method"));
	const char *algo = json_string_value(json_object_get(quant, "quant_algo"));
	double expert = 2, rest = 2;

	if (method && !strcmp(method, "fp8"))
		expert = rest = 1;
	else if (algo && strstr(algo, "FP4"))
		expert = 0.5625; /* 4 bits and one scale byte for 16 weights */
	else if (algo && strstr(algo, "FP8"))
		expert = rest = 1;
	model->params = experts + other + embeddings;
	model->expert_bytes = experts * expert;
	model->other_bytes = other * rest + 2 * embeddings;
}

static void count_weights(struct hs_model *model, const json_t *config)
{
	double h = number(config, "hidden_size", 0),
	       heads = number(config, "num_attention_heads", 0);
	double q_lora = number(config, "q_lora_rank", 0), v = number(config, "v_head_dim", 0);
	double nope = number(config, "qk_nope_head_dim", 0),
	       vocab = number(config, "vocab_size", 0);
	double wide = number(config, "intermediate_size", 0);
	double narrow = number(config, "moe_intermediate_size", 0);
	double routed = number(config, "n_routed_experts", 0);
	double shared = number(config, "n_shared_experts", 0);
	unsigned dense = number(config, "first_k_dense_replace", 0);
	double attention, indexer, experts;

	if (!h || !heads || !q_lora || !v || !vocab || !routed || dense > model->layers)
		return;
	attention = h * q_lora + q_lora * heads * (nope + model->rope) +
		    h * (model->latent + model->rope) + model->latent * heads * (nope + v) +
		    heads * v * h;
	indexer = number(config, "index_n_heads", 0) * (q_lora * model->index_dim + h) +
		  h * model->index_dim;
	experts = (routed + shared) * 3 * h * narrow + h * routed;
	weigh(model, config, dense * 3 * h * wide + (model->layers - dense) * experts,
		model->layers * attention + model->indexers * indexer, 2 * vocab * h);
}

int hs_model_read(struct hs_model *out, const char *path, const char **why)
{
	static char reason[4608];
	char file[4096];
	struct stat st;
	struct hs_model model = {0};
	json_error_t error;
	json_t *root = NULL, *config;
	const char *name;
	int err = -EINVAL;

	*why = reason;
	if (stat(path, &st)) {
		err = -errno;
		snprintf(reason, sizeof(reason), "%s: %s", path, strerror(errno));
		return err;
	}
	snprintf(file, sizeof(file), S_ISDIR(st.st_mode) ? "%s/config.json" : "%s", path);
	root = json_load_file(file, 0, &error);
	if (!json_is_object(root)) {
		snprintf(reason, sizeof(reason), "%s: line %d: %s", file, error.line,
			root ? "not a JSON object" : error.text);
		goto out;
	}
	/* Multi-modal models keep the text model's part one level down. */
	config = json_object_get(root, "text_config");
	if (!json_is_object(config))
		config = root;

	name = json_string_value(json_array_get(json_object_get(root, "architectures"), 0));
	snprintf(model.name, sizeof(model.name), "%s", name ? name : "unnamed model");
	model.layers = number(config, "num_hidden_layers", 0);
	model.mtp = number(config, "num_nextn_predict_layers", 0);
	model.topk = number(config, "index_topk", 0);
	model.latent = number(config, "kv_lora_rank", 0);
	model.rope = number(config, "qk_rope_head_dim", 0);
	model.index_dim = number(config, "index_head_dim", 128);
	model.context = number(config, "max_position_embeddings", 0);
	if (!model.topk || !model.latent || !model.layers || model.layers > 4096) {
		snprintf(reason, sizeof(reason),
			"%s: no DeepSeek-Sparse-Attention model (it needs index_topk, "
			"kv_lora_rank, "
			"num_hidden_layers); nothing to gain here",
			file);
		err = -ENOTSUP;
		goto out;
	}
	for (unsigned layer = 0; layer < model.layers; layer++)
		model.indexers += has_indexer(config, layer);
	count_weights(&model, config);
	*out = model;
	err = 0;
out:
	json_decref(root);
	return err;
}

void hs_model_bytes(struct hs_token_bytes *out, const struct hs_model *model, enum hs_kv kv,
	bool with_mtp, bool all_index)
{
	unsigned mtp = with_mtp ? model->mtp : 0;
	/* fp8 (fp8_ds_mla): one float scale for 128 values, rope stays bf16. */
	uint64_t fp8 = model->latent + model->latent / 128 * 4 + 2 * model->rope;
	uint64_t bf16 = 2 * (model->latent + model->rope);
	uint64_t key = model->index_dim + model->index_dim / 128 * 4;

	out->row = kv == HS_KV_FP8 ? fp8 : bf16;
	out->latent = (model->layers + mtp) * out->row;
	out->index = ((all_index ? model->layers : model->indexers) + mtp) * key;
	out->map = 4 * (model->layers + mtp);
}
