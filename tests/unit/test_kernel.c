/* SPDX-License-Identifier: MIT */
/* Handles and what they are, with names and sizes of the engines' libraries. */

#include "tests/unit/fake_launch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "src/launch/kernel.h"
#include "src/launch/profiles.h"

/* vLLM 0.26.0 and SGLang 0.5.17 carry the same two. */
#define DECODE_B                                                                                   \
	"_ZN4sm906decode10sparse_fp839flash_fwd_splitkv_mla_fp8_sparse_kernelINS1_14Ker"           \
	"nelTemplateIL9ModelType0ELi128EEENS5_9TmaParamsIN4cute5tupleIJiiiiEEENS7_9Tile"           \
	"dCopyINS7_9Copy_AtomIJNS7_11Copy_TraitsINS7_13SM90_TMA_LOADEJNS7_1CILi65536EEE"           \
	"NS7_12AuxTmaParamsINS8_IJNS7_11ScaledBasisINSE_ILi1EEEJLi1EEEENSH_ISI_JLi0EEEE"           \
	"NSH_ISI_JLi2EEEENSH_ISI_JLi3EEEEEEERKNS7_6LayoutINS8_IJNSE_ILi64EEESP_SI_SI_EE"           \
	"ESN_EERKNS7_7SwizzleILi3ELi4ELi3EEEEEEEEN7cutlass10bfloat16_tEEEENSO_INS8_IJSI"           \
	"_NS8_IJNS8_IJNS8_IJSP_SP_EEENSE_ILi9EEEEEEEEEEEENS8_IJNSE_ILi0EEENS8_IJNS8_IJN"           \
	"S8_IJSP_SI_EEENSE_ILi4096EEEEEEEEEEEEEENS8_IJSP_NSE_ILi576EEEEEEEEEEEEv22Spars"           \
	"eAttnDecodeParamsT0_"
#define PREFILL_B                                                                                  \
	"_ZN4sm903fwd22sparse_attn_fwd_kernelINS0_14KernelTemplateILi576ELb0EEENS3_9Tma"           \
	"ParamsIN4cute5tupleIJiiiEEENS5_9TiledCopyINS5_9Copy_AtomIJNS5_11Copy_TraitsINS"           \
	"5_13SM90_TMA_LOADEJNS5_1CILi65536EEENS5_12AuxTmaParamsINS6_IJNS5_11ScaledBasis"           \
	"INSC_ILi1EEEJLi1EEEENSF_ISG_JLi0EEEENSF_ISG_JLi2EEEEEEERKNS5_6LayoutINS6_IJNSC"           \
	"_ILi64EEESM_SG_EEESK_EERKNS5_7SwizzleILi3ELi4ELi3EEEEEEEEN7cutlass10bfloat16_t"           \
	"EEEENSL_INS6_IJSG_NS6_IJNS6_IJNS6_IJSM_SM_EEENSC_ILi9EEEEEEEEEEEENS6_IJNSC_ILi"           \
	"0EEENS6_IJNS6_IJNS6_IJSM_SG_EEENSC_ILi4096EEEEEEEEEEEEEENS6_IJSM_NSC_ILi576EEE"           \
	"EEEEEEEEEv19SparseAttnFwdParamsT0_"
#define WRITER_SIZES                                                                               \
	{                                                                                          \
		8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 8                                                 \
	}
#define MANY "_ZN39_GLOBAL__N__5f1d6a02_7_cuda_cu_9bd0c93424set_mla_kv_buffer_kernelILl528ELl128E"

static const struct {
	struct fake_kernel kernel;
	const char *label; /* NULL: unknown */
	enum hs_role role;
} known[] = {
	{{DECODE_B, {280, 512}, true}, "flashmla-decode-b", HS_ROLE_ATTENTION},
	/* the name of B with another size is none of ours */
	{{DECODE_B, {288, 512}, true}, NULL, 0},
	{{DECODE_B, {280}, true}, NULL, 0},
	{{DECODE_B, {280, 512, 8}, true}, NULL, 0},
	{{"_ZN4sm906decode6sparse39flash_fwd_splitkv_mla_fp8_sparse_kernelINS1_6Config", {296, 512},
		 true},
		"flashmla-decode-c", HS_ROLE_ATTENTION},
	{{"_ZN4sm9039flash_fwd_splitkv_mla_fp8_sparse_kernelI9TmaParamsIN4cute5tuple", {264, 768},
		 true},
		"flashmla-decode-a", HS_ROLE_ATTENTION},
	/* shares its parameters with decode A */
	{{"_ZN4smxx28flash_fwd_mla_combine_kernelIN7cutlass10bfloat16_tELi512ELi8ELi32ELi256E",
		 {264}, true},
		"flashmla-combine", HS_ROLE_READER},
	{{"_ZN4smxx6decode28flash_fwd_mla_combine_kernelIN7cutlass10bfloat16_tELi512ELi8ELi128E"
	  "Li256EEEv13CombineParams",
		 {136}, true},
		"flashmla-combine", HS_ROLE_READER},
	{{"_ZN5sm1006decode6head6439flash_fwd_splitkv_mla_fp8_sparse_kernelINS1_14KernelTemplate",
		 {280, 1408}, true},
		"flashmla-decode-sm100", HS_ROLE_READER},
	{{PREFILL_B, {144, 512}, true}, "flashmla-prefill", HS_ROLE_READER},
	{{"_ZN4vllm30concat_and_cache_ds_mla_kernelI13__nv_bfloat16hLNS_18Fp8KVCacheDataTypeE1EEEv"
	  "PKT_S5_PT0_PKliiiiiiiPKf",
		 WRITER_SIZES, true},
		"vllm-write-fp8", HS_ROLE_WRITER},
	{{"_ZN4vllm27concat_and_cache_mla_kernelI13__nv_bfloat16hLNS_18Fp8KVCacheDataTypeE1EEEv"
	  "PKT_S5_PT0_PKliiiiiiiPKf",
		 WRITER_SIZES, true},
		"vllm-write-fp8", HS_ROLE_WRITER},
	{{"_ZN4vllm27concat_and_cache_mla_kernelI13__nv_bfloat16S1_LNS_18Fp8KVCacheDataTypeE0EEEv"
	  "PKT_S5_PT0_PKliiiiiiiPKf",
		 WRITER_SIZES, true},
		"vllm-write-bf16", HS_ROLE_WRITER},
	/* float rows: nobody serves them */
	{{"_ZN4vllm27concat_and_cache_mla_kernelIffLNS_18Fp8KVCacheDataTypeE0EEEvPKT_S4_PT0_PKl"
	  "iiiiiiiPKf",
		 WRITER_SIZES, true},
		NULL, 0},
	{{"_ZN4vllm36cp_gather_and_upconvert_fp8_kv_cacheEPKhP13__nv_bfloat16PKiS5_iiillllS5_",
		 {8, 8, 8, 8, 4, 4, 4, 8, 8, 8, 8, 8}, true},
		"vllm-gather-fp8", HS_ROLE_READER},
	{{"_ZN4vllm41cp_gather_and_upconvert_fp8_kv_cache_pageEPKhP13__nv_bfloat16PKiS5_i",
		 {8, 8, 8, 8, 4}, true},
		"vllm-gather-fp8", HS_ROLE_READER},
	{{"_ZN4vllm30gather_and_maybe_dequant_cacheI13__nv_bfloat16S1_LNS_18Fp8KVCacheDataTypeE0E"
	  "Li576ELi64EEEvPKT0_PT_PKiS9_S9_iillllPKfS9_",
		 {8, 8, 8, 8, 8, 4, 4, 8, 8, 8, 8, 8, 8}, true},
		"vllm-gather", HS_ROLE_READER},
	{{"_ZN4vllm15cp_gather_cacheItEEvPKT_PS1_PKiS6_iillllS6_",
		 {8, 8, 8, 8, 4, 4, 8, 8, 8, 8, 8}, true},
		"vllm-gather", HS_ROLE_READER},
	{{"_ZN4vllm32indexer_k_quant_and_cache_kernelI13__nv_bfloat16hLNS_18Fp8KVCacheDataTypeE1EEE"
	  "vPKT_PT0_PKliiilb",
		 {8, 8, 8, 4, 4, 4, 8, 1}, true},
		"vllm-indexer", HS_ROLE_OTHER},
	{{"_ZN7cutlass13device_kernelIN5flash20enable_sm90_or_laterINS1_16FlashAttnFwdSm90INS1_25",
		 {2944}, true},
		"flash-attention-3", HS_ROLE_READER},
	{{"set_mla_kv_buffer_kernel", {8, 8, 8, 8, 8, 8}, false}, "sglang-write", HS_ROLE_WRITER},
	{{MANY "Li8ELb1ElEEvNS_20SetMlaKVBufferParamsE", {64}, true}, "sglang-write-many",
		HS_ROLE_WRITER},
	{{MANY "Li4ELb0EiEEvNS_20SetMlaKVBufferParamsE", {64}, true}, "sglang-write-many-int32",
		HS_ROLE_WRITER},
	{{"get_mla_kv_buffer_kernel", {8, 8, 8, 8, 4, 8, 8}, false}, "sglang-read", HS_ROLE_READER},
	{{"_dequantize_k_cache_paged_kernel", {8, 8, 8, 8, 8, 4, 4, 4, 4, 8, 8}, false},
		"sglang-dequantize", HS_ROLE_READER},
	{{"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIaEESt5arrayIPcLm1EE"
	  "EEviT0_T1_",
		 {4, 1, 8}, true},
		"torch-fill-1", HS_ROLE_FILL},
	{{"_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_11FillFunctorIN3c108BFloat16EEESt5"
	  "arrayIPcLm1EEEEviT0_T1_",
		 {4, 2, 8}, true},
		"torch-fill-2", HS_ROLE_FILL},
	{{"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEE"
	  "EviT0_T1_",
		 {4, 4, 8}, true},
		"torch-fill-4", HS_ROLE_FILL},
	{{"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIlEESt5arrayIPcLm1EEE"
	  "EviT0_T1_",
		 {4, 8, 8}, true},
		"torch-fill-8", HS_ROLE_FILL},
	{{"_ZN2at6native24index_elementwise_kernelILi128ELi4EZNS0_16gpu_index_kernelIZNS0_17index_"
	  "kernel_implINS0_10OpaqueTypeILi1EEEEEvRNS_18TensorIteratorBaseEN3c108ArrayRefIlEES8_"
	  "EUlPcPKclE_EEvS5_S8_S8_RKT_bEUliE_EEvlT1_",
		 {8, 1240}, true},
		"torch-index", HS_ROLE_FILL},
	{{"_ZN2at6native24vectorized_gather_kernelILi16ElEEvPcS2_PT0_illllb",
		 {8, 8, 8, 4, 8, 8, 8, 8, 1}, true},
		"torch-gather", HS_ROLE_FILL},
	{{"dsa_write_kv", {8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4}, false}, "example-write",
		HS_ROLE_WRITER},
	{{"dsa_attend", {64}, false}, "example-attend", HS_ROLE_ATTENTION},
	{{"dsa_index", {8, 8, 8, 4, 8, 8, 4}, false}, "example-keys", HS_ROLE_OTHER},
	{{"_ZN4vllm11cooperative20cooperative_topk_cs4ILj2048EEEvNS0_21CooperativeTopKParamsIXT_"
	  "EEE",
		 {64}, true},
		"vllm-topk", HS_ROLE_TOPK},
	{{"_convert_req_index_to_global_index_kernel", {8, 8, 8, 8, 4, 4, 4, 4, 8, 8}, false},
		"vllm-block-table", HS_ROLE_TABLE},
	{{"_convert_req_index_to_global_index_kernel", {8, 8, 8, 8, 8, 4, 4, 4}, false},
		"vllm-slots", HS_ROLE_TOPK},
	{{"_ZN12_GLOBAL__N_123topk_small_batch_kernelILb1EEEvNS_16TopKLaunchParamsE", {80}, true},
		"sglang-topk", HS_ROLE_TABLE},
	{{"_ZN53_GLOBAL__N__0a1b2c3d_7_topk_cu_01234567_128topk_transform_decode_kernelENS_13Fast"
	  "TopKParamsEPiPKil",
		 {40, 8, 8, 8}, true},
		"sglang-topk-transform", HS_ROLE_TOPK},
	{{"_ZN53_GLOBAL__N__0a1b2c3d_7_topk_cu_01234567_111topk_kernelENS_13FastTopKParamsE", {40},
		 true},
		"sglang-topk-positions", HS_ROLE_TOPK},
};

static void built_in_profiles_are_right(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		struct hs_kernel *kernel = hs_kernel_find((CUfunction)&known[i].kernel);

		assert_non_null(kernel);
		assert_string_equal(kernel->name, known[i].kernel.name);
		if (!known[i].label) {
			if (kernel->profile)
				fail_msg("%s is %s", kernel->name, kernel->profile->label);
			continue;
		}
		if (!kernel->profile)
			fail_msg("%s is unknown", kernel->name);
		assert_string_equal(kernel->profile->label, known[i].label);
		assert_int_equal(kernel->profile->role, known[i].role);
	}
	hs_profiles_report();
	assert_string_equal(fake.log, "t.profile:3: unknown directive 'oops'\n");
	hs_profiles_report();
	assert_string_equal(fake.log, "t.profile:3: unknown directive 'oops'\n");
}

static void a_user_comes_first(void **state)
{
	static const struct fake_kernel mine = {"my_kernel", {8, 8}, false};
	static const struct fake_kernel theirs = {"cp_mine", {64}, false};
	struct hs_kernel *kernel;

	(void)state;
	kernel = hs_kernel_find((CUfunction)&mine);
	assert_non_null(kernel->profile);
	assert_string_equal(kernel->profile->label, "mine");
	assert_null(hs_kernel_find((CUfunction)&theirs)->profile);
}

static void a_handle_is_asked_once(void **state)
{
	static struct fake_kernel reused = {"dsa_attend", {64}, false};
	struct hs_kernel *first = hs_kernel_find((CUfunction)&reused), *second;

	(void)state;
	assert_int_equal(first->profile->role, HS_ROLE_ATTENTION);
	fake.queries = 0;
	assert_ptr_equal(hs_kernel_find((CUfunction)&reused), first);
	assert_int_equal(fake.queries, 0);

	/* unloaded, and the handle means the same again */
	hs_kernel_forget();
	assert_ptr_equal(hs_kernel_find((CUfunction)&reused), first);
	assert_int_equal(fake.queries, 1);
	assert_ptr_equal(hs_kernel_find((CUfunction)&reused), first);
	assert_int_equal(fake.queries, 1);

	/* … and something else */
	hs_kernel_forget();
	reused.name = "dsa_mix";
	second = hs_kernel_find((CUfunction)&reused);
	assert_ptr_not_equal(second, first);
	assert_null(second->profile);
	assert_string_equal(first->name, "dsa_attend");
}

#define MANY_KERNELS 20000

static struct fake_kernel crowd[MANY_KERNELS];

static void *look_up(void *data)
{
	for (unsigned i = 0; i < MANY_KERNELS; i++) {
		struct hs_kernel *kernel = hs_kernel_find((CUfunction)&crowd[i]);

		if (!kernel || kernel->function != (CUfunction)&crowd[i] ||
			strcmp(kernel->name, crowd[i].name))
			return data;
	}
	return NULL;
}

static void many_handles_from_many_threads(void **state)
{
	static char names[MANY_KERNELS][12];
	pthread_t threads[4];

	(void)state;
	for (unsigned i = 0; i < MANY_KERNELS; i++) {
		snprintf(names[i], sizeof(*names), "k%u", i);
		crowd[i] = (struct fake_kernel){names[i], {8, i % 7 + 1}, i % 2};
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, look_up, threads), 0);
	for (unsigned i = 0; i < 4; i++) {
		void *bad;

		pthread_join(threads[i], &bad);
		assert_null(bad);
	}
	assert_null(look_up(threads));
}

/* Drivers before 12.3 and 12.4 do not tell: everything is unknown. */
static void an_old_driver(void **state)
{
	static const struct fake_kernel kernel = {"dsa_attend", {64}, false};
	struct hs_kernel *seen;

	(void)state;
	hs_driver.cuFuncGetName = NULL;
	hs_driver.cuKernelGetName = NULL;
	hs_driver.cuFuncGetParamInfo = NULL;
	hs_driver.cuKernelGetParamInfo = NULL;
	seen = hs_kernel_find((CUfunction)&kernel);
	assert_string_equal(seen->name, "?");
	assert_int_equal(seen->count, 0);
	assert_null(seen->profile);
	hs_launch_report();
	assert_non_null(strstr(fake.log, "does not tell the parameters of kernels"));
}

static int setup(void **state)
{
	static char name[] = "t.profile";
	FILE *file = fopen(name, "w");

	(void)state;
	if (!file)
		return -1;
	fputs("profile bad\nrole reader\noops\nname cp_mine\nsizes 64\n"
	      "profile mine\nrole reader\nname my_*\nsizes 8 8\n",
		file);
	fclose(file);
	fake_reset();
	fake.options.profiles = name;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return unlink("t.profile");
}

int main(void)
{
	char folder[] = "hs-test-XXXXXX";
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(built_in_profiles_are_right, setup, teardown),
		cmocka_unit_test_setup_teardown(a_user_comes_first, setup, teardown),
		cmocka_unit_test_setup_teardown(a_handle_is_asked_once, setup, teardown),
		cmocka_unit_test_setup_teardown(many_handles_from_many_threads, setup, teardown),
		cmocka_unit_test_setup_teardown(an_old_driver, setup, teardown),
	};
	int failed;

	if (!mkdtemp(folder) || chdir(folder))
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return chdir("..") || rmdir(folder) ? 1 : failed;
}
