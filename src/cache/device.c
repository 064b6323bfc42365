/* SPDX-License-Identifier: MIT */
#include "src/cache/device.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "src/base/log.h"
#include "src/cache/notes.h"
#include "src/memory/memory.h"

#define COUNTS_BYTES ((size_t)HS_LAYERS * HS_COUNTS * sizeof(uint64_t))

extern const unsigned char hs_kernel_image[] __attribute__((visibility("hidden")));

static const struct {
	const char *name;
	size_t bytes; /* of its arguments */
} kernels[HS_DEVICE_KERNELS] = {
	[HS_DEVICE_PREPARE] = {"hs_prepare", sizeof(struct hs_prepare_args)},
	[HS_DEVICE_RESOLVE] = {"hs_resolve", sizeof(struct hs_resolve_args)},
	[HS_DEVICE_MANY_MARK] = {"hs_many_mark", sizeof(struct hs_many_args)},
	[HS_DEVICE_MANY_RANK] = {"hs_many_rank", sizeof(struct hs_many_args)},
	[HS_DEVICE_MANY_HOT] = {"hs_many_hot", sizeof(struct hs_resolve_args)},
	[HS_DEVICE_MANY_GATHER] = {"hs_many_gather", sizeof(struct hs_many_args)},
	[HS_DEVICE_MANY_REMAP] = {"hs_many_remap", sizeof(struct hs_many_args)},
	[HS_DEVICE_KEEP] = {"hs_keep", sizeof(struct hs_keep_args)},
	[HS_DEVICE_INVALIDATE] = {"hs_invalidate", sizeof(struct hs_invalidate_args)},
	[HS_DEVICE_DROP] = {"hs_drop", sizeof(struct hs_drop_args)},
	[HS_DEVICE_FORGET] = {"hs_forget", sizeof(struct hs_forget_args)},
	[HS_DEVICE_BLOCKS] = {"hs_blocks", sizeof(struct hs_blocks_args)},
	[HS_DEVICE_BLOCKS_DONE] = {"hs_blocks_done", sizeof(struct hs_blocks_args)},
	[HS_DEVICE_POISON] = {"hs_poison", sizeof(struct hs_poison_args)},
	[HS_DEVICE_HASH] = {"hs_hash_rows", sizeof(struct hs_hash_args)},
	[HS_DEVICE_COMPARE] = {"hs_compare_hashes", sizeof(struct hs_compare_args)},
};

static struct hs_device *_Atomic devices[HS_DEVICES];
static struct hs_device *_Atomic newest;
static bool failed[HS_DEVICES]; /* said once, not tried again */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* First use of a kernel loads its code, which a capture does not allow. */
static CUresult load_kernels(struct hs_device *device)
{
	CUresult result = hs_driver.cuModuleLoadData(&device->module, hs_kernel_image);

	for (unsigned i = 0; i < HS_DEVICE_KERNELS && result == CUDA_SUCCESS; i++) {
		result = hs_driver.cuModuleGetFunction(
			&device->kernels[i], device->module, kernels[i].name);
		if (result == CUDA_SUCCESS && hs_driver.cuFuncLoad)
			result = hs_driver.cuFuncLoad(device->kernels[i]);
	}
	return result;
}

/* Registered memory of ours, not the driver's: it can still be read at exit. */
static CUresult map_counts(struct hs_device *device)
{
	void *memory = mmap(
		NULL, COUNTS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUresult result;

	if (memory == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = hs_driver.cuMemHostRegister_v2(
		memory, COUNTS_BYTES, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE);
	if (result != CUDA_SUCCESS)
		goto unmap;
	result = hs_driver.cuMemHostGetDevicePointer_v2(&device->counts_device, memory, 0);
	if (result != CUDA_SUCCESS)
		goto unregister;
	device->counts = memory;
	return CUDA_SUCCESS;

unregister:
	hs_driver.cuMemHostUnregister(memory);
unmap:
	munmap(memory, COUNTS_BYTES);
	return result;
}

static int make(CUdevice id)
{
	struct hs_device *device = calloc(1, sizeof(*device));
	int error = -EIO, processors;
	CUresult result;

	if (!device)
		return -ENOMEM;
	device->id = id;
	result = hs_driver.cuCtxGetCurrent(&device->context);
	if (result == CUDA_SUCCESS)
		result = hs_driver.cuDeviceGetAttribute(
			&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, id);
	if (result == CUDA_SUCCESS)
		result = load_kernels(device);
	if (result != CUDA_SUCCESS) {
		hs_warn("our kernels do not load on device %d (driver error %d): rows are read "
			"in place",
			id, result);
		goto unload;
	}
	device->processors = (unsigned)processors;
	result = map_counts(device);
	if (result != CUDA_SUCCESS) {
		hs_warn("no mapped memory for counters (driver error %d): rows are read in place",
			result);
		goto unload;
	}
	error = hs_memory_own(&device->table, sizeof(struct hs_table));
	if (error) {
		hs_warn("no device memory for the layer table (%zu bytes): rows are read in place",
			sizeof(struct hs_table));
		goto unmap;
	}
	device->next = atomic_load(&newest);
	atomic_store_explicit(&newest, device, memory_order_release);
	atomic_store_explicit(&devices[id], device, memory_order_release);
	return 0;

unmap:
	hs_driver.cuMemHostUnregister(device->counts);
	munmap(device->counts, COUNTS_BYTES);
unload:
	if (device->module)
		hs_driver.cuModuleUnload(device->module);
	free(device);
	return error;
}

int hs_device_ready(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdevice id;
	int error = 0;

	if (hs_driver.cuCtxGetDevice(&id) != CUDA_SUCCESS || id < 0 || id >= HS_DEVICES)
		return -ENODEV;
	if (hs_device_get(id))
		return 0;
	pthread_mutex_lock(&lock);
	if (failed[id]) {
		error = -EIO;
	} else if (!hs_device_get(id)) {
		/* Another thread may be capturing in global mode. */
		hs_driver.cuThreadExchangeStreamCaptureMode(&mode);
		error = make(id);
		hs_driver.cuThreadExchangeStreamCaptureMode(&mode);
		failed[id] = error != 0;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

/* The struct and the counters stay: someone may be about to read them. */
CUdevice hs_device_gone(CUcontext context)
{
	CUdevice gone = -1;

	pthread_mutex_lock(&lock);
	for (CUdevice id = 0; id < HS_DEVICES; id++) {
		struct hs_device *device = hs_device_get(id);

		if (!device || device->context != context)
			continue;
		atomic_store(&devices[id], NULL);
		gone = id;
	}
	pthread_mutex_unlock(&lock);
	return gone;
}

struct hs_device *hs_device_get(CUdevice id)
{
	if (id < 0 || id >= HS_DEVICES)
		return NULL;
	return atomic_load_explicit(&devices[id], memory_order_acquire);
}

struct hs_device *hs_device_newest(void)
{
	return atomic_load_explicit(&newest, memory_order_acquire);
}

struct hs_device *hs_device_current(void)
{
	CUdevice id;

	return hs_driver.cuCtxGetDevice(&id) == CUDA_SUCCESS ? hs_device_get(id) : NULL;
}

CUdeviceptr hs_device_entry(const struct hs_device *device, uint32_t layer)
{
	return device->table + offsetof(struct hs_table, entries) + layer * sizeof(struct hs_entry);
}

CUdeviceptr hs_device_word(const struct hs_device *device, uint32_t lane)
{
	return device->table + offsetof(struct hs_table, words) + lane * sizeof(uint32_t);
}

int hs_device_launch(const struct hs_device *device, enum hs_device_kernel kernel, unsigned blocks,
	unsigned threads, const void *args, size_t bytes, const struct hs_site *site)
{
	void *params[] = {(void *)(uintptr_t)args};
	CUfunction function = device->kernels[kernel];
	CUresult result;

	if (bytes != kernels[kernel].bytes)
		return -EINVAL;
	if (!threads)
		threads = HS_THREADS;
	if (site->per_thread)
		result = hs_driver.cuLaunchKernel_ptsz(
			function, blocks, 1, 1, threads, 1, 1, 0, site->stream, params, NULL);
	else
		result = hs_driver.cuLaunchKernel(
			function, blocks, 1, 1, threads, 1, 1, 0, site->stream, params, NULL);
	if (result != CUDA_SUCCESS)
		return -EIO;
	if (site->capturing)
		hs_notes_add(site, NULL);
	return 0;
}

int hs_device_rows(enum hs_device_kernel kernel, uint64_t rows, const void *args, size_t bytes,
	const struct hs_site *site)
{
	struct hs_device *device = hs_device_current();
	uint64_t blocks = (rows + HS_WARPS - 1) / HS_WARPS;

	if (!device)
		return -ENODEV;
	if (blocks > 8 * (uint64_t)device->processors)
		blocks = 8 * (uint64_t)device->processors;
	return hs_device_launch(
		device, kernel, blocks ? (unsigned)blocks : 1, 0, args, bytes, site);
}
