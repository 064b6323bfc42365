# SPDX-License-Identifier: MIT
#
# tests/coherence/kernels.cu. coherence_scribble has none: it is the kernel that
# nobody knows.

profile coherence-write
role writer
name coherence_write
sizes 8 8 8 4 4
ptr 0+0 kv
ptr 1+0 slots
i32 4+0 row_bytes
base kv
row row_bytes
slots slots, grid.x, 8

profile coherence-keys
role other
name coherence_keys
sizes 8 8 8 4 4

profile coherence-attend
role attention
name coherence_attend
sizes 48
ptr 0+0 kv list out
i32 0+24 rows k stride row_bytes
i64 0+40 block_stride
need rows > 0 && k > 0
need block_stride == 64 * row_bytes
base kv
row row_bytes
list list, rows, 1, k, stride, stride
output out, k * 8, rows, k * 8

profile coherence-transfer
role transfer
name coherence_transfer
sizes 8 8 8 4 4 4
ptr 1+0 blocks
i32 3+0 count
slots blocks, count, 8
unit 64

profile coherence-blocks
role table
name coherence_blocks
sizes 8 8 8 4 4
ptr 0+0 ids
ptr 1+0 table
ptr 2+0 lengths
i32 3+0 rows
i32 4+0 stride
table table, rows, stride, stride
lengths lengths
ids ids
unit 64
