# SPDX-License-Identifier: MIT
#
# vLLM's cache kernels (csrc/libtorch_stable/cache_kernels.cu). Names and sizes
# as in the 0.26.0 wheel. Strides are elements of the cache's type, which stands
# in the template arguments: 'h' is a byte, 'S1_' (again __nv_bfloat16) two.

verified vllm 0.26.0

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

# Choose the positions of a layer; which one runs depends on the number of rows.
# The kernel of vllm-block-table turns them into slots.
profile vllm-topk
role topk
name *cooperative_topk_cs*
name *persistent_topk_kernel*
name *FilteredTopKUnifiedKernel*
name *topKPerRow*
sizes * ...
makes positions

# Zeroes new blocks of every layer through a table of addresses (0.27 and later).
# Triton appends two pointers of its own. (seg_addrs, block_ids, n_blocks), whose
# grid is n_blocks x parts; a 1 is compiled in.
profile vllm-zero-blocks
role transfer
name _zero_kv_blocks_kernel
sizes 8 8 4 8 8
ptr 1+0 ids
i32 2+0 n
slots ids, n, 8
unit 64

profile vllm-zero-block
role transfer
name _zero_kv_blocks_kernel
sizes 8 8 8 8
ptr 1+0 ids
slots ids, 1, 8
unit 64

# (seg_addrs, seg_page_sizes, block_ids, n_blocks)
profile vllm-zero-blocks-sizes
role transfer
name _zero_kv_blocks_kernel
sizes 8 8 8 4 8 8
ptr 2+0 ids
i32 3+0 n
slots ids, n, 8
unit 64

# (seg_addrs, seg_block_strides, seg_page_sizes, block_ids), a grid row per block
profile vllm-zero-blocks-strides
role transfer
name _zero_kv_blocks_kernel
sizes 8 8 8 8 8 8
ptr 3+0 ids
slots ids, grid.x, 8
unit 64

# Another form of it: everything goes.
profile vllm-zero-blocks-any
role transfer
name _zero_kv_blocks_kernel
sizes * ...

# (req_id, block_table, token_indices, out[, prefill_request_id, workspace_starts],
# strides); strides of 1 are compiled in, so that of the block table comes first.
# A row of blocks a token.
profile vllm-block-table
role table
name _convert_req_index_to_global_index_kernel
sizes 8 8 8 8 4 ...
ptr 0+0 req_id
ptr 1+0 table
i32 4+0 stride
need stride > 0
table table, grid.x, stride, stride
ids req_id
unit 64
makes slots

profile vllm-block-table-prefill
role table
name _convert_req_index_to_global_index_kernel
sizes 8 8 8 8 8 8 4 ...
ptr 0+0 req_id
ptr 1+0 table
i32 6+0 stride
need stride > 0
table table, grid.x, stride, stride
ids req_id
unit 64
makes slots

# Another form of it: no table is learnt.
profile vllm-slots
role topk
name _convert_req_index_to_global_index_kernel
sizes * ...
makes slots

# LMCache's transfers: (key_value, pointers, slot_mapping, scalars_per_token,
# num_tokens, ...), either way
profile lmcache-transfer
role transfer
name *load_and_reshape_multi_layer_kernelI*
sizes 8 8 8 4 4 4 ...
ptr 2+0 slots
i32 4+0 n
slots slots, n, 8

profile lmcache-transfer-fused
role transfer
name *load_and_reshape_multi_layer_fused_kernelI*
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
