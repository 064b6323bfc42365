/* SPDX-License-Identifier: MIT */
/* Device and host pools, reservations and seams, as the real driver has them. */
#include "softgpu/fibre.h"
#include "softgpu/test_soft.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BASE ((CUdeviceptr)0x200000000000)

static size_t used(int host)
{
	size_t bytes[2];

	soft_usage(&bytes[0], &bytes[1]);
	return bytes[host];
}

static CUmemGenericAllocationHandle create(CUmemLocationType type, size_t bytes)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = type},
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
	CUmemGenericAllocationHandle handle;

	ok(cuMemCreate(&handle, bytes, &prop, 0));
	return handle;
}

static void allow(CUdeviceptr start, size_t bytes)
{
	CUmemAccessDesc access = {
		{.type = CU_MEM_LOCATION_TYPE_DEVICE}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	ok(cuMemSetAccess(start, bytes, &access, 1));
}

/* Maps new memory at start and forgets its handle. */
static void back(CUdeviceptr start, size_t bytes, CUmemLocationType type)
{
	CUmemGenericAllocationHandle handle = create(type, bytes);

	ok(cuMemMap(start, bytes, 0, handle, 0));
	ok(cuMemRelease(handle));
	allow(start, bytes);
}

static CUdeviceptr reserve(size_t bytes)
{
	CUdeviceptr start;

	ok(cuMemAddressReserve(&start, bytes, 0, BASE, 0));
	assert_false(start & (2 * MIB - 1));
	return start;
}

static void drop(CUdeviceptr start, size_t bytes)
{
	ok(cuMemUnmap(start, bytes));
	ok(cuMemAddressFree(start, bytes));
}

static int faults(volatile char *address)
{
	int status;
	pid_t child = fork();

	if (!child) {
		signal(SIGSEGV, SIG_DFL); /* not the sanitizer's report */
		signal(SIGBUS, SIG_DFL);
		*address = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status);
}

static void test_pools(void **state)
{
	size_t device = used(0), host = used(1), free_bytes, total;
	CUdeviceptr ptr, big;
	void *pinned;

	(void)state;
	ok(cuMemGetInfo_v2(&free_bytes, &total));
	assert_int_equal(total, 64 * MIB);
	assert_int_equal(free_bytes, total - device);
	ok(cuMemAlloc_v2(&ptr, 3 * MIB));
	assert_int_equal(used(0), device + 3 * MIB);
	refused(cuMemAlloc_v2(&big, total), CUDA_ERROR_OUT_OF_MEMORY);
	ok(cuMemHostAlloc(&pinned, 5 * MIB, 0));
	assert_int_equal(used(1), host + 5 * MIB);
	refused(cuMemFree_v2(ptr + 4096), CUDA_ERROR_INVALID_VALUE);
	assert_false(faults((char *)ptr));
	ok(cuMemFree_v2(ptr));
	assert_true(faults((char *)ptr));
	refused(cuMemFree_v2(ptr), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemFreeHost(pinned));
	assert_int_equal(used(0), device);
	assert_int_equal(used(1), host);
}

static void test_vmm_accounts_while_mapped(void **state)
{
	size_t device = used(0), host = used(1);
	CUdeviceptr start = reserve(8 * MIB);
	CUmemGenericAllocationHandle handle;

	(void)state;
	handle = create(CU_MEM_LOCATION_TYPE_DEVICE, 4 * MIB);
	assert_int_equal(used(0), device + 4 * MIB);
	ok(cuMemMap(start, 4 * MIB, 0, handle, 0));
	assert_true(faults((char *)start)); /* not before access is set */
	allow(start, 4 * MIB);
	assert_false(faults((char *)start));
	ok(cuMemRelease(handle));
	refused(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(used(0), device + 4 * MIB);
	back(start + 4 * MIB, 4 * MIB, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	assert_int_equal(used(1), host + 4 * MIB);
	refused(cuMemAddressFree(start, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
	refused(cuMemUnmap(start, 2 * MIB), CUDA_ERROR_INVALID_VALUE); /* not in part */
	drop(start, 8 * MIB);
	assert_int_equal(used(0), device);
	assert_int_equal(used(1), host);
	assert_true(faults((char *)start));
}

/* As driver 580.159.04: hints in steps of 32 MiB, and so must be the sizes; none
 * for sizes of which there are addresses in stock. */
static void test_hints(void **state)
{
	CUdeviceptr a, b, c, stock;

	(void)state;
#ifdef __SANITIZE_THREAD__
	skip(); /* none is honoured (vmm.c) */
#endif
	ok(cuMemAddressReserve(&stock, 96 * MIB, 0, BASE, 0));
	assert_int_not_equal(stock, BASE);
	ok(cuMemAddressReserve(&a, 32 * MIB, 0, BASE + 500 * MIB, 0));
	assert_int_equal(a, BASE + 512 * MIB);
	ok(cuMemAddressReserve(&b, 8 * MIB, 0, BASE, 0));
	assert_int_not_equal(b, BASE);
	ok(cuMemAddressReserve(&c, 64 * MIB, 0, BASE, 0));
	assert_int_equal(c, BASE);
	ok(cuMemAddressFree(a, 32 * MIB));
	ok(cuMemAddressFree(b, 8 * MIB));
	ok(cuMemAddressFree(c, 64 * MIB));
	ok(cuMemAddressFree(stock, 96 * MIB));
	ok(cuMemAddressReserve(&a, 64 * MIB, 0, BASE, 0));
	assert_int_not_equal(a, BASE); /* there again */
	ok(cuMemAddressFree(a, 64 * MIB));
}

static void test_one_handle_twice(void **state)
{
	CUmemGenericAllocationHandle handle = create(CU_MEM_LOCATION_TYPE_DEVICE, 2 * MIB);
	CUdeviceptr a = reserve(4 * MIB);
	int fd;

	(void)state;
	ok(cuMemMap(a, 2 * MIB, 0, handle, 0));
	ok(cuMemMap(a + 2 * MIB, 2 * MIB, 0, handle, 0));
	allow(a, 4 * MIB);
	*(int *)a = 42;
	assert_int_equal(*(int *)(a + 2 * MIB), 42);
	ok(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	ok(cuMemRelease(handle));
	ok(cuMemImportFromShareableHandle(
		&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	ok(cuMemUnmap(a + 2 * MIB, 2 * MIB));
	ok(cuMemMap(a + 2 * MIB, 2 * MIB, 0, handle, 0));
	allow(a + 2 * MIB, 2 * MIB);
	assert_int_equal(*(int *)(a + 2 * MIB), 42);
	ok(cuMemRelease(handle));
	drop(a, 4 * MIB);
}

static void touch(unsigned char *p, int n)
{
	for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
		p[i]++;
}
SOFT_KERNEL(touch, unsigned char *, int)

static void test_seam(void **state)
{
	CUdeviceptr start = reserve(6 * MIB), across = start + 2 * MIB - 512;
	unsigned char *bytes = (unsigned char *)across, host[1024];
	int n = 1024;

	(void)state;
	back(start, 2 * MIB, CU_MEM_LOCATION_TYPE_DEVICE);
	back(start + 2 * MIB, 2 * MIB, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	back(start + 4 * MIB, 2 * MIB, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	refused(cuMemsetD8_v2(across, 1, 1024), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemsetD8_v2(across, 1, 512));
	ok(cuMemsetD32_v2(start + 2 * MIB, 0x01010101, 128));
	ok(cuMemsetD8_v2(start + 4 * MIB - 512, 1, 1024)); /* of one kind: no seam */
	refused(cuMemsetD2D8_v2(across, 512, 1, 1, 2), CUDA_ERROR_INVALID_VALUE);
	launch("touch", 1, 32, NULL, PARAMS(&bytes, &n));
	ok(cuMemcpyDtoH_v2(host, across, sizeof(host)));
	for (int i = 0; i < n; i++)
		assert_int_equal(host[i], 2);
	drop(start, 6 * MIB);
}

static void test_pointers(void **state)
{
	CUdeviceptr start = reserve(6 * MIB), got;
	unsigned type;
	size_t bytes;
	int ordinal;
	void *data[] = {&type, &ordinal};
	CUpointer_attribute which[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};

	(void)state;
	back(start, 2 * MIB, CU_MEM_LOCATION_TYPE_DEVICE);
	back(start + 2 * MIB, 2 * MIB, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	ok(cuPointerGetAttribute(&type, which[0], start + 8));
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	ok(cuPointerGetAttributes(2, which, data, start + 2 * MIB));
	assert_int_equal(type, CU_MEMORYTYPE_HOST);
	assert_int_equal(ordinal, 0);
	ok(cuMemGetAddressRange_v2(&got, &bytes, start + 3 * MIB));
	assert_int_equal(got, start);
	assert_int_equal(bytes, 6 * MIB); /* the whole reservation */
	refused(cuMemGetAddressRange_v2(&got, &bytes, start + 5 * MIB), CUDA_ERROR_NOT_FOUND);
	refused(cuPointerGetAttribute(&type, which[0], (CUdeviceptr)&type),
		CUDA_ERROR_INVALID_VALUE);
	ok(cuPointerGetAttributes(2, which, data, (CUdeviceptr)&type));
	assert_int_equal(type, 0);
	assert_int_equal(ordinal, CU_DEVICE_INVALID);
	ok(cuMemUnmap(start, 4 * MIB));
	ok(cuMemAddressFree(start, 6 * MIB));
}

static void test_register(void **state)
{
	size_t host = used(1), bytes;
	CUdeviceptr got;
	char *memory =
		mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	ok(cuMemHostRegister_v2(memory, 4 * MIB, 0));
	assert_int_equal(used(1), host + 4 * MIB);
	refused(cuMemHostRegister_v2(memory + MIB, MIB, 0),
		CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	ok(cuMemHostGetDevicePointer_v2(&got, memory, 0));
	assert_int_equal(got, (CUdeviceptr)memory);
	ok(cuMemGetAddressRange_v2(NULL, &bytes, (CUdeviceptr)memory + 100));
	assert_int_equal(bytes, 4 * MIB);
	refused(cuMemHostUnregister(memory + 4 * MIB), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	ok(cuMemHostUnregister(memory));
	munmap(memory + 4 * MIB, 4 * MIB);
	refused(cuMemHostRegister_v2(memory, 8 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(used(1), host);
	munmap(memory, 4 * MIB);
}

/* Unmapping does not wait, as measured: who moves memory that queued work still
 * uses is caught under some seed. */
static void test_unmap_does_not_wait(void **state)
{
	int crashed = 0, status, n = 4096;

	(void)state;
#ifdef __SANITIZE_THREAD__
	skip(); /* it loses track of fibres in a forked child */
#endif
	for (uint64_t seed = 1; seed <= 8; seed++) {
		pid_t child = fork();

		if (!child) {
			CUdeviceptr start = reserve(2 * MIB);

			signal(SIGSEGV, SIG_DFL);
			back(start, 2 * MIB, CU_MEM_LOCATION_TYPE_DEVICE);
			soft_seed(seed);
			launch("touch", 4, 64, NULL, PARAMS(&start, &n));
			ok(cuMemUnmap(start, 2 * MIB));
			ok(cuCtxSynchronize());
			_exit(0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		crashed += WIFSIGNALED(status);
	}
	assert_true(crashed > 0);
}

static void test_copies(void **state)
{
	CUdeviceptr a, b;
	size_t pitch;
	char from[64], to[64] = {0};
	CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = from,
		.srcPitch = 16,
		.srcXInBytes = 4,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstY = 1,
		.WidthInBytes = 8,
		.Height = 4};
	CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = to,
		.dstPitch = 8,
		.dstHeight = 2,
		.WidthInBytes = 8,
		.Height = 2,
		.Depth = 2};

	(void)state;
	for (int i = 0; i < 64; i++)
		from[i] = (char)i;
	ok(cuMemAllocPitch_v2(&a, &pitch, 64, 8, 4));
	ok(cuMemAlloc_v2(&b, 8 * pitch));
	rows.dstDevice = a;
	rows.dstPitch = pitch;
	ok(cuMemcpy2D_v2(&rows));
	ok(cuMemcpyDtoD_v2(b, a, 8 * pitch));
	box.srcDevice = b;
	box.srcPitch = pitch;
	box.srcHeight = 2;
	box.srcY = 1; /* beyond the height of a plane */
	refused(cuMemcpy3D_v2(&box), CUDA_ERROR_INVALID_VALUE);
	box.srcDevice += pitch;
	box.srcY = 0;
	ok(cuMemcpy3D_v2(&box));
	rows.dstDevice = b - pitch; /* the first row lies in it, the base does not */
	refused(cuMemcpy2D_v2(&rows), CUDA_ERROR_INVALID_VALUE);
	for (int y = 0; y < 4; y++)
		assert_memory_equal(to + y * 8, from + y * 16 + 4, 8);
	refused(cuMemcpyDtoD_v2(b, (CUdeviceptr)from, 8), CUDA_ERROR_INVALID_VALUE);
	refused(cuMemcpyDtoD_v2(b, a, 9 * pitch), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemcpy((CUdeviceptr)to, (CUdeviceptr)from, 64));
	assert_memory_equal(to, from, 64);
	ok(cuMemFree_v2(a));
	ok(cuMemFree_v2(b));
}

static bool zeros(const char *start, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (start[i])
			return false;
	return true;
}

/* As driver 580.159.04: zeros, at a multiple of 32 MiB. They count for nothing, and as
 * the host's so far as they are told to stay there. */
static void test_managed(void **state)
{
	const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
	const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
	const CUmem_advise prefer = CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
	size_t before[] = {used(0), used(1)};
	CUdeviceptr ptr, other, got;
	unsigned type, is_managed = 0;
	char *bytes;
	size_t all;

	(void)state;
	refused(cuMemAllocManaged(&ptr, 3 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	refused(cuMemAllocManaged(&ptr, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemAllocManaged(&ptr, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
	bytes = (char *)ptr;
	assert_int_equal(ptr % (32 * MIB), 0);
	assert_true(zeros(bytes, 3 * MIB));
	assert_int_equal(used(0), before[0]);
	assert_int_equal(used(1), before[1]);
	bytes[2 * MIB] = 1;
	/* It does not matter who maps it, nor what its middle is told. */
	ok(cuMemAdvise_v2(ptr + MIB, 2 * MIB, prefer, host));
	ok(cuMemAdvise_v2(ptr, 3 * MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, device));
	assert_int_equal(used(1), before[1]);
	ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr));
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	ok(cuMemAdvise_v2(ptr, 2 * MIB, prefer, host));
	assert_int_equal(used(1), before[1] + 2 * MIB);
	for (int i = 0; i < 2; i++) { /* the second time it makes no difference */
		ok(cuMemAdvise_v2(ptr, 3 * MIB, prefer, host));
		assert_int_equal(used(0), before[0]);
		assert_int_equal(used(1), before[1] + 3 * MIB);
	}
	ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr));
	assert_int_equal(type, CU_MEMORYTYPE_HOST);
	ok(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr));
	assert_int_equal(is_managed, 1);
	ok(cuMemGetAddressRange_v2(&got, &all, ptr + MIB));
	assert_int_equal(got, ptr);
	assert_int_equal(all, 3 * MIB);
	assert_int_equal(bytes[2 * MIB], 1);
	refused(cuMemAdvise_v2(ptr, 4 * MIB, prefer, host), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemAlloc_v2(&other, MIB));
	refused(cuMemAdvise_v2(other, MIB, prefer, host), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemFree_v2(other));
	/* And back, and freed from there. */
	ok(cuMemAdvise_v2(ptr, 3 * MIB, prefer, device));
	assert_int_equal(used(0), before[0]);
	assert_int_equal(used(1), before[1]);
	refused(cuMemFree_v2(ptr + MIB), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemFree_v2(ptr));
	assert_true(faults(bytes));
	refused(cuMemFree_v2(ptr), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(used(0), before[0]);
	/* The host has 16 MiB. */
	ok(cuMemAllocManaged(&ptr, 17 * MIB, CU_MEM_ATTACH_GLOBAL));
	refused(cuMemAdvise_v2(ptr, 17 * MIB, prefer, host), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(used(1), before[1]);
	ok(cuMemFree_v2(ptr));
	/* From the host it is freed, too; of which a child has none that is not to be forked. */
	ok(cuMemAllocManaged(&ptr, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
	ok(cuMemAdvise_v2(ptr, 3 * MIB, prefer, host));
	assert_false(faults((char *)ptr));
	assert_true(zeros((char *)ptr, 3 * MIB));
	assert_int_equal(madvise((void *)ptr, 3 * MIB, MADV_DONTFORK), 0);
	assert_true(faults((char *)ptr));
	assert_true(zeros((char *)ptr, 3 * MIB));
	ok(cuMemFree_v2(ptr));
	assert_int_equal(used(1), before[1]);
}

/* With its context it is gone, wherever it was. The last test. */
static void test_managed_ends_with_its_context(void **state)
{
	const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
	CUdeviceptr ptrs[2];

	(void)state;
	for (int i = 0; i < 2; i++)
		ok(cuMemAllocManaged(&ptrs[i], 3 * MIB, CU_MEM_ATTACH_GLOBAL));
	ok(cuMemAdvise_v2(ptrs[0], 3 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
	ok(cuDevicePrimaryCtxReset_v2(0));
	for (int i = 0; i < 2; i++) {
		assert_true(faults((char *)ptrs[i]));
		assert_int_equal(used(i), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pools),
		cmocka_unit_test(test_vmm_accounts_while_mapped),
		cmocka_unit_test(test_hints),
		cmocka_unit_test(test_one_handle_twice),
		cmocka_unit_test(test_seam),
		cmocka_unit_test(test_pointers),
		cmocka_unit_test(test_register),
		cmocka_unit_test(test_unmap_does_not_wait),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_managed),
		cmocka_unit_test(test_managed_ends_with_its_context),
	};

	setenv("SOFTGPU_MEMORY_MIB", "64", 1);
	setenv("SOFTGPU_HOST_MIB", "16", 1);
	return cmocka_run_group_tests(tests, start, NULL);
}
