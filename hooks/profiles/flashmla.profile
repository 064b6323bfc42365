# SPDX-License-Identifier: MIT
#
# FlashMLA's sparse kernels. The format is described in src/launch/profile.h;
# this file is also its example.
#
# There are three generations of the decode parameters, told apart by the size
# of the first parameter. Sizes and names of B were read from the libraries in
# the vLLM 0.26.0 and SGLang 0.5.17 wheels, those of A and C derive from the
# sources (1408756; 3e18517). All address a row as kv + block * stride_block +
# offset * stride_row, 64-bit, with no check against the number of blocks, so
# only the list has to change. -1 is the only index that is skipped.

profile flashmla-decode-b
role attention
name _ZN4sm906decode10sparse_fp839flash_fwd_splitkv_mla_fp8_sparse_kernel*
# SparseAttnDecodeParams, TmaParams
sizes 280 512
i32 0+0 b s_q h_q h_kv d_qk d_v
i32 0+32 num_blocks page topk model
ptr 0+56 kv indices topk_length
ptr 0+88 lse out
ptr 0+120 extra_kv
i32 0+156 kv_block kv_row list_b list_q lse_b lse_q out_b out_q out_h
ptr 0+216 lse_accum o_accum
i32 0+232 lse_split lse_split_q o_split o_split_q o_split_h
i32 0+272 parts
need b > 0 && s_q > 0 && topk > 0 && topk % 64 == 0
need h_kv == 1
need d_qk == 576 && d_v == 512
# MODEL1 rows (584 bytes, scales at the end of the page) are not linear
need kv_row == 656
# a page may be followed by others' data: then slots are not linear either
need kv_block == page * kv_row
need extra_kv == 0
base kv
row kv_row
rows num_blocks * page
list indices, b, s_q, topk, list_b, list_q
lengths topk_length
# Requests that are not split write out and lse, the others only their rows of
# the accumulators, which have b + parts splits.
output out, d_v * 2, b, out_b * 2, s_q, out_q * 2, h_q, out_h * 2
output lse, h_q * 4, b, lse_b * 4, s_q, lse_q * 4
output lse_accum, h_q * 4, b + parts, lse_split * 4, s_q, lse_split_q * 4
output o_accum, d_v * 4, b + parts, o_split * 4, s_q, o_split_q * 4, h_q, o_split_h * 4

profile flashmla-decode-c
role attention
name _ZN4sm906decode6sparse39flash_fwd_splitkv_mla_fp8_sparse_kernel*
sizes 296 512
i32 0+0 b s_q h_q h_kv d_qk d_v
i32 0+32 num_blocks page topk model extra_model
ptr 0+64 kv indices topk_length
ptr 0+96 lse out
ptr 0+128 extra_kv
i32 0+164 kv_block kv_row list_b list_q lse_b lse_q out_b out_q out_h
i8 0+224 split
ptr 0+232 lse_accum o_accum
i32 0+248 lse_split lse_split_q o_split o_split_q o_split_h
i32 0+288 parts
need b > 0 && s_q > 0 && topk > 0 && topk % 64 == 0
need h_kv == 1
need d_qk == 576 && d_v == 512
need kv_row == 656
need kv_block == page * kv_row
need extra_kv == 0
base kv
row kv_row
rows num_blocks * page
list indices, b, s_q, topk, list_b, list_q
lengths topk_length
output out, d_v * 2, b, out_b * 2, s_q, out_q * 2, h_q, out_h * 2
output lse, h_q * 4, b, lse_b * 4, s_q, lse_q * 4
output lse_accum * (split != 0), h_q * 4, b + parts, lse_split * 4, s_q, lse_split_q * 4
output o_accum * (split != 0), d_v * 4, b + parts, o_split * 4, s_q, o_split_q * 4, h_q, o_split_h * 4

# DecodingParams serves dense decode and combine as well: the name decides. Heads
# and query rows are one dimension of q_seq rows; lse and the accumulators are
# dense.
profile flashmla-decode-a
role attention
name _ZN4sm9039flash_fwd_splitkv_mla_fp8_sparse_kernelI9TmaParams*
sizes 264 768
i32 0+0 b s_q q_seq d_qk d_v h_q h_kv
i32 0+48 topk
ptr 0+64 kv out lse indices
i64 0+104 kv_block out_b
i64 0+128 kv_row out_row
i64 0+168 list_b list_q
i32 0+224 parts
i32 0+240 splits
ptr 0+248 lse_accum o_accum
need b > 0 && s_q > 0 && topk > 0 && topk % 64 == 0
need h_kv == 1
need d_qk == 576 && d_v == 512
need kv_row == 656
# pages of 64 are compiled in
need kv_block == 64 * kv_row
base kv
row kv_row
list indices, b, s_q, topk, list_b, list_q
output out, d_v * 2, b, out_b * 2, q_seq, out_row * 2
output lse, q_seq * 4, b, q_seq * 4
output lse_accum, q_seq * 4, splits, q_seq * 4
output o_accum, d_v * 4, splits, q_seq * d_v * 4, q_seq, d_v * 4

# On sm100 rows come through tensor maps that end with the cache: an index
# beyond it reads zeros, so these lists are not touched.
profile flashmla-decode-sm100
role reader
name _ZN5sm10039flash_fwd_splitkv_mla_fp8_sparse_kernel*
name _ZN5sm1006decode6head6439flash_fwd_splitkv_mla_fp8_sparse_kernel*
name _ZN5sm10018fwd_for_small_topk7head12839flash_fwd_splitkv_mla_fp8_sparse_kernel*
sizes * *

# Merges the splits, touches no KV: traces tell it by this label.
profile flashmla-combine
role reader
name *28flash_fwd_mla_combine_kernelI*
sizes *

# Prefill: an index from s_kv on is skipped without a word. Read in place; vLLM
# runs it on a workspace of its own.
profile flashmla-prefill
role reader
name _ZN4sm9022sparse_attn_fwd_kernel*
name _ZN4sm903fwd22sparse_attn_fwd_kernel*
name _ZN4sm907prefill10sparse_fwd22sparse_attn_fwd_kernel*
name _ZN5sm100*sparse_attn_fwd_*kernel*
sizes * *
