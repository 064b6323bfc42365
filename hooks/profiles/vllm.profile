# SPDX-License-Identifier: MIT
#
# vLLM's cache kernels (csrc/libtorch_stable/cache_kernels.cu). Names and sizes
# as in the 0.26.0 wheel. Strides are elements of the cache's type, which stands
# in the template arguments: 'h' is a byte, 'S1_' (again __nv_bfloat16) two.
#
# What `hisparse doctor` goes by, package and version:
# verified vllm 0.26.0

# (kv_c, k_pe, kv_cache, slot_mapping, block_stride, entry_stride, kv_c_stride,
# k_pe_stride, kv_lora_rank, pe_dim, block_size, scale); a block per token; a
# negative slot is skipped
profile vllm-write-fp8
role writer
name _ZN4vllm30concat_and_cache_ds_mla_kernelI13__nv_bfloat16hL*
name _ZN4vllm30concat_and_cache_ds_mla_kernelIthL*
name _ZN4vllm27concat_and_cache_mla_kernelI13__nv_bfloat16hL*
name _ZN4vllm27concat_and_cache_mla_kernelIthL*
sizes 8 8 8 8 4 4 4 4 4 4 4 8
ptr 2+0 kv
ptr 3+0 slot_mapping
i32 4+0 block_stride
i32 5+0 row_stride
i32 10+0 page
need row_stride > 0 && block_stride == page * row_stride
base kv
row row_stride
slots slot_mapping, grid.x, 8

profile vllm-write-bf16
role writer
name _ZN4vllm27concat_and_cache_mla_kernelI13__nv_bfloat16S1_L*
name _ZN4vllm27concat_and_cache_mla_kernelIttL*
sizes 8 8 8 8 4 4 4 4 4 4 4 8
ptr 2+0 kv
ptr 3+0 slot_mapping
i32 4+0 block_stride
i32 5+0 row_stride
i32 10+0 page
need row_stride > 0 && block_stride == page * row_stride
base kv
row row_stride * 2
slots slot_mapping, grid.x, 8

# The indexer's keys. From 0.29 on they lie in one allocation with the layers.
profile vllm-indexer
role other
name _ZN4vllm*indexer_k_quant_and_cache_kernel*
name _ZN4vllm*cp_gather_indexer_k_quant_cache_kernel*
sizes 8 ...

# JIT-compiled; tensor maps of the keys are passed by value.
profile deep-gemm-logits
role other
name *deep_gemm*paged_mqa_logits*
sizes * ...

# Gathers of a whole context for prefill; the source comes first.
profile vllm-gather-fp8
role reader
name _ZN4vllm36cp_gather_and_upconvert_fp8_kv_cacheE*
name _ZN4vllm41cp_gather_and_upconvert_fp8_kv_cache_pageE*
sizes 8 ...
ptr 0+0 kv
base kv
row 656

profile vllm-gather
role reader
name _ZN4vllm30gather_and_maybe_dequant_cacheI*
name _ZN4vllm35gather_and_maybe_dequant_cache_pageI*
name _ZN4vllm15cp_gather_cacheI*
name _ZN4vllm20cp_gather_cache_pageI*
sizes 8 ...

# FlashAttention 3, bf16: K is base + 1024 at byte 104, V is base at 152. It may
# as well attend to fresh K and V, so it does not tell what a window holds.
profile flash-attention-3
role reader
name _ZN7cutlass13device_kernelIN5flash20enable_sm90_or_laterINS1_16FlashAttnFwdSm90*
sizes 2944
