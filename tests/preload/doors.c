/* SPDX-License-Identifier: MIT */
/* Runs under the preload, on the stand-in driver, and goes through each door. */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#define LEGACY CU_GET_PROC_ADDRESS_LEGACY_STREAM
#define PER_THREAD CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

#ifdef __aarch64__
#define FIRST_VERSION "GLIBC_2.17"
#else
#define FIRST_VERSION "GLIBC_2.2.5"
#endif

static void *driver;
static __typeof__(cuGetProcAddress) *lookup_v1;
static __typeof__(cuGetProcAddress_v2) *lookup_v2;

static const char *file_of(const void *address)
{
	Dl_info info;

	return address && dladdr(address, &info) ? info.dli_fname : "";
}

static void assert_ours(const void *address, const char *name)
{
	Dl_info info;

	assert_non_null(address);
	assert_true(dladdr(address, &info));
	assert_non_null(strstr(info.dli_fname, "libhisparse"));
	assert_string_equal(info.dli_sname, name);
}

static void *ask(const char *name, int version, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)-1;
	void *answer = NULL, *again = NULL;

	if (lookup_v2(name, &answer, version, flags, &status) != CUDA_SUCCESS)
		return NULL;
	assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
	assert_int_equal(lookup_v2(name, &again, version, flags, NULL), CUDA_SUCCESS);
	assert_ptr_equal(answer, again);
	assert_int_equal(lookup_v1(name, &again, version, flags), CUDA_SUCCESS);
	assert_ptr_equal(answer, again);
	return answer;
}

static void dlsym_answers_ours(void **state)
{
	(void)state;
	assert_ours((void *)lookup_v1, "cuGetProcAddress");
	assert_ours((void *)lookup_v2, "cuGetProcAddress_v2");
	assert_ours(dlsym(driver, "cuMemAlloc_v2"), "cuMemAlloc_v2");
	assert_ours(dlsym(driver, "cuLaunchKernel_ptsz"), "cuLaunchKernel_ptsz");
	assert_ours(dlsym(RTLD_DEFAULT, "cuLaunchKernelEx"), "cuLaunchKernelEx");
}

static void dlsym_passes_on(void **state)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	(void)state;

	assert_non_null(strstr(file_of(dlsym(driver, "cuInit")), "libcuda"));
	assert_non_null(strstr(file_of(dlsym(libc, "puts")), "libc.so"));
	assert_ptr_equal(dlsym(RTLD_DEFAULT, "puts"), dlsym(libc, "puts"));
	dlerror();
	assert_null(dlsym(driver, "cuNothingOfTheKind"));
	assert_non_null(strstr(dlerror(), "cuNothingOfTheKind"));
	assert_null(dlsym(libc, "cuMemAlloc_v2"));
	assert_non_null(strstr(dlerror(), "cuMemAlloc_v2"));
	assert_null(dlerror());
	dlclose(libc);
}

/* Somebody else's function of that name stays his. */
static void other_handles_pass(void **state)
{
	void *other = dlopen(OTHER, RTLD_NOW | RTLD_LOCAL);
	(void)state;

	assert_non_null(other);
	assert_ptr_equal(
		strstr(file_of(dlsym(other, "cuMemGetAddressRange_v2")), "libhisparse"), NULL);
	assert_non_null(strstr(file_of(dlsym(other, "cuMemGetAddressRange_v2")), OTHER_NAME));
	dlclose(other);
}

static void versions_choose_the_abi(void **state)
{
	(void)state;
	assert_ours(ask("cuCtxSynchronize", 2000, LEGACY), "cuCtxSynchronize");
	assert_ours(ask("cuCtxSynchronize", 12080, LEGACY), "cuCtxSynchronize");
	assert_ours(ask("cuCtxSynchronize", 13000, LEGACY), "cuCtxSynchronize_v2");
	assert_ours(ask("cuMemcpyBatchAsync", 12080, LEGACY), "cuMemcpyBatchAsync");
	assert_ours(ask("cuMemcpyBatchAsync", 13000, LEGACY), "cuMemcpyBatchAsync_v2");
	assert_ours(ask("cuMemAlloc", 3020, LEGACY), "cuMemAlloc_v2");
	assert_ours(ask("cuGetProcAddress", 11030, LEGACY), "cuGetProcAddress");
	assert_ours(ask("cuGetProcAddress", 12000, LEGACY), "cuGetProcAddress_v2");
}

static void flags_choose_the_stream(void **state)
{
	(void)state;
	assert_ours(ask("cuLaunchKernel", 13000, 0), "cuLaunchKernel");
	assert_ours(ask("cuLaunchKernel", 13000, LEGACY), "cuLaunchKernel");
	assert_ours(ask("cuLaunchKernel", 13000, PER_THREAD), "cuLaunchKernel_ptsz");
	assert_ours(ask("cuMemcpyHtoD", 13000, PER_THREAD), "cuMemcpyHtoD_v2_ptds");
	assert_ours(ask("cuMemAlloc", 13000, PER_THREAD), "cuMemAlloc_v2");
}

static void refusals_are_the_drivers(void **state)
{
	static const struct {
		const char *name;
		int version;
	} asked[] = {{"", 0}, {"cuNothingOfTheKind", 13000}, {"cuMemAlloc", 1000},
		{"cuMemAlloc", 99000}, {"cuInit", 13000}};
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	__typeof__(dlsym) *past = (__typeof__(past))dlvsym(libc, "dlsym", FIRST_VERSION);
	__typeof__(cuGetProcAddress_v2) *real;
	(void)state;

	assert_non_null(past);
	real = (__typeof__(real))past(driver, "cuGetProcAddress_v2");
	assert_non_null(strstr(file_of((void *)real), "libcuda"));
	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		CUdriverProcAddressQueryResult mine = (CUdriverProcAddressQueryResult)7, his = mine;
		void *a = NULL, *b = NULL;

		assert_int_equal(lookup_v2(asked[i].name, &a, asked[i].version, 0, &mine),
			real(asked[i].name, &b, asked[i].version, 0, &his));
		assert_ptr_equal(a, b);
		assert_int_equal(mine, his);
	}
}

static void errno_is_kept(void **state)
{
	size_t free, total;
	void *answer;
	(void)state;

	errno = 1234;
	lookup_v2("cuMemGetInfo", &answer, 12000, 0, NULL);
	assert_int_equal(errno, 1234);
	dlsym(driver, "cuMemAlloc_v2");
	assert_int_equal(errno, 1234);
	((__typeof__(cuMemGetInfo_v2) *)answer)(&free, &total);
	assert_int_equal(errno, 1234);
	assert_int_equal(((__typeof__(cuMemGetInfo_v2) *)answer)(NULL, &total),
		((__typeof__(cuMemGetInfo_v2) *)answer)(&free, &total));
}

static int open_driver(void **state)
{
	(void)state;
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver)
		return -1;
	lookup_v1 = (__typeof__(lookup_v1))dlsym(driver, "cuGetProcAddress");
	lookup_v2 = (__typeof__(lookup_v2))dlsym(driver, "cuGetProcAddress_v2");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dlsym_answers_ours),
		cmocka_unit_test(dlsym_passes_on),
		cmocka_unit_test(other_handles_pass),
		cmocka_unit_test(versions_choose_the_abi),
		cmocka_unit_test(flags_choose_the_stream),
		cmocka_unit_test(refusals_are_the_drivers),
		cmocka_unit_test(errno_is_kept),
	};

	return cmocka_run_group_tests(tests, open_driver, NULL);
}
