# SPDX-License-Identifier: MIT
#
# examples/dsa_kernels.cu.

profile example-write
role writer
name dsa_write_kv
sizes 8 8 8 8 8 8 8 8 4 4 4 4
ptr 2+0 kv
ptr 3+0 slot_mapping
i64 4+0 block_stride
i64 5+0 row_stride
i32 10+0 page
need row_stride > 0 && block_stride == page * row_stride
base kv
row row_stride
slots slot_mapping, grid.x, 8

# The indexer's keys: written by one, read by the other.
profile example-keys
role other
name dsa_write_key
name dsa_index
sizes * ...

profile example-topk
role topk
name dsa_topk
sizes * ...
makes positions

profile example-list
role topk
name dsa_convert
sizes * ...
makes slots

profile example-attend
role attention
name dsa_attend
sizes 64
ptr 0+0 kv indices query out
i64 0+32 kv_row kv_block list_b
i32 0+56 b topk
need b > 0 && topk > 0
need kv_row == 656 && kv_block == 64 * kv_row
base kv
row kv_row
list indices, b, 1, topk, list_b, topk
output out, 512, b, 512
