/* SPDX-License-Identifier: MIT */
/* Look-ups and handles, by the real driver's rules. */
#include "softgpu/test_soft.h"

#include <dlfcn.h>
#include <stdlib.h>
#include "hooks/table.h"

#define PLAIN CU_GET_PROC_ADDRESS_DEFAULT
#define TWIN CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

static void *look(const char *name, int version, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status;
	void *address;

	ok(cuGetProcAddress_v2(name, &address, version, flags, &status));
	assert_int_equal(status == CU_GET_PROC_ADDRESS_SUCCESS, address != NULL);
	return address;
}

/* Each row answers to its base name, its version and its mode, and is what the
 * ELF symbol is. */
static void test_every_row(void **state)
{
	static const struct {
		const char *name, *proof;
	} rows[] = {
#define ROW(name, proof, flags) {#name, #proof},
		HS_DRIVER_TABLE(ROW, ROW)
#undef ROW
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char base[64];
		const char *version = strstr(rows[i].proof, "_v");
		size_t length = (size_t)(version - rows[i].proof) - strlen("PFN_");
		bool twin = strstr(version, "_pt");

		memcpy(base, rows[i].proof + strlen("PFN_"), length);
		base[length] = '\0';
		assert_ptr_equal(look(base, atoi(version + 2), twin ? TWIN : PLAIN),
			dlsym(RTLD_DEFAULT, rows[i].name));
	}
}

static void test_versions_and_modes(void **state)
{
	CUdriverProcAddressQueryResult status;
	void *address = (void *)1;

	(void)state;
	assert_ptr_equal(look("cuLaunchKernel", 13000, PLAIN), cuLaunchKernel);
	assert_ptr_equal(look("cuLaunchKernel", 13000, TWIN), cuLaunchKernel_ptsz);
	assert_ptr_equal(look("cuLaunchKernel", 4000, TWIN), cuLaunchKernel);
	assert_ptr_equal(look("cuMemGetInfo", 13000, TWIN), cuMemGetInfo_v2);
	assert_ptr_equal(look("cuGetProcAddress", 11030, PLAIN), cuGetProcAddress);
	assert_ptr_equal(look("cuGetProcAddress", 12000, PLAIN), cuGetProcAddress_v2);
	assert_ptr_equal(look("cuGraphAddKernelNode", 11080, PLAIN), cuGraphAddKernelNode);
	assert_null(look("cuNoSuchThing", 13000, PLAIN));
	assert_null(look("", 0, PLAIN));
	assert_null(look("cuMemAlloc_v2", 13000, PLAIN)); /* base names only */
	ok(cuGetProcAddress_v2("cuLaunchKernelEx", &address, 11050, PLAIN, &status));
	assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	assert_null(address);
	refused(cuGetProcAddress_v2("cuInit", &address, CUDA_VERSION + 10, PLAIN, &status),
		CUDA_ERROR_INVALID_VALUE);
	refused(cuGetProcAddress("cuNoSuchThing", &address, 13000, PLAIN), CUDA_ERROR_NOT_FOUND);
}

static void test_unsupported(void **state)
{
	CUmodule module;

	(void)state;
	refused(cuModuleLoad(&module, "file"), CUDA_ERROR_NOT_SUPPORTED);
	refused(cuModuleLoadFatBinary(&module, "image"), CUDA_ERROR_NOT_SUPPORTED);
}

struct odd {
	char bytes[13];
};

static void shapes(char a, long long b, short c, int *d, struct odd e, int f)
{
	d[0] = (int)(a + b + c + e.bytes[12] + f);
}
SOFT_KERNEL_NAMED(shapes, "_Z6shapescxsPi3oddi", char, long long, short, int *, struct odd, int)

static void test_handles(void **state)
{
	static const size_t offsets[] = {0, 8, 16, 24, 32, 48}, sizes[] = {1, 8, 2, 8, 13, 4};
	CUlibrary library;
	CUmodule module;
	CUkernel kernel;
	CUfunction function, again;
	const char *name;
	size_t offset, bytes;

	(void)state;
	ok(cuLibraryLoadData(&library, "any image", NULL, NULL, 0, NULL, NULL, 0));
	ok(cuLibraryGetKernel(&kernel, library, "_Z6shapescxsPi3oddi"));
	ok(cuModuleLoadData(&module, "any image"));
	refused(cuModuleGetFunction(&function, module, "shapes"), CUDA_ERROR_NOT_FOUND);
	ok(cuModuleGetFunction(&function, module, "_Z6shapescxsPi3oddi"));
	ok(cuModuleGetFunction(&again, module, "_Z6shapescxsPi3oddi"));
	assert_ptr_equal(function, again);
	ok(cuFuncGetName(&name, function));
	assert_string_equal(name, "_Z6shapescxsPi3oddi");
	refused(cuFuncGetName(&name, (CUfunction)kernel), CUDA_ERROR_INVALID_HANDLE);
	refused(cuKernelGetName(&name, (CUkernel)function), CUDA_ERROR_INVALID_HANDLE);
	ok(cuKernelGetName(&name, kernel));
	for (size_t i = 0; i < 6; i++) {
		ok(cuFuncGetParamInfo(function, i, &offset, &bytes));
		assert_int_equal(offset, offsets[i]);
		assert_int_equal(bytes, sizes[i]);
	}
	refused(cuKernelGetParamInfo(kernel, 6, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
	ok(cuKernelGetFunction(&again, kernel));
	ok(cuFuncGetName(&name, again));
	ok(cuModuleUnload(module));
	refused(cuFuncGetName(&name, function), CUDA_ERROR_INVALID_HANDLE);
	ok(cuLibraryUnload(library));
}

/* A launch takes a CUkernel too, and packed arguments, and copies them. */
static void test_launch_forms(void **state)
{
	int *out = zeroed(64), f = 4;
	char a = 1, packed[52] = {0};
	long long b = 10;
	short c = 100;
	struct odd e = {{0}};
	size_t bytes = sizeof(packed);
	CUlibrary library;
	CUkernel kernel;
	CUlaunchConfig config = {.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1};

	(void)state;
	e.bytes[12] = 7;
	ok(cuLibraryLoadData(&library, "any image", NULL, NULL, 0, NULL, NULL, 0));
	ok(cuLibraryGetKernel(&kernel, library, "_Z6shapescxsPi3oddi"));
	soft_seed(9);
	ok(cuLaunchKernelEx(&config, (CUfunction)kernel, PARAMS(&a, &b, &c, &out, &e, &f), NULL));
	b = 0;
	ok(cuCtxSynchronize());
	assert_int_equal(out[0], 122);
	soft_seed(0);
	packed[0] = 2;
	memcpy(packed + 24, &out, sizeof(out));
	ok(cuLaunchKernelEx_ptsz(&config, (CUfunction)kernel, NULL,
		PARAMS(CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
			CU_LAUNCH_PARAM_END)));
	ok(cuCtxSynchronize());
	assert_int_equal(out[0], 2);
	config.blockDimX = 1025;
	refused(cuLaunchKernelEx(
			&config, (CUfunction)kernel, PARAMS(&a, &b, &c, &out, &e, &f), NULL),
		CUDA_ERROR_INVALID_VALUE);
	ok(cuLibraryUnload(library));
	ok(cuMemFree_v2((CUdeviceptr)out));
}

static void test_not_before_init(void **state)
{
	CUdeviceptr ptr;
	int count;

	(void)state;
	refused(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
	ok(cuInit(0));
	ok(cuDeviceGetCount(&count));
	refused(cuMemAlloc_v2(&ptr, 4096), CUDA_ERROR_INVALID_CONTEXT);
	start(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_not_before_init),
		cmocka_unit_test(test_every_row),
		cmocka_unit_test(test_versions_and_modes),
		cmocka_unit_test(test_unsupported),
		cmocka_unit_test(test_handles),
		cmocka_unit_test(test_launch_forms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
