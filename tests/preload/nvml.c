/* SPDX-License-Identifier: MIT */
/* Runs under the preload, on the stand-in driver: NVML and CUDA tell one story,
 * of our device and once CUDA is in use. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#define MIB (1ull << 20)

static struct {
	unsigned long long total, free, used;
} memory;

static struct {
	unsigned version;
	unsigned long long total, reserved, free, used;
} memory_v2;

static int (*info)(void *device, void *memory), (*info_v2)(void *device, void *memory);

static void the_truth_before_cuda(void **state)
{
	(void)state;
	assert_int_equal(info(NULL, &memory), 0);
	assert_true(memory.total == 256 * MIB && memory.free == 200 * MIB);
	assert_int_equal(info(NULL, NULL), 2);
	assert_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
}

static void one_story_with_cuda(void **state)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *board = &memory;
	__typeof__(cuInit) *init = (__typeof__(cuInit) *)dlsym(cuda, "cuInit");
	__typeof__(cuDevicePrimaryCtxRetain) *retain =
		(__typeof__(cuDevicePrimaryCtxRetain) *)dlsym(cuda, "cuDevicePrimaryCtxRetain");
	__typeof__(cuCtxSetCurrent) *set =
		(__typeof__(cuCtxSetCurrent) *)dlsym(cuda, "cuCtxSetCurrent");
	__typeof__(cuMemGetInfo_v2) *get =
		(__typeof__(cuMemGetInfo_v2) *)dlsym(cuda, "cuMemGetInfo_v2");
	CUcontext context;
	size_t left, total;

	(void)state;
	assert_int_equal(init(0), 0);
	assert_int_equal(retain(&context, 0), 0);
	assert_int_equal(set(context), 0);
	assert_int_equal(get(&left, &total), 0);
	assert_true(total > 256 * MIB);
	assert_int_equal(info(NULL, &memory), 0);
	assert_int_equal(memory.total, total);
	assert_true(memory.free <= left && memory.free > 200 * MIB);
	assert_int_equal(memory.used, memory.total - memory.free);
	memory_v2.version = 99;
	assert_int_equal(info_v2(NULL, &memory_v2), 0);
	assert_int_equal(memory_v2.version, 99);
	assert_int_equal(memory_v2.total, total);
	assert_int_equal(memory_v2.free, memory.free);
	assert_int_equal(memory_v2.reserved, 6 * MIB);
	assert_int_equal(memory_v2.total, memory_v2.reserved + memory_v2.free + memory_v2.used);
	/* Another board is not ours to tell about. */
	assert_int_equal(info(board, &memory), 0);
	assert_true(
		memory.total == 256 * MIB && memory.free == 200 * MIB && memory.used == 56 * MIB);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_truth_before_cuda),
		cmocka_unit_test(one_story_with_cuda),
	};
	void *nvml = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;

	if (!nvml)
		return 1;
	info = (int (*)(void *, void *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
	info_v2 = (int (*)(void *, void *))dlsym(nvml, "nvmlDeviceGetMemoryInfo_v2");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
