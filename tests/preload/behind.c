/* SPDX-License-Identifier: MIT */
/* With a library in front of the driver (front.c) programs still come to ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>

static const char *owner(void *address)
{
	Dl_info info;

	assert_non_null(address);
	assert_true(dladdr(address, &info));
	return strrchr(info.dli_fname, '/') + 1;
}

static void *answer(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *entry = NULL;
	PFN_cuGetProcAddress_v12000 find;
	CUdriverProcAddressQueryResult found;

	assert_non_null(library);
	*(void **)&find = dlsym(library, "cuGetProcAddress_v2");
	assert_int_equal(
		find(name, &entry, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &found), CUDA_SUCCESS);
	return entry;
}

static void ours_answer(void **state)
{
	static const char *const names[] = {"cuMemAlloc", "cuMemGetInfo", "cuLaunchKernel",
		"cuGetProcAddress", "cuStreamSynchronize", "cuGraphLaunch"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_string_equal(owner(answer(names[i])), "libhisparse.so");
	/* Not one of ours, and the driver's own: what stands in front has made no difference. */
	assert_string_equal(owner(answer("cuInit")), "libcuda.so.1");
}

static void memory_comes_from_it(void **state)
{
	PFN_cuMemAlloc_v3020 allocate;
	PFN_cuMemFree_v3020 give_back;
	PFN_cuInit_v2000 init;
	PFN_cuDevicePrimaryCtxRetain_v7000 retain;
	PFN_cuCtxSetCurrent_v4000 set;
	CUdeviceptr at = 0;
	CUcontext context;

	(void)state;
	*(void **)&init = answer("cuInit");
	*(void **)&retain = answer("cuDevicePrimaryCtxRetain");
	*(void **)&set = answer("cuCtxSetCurrent");
	*(void **)&allocate = answer("cuMemAlloc");
	*(void **)&give_back = answer("cuMemFree");
	assert_int_equal(init(0), CUDA_SUCCESS);
	assert_int_equal(retain(&context, 0), CUDA_SUCCESS);
	assert_int_equal(set(context), CUDA_SUCCESS);
	assert_int_equal(allocate(&at, 4096), CUDA_SUCCESS);
	assert_int_equal(give_back(at), CUDA_SUCCESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ours_answer),
		cmocka_unit_test(memory_comes_from_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
