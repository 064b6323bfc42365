/* SPDX-License-Identifier: MIT */
/* What is done about a launch: the list rewritten, rows dropped, or nothing. */

#include "tests/unit/fake_launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "src/launch/profiles.h"

#define DECODE "_ZN4sm906decode10sparse_fp839flash_fwd_splitkv_mla_fp8_sparse_kernelINS1_14Kernel"
#define LIST UINT64_C(0x7f0012340000)

static const struct fake_kernel decode_b = {DECODE, {280, 512}, true};
static const struct fake_kernel decode_c = {
	"_ZN4sm906decode6sparse39flash_fwd_splitkv_mla_fp8_sparse_kernelI", {296, 512}, true};
static const struct fake_kernel decode_a = {
	"_ZN4sm9039flash_fwd_splitkv_mla_fp8_sparse_kernelI9TmaParams", {264, 768}, true};
static const struct fake_kernel bounded = {"bounded", {8, 32}, false};
static const struct fake_kernel write_fp8 = {
	"_ZN4vllm30concat_and_cache_ds_mla_kernelI13__nv_bfloat16hLNS_",
	{8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 8}, true};

static unsigned char decode[296], tma[768];

static void put(size_t at, uint64_t value, size_t width)
{
	memcpy(decode + at, &value, width);
}

/* Two requests of three query rows, in the form of generation B. */
static void make_b(void)
{
	for (size_t i = 0; i < sizeof(decode); i++)
		decode[i] = (unsigned char)(i * 7 + 1);
	for (size_t i = 0; i < sizeof(tma); i++)
		tma[i] = (unsigned char)(i * 5 + 3);
	put(0, 2, 4);
	put(4, 3, 4);
	put(8, 128, 4);
	put(12, 1, 4);
	put(16, 576, 4);
	put(20, 512, 4);
	put(36, 64, 4);
	put(40, 2048, 4);
	put(56, FAKE_WINDOW(1) + 4096, 8);
	put(64, LIST, 8);
	put(72, 0, 8);
	put(120, 0, 8);
	put(156, 41984, 4);
	put(160, 656, 4);
	put(164, 6400, 4);
	put(168, 2112, 4);
}

static struct hs_launch_counts counts(void)
{
	static struct hs_launch_counts last;
	struct hs_launch_counts now, since;

	hs_launch_read(&now);
	since = (struct hs_launch_counts){now.attention - last.attention,
		now.remapped - last.remapped, now.refused - last.refused,
		now.written - last.written, now.filled - last.filled, now.unknown - last.unknown,
		now.nodes - last.nodes};
	last = now;
	return since;
}

/* The driver got what the caller has, but for 8 bytes at `at`. */
static void only_list_changed(size_t at, size_t size0, size_t size1)
{
	unsigned char expected[4096] = {0};
	uint64_t remapped = FAKE_REMAPPED;

	memcpy(expected, decode, size0);
	memcpy(expected + at, &remapped, 8);
	memcpy(expected + (size0 + 7) / 8 * 8, tma, size1);
	assert_memory_equal(fake.params, expected, sizeof(expected));
}

static void nothing_is_asked_without_windows(void **state)
{
	static const struct fake_kernel kernel = {"dsa_attend", {280, 512}, true};
	void *params[] = {decode, tma};

	(void)state;
	fake.any = false;
	make_b();
	assert_int_equal(fake_launch(&kernel, 1, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;");
	assert_ptr_equal(fake.launched.params, params);
	assert_int_equal(fake.queries, 0);
}

static void attention_gets_our_list(void **state)
{
	void *params[] = {decode, tma};
	unsigned char before[sizeof(decode)];

	(void)state;
	make_b();
	memcpy(before, decode, sizeof(before));
	assert_int_equal(fake_launch(&decode_b, 2, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "reveal 1 kv 656;resolve 1;launch;attended 1;");
	only_list_changed(64, 280, 512);
	assert_memory_equal(decode, before, sizeof(before));
	assert_ptr_equal(params[0], decode);
	assert_ptr_equal(params[1], tma);
	assert_int_equal(fake.base, FAKE_WINDOW(1) + 4096);
	assert_int_equal(fake.row, 656);
	assert_int_equal(fake.list.indices, LIST);
	assert_int_equal(fake.list.outer, 2);
	assert_int_equal(fake.list.inner, 3);
	assert_int_equal(fake.list.k, 2048);
	assert_int_equal(fake.list.outer_stride, 6400);
	assert_int_equal(fake.list.inner_stride, 2112);
	assert_int_equal(fake.list.lengths, 0);
	assert_int_equal(counts().remapped, 1);
	assert_int_equal(fake.inside, 0);
	hs_launch_report();
	assert_string_equal(fake.log, "");
}

static void attention_in_a_capture(void **state)
{
	void *params[] = {decode, tma};

	(void)state;
	make_b();
	fake.capturing = true; /* the fakes check the site */
	assert_int_equal(fake_launch(&decode_b, 2, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "reveal 1 kv 656;resolve 1;launch;attended 1;");
	/* the engine's own list is kept */
	assert_int_equal(fake.node.params, 2);
	assert_int_equal(fake.node.count, 1);
	assert_int_equal(fake.node.fields[0].param, 0);
	assert_int_equal(fake.node.fields[0].offset, 64);
	assert_int_equal(fake.node.fields[0].width, 8);
	assert_int_equal(fake.node.fields[0].size, 280);
	assert_int_equal(fake.node.fields[0].value, LIST);
	hs_launch_capture_ending(NULL, false);
	assert_non_null(strstr(fake.events, "attended 1;capture end;"));
}

static void generation_c(void **state)
{
	void *params[] = {decode, tma};

	(void)state;
	make_b();
	memset(decode, 0, sizeof(decode));
	put(0, 1, 4);
	put(4, 1, 4);
	put(12, 1, 4);
	put(16, 576, 4);
	put(20, 512, 4);
	put(36, 64, 4);
	put(40, 1024, 4);
	put(64, FAKE_WINDOW(0), 8);
	put(72, LIST, 8);
	put(80, 0x1234, 8);
	put(164, 41984, 4);
	put(168, 656, 4);
	put(172, 1024, 4);
	put(176, 2048, 4);
	assert_int_equal(fake_launch(&decode_c, 2, params), CUDA_SUCCESS);
	only_list_changed(72, 296, 512);
	assert_int_equal(fake.list.k, 1024);
	assert_int_equal(fake.list.outer_stride, 1024);
	assert_int_equal(fake.list.inner_stride, 2048);
	assert_int_equal(fake.list.lengths, 0x1234);
}

static void generation_a(void **state)
{
	void *params[] = {decode, tma};

	(void)state;
	make_b();
	memset(decode, 0, sizeof(decode));
	put(0, 5, 4);
	put(4, 2, 4);
	put(8, 256, 4);
	put(12, 576, 4);
	put(16, 512, 4);
	put(20, 128, 4);
	put(24, 1, 4);
	put(48, 2048, 4);
	put(64, FAKE_WINDOW(3) + 656, 8);
	put(88, LIST, 8);
	put(104, 41984, 8);
	put(128, 656, 8);
	put(168, 4096, 8);
	put(176, 2048, 8);
	assert_int_equal(fake_launch(&decode_a, 2, params), CUDA_SUCCESS);
	only_list_changed(88, 264, 768);
	assert_int_equal(fake.base, FAKE_WINDOW(3) + 656);
	assert_int_equal(fake.list.outer, 5);
	assert_int_equal(fake.list.inner, 2);
	assert_int_equal(fake.list.outer_stride, 4096);
	assert_int_equal(fake.list.inner_stride, 2048);
}

/* A field that does not check: as if we were not there, said once. */
static void what_is_not_proven_is_left_alone(void **state)
{
	static const struct {
		size_t at;
		uint64_t value;
		size_t width;
		const char *need;
	} bad[] = {
		{0, 0, 4, "b > 0"},
		{40, 2047, 4, "topk % 64 == 0"},
		{12, 2, 4, "h_kv == 1"},
		{16, 512, 4, "d_qk == 576"},
		{160, 584, 4, "kv_row == 656"},
		{156, 41984 + 8448, 4, "kv_block == page * kv_row"},
		{120, FAKE_WINDOW(2), 8, "extra_kv == 0"},
		{64, 0, 8, "makes no sense"},
	};
	static struct fake_kernel kernels[8];
	void *params[] = {decode, tma};

	(void)state;
	counts();
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		kernels[i] = decode_b;
		fake_reset();
		make_b();
		put(bad[i].at, bad[i].value, bad[i].width);
		assert_int_equal(fake_launch(&kernels[i], 2, params), CUDA_SUCCESS);
		/* a layout that is not ours keeps the window on the device */
		if (strcmp(fake.events, "launch;"))
			assert_string_equal(fake.events, "reveal 1 other 0;launch;");
		assert_ptr_equal(fake.launched.params, params);
		assert_int_equal(fake_launch(&kernels[i], 2, params), CUDA_SUCCESS);
		assert_int_equal(counts().refused, 2);
		hs_launch_report();
		hs_launch_report();
		if (!strstr(fake.log, bad[i].need))
			fail_msg("'%s' is not in '%s'", bad[i].need, fake.log);
		assert_non_null(strstr(fake.log, "flashmla.profile:"));
		assert_ptr_equal(strchr(fake.log, '\n'), fake.log + strlen(fake.log) - 1);
	}
}

static void attention_elsewhere_does_not_concern_us(void **state)
{
	void *params[] = {decode, tma};

	(void)state;
	counts();
	make_b();
	put(56, 0x7f0000000000, 8);
	put(12, 2, 4);
	assert_int_equal(fake_launch(&decode_b, 2, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;");
	assert_ptr_equal(fake.launched.params, params);
	assert_int_equal(counts().attention, 0);
	hs_launch_report();
	assert_string_equal(fake.log, "");
}

static void no_swap_in_is_still_right(void **state)
{
	void *params[] = {decode, tma};

	(void)state;
	make_b();
	fake.resolve_result = -ENOMEM;
	assert_int_equal(fake_launch(&decode_b, 2, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "reveal 1 kv 656;resolve 1;launch;");
	assert_ptr_equal(fake.launched.params, params);

	fake_reset();
	fake.no_layer = true;
	assert_int_equal(fake_launch(&decode_b, 2, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "reveal 1 kv 656;launch;");
	assert_ptr_equal(fake.launched.params, params);
}

/* The first launches come before the cache is ready: nothing to talk about. */
static void not_ready_yet(void **state)
{
	static struct fake_kernel kernel;
	void *params[] = {decode, tma};

	(void)state;
	counts();
	hs_launch_report();
	fake.log[0] = '\0';
	kernel = decode_b;
	make_b();
	fake.resolve_result = -EAGAIN;
	assert_int_equal(fake_launch(&kernel, 2, params), CUDA_SUCCESS);
	assert_ptr_equal(fake.launched.params, params);
	fake.resolve_result = 0;
	fake.unchanged = true;
	assert_int_equal(fake_launch(&kernel, 2, params), CUDA_SUCCESS);
	assert_ptr_equal(fake.launched.params, params);
	assert_int_equal(counts().refused, 0);
	hs_launch_report();
	assert_string_equal(fake.log, "");

	/* but a graph stays as it was captured */
	fake.capturing = true;
	fake.resolve_result = -EAGAIN;
	assert_int_equal(fake_launch(&kernel, 2, params), CUDA_SUCCESS);
	hs_launch_report();
	assert_non_null(strstr(fake.log, "captured before a layer was ready"));
}

static void the_drivers_error_is_passed_on(void **state)
{
	uint64_t words[12] = {0};
	void *params[] = {decode, tma}, *writes[12];

	(void)state;
	make_b();
	fake.launch_result = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	assert_int_equal(fake_launch(&decode_b, 2, params), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	for (unsigned i = 0; i < 12; i++)
		writes[i] = &words[i];
	words[2] = FAKE_WINDOW(0);
	words[3] = LIST;
	fake.events[0] = '\0';
	assert_int_equal(fake_launch(&write_fp8, 5, writes), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	assert_string_equal(fake.events, "launch;");
}

static void packed_parameters(void **state)
{
	unsigned char buffer[792], before[792];
	size_t bytes = sizeof(buffer);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
		&bytes, CU_LAUNCH_PARAM_END};
	struct hs_launch launch = {.function = (CUfunction)&decode_b,
		.grid = {2, 1, 1},
		.block = {384, 1, 1},
		.extra = extra,
		.forward = fake_forward};

	(void)state;
	make_b();
	memcpy(buffer, decode, 280);
	memcpy(buffer + 280, tma, 512);
	memcpy(before, buffer, sizeof(before));
	assert_int_equal(hs_launch(&launch), CUDA_SUCCESS);
	only_list_changed(64, 280, 512);
	assert_memory_equal(buffer, before, sizeof(before));
	assert_ptr_equal(launch.extra, extra);
	assert_int_equal(bytes, sizeof(buffer));
}

/* Clusters and PDL travel in the configuration, which is not ours to change. */
static void attributes_stay(void **state)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
	CUlaunchConfig config = {.gridDimX = 2, .attrs = &attribute, .numAttrs = 1}, before;
	void *params[] = {decode, tma};
	struct hs_launch launch = {.function = (CUfunction)&decode_b,
		.grid = {2, 1, 1},
		.block = {384, 1, 1},
		.shared = 231424,
		.params = params,
		.config = &config,
		.forward = fake_forward};

	(void)state;
	make_b();
	before = config;
	assert_int_equal(hs_launch(&launch), CUDA_SUCCESS);
	assert_ptr_equal(fake.launched.config, &config);
	assert_memory_equal(&config, &before, sizeof(config));
	assert_int_equal(fake.launched.shared, 231424);
	only_list_changed(64, 280, 512);
}

/* A profile of the user's: the list in parameter 1, a bound raised with it. */
static void a_bound_is_rewritten(void **state)
{
	struct {
		uint64_t kv, list;
		int32_t rows, bound;
		uint64_t rest;
	} p = {FAKE_WINDOW(2) + 1024, LIST, 9, 777, 0xabcdef};
	uint64_t first = 55;
	void *params[] = {&first, &p};

	(void)state;
	assert_int_equal(fake_launch(&bounded, 1, params), CUDA_SUCCESS);
	assert_int_equal(fake_param(&bounded, 0, 0, 8), 55);
	assert_int_equal(fake_param(&bounded, 1, 0, 8), FAKE_WINDOW(2) + 1024);
	assert_int_equal(fake_param(&bounded, 1, 8, 8), FAKE_REMAPPED);
	assert_int_equal(fake_param(&bounded, 1, 16, 4), 9);
	assert_int_equal(fake_param(&bounded, 1, 20, 4), 777 + 0x10000);
	assert_int_equal(fake_param(&bounded, 1, 24, 8), 0xabcdef);
	assert_int_equal(fake.base, FAKE_WINDOW(2));
	assert_int_equal(p.bound, 777);
	assert_int_equal(fake.node.count, 0);
	fake.capturing = true;
	assert_int_equal(fake_launch(&bounded, 1, params), CUDA_SUCCESS);
	assert_int_equal(fake.node.count, 2);
	assert_int_equal(fake.node.fields[0].value, LIST);
	assert_int_equal(fake.node.fields[1].param, 1);
	assert_int_equal(fake.node.fields[1].offset, 20);
	assert_int_equal(fake.node.fields[1].width, 4);
	assert_int_equal(fake.node.fields[1].value, 777);
}

static int setup(void **state)
{
	(void)state;
	fake_reset();
	return 0;
}

int main(void)
{
	static const char text[] =
		"profile bounded\nrole attention\nname bounded\nsizes 8 32\n"
		"ptr 1+0 kv list\ni32 1+16 rows bound\nbase kv - 1024\nrow 1152\n"
		"list list, rows, 1, 64, 64, 64\nset bound, bound + 0x10000\n";
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(nothing_is_asked_without_windows, setup),
		cmocka_unit_test_setup(attention_gets_our_list, setup),
		cmocka_unit_test_setup(attention_in_a_capture, setup),
		cmocka_unit_test_setup(generation_c, setup),
		cmocka_unit_test_setup(generation_a, setup),
		cmocka_unit_test_setup(what_is_not_proven_is_left_alone, setup),
		cmocka_unit_test_setup(attention_elsewhere_does_not_concern_us, setup),
		cmocka_unit_test_setup(no_swap_in_is_still_right, setup),
		cmocka_unit_test_setup(not_ready_yet, setup),
		cmocka_unit_test_setup(the_drivers_error_is_passed_on, setup),
		cmocka_unit_test_setup(packed_parameters, setup),
		cmocka_unit_test_setup(attributes_stay, setup),
		cmocka_unit_test_setup(a_bound_is_rewritten, setup),
	};

	if (!fake_profiles(text))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
