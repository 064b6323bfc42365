/* SPDX-License-Identifier: MIT */
/*
 * Description: two processes, both with the library and with windows of their
 * own, share memory as the driver lets them: memory of cuMemAlloc by handle, of
 * cuMemCreate by file descriptor. A window has no handle, which is an error that
 * hurts nobody.
 *
 * usage: share
 */
#include "touch.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES ((size_t)65536)
#define GRANULE (2 * MIB)

static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static CUdeviceptr map(CUmemGenericAllocationHandle handle)
{
	const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr ptr;

	CHECK(cuMemAddressReserve(&ptr, GRANULE, 0, 0, 0));
	CHECK(cuMemMap(ptr, GRANULE, 0, handle, 0));
	CHECK(cuMemSetAccess(ptr, GRANULE, &access, 1));
	return ptr;
}

static void unmap(CUdeviceptr ptr)
{
	CHECK(cuMemUnmap(ptr, GRANULE));
	CHECK(cuMemAddressFree(ptr, GRANULE));
}

static void expect(CUdeviceptr ptr, unsigned char value, size_t bytes)
{
	unsigned char *host = malloc(bytes);
	size_t wrong = 0;

	CHECK(cuMemcpyDtoH_v2(host, ptr, bytes));
	for (size_t i = 0; i < bytes; i++)
		wrong += host[i] != value;
	EXPECT(!wrong);
	free(host);
}

/* The other process: input is the handle, then memory by descriptor 3. */
static void be_the_other(void)
{
	struct touch window;
	CUipcMemHandle handle;
	CUmemGenericAllocationHandle imported;
	CUdeviceptr ptr;

	EXPECT(read(STDIN_FILENO, &handle, sizeof(handle)) == sizeof(handle));
	touch_start();
	touch_make(&window, TOUCH_WINDOW, 12 * MIB);
	CHECK(cuIpcOpenMemHandle_v2(&ptr, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	expect(ptr, 1, BYTES);
	CHECK(cuMemcpyDtoD_v2(window.ptr + SEAM - 77, ptr, BYTES));
	memset(window.model + SEAM - 77, 1, BYTES);
	touch_check(&window, SEAM - 77, "from the other's memory");
	CHECK(cuMemsetD8_v2(ptr, 2, BYTES));
	CHECK(cuCtxSynchronize());
	CHECK(cuIpcCloseMemHandle(ptr));
	CHECK(cuMemImportFromShareableHandle(
		&imported, (void *)(uintptr_t)3, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	ptr = map(imported);
	CHECK(cuMemRelease(imported));
	expect(ptr, 3, GRANULE);
	CHECK(cuMemsetD8_v2(ptr, 4, GRANULE));
	CHECK(cuCtxSynchronize());
	unmap(ptr);
	touch_heat(&window, SEAM);
	touch_free(&window);
}

int main(int argc, char **argv)
{
	CUmemGenericAllocationHandle created, of_window;
	CUdeviceptr ordinary, mapped;
	struct touch window;
	CUipcMemHandle handle;
	int pipes[2], fd = -1, status;
	pid_t child;

	if (argc > 1 && !strcmp(argv[1], "other")) {
		be_the_other();
		return 0;
	}
	touch_start();
	touch_make(&window, TOUCH_WINDOW, 12 * MIB);
	/* As memory that was mapped, and at no offset. */
	CHECK(cuMemCreate(&created, GRANULE, &prop, 0));
	mapped = map(created);
	EXPECT(cuIpcGetMemHandle(&handle, window.ptr) == cuIpcGetMemHandle(&handle, mapped));
	EXPECT(cuIpcGetMemHandle(&handle, window.ptr) != CUDA_SUCCESS);
	EXPECT(cuIpcGetMemHandle(&handle, window.ptr + 5 * MIB) != CUDA_SUCCESS);
	EXPECT(cuMemRetainAllocationHandle(&of_window, (void *)window.ptr) != CUDA_SUCCESS);
	CHECK(cuMemAlloc_v2(&ordinary, BYTES));
	CHECK(cuMemsetD8_v2(ordinary, 1, BYTES));
	CHECK(cuMemsetD8_v2(mapped, 3, GRANULE));
	CHECK(cuCtxSynchronize());
	CHECK(cuIpcGetMemHandle(&handle, ordinary));
	CHECK(cuMemExportToShareableHandle(
		&fd, created, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	EXPECT(!pipe(pipes));
	child = fork();
	if (!child) {
		dup2(pipes[0], STDIN_FILENO);
		if (fd != 3)
			dup2(fd, 3);
		execl("/proc/self/exe", argv[0], "other", NULL);
		_exit(127);
	}
	EXPECT(write(pipes[1], &handle, sizeof(handle)) == sizeof(handle));
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	expect(ordinary, 2, BYTES);
	expect(mapped, 4, GRANULE);
	touch_check(&window, SEAM, "beside the other process");
	touch_heat(&window, SEAM);
	unmap(mapped);
	CHECK(cuMemRelease(created));
	CHECK(cuMemFree_v2(ordinary));
	touch_free(&window);
	printf("share: both processes as the driver lets them\n");
	return 0;
}
