/* SPDX-License-Identifier: MIT */
/* Launches that write to windows, or may: what is dropped after them. */

#include "tests/unit/fake_launch.h"

#include <string.h>
#include "src/base/log.h"

#define LIST UINT64_C(0x7f0012340000)

static const struct fake_kernel write_fp8 = {
	"_ZN4vllm30concat_and_cache_ds_mla_kernelI13__nv_bfloat16hLNS_",
	{8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 8}, true};
static const struct fake_kernel write_bf16 = {
	"_ZN4vllm27concat_and_cache_mla_kernelI13__nv_bfloat16S1_LNS_",
	{8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 8}, true};
static const struct fake_kernel write_triton = {
	"set_mla_kv_buffer_kernel", {8, 8, 8, 8, 8, 8}, false};
static const struct fake_kernel write_many = {
	"_ZN39_GLOBAL__N__5f1d6a02_7_cuda_cu_9bd0c93424set_mla_kv_buffer_kernelILl528ELl128ELi8E"
	"Lb1ElEEvNS_20SetMlaKVBufferParamsE",
	{64}, true};
static const struct fake_kernel gather = {
	"_ZN4vllm36cp_gather_and_upconvert_fp8_kv_cacheEPKhP13__nv_bfloat16PKiS5_iiillllS5_",
	{8, 8, 8, 8, 4, 4, 4, 8, 8, 8, 8, 8}, true};
static const struct fake_kernel dequantize = {
	"_dequantize_k_cache_paged_kernel", {8, 8, 8, 8, 8, 4, 4, 4, 4}, false};
static const struct fake_kernel fa3 = {
	"_ZN7cutlass13device_kernelIN5flash20enable_sm90_or_laterINS1_16FlashAttnFwdSm90I", {2944},
	true};
static const struct fake_kernel fill_1 = {
	"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIaEESt5arrayI",
	{4, 1, 8}, true};
static const struct fake_kernel fill_4 = {
	"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayI",
	{4, 4, 8}, true};
static const struct fake_kernel torch_index = {
	"_ZN2at6native24index_elementwise_kernelILi128ELi4EZNS0_16gpu_index_kernelIZNS0_17index_"
	"kernel_implINS0_10OpaqueTypeILi1EEEEE",
	{8, 1240}, true};
static const struct fake_kernel torch_gather = {
	"_ZN2at6native24vectorized_gather_kernelILi16ElEEvPcS2_PT0_illllb",
	{8, 8, 8, 4, 8, 8, 8, 8, 1}, true};
static const struct fake_kernel dsa_attend = {"dsa_attend", {64}, false};

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

static void writers(void **state)
{
	uint64_t words[12] = {0};
	void *params[12];

	(void)state;
	for (unsigned i = 0; i < 12; i++)
		params[i] = &words[i];
	words[2] = FAKE_WINDOW(0) + 41984;
	words[3] = LIST;
	words[4] = 41984;
	words[5] = 656;
	words[10] = 64;
	assert_int_equal(fake_launch(&write_fp8, 5, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;reveal 0 kv 656;written 0;");
	assert_ptr_equal(fake.launched.params, params);
	assert_int_equal(fake.base, FAKE_WINDOW(0) + 41984);
	assert_int_equal(fake.slots.slots, LIST);
	assert_int_equal(fake.slots.count, 5);
	assert_int_equal(fake.slots.width, 8);

	fake_reset();
	words[4] = 36864;
	words[5] = 576;
	assert_int_equal(fake_launch(&write_bf16, 7, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;reveal 0 kv 1152;written 0;");
	assert_int_equal(fake.slots.count, 7);

	/* pages of several layers in turn: no slot can be told, all of it goes */
	fake_reset();
	words[4] = 36864 * 2;
	assert_int_equal(fake_launch(&write_bf16, 7, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;reveal 0 other 0;wrote 0+0 0;");
}

static void a_writer_that_does_not_tell_its_row(void **state)
{
	uint64_t words[6] = {FAKE_WINDOW(3), 1, 2, LIST, 0, 0};
	void *params[] = {&words[0], &words[1], &words[2], &words[3], &words[4], &words[5]};

	(void)state;
	assert_int_equal(fake_launch(&write_triton, 3, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;reveal 3 kv 0;wrote 3+0 0;");

	fake.events[0] = '\0';
	fake.windows[3].row = 656;
	assert_int_equal(fake_launch(&write_triton, 3, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;written 3;");
	assert_int_equal(fake.slots.slots, LIST);
	assert_int_equal(fake.slots.count, 3);
	assert_int_equal(fake.row, 656);
}

static void a_writer_of_many(void **state)
{
	struct {
		uint64_t nope, rope, kv, loc, strides[3];
		uint32_t batch, rest;
	} p = {1, 2, FAKE_WINDOW(2), LIST, {528, 128, 656}, 1000, 0xdeadbeef};
	void *params[] = {&p};

	(void)state;
	assert_int_equal(fake_launch(&write_many, 125, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;reveal 2 kv 656;written 2;");
	assert_int_equal(fake.slots.slots, LIST);
	assert_int_equal(fake.slots.count, 1000);
	assert_int_equal(fake.slots.width, 8);
}

static void readers(void **state)
{
	unsigned char blob[2944] = {0};
	uint64_t words[12] = {FAKE_WINDOW(1)}, base = FAKE_WINDOW(1);
	uint64_t parts[9] = {LIST, FAKE_WINDOW(0), FAKE_WINDOW(0) + 512, FAKE_WINDOW(0) + 528};
	void *params[12], *one[] = {blob}, *several[9];

	(void)state;
	for (unsigned i = 0; i < 12; i++)
		params[i] = &words[i];
	for (unsigned i = 0; i < 9; i++)
		several[i] = &parts[i];
	assert_int_equal(fake_launch(&gather, 8, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "reveal 1 kv 656;launch;");

	fake_reset();
	assert_int_equal(fake_launch(&dequantize, 8, several), CUDA_SUCCESS);
	assert_string_equal(fake.events, "reveal 0 kv 656;launch;");

	fake_reset();
	memcpy(blob + 152, &base, 8);
	assert_int_equal(fake_launch(&fa3, 8, one), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;");
	assert_int_equal(fake.windows[1].use, HS_USE_UNKNOWN);
}

static void fills(void **state)
{
	int32_t n = 1000, bits = 0;
	unsigned char byte = 0;
	uint64_t data = FAKE_WINDOW(1) + 64;
	void *bytes[] = {&n, &byte, &data}, *floats[] = {&n, &bits, &data};

	(void)state;
	assert_int_equal(fake_launch(&fill_1, 4, bytes), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;wrote 1+64 1000;");
	assert_true(fake.windows[1].virgin);
	assert_int_equal(fake.windows[1].use, HS_USE_UNKNOWN);
	fake.events[0] = '\0';
	assert_int_equal(fake_launch(&fill_4, 4, floats), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;wrote 1+64 4000;");
	assert_true(fake.windows[1].virgin);

	bits = (int32_t)0x80000000; /* -0.0f is not all zeros */
	assert_int_equal(fake_launch(&fill_4, 4, floats), CUDA_SUCCESS);
	assert_false(fake.windows[1].virgin);

	fake.events[0] = '\0';
	data = 0x7f0000000000;
	assert_int_equal(fake_launch(&fill_1, 4, bytes), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;");
}

static void unknown_kernels_are_taken_for_writers(void **state)
{
	static const struct fake_kernel kernel = {"stranger", {4, 32, 8, 7}, false};
	uint64_t blob[] = {5, FAKE_WINDOW(0) + 100, 6, FAKE_WINDOW(0) + 200};
	uint64_t last = FAKE_WINDOW(2) + (1 << 30) - 1, seven = FAKE_WINDOW(3);
	int32_t four = 3;
	void *params[] = {&four, blob, &last, &seven};

	(void)state;
	counts();
	fake.windows[2].use = HS_USE_KV;
	assert_int_equal(fake_launch(&kernel, 1, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "reveal 0 other 0;launch;wrote 0+0 0;wrote 2+0 0;");
	assert_ptr_equal(fake.launched.params, params);
	assert_int_equal(fake.windows[2].use, HS_USE_KV);
	assert_int_equal(counts().unknown, 1);
	assert_string_equal(fake.log, "");
	fake.windows[2].place = HS_PLACE_HOST;
	hs_launch_report();
	assert_non_null(strstr(fake.log, "kernel stranger is not known and touches KV window 2"));
	fake.log[0] = '\0';
	assert_int_equal(fake_launch(&kernel, 1, params), CUDA_SUCCESS);
	hs_launch_report();
	assert_string_equal(fake.log, "");
}

/* What an allocator gives away of a segment's last granule is nobody's KV. */
static void unknown_kernels_behind_the_rows(void **state)
{
	static const struct fake_kernel kernel = {"stranger", {8, 8}, false};
	uint64_t words[] = {FAKE_WINDOW(2) + 6560, FAKE_WINDOW(2) + (1 << 30) - 1};
	void *params[] = {&words[0], &words[1]};

	(void)state;
	counts();
	fake.windows[2].use = HS_USE_KV;
	fake.windows[2].place = HS_PLACE_HOST;
	fake.windows[2].tail = words[0];
	assert_int_equal(fake_launch(&kernel, 1, params), CUDA_SUCCESS);
	hs_launch_node((CUfunction)&kernel, params);
	hs_launch_report();
	assert_string_equal(fake.events, "launch;");
	assert_string_equal(fake.log, "");
	assert_int_equal(counts().unknown, 0);
	words[1] = words[0] - 1;
	assert_int_equal(fake_launch(&kernel, 1, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;launch;wrote 2+0 0;");
	fake.windows[2].tail = 0;
}

/* They read a window as often as they like, and cost rows where they write. */
static void gathers(void **state)
{
	uint64_t n = 5, lambda[155] = {0}, words[9] = {0};
	void *index[] = {&n, lambda}, *gather[9];

	(void)state;
	for (unsigned i = 0; i < 9; i++)
		gather[i] = &words[i];
	lambda[608 / 8] = 0x10000;
	lambda[616 / 8] = FAKE_WINDOW(0) + 656;
	assert_int_equal(fake_launch(&torch_index, 1, index), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;");
	fake.events[0] = '\0';
	lambda[608 / 8] = FAKE_WINDOW(1) + 16;
	assert_int_equal(fake_launch(&torch_index, 1, index), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;wrote 1+16 1099511627776;");
	fake.events[0] = '\0';
	words[0] = 0x10000;
	words[1] = FAKE_WINDOW(0);
	words[3] = 3;
	words[7] = 656;
	assert_int_equal(fake_launch(&torch_gather, 1, gather), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;");
	fake.events[0] = '\0';
	words[0] = FAKE_WINDOW(2) + 656;
	assert_int_equal(fake_launch(&torch_gather, 1, gather), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;wrote 2+656 1968;");
}

/* On the device it costs nothing. */
static void unknown_kernels_beside_no_hot_rows(void **state)
{
	static const struct fake_kernel kernel = {"stranger", {8}, false};
	uint64_t two = FAKE_WINDOW(2);
	void *params[] = {&two};

	(void)state;
	fake.windows[2].use = HS_USE_KV;
	fake.windows[2].place = HS_PLACE_DEVICE;
	assert_int_equal(fake_launch(&kernel, 1, params), CUDA_SUCCESS);
	hs_launch_report();
	assert_string_equal(fake.log, "");
}

static void unknown_kernels_without_windows(void **state)
{
	static const struct fake_kernel kernel = {"bystander", {8, 8, 8}, false};
	uint64_t words[] = {
		0x300000000 + 0x7600000, FAKE_WINDOW(0) - 1, FAKE_WINDOW(0) + (1 << 30)};
	void *params[] = {&words[0], &words[1], &words[2]};

	(void)state;
	counts();
	assert_int_equal(fake_launch(&kernel, 1, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;");
	assert_int_equal(counts().unknown, 0);
}

static void unknown_and_packed(void **state)
{
	static const struct fake_kernel kernel = {"packed", {8, 8}, false};
	uint64_t buffer[] = {1, FAKE_WINDOW(1)};
	size_t bytes = sizeof(buffer);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
		&bytes, CU_LAUNCH_PARAM_END};
	struct hs_launch launch = {
		.function = (CUfunction)&kernel, .extra = extra, .forward = fake_forward};

	(void)state;
	assert_int_equal(hs_launch(&launch), CUDA_SUCCESS);
	assert_string_equal(fake.events, "reveal 1 other 0;launch;wrote 1+0 0;");
}

static void nodes_made_by_hand(void **state)
{
	static const struct fake_kernel kernel = {"by_hand", {8}, false};
	uint64_t word = FAKE_WINDOW(0);
	struct {
		uint64_t kv, indices, query, out, strides[3];
		int32_t b, topk;
	} attend = {.kv = FAKE_WINDOW(1)};
	void *params[] = {&word}, *attends[] = {&attend};

	(void)state;
	counts();
	hs_launch_node((CUfunction)&kernel, params);
	assert_string_equal(fake.events, "reveal 0 other 0;mark;");
	hs_launch_node((CUfunction)&dsa_attend, attends);
	assert_string_equal(fake.events, "reveal 0 other 0;mark;");
	assert_int_equal(counts().nodes, 1);
	/* nothing could be dropped after it: no hot rows at all */
	assert_true(fake.windows[0].unseen);
	assert_false(fake.windows[1].unseen);
}

static void what_was_seen_is_told_once(void **state)
{
	static const struct fake_kernel kernel = {"visitor", {8}, false};
	uint64_t word = FAKE_WINDOW(3), words[12] = {0};
	void *params[] = {&word}, *writes[12];

	(void)state;
	for (unsigned i = 0; i < 12; i++)
		writes[i] = &words[i];
	words[2] = FAKE_WINDOW(0);
	fake_launch(&kernel, 1, params);
	fake_launch(&write_fp8, 1, writes);
	fake.windows[0].use = HS_USE_KV;
	fake.windows[0].row = 656;
	hs_launch_report();
	assert_null(strstr(fake.log, "seen"));
	fake.options.log = HS_LOG_DEBUG;
	hs_launch_report();
	assert_non_null(strstr(fake.log, "seen kernel visitor: unknown, profile none\n"));
	assert_non_null(strstr(fake.log, "LNS_: writer, profile vllm-"));
	assert_non_null(strstr(fake.log, "seen window 0: 1024 MiB of KV, rows of 656 bytes\n"));
	assert_non_null(
		strstr(fake.log, "seen window 3: 1024 MiB of other data, rows of 0 bytes\n"));
	assert_null(strstr(fake.log, "seen window 1"));
	fake.log[0] = '\0';
	hs_launch_report();
	assert_string_equal(fake.log, "");
	fake.windows[3].use = HS_USE_KV;
	hs_launch_report();
	assert_string_equal(fake.log, "seen window 3: 1024 MiB of KV, rows of 0 bytes\n");
}

static int setup(void **state)
{
	(void)state;
	fake_reset();
	return 0;
}

static const struct fake_kernel zero_blocks = {"_zero_kv_blocks_kernel", {8, 8, 4, 8, 8}, false};
static const struct fake_kernel zero_strided = {
	"_zero_kv_blocks_kernel", {8, 8, 8, 8, 8, 8}, false};
static const struct fake_kernel zero_other = {"_zero_kv_blocks_kernel", {8, 8, 8, 8, 4}, false};
static const struct fake_kernel hicache = {
	"_ZN6sglang26hicache_transfer_all_layerIlLl656ELj1ELj2ELj1024ELb1EEEv19HicacheKernelParams",
	{72}, true};
static const struct fake_kernel convert = {
	"_convert_req_index_to_global_index_kernel", {8, 8, 8, 8, 4, 4, 4, 8, 8}, false};

/* Through tables of addresses in device memory: only slots are told. */
static void transfers(void **state)
{
	uint64_t words[10] = {1, LIST, 5, LIST + 64, 0, 0, 0, 0, 9, 0};
	void *params[] = {&words[0], &words[1], &words[2], &words[3], &words[4], &words[5]};
	void *one[] = {words};

	(void)state;
	assert_int_equal(fake_launch(&zero_blocks, 500, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;arrived x64;");
	assert_int_equal(fake.slots.slots, LIST);
	assert_int_equal(fake.slots.count, 5);
	assert_int_equal(fake.slots.width, 8);

	fake_reset();
	assert_int_equal(fake_launch(&zero_strided, 7, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;arrived x64;");
	assert_int_equal(fake.slots.slots, LIST + 64);
	assert_int_equal(fake.slots.count, 7);

	/* a form that nobody has seen: everything goes */
	fake_reset();
	assert_int_equal(fake_launch(&zero_other, 7, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;arrived x1;");
	assert_int_equal(fake.slots.slots, 0);

	fake_reset();
	words[2] = LIST + 128;
	assert_int_equal(fake_launch(&hicache, 2, one), CUDA_SUCCESS);
	assert_string_equal(fake.events, "launch;arrived x1;");
	assert_int_equal(fake.slots.slots, LIST + 128);
	assert_int_equal(fake.slots.count, 9);
}

static void tables(void **state)
{
	uint64_t words[9] = {LIST, LIST + 64, 2, 3, 40, 2048, 2048, 0, 0};
	void *params[] = {&words[0], &words[1], &words[2], &words[3], &words[4], &words[5],
		&words[6], &words[7], &words[8]};

	(void)state;
	assert_int_equal(fake_launch(&convert, 16, params), CUDA_SUCCESS);
	assert_string_equal(fake.events, "tabled;launch;");
	assert_int_equal(fake.blocks.blocks, LIST + 64);
	assert_int_equal(fake.blocks.ids, LIST);
	assert_int_equal(fake.blocks.lengths, 0);
	assert_int_equal(fake.blocks.rows, 16);
	assert_int_equal(fake.blocks.columns, 40);
	assert_int_equal(fake.blocks.stride, 40);
	assert_int_equal(fake.blocks.unit, 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(writers, setup),
		cmocka_unit_test_setup(a_writer_that_does_not_tell_its_row, setup),
		cmocka_unit_test_setup(a_writer_of_many, setup),
		cmocka_unit_test_setup(readers, setup),
		cmocka_unit_test_setup(transfers, setup),
		cmocka_unit_test_setup(tables, setup),
		cmocka_unit_test_setup(fills, setup),
		cmocka_unit_test_setup(unknown_kernels_are_taken_for_writers, setup),
		cmocka_unit_test_setup(unknown_kernels_behind_the_rows, setup),
		cmocka_unit_test_setup(unknown_kernels_beside_no_hot_rows, setup),
		cmocka_unit_test_setup(gathers, setup),
		cmocka_unit_test_setup(unknown_kernels_without_windows, setup),
		cmocka_unit_test_setup(unknown_and_packed, setup),
		cmocka_unit_test_setup(nodes_made_by_hand, setup),
		cmocka_unit_test_setup(what_was_seen_is_told_once, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
