/* SPDX-License-Identifier: MIT */
#include "softgpu/soft.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Memory of cuMemAlloc between processes: what is given a handle comes to lie in
 * a file that the other process opens. Mapped memory has none, as measured
 * (driver 580). */

#define PAGE ((size_t)4096)

struct handle {
	int pid, fd;
	size_t bytes;
	uint64_t start; /* of the allocation: two handles of one are the same */
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "a handle holds it");

static size_t pages(size_t bytes)
{
	return (bytes + PAGE - 1) & ~(PAGE - 1);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr ptr)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_range *range = soft_range_find(ptr);
	struct handle handle = {.pid = getpid(), .fd = -1};

	if (!out || !range || range->kind != SOFT_ALLOC || soft_managed(ptr, 1))
		return CUDA_ERROR_INVALID_VALUE;
	soft_run_all();
	handle.bytes = range->bytes;
	handle.start = range->start;
	if (!range->fd) {
		const size_t bytes = pages(range->bytes);
		int fd = memfd_create("softgpu ipc", MFD_CLOEXEC);

		if (fd < 0 || ftruncate(fd, (off_t)bytes) ||
			pwrite(fd, (void *)range->start, range->bytes, 0) !=
				(ssize_t)range->bytes ||
			mmap((void *)range->start, bytes, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
			return CUDA_ERROR_OPERATING_SYSTEM;
		range->fd = fd;
	}
	handle.fd = range->fd;
	memset(out, 0, sizeof(*out));
	memcpy(out, &handle, sizeof(handle));
	return CUDA_SUCCESS;
}

static CUresult ipc_open(CUdeviceptr *out, const CUipcMemHandle *in, unsigned flags)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	struct handle handle;
	char path[64];
	void *start;
	int fd;

	memcpy(&handle, in, sizeof(handle));
	if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || handle.pid == getpid())
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle.pid, handle.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	start = mmap(NULL, pages(handle.bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (start == MAP_FAILED || !soft_range_add((uintptr_t)start, handle.bytes, SOFT_OPENED))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = (CUdeviceptr)start;
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
	return ipc_open(out, &handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	struct soft_range *range = soft_range_find(ptr);

	if (!range || range->start != ptr || range->kind != SOFT_OPENED)
		return CUDA_ERROR_INVALID_VALUE;
	soft_run_all();
	munmap((void *)range->start, pages(range->bytes));
	soft_range_remove(range);
	return CUDA_SUCCESS;
}
