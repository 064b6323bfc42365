/* SPDX-License-Identifier: MIT */
#include "kernels/port.h"
#include "tools/bench/swapin_abi.h"

HS_KERNEL(hs_swapin_empty, struct hs_swapin_empty_args)
{
	(void)a;
}

HS_KERNEL(hs_swapin_sweep, struct hs_swapin_sweep_args)
{
	const uint64_t step = (uint64_t)gridDim.x * blockDim.x * 16;
	uint32_t sum = 0;

	for (uint64_t at = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * 16; at < a.bytes;
		at += step) {
		const hs_u128 v = hs_load16_stream((const char *)a.from + at);

		sum |= v.x | v.y | v.z | v.w;
	}
	/* The flushed bytes are zero: only so that they are read. */
	if (sum)
		*a.result = sum;
}

HS_KERNEL(hs_swapin_small, struct hs_swapin_small_args)
{
	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < a.count;
		i += gridDim.x * blockDim.x)
		a.out[i] = a.list[i];
}

/* One warp a row, four loads of 16 bytes a lane before the first store. */
HS_KERNEL(hs_swapin_gather, struct hs_swapin_gather_args)
{
	uint32_t lane = threadIdx.x & 31, warps = gridDim.x * (blockDim.x >> 5);
	uint32_t units = a.row >> 4, count = *a.count;

	for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; i < count; i += warps) {
		const char *from = (const char *)a.window + (uint64_t)(uint32_t)a.slots[i] * a.row;
		char *to = (char *)a.out + (uint64_t)i * a.row;

		for (uint32_t unit = lane; unit < units; unit += 128) {
			hs_u128 v[4];

			HS_UNROLL
			for (uint32_t j = 0; j < 4; j++)
				if (unit + j * 32 < units)
					v[j] = hs_load16_stream(from + (unit + j * 32) * 16);
			HS_UNROLL
			for (uint32_t j = 0; j < 4; j++)
				if (unit + j * 32 < units)
					hs_store16(to + (unit + j * 32) * 16, v[j]);
		}
	}
}

/* One warp an entry. */
HS_KERNEL(hs_swapin_check, struct hs_swapin_check_args)
{
	uint32_t lane = threadIdx.x & 31, warps = gridDim.x * (blockDim.x >> 5);

	for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; i < a.count; i += warps) {
		uint32_t index = a.indices ? (uint32_t)a.indices[i] : i;
		uint32_t slot = (uint32_t)a.slots[i];
		bool hot = index - a.hot_low < a.hot_count, same = true;
		const uint64_t *words = (const uint64_t *)(a.base + (uint64_t)index * a.row);
		uint64_t first = a.word + (uint64_t)slot * (a.row >> 3);
		uint32_t result = HS_SWAPIN_BAD_INDEX;

		if ((int32_t)slot < 0) {
			if (index == slot)
				result = HS_SWAPIN_PADDING;
		} else if (hot || (a.in_place && index == slot)) {
			for (uint32_t j = lane; j < a.row >> 3; j += 32)
				same = same && words[j] == HS_SWAPIN_WORD(first + j);
			result = hot ? HS_SWAPIN_HOT : HS_SWAPIN_IN_PLACE;
		}
		if (__ballot_sync(0xffffffffu, !same))
			result = HS_SWAPIN_BAD_BYTES;
		if (lane == 0)
			hs_atomic_add(&a.result[result], 1u);
	}
}
