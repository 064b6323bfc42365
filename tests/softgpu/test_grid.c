/* SPDX-License-Identifier: MIT */
/* Threads, warps, blocks: what a kernel may rely on, in every order. */
#include "softgpu/test_soft.h"

#define SEEDS 12

/* Each thread passes its neighbour's number on, twice. */
static void rotate(int *out)
{
	int *s = soft_shared(1024 * sizeof(int));
	unsigned t = threadIdx.x, n = blockDim.x;
	int v;

	s[t] = (int)(blockIdx.x * 10000 + t);
	__syncthreads();
	v = s[(t + 1) % n];
	__syncthreads();
	s[t] = v;
	__syncthreads();
	out[blockIdx.x * n + t] = s[(t + 1) % n];
}
SOFT_KERNEL(rotate, int *)

static void run_seeds(void (*check)(void))
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		soft_seed(seed);
		check();
	}
	soft_seed(0);
}

static void check_rotate(void)
{
	enum { BLOCKS = 7, THREADS = 96 };
	int *out = zeroed(BLOCKS * THREADS * sizeof(*out));

	launch("rotate", BLOCKS, THREADS, NULL, PARAMS(&out));
	ok(cuCtxSynchronize());
	for (int b = 0; b < BLOCKS; b++) {
		for (int t = 0; t < THREADS; t++)
			assert_int_equal(out[b * THREADS + t], b * 10000 + (t + 2) % THREADS);
	}
	ok(cuMemFree_v2((CUdeviceptr)out));
}

static void test_barrier(void **state)
{
	(void)state;
	run_seeds(check_rotate);
}

/* Threads from 40 on are gone when the others meet. */
static void votes(int *out)
{
	int t = (int)threadIdx.x;

	if (t >= 40)
		return;
	out[t * 3] = __syncthreads_count(t % 2);
	out[t * 3 + 1] = __syncthreads_or(t == 39);
	out[t * 3 + 2] = __syncthreads_and(t < 39);
}
SOFT_KERNEL(votes, int *)

static void check_votes(void)
{
	int *out = zeroed(120 * sizeof(*out));

	launch("votes", 1, 64, NULL, PARAMS(&out));
	ok(cuCtxSynchronize());
	for (int t = 0; t < 40; t++) {
		assert_int_equal(out[t * 3], 20);
		assert_int_equal(out[t * 3 + 1], 1);
		assert_int_equal(out[t * 3 + 2], 0);
	}
	ok(cuMemFree_v2((CUdeviceptr)out));
}

static void test_votes(void **state)
{
	(void)state;
	run_seeds(check_votes);
}

static void warps(unsigned *out)
{
	unsigned lane = threadIdx.x & 31, *mine = out + threadIdx.x * 7;
	unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;

	if (threadIdx.x == 63)
		return; /* a lane that exited is not waited for */
	mine[0] = __ballot_sync(~0u, lane % 3 == 0);
	mine[1] = __shfl_sync(~0u, threadIdx.x * 2, 5);
	mine[2] = __ballot_sync(half, lane & 1);
	mine[3] = __match_any_sync(~0u, lane / 8);
	mine[4] = (unsigned)__any_sync(~0u, lane == 7);
	mine[5] = __shfl_up_sync(~0u, lane, 1);
	mine[6] = __reduce_add_sync(half, lane);
	__syncwarp();
}
SOFT_KERNEL(warps, unsigned *)

static void check_warps(void)
{
	unsigned *out = zeroed(64 * 7 * sizeof(*out));

	launch("warps", 1, 64, NULL, PARAMS(&out));
	ok(cuCtxSynchronize());
	for (unsigned t = 0; t < 63; t++) {
		unsigned *mine = out + t * 7, lane = t & 31, all = t < 32 ? ~0u : ~0u >> 1;

		assert_int_equal(mine[0], 0x49249249u & all);
		assert_int_equal(mine[1], (t & ~31u) * 2 + 10);
		assert_int_equal(mine[2], (lane < 16 ? 0xaaaau : 0xaaaa0000u) & all);
		assert_int_equal(mine[3], 0xffu << lane / 8 * 8 & all);
		assert_int_equal(mine[4], 1);
		assert_int_equal(mine[6], lane < 16 ? 120 : t < 32 ? 376 : 345);
		assert_int_equal(mine[5], lane ? lane - 1 : 0);
	}
	ok(cuMemFree_v2((CUdeviceptr)out));
}

static void test_warps(void **state)
{
	(void)state;
	run_seeds(check_warps);
}

/* Every block waits for all others. */
static void meet(int *count, int *sum)
{
	if (!threadIdx.x) {
		atomicAdd(count, 1);
		while (atomicAdd(count, 0) < (int)gridDim.x)
			continue;
	}
	__syncthreads();
	atomicAdd(sum, 1);
}
SOFT_KERNEL(meet, int *, int *)

static void check_meet(void)
{
	int *mem = zeroed(2 * sizeof(*mem)), *sum = mem + 1;

	launch("meet", 16, 128, NULL, PARAMS(&mem, &sum));
	ok(cuCtxSynchronize());
	assert_int_equal(mem[1], 16 * 128);
	ok(cuMemFree_v2((CUdeviceptr)mem));
}

static void test_blocks_wait(void **state)
{
	(void)state;
	run_seeds(check_meet);
}

static void count3(unsigned *out)
{
	unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
	unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);

	atomicAdd(&out[b * blockDim.x * blockDim.y * blockDim.z + t], 1 + b + t);
}
SOFT_KERNEL(count3, unsigned *)

static void test_large_grid(void **state)
{
	enum { BLOCKS = 5 * 4 * 3, THREADS = 16 * 8 * 4 };
	unsigned *out = zeroed(BLOCKS * THREADS * sizeof(*out));

	(void)state;
	soft_seed(5);
	ok(cuLaunchKernel(function("count3"), 5, 4, 3, 16, 8, 4, 0, NULL, PARAMS(&out), NULL));
	ok(cuCtxSynchronize());
	soft_seed(0);
	for (unsigned b = 0; b < BLOCKS; b++) {
		for (unsigned t = 0; t < THREADS; t++)
			assert_int_equal(out[b * THREADS + t], 1 + b + t);
	}
	ok(cuMemFree_v2((CUdeviceptr)out));
}

/* The sum is lost when two threads read before either writes: the planted
 * race. There is a schedule point between, as an accessor would be. */
static void racy(int *sum)
{
	int v = *sum;

	soft_point();
	*sum = v + 1;
}
SOFT_KERNEL(racy, int *)

static void test_race_is_found(void **state)
{
	int *sum = zeroed(sizeof(*sum)), wrong = 0;

	(void)state;
	launch("racy", 1, 32, NULL, PARAMS(&sum));
	ok(cuCtxSynchronize());
	assert_int_equal(*sum, 32); /* the plain order hides it */
	for (uint64_t seed = 1; seed <= 20; seed++) {
		soft_seed(seed);
		*sum = 0;
		launch("racy", 1, 32, NULL, PARAMS(&sum));
		ok(cuCtxSynchronize());
		wrong += *sum != 32;
	}
	soft_seed(0);
	assert_true(wrong > 10);
	ok(cuMemFree_v2((CUdeviceptr)sum));
}

static void race_log(int *next, int *order)
{
	order[atomicAdd(next, 1)] = (int)threadIdx.x;
}
SOFT_KERNEL(race_log, int *, int *)

static void test_same_seed_same_order(void **state)
{
	int *mem = zeroed(65 * sizeof(*mem)), *order = mem + 1, first[64];

	(void)state;
	for (int i = 0; i < 3; i++) {
		soft_seed(i < 2 ? 77 : 78);
		mem[0] = 0;
		launch("race_log", 1, 64, NULL, PARAMS(&mem, &order));
		ok(cuCtxSynchronize());
		if (!i)
			memcpy(first, order, sizeof(first));
		else if (i == 1)
			assert_memory_equal(first, order, sizeof(first));
		else
			assert_memory_not_equal(first, order, sizeof(first));
	}
	soft_seed(0);
	ok(cuMemFree_v2((CUdeviceptr)mem));
}

static void divided(int *out)
{
	(void)out;
	if (threadIdx.x & 1)
		__syncthreads();
	else
		__syncwarp();
}
SOFT_KERNEL(divided, int *)

static void test_deadlock_is_an_error(void **state)
{
	int *out = NULL;

	(void)state;
	for (uint64_t seed = 0; seed < 3; seed++) {
		soft_seed(seed);
		(void)cuLaunchKernel(
			function("divided"), 2, 1, 1, 64, 1, 1, 0, NULL, PARAMS(&out), NULL);
		refused(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
		refused(cuStreamQuery(NULL), CUDA_ERROR_LAUNCH_FAILED); /* and stays one */
		ok(cuDevicePrimaryCtxReset_v2(0));
		check_votes();
	}
	soft_seed(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_barrier),
		cmocka_unit_test(test_votes),
		cmocka_unit_test(test_warps),
		cmocka_unit_test(test_blocks_wait),
		cmocka_unit_test(test_large_grid),
		cmocka_unit_test(test_race_is_found),
		cmocka_unit_test(test_same_seed_same_order),
		cmocka_unit_test(test_deadlock_is_an_error),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
