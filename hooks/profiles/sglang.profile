# SPDX-License-Identifier: MIT
#
# SGLang's cache kernels, as of 0.5.17. Triton appends pointers to scratch space
# of its own to the parameters; strides are compiled in, so a row's size comes
# from attention.

verified sglang 0.5.17

# (kv_buffer, k_nope, k_rope, loc), a row of blocks per token
profile sglang-write
role writer
name set_mla_kv_buffer_kernel
name set_mla_kv_buffer_fp8_quant_kernel
sizes 8 8 8 8 ...
ptr 0+0 kv
ptr 3+0 loc
base kv
slots loc, grid.x, 8

# 768 tokens and more: compiled at run time from CUDA source, in an
# anonymous namespace whose name differs from build to build. The last template
# argument is the type of loc: 'l' int64, 'i' int32. One struct: k_nope, k_rope,
# kv_buffer, loc, three strides in bytes, batch.
profile sglang-write-many
role writer
name *24set_mla_kv_buffer_kernelILl*ELl*ELi*ELb?ElE*
sizes 64
ptr 0+16 kv loc
i64 0+48 row_stride
i32 0+56 batch
need row_stride > 0 && batch >= 0
base kv
row row_stride
slots loc, batch, 8

profile sglang-write-many-int32
role writer
name *24set_mla_kv_buffer_kernelILl*ELl*ELi*ELb?EiE*
sizes 64
ptr 0+16 kv loc
i64 0+48 row_stride
i32 0+56 batch
need row_stride > 0 && batch >= 0
base kv
row row_stride
slots loc, batch, 4

# (kv_buffer, k_nope, k_rope, loc)
profile sglang-read
role reader
name get_mla_kv_buffer_kernel
sizes 8 8 8 8 ...
ptr 0+0 kv
base kv

# (out, nope, scales, rope, page_table, strides): the three sources are base,
# base + 512 and base + 528
profile sglang-dequantize
role reader
name _dequantize_k_cache_paged_kernel
name _gather_dequant_requant_fp8_paged_kernel
name _gather_dequant_requant_fp8_paged_vec_kernel
sizes 8 8 8 8 8 ...
ptr 0+0 out
ptr 1+0 nope
ptr 2+0 scales
ptr 3+0 rope
need scales == nope + 512 && rope == nope + 528
base nope
row 656

# HiCache: (src_k, dst_k, src_v, dst_v, src_indices, dst_indices, start_layer,
# layers, items, ...), an int64 slot an item; tables of layers come later. Either
# way: where rows leave, the indices are the host's, and some rows go needlessly.
profile sglang-hicache
role transfer
name *transfer_kernel_implI*
name *transfer_page_head_kernel_implI*
sizes 8 8 8 8 8 8 8 8 8 ...
ptr 5+0 slots
i64 8+0 n
slots slots, n, 8

# The same compiled at run time: one struct of k_dst, v_dst, indices_dst, k_src,
# v_src, indices_src, two strides, length and layers; the first template argument
# is the type of the indices.
profile sglang-hicache-jit
role transfer
name *hicache_transfer_*_layerIl*
sizes 72
ptr 0+16 slots
i32 0+64 n
slots slots, n, 8

profile sglang-hicache-jit-int32
role transfer
name *hicache_transfer_*_layerIi*
sizes 72
ptr 0+16 slots
i32 0+64 n
slots slots, n, 4

profile sglang-hicache-jit-any
role transfer
name *hicache_transfer_*
sizes * ...

# TopKLaunchParams: scores, seq_lens, page_table, page_indices (out), raw_indices,
# metadata, two strides, topk, page_bits, cluster_floor; a grid row per request.
profile sglang-topk
role table
name *topk*_kernel*TopKLaunchParams*
sizes 80
ptr 0+8 lengths table
i64 0+56 stride
i32 0+68 page_bits
need stride > 0 && page_bits == 6
table table, grid.x, stride, stride
lengths lengths
unit 64
makes slots

# Prefill's, speculative decoding's, and everything before 0.5.15: positions and slots
# at once, or positions that a second kernel turns into slots.
profile sglang-topk-transform
role topk
name *topk_transform_decode_kernel*
name *topk_transform_prefill_kernel*
name *topk_transform_prefill_ragged_kernel*
name *transform_index_page_table_*_kernel*
sizes * ...
makes slots

profile sglang-topk-positions
role topk
name *topk_kernel*FastTopKParams*
sizes * ...
makes positions
