/* SPDX-License-Identifier: MIT */
/* What verify mode needs: poison an output, hash it, compare two hashes. */
#include "kernels/abi.h"
#include "kernels/port.h"

HS_DEVICE uint64_t verify_mix(uint64_t v)
{
	v = (v ^ v >> 31) * 0x9e3779b97f4a7c15u;
	return (v ^ v >> 29) * 0xbf58476d1ce4e5b9u;
}

HS_KERNEL(hs_poison, struct hs_poison_args)
{
	const uint64_t step = (uint64_t)gridDim.x * (blockDim.x / 32);
	const uint64_t words = a.region.bytes / 4;

	for (uint64_t r = (uint64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
		r < a.region.rows; r += step) {
		uint32_t *row = (uint32_t *)(uintptr_t)(a.region.start + r * a.region.stride);

		for (uint64_t i = threadIdx.x & 31; i < words; i += 32)
			row[i] = 0xffffffffu;
	}
}

HS_KERNEL(hs_hash_rows, struct hs_hash_args)
{
	const uint64_t step = (uint64_t)gridDim.x * (blockDim.x / 32);
	const uint64_t words = a.region.bytes / 4;

	for (uint64_t r = (uint64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
		r < a.region.rows; r += step) {
		const uint32_t *row =
			(const uint32_t *)(uintptr_t)(a.region.start + r * a.region.stride);
		uint64_t sum = 0;

		for (uint64_t i = threadIdx.x & 31; i < words; i += 32)
			sum += verify_mix(((i + 1) << 32) ^ row[i]);
		for (unsigned lanes = 16; lanes; lanes >>= 1)
			sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
		if (!(threadIdx.x & 31))
			a.hashes[r] = verify_mix(sum);
	}
}

struct compare_shared {
	uint32_t differ;
};

HS_KERNEL(hs_compare_hashes, struct hs_compare_args)
{
	HS_SHARED(struct compare_shared, s);
	uint32_t differ = 0;

	if (!threadIdx.x)
		s->differ = 0;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < a.count; i += blockDim.x)
		differ += a.left[i] != a.right[i];
	if (differ)
		hs_atomic_add(&s->differ, differ);
	__syncthreads();
	if (threadIdx.x)
		return;
	a.counts[0] += a.count;
	a.counts[1] += s->differ;
	hs_fence_system();
}
