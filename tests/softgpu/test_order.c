/* SPDX-License-Identifier: MIT */
/* Streams and events: what is ordered is always so, what is not is seen in
 * both orders under some seed. */
#include "softgpu/test_soft.h"

#include <pthread.h>

#define SEEDS 40

static int *trail; /* [0] next, then who came */

static void stamp(int *log, int who)
{
	for (int i = 0; i < 4; i++)
		log[1 + atomicAdd(log, 1)] = who;
}
SOFT_KERNEL(stamp, int *, int)

static void note(int who, CUstream stream)
{
	launch("stamp", 1, 1, stream, PARAMS(&trail, &who));
}

/* True if all of a's stamps come before all of b's. */
static bool before(int a, int b)
{
	int last_a = -1, first_b = trail[0];

	for (int i = 0; i < trail[0]; i++) {
		if (trail[1 + i] == a)
			last_a = i;
		if (trail[1 + i] == b && i < first_b)
			first_b = i;
	}
	return last_a < first_b;
}

static CUstream stream_new(unsigned flags)
{
	CUstream stream;

	ok(cuStreamCreate(&stream, flags));
	return stream;
}

/* Of SEEDS seeds: how often 1 came all before 2, and how often neither did. */
static void orders(void (*run)(CUstream a, CUstream b), unsigned flags, int *in_order, int *mixed)
{
	CUstream a = stream_new(flags), b = stream_new(flags);

	*in_order = *mixed = 0;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		soft_seed(seed);
		trail[0] = 0;
		run(a, b);
		ok(cuCtxSynchronize());
		assert_int_equal(trail[0], 8);
		*in_order += before(1, 2);
		*mixed += !before(1, 2) && !before(2, 1);
	}
	soft_seed(0);
	ok(cuStreamDestroy_v2(a));
	ok(cuStreamDestroy_v2(b));
}

static void unordered(CUstream a, CUstream b)
{
	note(1, a);
	note(2, b);
}

static void test_streams_interleave(void **state)
{
	int in_order, mixed;

	(void)state;
	orders(unordered, CU_STREAM_NON_BLOCKING, &in_order, &mixed);
	assert_true(mixed > 2);
	assert_true(in_order > 0 && in_order + mixed < SEEDS); /* b first, too */
}

static void same_stream(CUstream a, CUstream b)
{
	(void)b;
	note(1, a);
	note(2, a);
}

static void by_event(CUstream a, CUstream b)
{
	CUevent event;

	ok(cuEventCreate(&event, 0));
	note(1, a);
	ok(cuEventRecord(event, a));
	ok(cuStreamWaitEvent(b, event, 0));
	ok(cuEventDestroy_v2(event)); /* the wait stays */
	note(2, b);
}

static void by_synchronise(CUstream a, CUstream b)
{
	note(1, a);
	ok(cuStreamSynchronize(a));
	note(2, b);
}

static void by_polling(CUstream a, CUstream b)
{
	CUevent event;

	ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	note(1, a);
	ok(cuEventRecord(event, a));
	while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
		continue;
	note(2, b);
	ok(cuEventDestroy_v2(event));
}

static void by_legacy(CUstream a, CUstream b)
{
	ok(cuMemsetD8Async((CUdeviceptr)(trail + 100), 0, 4, b));
	note(1, a);
	note(2, NULL);
}

static void after_legacy(CUstream a, CUstream b)
{
	(void)a;
	note(1, CU_STREAM_LEGACY);
	note(2, b);
}

static void test_order_holds(void **state)
{
	void (*const runs[])(CUstream, CUstream) = {
		same_stream, by_event, by_synchronise, by_polling, by_legacy, after_legacy};
	int in_order, mixed;

	(void)state;
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		orders(runs[i], 0, &in_order, &mixed);
		assert_int_equal(in_order, SEEDS);
	}
	/* A non-blocking stream does not wait for the legacy one. */
	orders(after_legacy, CU_STREAM_NON_BLOCKING, &in_order, &mixed);
	assert_true(in_order < SEEDS);
	orders(by_legacy, CU_STREAM_NON_BLOCKING, &in_order, &mixed);
	assert_true(in_order < SEEDS);
}

static void test_event_times(void **state)
{
	CUevent a, b;
	float ms = -1;

	(void)state;
	ok(cuEventCreate(&a, 0));
	ok(cuEventCreate(&b, 0));
	refused(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_INVALID_HANDLE);
	soft_seed(3);
	trail[0] = 0;
	ok(cuEventRecord(a, NULL));
	note(1, NULL);
	ok(cuEventRecord(b, NULL));
	ok(cuEventSynchronize(b));
	assert_int_equal(trail[0], 4);
	ok(cuEventElapsedTime(&ms, a, b));
	assert_true(ms >= 0);
	soft_seed(0);
	ok(cuEventDestroy_v2(a));
	ok(cuEventDestroy_v2(b));
	refused(cuEventQuery(a), CUDA_ERROR_INVALID_HANDLE);
}

/* Pageable memory may be reused at once, pinned memory may not. */
static void test_pageable_source(void **state)
{
	CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
	int *to = zeroed(4 * MIB), *pinned, pageable[1024], early = 0;

	(void)state;
	ok(cuMemHostAlloc((void **)&pinned, sizeof(pageable), 0));
	for (uint64_t seed = 1; seed <= 20; seed++) {
		soft_seed(seed);
		for (int i = 0; i < 1024; i++)
			pageable[i] = pinned[i] = 7;
		ok(cuMemcpyHtoDAsync_v2((CUdeviceptr)to, pageable, sizeof(pageable), stream));
		ok(cuMemcpyAsync(
			(CUdeviceptr)(to + 1024), (CUdeviceptr)pinned, sizeof(pageable), stream));
		memset(pageable, 0, sizeof(pageable));
		memset(pinned, 0, sizeof(pageable));
		ok(cuStreamSynchronize(stream));
		for (int i = 0; i < 1024; i++)
			assert_int_equal(to[i], 7);
		early += to[1024] != 7 || to[2047] != 7;
	}
	soft_seed(0);
	assert_true(early > 0);
	ok(cuMemFreeHost(pinned));
	ok(cuMemFree_v2((CUdeviceptr)to));
	ok(cuStreamDestroy_v2(stream));
}

/* New memory is not zero, as on a GPU, when there is a seed. */
static void test_poison(void **state)
{
	CUdeviceptr ptr;

	(void)state;
	soft_seed(1);
	ok(cuMemAlloc_v2(&ptr, 4096));
	assert_int_equal(*(unsigned char *)ptr, 0xa5);
	ok(cuMemFree_v2(ptr));
	soft_seed(0);
}

static void called(void *data)
{
	int device;

	/* The driver may not be called from here. */
	*(CUresult *)data = cuDeviceGet(&device, 0);
}

static void test_host_function(void **state)
{
	CUresult result = CUDA_SUCCESS;

	(void)state;
	ok(cuLaunchHostFunc(NULL, called, &result));
	ok(cuStreamSynchronize(NULL));
	assert_int_equal(result, CUDA_ERROR_NOT_PERMITTED);
}

static void meet(int *sum)
{
	int *s = soft_shared(sizeof(int) * 64);

	s[threadIdx.x] = 1;
	__syncthreads();
	atomicAdd(sum, s[63 - threadIdx.x]);
}
SOFT_KERNEL(meet, int *)

/* Each on its own default stream; whoever synchronises runs the others' work
 * on, so threads of a block change the OS thread that runs them. */
static void *worker(void *context)
{
	int *sum, total;

	ok(cuCtxSetCurrent(context));
	sum = zeroed(sizeof(*sum));
	for (int i = 0; i < 20; i++) {
		ok(cuLaunchKernel_ptsz(
			function("meet"), 2, 1, 1, 64, 1, 1, 0, NULL, PARAMS(&sum), NULL));
		if (i % 3 == 0)
			ok(cuStreamSynchronize_ptsz(NULL));
	}
	ok(cuMemcpyDtoH_v2_ptds(&total, (CUdeviceptr)sum, sizeof(total)));
	assert_int_equal(total, 20 * 128);
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t threads[4];
	CUcontext context;

	(void)state;
	ok(cuCtxGetCurrent(&context));
	function("meet");
	for (uint64_t seed = 0; seed < 4; seed++) {
		soft_seed(seed);
		for (int i = 0; i < 4; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, worker, context), 0);
		for (int i = 0; i < 4; i++)
			assert_int_equal(pthread_join(threads[i], NULL), 0);
	}
	soft_seed(0);
}

static int start_order(void **state)
{
	start(state);
	trail = zeroed(1024);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_streams_interleave),
		cmocka_unit_test(test_order_holds),
		cmocka_unit_test(test_event_times),
		cmocka_unit_test(test_pageable_source),
		cmocka_unit_test(test_poison),
		cmocka_unit_test(test_host_function),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, start_order, NULL);
}
