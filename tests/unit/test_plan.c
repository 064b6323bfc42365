/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/hisparse/flags.h"
#include "tools/hisparse/plan.h"
#include "tools/hisparse/size.h"

#define GIB 1073741824.

static struct hs_model read_model(const char *name)
{
	char path[1024];
	struct hs_model model;
	const char *why;

	snprintf(path, sizeof(path), MODELS "/%s.json", name);
	assert_int_equal(hs_model_read(&model, path, &why), 0);
	return model;
}

/* What SGLang and vLLM allocate for a token, from their sources. */
static void published_sizes(void **state)
{
	static const struct {
		const char *model;
		bool all_index;
		unsigned indexers;
		uint64_t fp8, bf16, index;
	} sizes[] = {
		{"deepseek-v3.2", false, 61, 48068, 78324, 8052},
		{"glm-5", false, 78, 61464, 100152, 10296},
		{"glm-5.2", false, 21, 53940, 92628, 2772},
		{"glm-5.2", true, 21, 61464, 100152, 10296},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct hs_model model = read_model(sizes[i].model);
		struct hs_token_bytes fp8, bf16;

		assert_int_equal(model.indexers, sizes[i].indexers);
		hs_model_bytes(&fp8, &model, HS_KV_FP8, false, sizes[i].all_index);
		hs_model_bytes(&bf16, &model, HS_KV_BF16, false, sizes[i].all_index);
		assert_int_equal(fp8.row, 656);
		assert_int_equal(bf16.row, 1152);
		assert_int_equal(fp8.latent + fp8.index, sizes[i].fp8);
		assert_int_equal(bf16.latent + bf16.index, sizes[i].bf16);
		assert_int_equal(fp8.index, sizes[i].index);
		assert_int_equal(fp8.map, 4 * model.layers);
	}
}

/* 671 and 744 billion weights are the published numbers. */
static void published_weights(void **state)
{
	(void)state;
	assert_true(fabs(read_model("deepseek-v3.2").params / 1e9 - 671) < 2);
	assert_true(fabs(read_model("glm-5").params / 1e9 - 744) < 2);
}

static void mtp_adds_a_layer(void **state)
{
	struct hs_model model = read_model("deepseek-v3.2");
	struct hs_token_bytes bytes;

	(void)state;
	hs_model_bytes(&bytes, &model, HS_KV_FP8, true, false);
	assert_int_equal(bytes.latent + bytes.index, 48068 + 656 + 132);
	assert_int_equal(bytes.map, 4 * 62);
}

static struct hs_model from_text(const char *text, int expected)
{
	char path[] = "config-XXXXXX";
	int fd = mkstemp(path);
	struct hs_model model = {0};
	const char *why = NULL;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	assert_int_equal(hs_model_read(&model, path, &why), expected);
	if (expected)
		assert_non_null(strstr(why, path));
	unlink(path);
	return model;
}

#define DSA "\"index_topk\": 2048, \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64, "

/* Index sharing is told in three ways; a list wins over a pattern, that over freq. */
static void index_sharing(void **state)
{
	(void)state;
	assert_int_equal(from_text("{" DSA "\"num_hidden_layers\": 6, \"index_topk_freq\": 2,"
				   "\"index_skip_topk_offset\": 2}",
				 0)
				 .indexers,
		4);
	assert_int_equal(from_text("{" DSA "\"num_hidden_layers\": 4, \"index_topk_freq\": 1,"
				   "\"index_topk_pattern\": \"FSSF\"}",
				 0)
				 .indexers,
		2);
	assert_int_equal(from_text("{" DSA "\"num_hidden_layers\": 4, \"indexer_types\": "
				   "[\"full\", \"shared\", \"shared\", \"shared\"],"
				   "\"index_topk_pattern\": \"FSSF\"}",
				 0)
				 .indexers,
		1);
	assert_int_equal(
		from_text("{\"text_config\": {" DSA "\"num_hidden_layers\": 4}}", 0).indexers, 4);
}

static void bad_configs(void **state)
{
	struct hs_model model;
	const char *why = NULL;

	(void)state;
	from_text("{\"num_hidden_layers\": 32, \"num_attention_heads\": 32}", -ENOTSUP);
	from_text("{\"num_hidden_layers\": ", -EINVAL);
	from_text("[]", -EINVAL);
	assert_int_equal(hs_model_read(&model, "no/such/config.json", &why), -ENOENT);
	assert_non_null(strstr(why, "no/such/config.json"));
}

static struct hs_plan_in ask(const char *model)
{
	return (struct hs_plan_in){.model = read_model(model),
		.gpu = hs_gpu_find("h200"),
		.gpus = 8,
		.replicas = 8,
		.host_gib = 1000,
		.context = 32768,
		.concurrency = 256,
		.kv = HS_KV_FP8,
		.miss_rate = 0.134,
		.utilisation = 0.92,
		.weights_gib = 90,
		.other_gib = 9};
}

static void node_of_eight(void **state)
{
	struct hs_plan_in in = ask("deepseek-v3.2");
	struct hs_plan plan;
	const double memory = 143771 / 1024., hot = 32 * 4096 * 61 * 684. / GIB;
	double room, kv;

	(void)state;
	assert_int_equal(hs_plan_make(&plan, &in), 0);
	assert_int_equal(
		plan.plain_tokens, (uint64_t)((memory * 0.92 - 99) * GIB / 48068) / 64 * 64 * 8);
	assert_int_equal(plan.slots, 32 * 4096);
	assert_true(fabs(plan.hot_gib - hot) < 1e-9 && fabs(plan.reserve_gib - hot - 0.25) < 1e-9);
	/* All but hot rows and 125 GiB of the host, less the 8 % that the engine leaves of
	 * what it takes for the GPU's memory. */
	room = memory - 0.25 - hot;
	kv = (room - 99 + 125 - 0.08 * (room + 125)) * 788 / 792;
	assert_string_equal(plan.limit, "host pool");
	assert_int_equal(plan.tokens, (uint64_t)(kv * GIB / 48068) / 64 * 64 * 8);
	assert_true(plan.fits);
	/* 32 requests x 274.4 misses x 61 layers x 656 B at 43 GB/s. */
	assert_true(fabs(plan.link_ms - 32 * 0.134 * 2048 * 61 * 656 / 43e6) < 1e-6);

	/* The GPU holds keys and maps of 5.8 times what it holds plain. */
	in.host_gib = 8000;
	assert_int_equal(hs_plan_make(&plan, &in), 0);
	kv = (room - 99) * 788 / 136 - 0.08 * room * 788 / 136;
	assert_string_equal(plan.limit, "GPU memory");
	assert_int_equal(plan.tokens, (uint64_t)(kv * GIB / 48068) / 64 * 64 * 8);
}

static void host_pool_ends_it(void **state)
{
	struct hs_plan_in in = ask("deepseek-v3.2");
	struct hs_plan plan, tensor_parallel;
	const double room = 143771 / 1024. - 0.25 - 32 * 4096 * 61 * 684. / GIB;
	const double kv = (room - 99 + 50 - 0.08 * (room + 50)) * 788 / 792;

	(void)state;
	in.host_gib = 400;
	assert_int_equal(hs_plan_make(&plan, &in), 0);
	assert_string_equal(plan.limit, "host pool");
	assert_int_equal(plan.tokens, (uint64_t)(kv * GIB / 48068) / 64 * 64 * 8);

	/* One group over eight GPUs: every GPU holds every row. */
	in.replicas = 1;
	assert_int_equal(hs_plan_make(&tensor_parallel, &in), 0);
	assert_int_equal(tensor_parallel.plain_tokens, plan.plain_tokens / 8);
	assert_int_equal(tensor_parallel.slots, 256 * 4096);
	assert_true(fabs(tensor_parallel.hot_gib - 8 * plan.hot_gib) < 1e-9);
}

/* vLLM 0.26.0, six layers, under a cap on an H200: tests/gpu/showings size- and
 * bsize-preload. */
static void as_measured(void **state)
{
	const struct hs_gpu fp8 = {.name = "cap", .memory = 13.95, .rate_656 = 1},
			    bf16 = {.name = "cap", .memory = 12.18, .rate_1152 = 1};
	struct hs_plan_in in = ask("deepseek-v3.2");
	struct hs_plan plan;

	(void)state;
	in.gpus = in.replicas = 1;
	in.model.layers = in.model.indexers = 6;
	in.weights_gib = 4.03; /* and what its profiled forward pass takes */
	in.other_gib = 0;
	in.gpu = &fp8;
	in.slots = 262144;
	in.host_gib = 42;
	assert_int_equal(hs_plan_make(&plan, &in), 0);
	assert_true(fabs((double)plan.tokens / 10475840 - 1) < 0.01);
	in.gpu = &bf16;
	in.kv = HS_KV_BF16;
	in.slots = 190000;
	in.host_gib = 55;
	assert_int_equal(hs_plan_make(&plan, &in), 0);
	assert_true(fabs((double)plan.tokens / 7833280 - 1) < 0.01);
}

static void nothing_left(void **state)
{
	struct hs_plan_in in = ask("deepseek-v3.2");
	struct hs_plan plan = {.slots = 7};

	(void)state;
	in.weights_gib = 140;
	assert_int_equal(hs_plan_make(&plan, &in), -ENOSPC);
	assert_int_equal(plan.slots, 7);
	/* Hot rows take half of the room at most; where that is too much: no tokens, and
	 * that is said. */
	in.weights_gib = 90;
	in.slots = 1u << 20;
	in.host_gib = 0;
	in.utilisation = 0.75;
	assert_int_equal(hs_plan_make(&plan, &in), 0);
	assert_int_equal(plan.tokens, 0);
	assert_false(plan.fits);
}

static void numbers_as_written(void **state)
{
	uint64_t count = 5, list[3];
	double value = 5;
	size_t n = 9;
	char text[32];

	(void)state;
	assert_int_equal(hs_size_count(&count, "32k"), 0);
	assert_int_equal(count, 32768);
	assert_int_equal(hs_size_count(&count, "1M"), 0);
	assert_int_equal(count, 1048576);
	assert_int_equal(hs_size_count(&count, "18446744073709551615k"), -EINVAL);
	assert_int_equal(hs_size_count(&count, "-1"), -EINVAL);
	assert_int_equal(hs_size_count(&count, "12x"), -EINVAL);
	assert_int_equal(count, 1048576);
	assert_int_equal(hs_size_gib(&value, "1.5TiB"), 0);
	assert_true(value == 1536);
	assert_int_equal(hs_size_gib(&value, "12Gx"), -EINVAL);
	assert_int_equal(hs_size_rate(&value, "13.4%"), 0);
	assert_true(fabs(value - 0.134) < 1e-12);
	assert_int_equal(hs_size_rate(&value, "1.5"), -EINVAL);
	assert_int_equal(hs_size_list(list, &n, 3, "2k,4096"), 0);
	assert_int_equal(n, 2);
	assert_int_equal(list[0], 2048);
	assert_int_equal(hs_size_list(list, &n, 3, "1,2,3,4"), -EINVAL);
	assert_int_equal(hs_size_list(list, &n, 3, "1,"), -EINVAL);
	assert_string_equal(hs_size_text(text, 1234567), "1,234,567");
	assert_string_equal(hs_size_text(text, 999), "999");
}

static void flags_of_the_table(void **state)
{
	unsigned count = 0;

	(void)state;
	assert_string_equal(hs_flag_field("host_bytes")->name, "host-gib");
	assert_string_equal(hs_flag_field("window_bytes")->name, "window-mib");
	assert_string_equal(hs_flag_field("slots")->variable, "HISPARSE_SLOTS");
	assert_int_equal(hs_flag_field("disable")->kind, HS_FLAG_FLAG);
	while (hs_flag_at(count))
		count++;
	assert_true(count >= 13);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_sizes),
		cmocka_unit_test(published_weights),
		cmocka_unit_test(mtp_adds_a_layer),
		cmocka_unit_test(index_sharing),
		cmocka_unit_test(bad_configs),
		cmocka_unit_test(node_of_eight),
		cmocka_unit_test(host_pool_ends_it),
		cmocka_unit_test(as_measured),
		cmocka_unit_test(nothing_left),
		cmocka_unit_test(numbers_as_written),
		cmocka_unit_test(flags_of_the_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
