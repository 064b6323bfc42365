/* SPDX-License-Identifier: MIT */
#include <cuda.h>
#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "tools/bench/swapin_abi.h"
#include "tools/hisparse/doctor.h"
#include "tools/hisparse/place.h"

extern const unsigned char swapin_image[]; /* tools/bench/swapin.cu */

/* The entries that are needed, by the names that cuda.h gives them. */
#define ENTRIES(X)                                                                                 \
	X(cuInit)                                                                                  \
	X(cuDriverGetVersion)                                                                      \
	X(cuDeviceGetCount)                                                                        \
	X(cuDeviceGetName)                                                                         \
	X(cuDeviceTotalMem)                                                                        \
	X(cuDeviceGetAttribute)                                                                    \
	X(cuDeviceGetPCIBusId)                                                                     \
	X(cuDevicePrimaryCtxRetain)                                                                \
	X(cuDevicePrimaryCtxRelease)                                                               \
	X(cuCtxSetCurrent)                                                                         \
	X(cuCtxSynchronize)                                                                        \
	X(cuMemAlloc)                                                                              \
	X(cuMemFree)                                                                               \
	X(cuModuleLoadData)                                                                        \
	X(cuModuleUnload)                                                                          \
	X(cuModuleGetFunction)                                                                     \
	X(cuLaunchKernel)                                                                          \
	X(cuMemHostAlloc)                                                                          \
	X(cuMemFreeHost)                                                                           \
	X(cuMemcpyHtoD)
/* The latter since CUDA 12.2. */
#define OPTIONAL(X)                                                                                \
	X(cuMemAllocManaged)                                                                       \
	X(cuMemAdvise_v2)

#define TEXT(name) TEXT_(name)
#define TEXT_(name) #name
static struct {
#define X(name) __typeof__(name) *p_##name;
	ENTRIES(X)
	OPTIONAL(X)
#undef X
} driver;

/* Returns the entry that is missing, or NULL. */
static const char *load(void *library)
{
#define X(name)                                                                                    \
	driver.p_##name = (__typeof__(name) *)dlsym(library, TEXT(name));                          \
	if (!driver.p_##name)                                                                      \
		return TEXT(name);
	ENTRIES(X)
#undef X
#define X(name) driver.p_##name = (__typeof__(name) *)dlsym(library, TEXT(name));
	OPTIONAL(X)
#undef X
	return NULL;
}

static double seconds_since(const struct timespec *start)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	return (double)(end.tv_sec - start->tv_sec) + (double)(end.tv_nsec - start->tv_nsec) * 1e-9;
}

/* The best of a few copies from pinned memory, in GB/s; 0 if it cannot be told. */
static double copy_rate(CUdevice device)
{
	const size_t bytes = (size_t)64 << 20;
	CUcontext context;
	CUdeviceptr to = 0;
	void *from = NULL;
	double best = 0;

	if (driver.p_cuDevicePrimaryCtxRetain(&context, device))
		return 0;
	if (driver.p_cuCtxSetCurrent(context) ||
		driver.p_cuMemHostAlloc(&from, bytes, CU_MEMHOSTALLOC_PORTABLE) ||
		driver.p_cuMemAlloc(&to, bytes))
		goto out;
	for (int turn = 0; turn < 5; turn++) {
		struct timespec start;
		double seconds;

		clock_gettime(CLOCK_MONOTONIC, &start);
		if (driver.p_cuMemcpyHtoD(to, from, bytes) || driver.p_cuCtxSynchronize())
			goto out;
		seconds = seconds_since(&start);
		if (seconds > 0 && (double)bytes / seconds / 1e9 > best)
			best = (double)bytes / seconds / 1e9;
	}
out:
	if (to)
		driver.p_cuMemFree(to);
	if (from)
		driver.p_cuMemFreeHost(from);
	driver.p_cuDevicePrimaryCtxRelease(device);
	return best;
}

/* Random rows of a pool that the GPU's TLB covers whatever the pages. Beyond about a GiB
 * pinned memory pays for pages, too (driver 580.159.04). */
enum {
	ROW = 656,
	ROWS = 65536,
	POOL = 512 << 20,
	POOL_ROWS = POOL / ROW,
	GRANULE = 2 << 20,
	BLOCKS = 264,
	THREADS = 512,
	TURNS = 5
};

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

/* As the library has it (src/memory/managed.h), none of which is linked here. NULL where
 * it would not. */
static void *managed_pool(CUdevice device)
{
	const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST},
			    gpu = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
	const char *wanted = getenv("HISPARSE_HOST_MEMORY");
	CUdeviceptr pool = 0;
	int able = 0;

	if ((wanted && *wanted && strcmp(wanted, "managed") != 0) || !driver.p_cuMemAllocManaged ||
		!driver.p_cuMemAdvise_v2 ||
		driver.p_cuDeviceGetAttribute(
			&able, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device) ||
		!able || driver.p_cuMemAllocManaged(&pool, POOL, CU_MEM_ATTACH_GLOBAL))
		return NULL;
	if (driver.p_cuMemAdvise_v2(pool, POOL, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host) ||
		driver.p_cuMemAdvise_v2(pool, POOL, CU_MEM_ADVISE_SET_ACCESSED_BY, gpu))
		goto free;
	for (CUdeviceptr at = pool; at < pool + POOL; at += GRANULE)
		if (madvise((void *)(uintptr_t)at, 4096, MADV_POPULATE_WRITE))
			goto free;
	return (void *)(uintptr_t)pool;
free:
	driver.p_cuMemFree(pool);
	return NULL;
}

/* What a gather of KV rows from host memory gives, in GB/s; 0 if it cannot be told. *memory:
 * which kind it is, the first of those that the library tries and that is to be had. */
static double gather_rate(CUdevice device, const char **memory)
{
	const size_t lists = (ROWS + 1) * sizeof(int32_t);
	struct hs_swapin_gather_args args = {.row = ROW};
	void *pool = NULL, *pinned = NULL, *list = NULL, *params[] = {&args};
	CUmodule module = NULL;
	CUdeviceptr out = 0;
	CUfunction gather;
	CUcontext context;
	uint32_t random = 1;
	double best = 0;

	if (driver.p_cuDevicePrimaryCtxRetain(&context, device))
		return 0;
	if (driver.p_cuCtxSetCurrent(context) || driver.p_cuModuleLoadData(&module, swapin_image) ||
		driver.p_cuModuleGetFunction(&gather, module, "hs_swapin_gather"))
		goto out;
	pool = managed_pool(device);
	*memory = pool ? "managed" : "pinned";
	if ((!pool && driver.p_cuMemHostAlloc(&pinned, POOL, CU_MEMHOSTALLOC_PORTABLE)) ||
		driver.p_cuMemHostAlloc(&list, lists, CU_MEMHOSTALLOC_PORTABLE) ||
		driver.p_cuMemAlloc(&out, lists + (size_t)ROWS * ROW))
		goto out;
	/* The number of rows, then their slots; on the device the rows come first. */
	((uint32_t *)list)[0] = ROWS;
	for (int i = 1; i <= ROWS; i++) {
		random = random * 1664525 + 1013904223;
		((int32_t *)list)[i] = (int32_t)(((uint64_t)random * POOL_ROWS) >> 32);
	}
	args.window = pool ? pool : pinned;
	args.out = (void *)(uintptr_t)out;
	args.count = (const uint32_t *)(uintptr_t)(out + (size_t)ROWS * ROW);
	args.slots = (const int32_t *)args.count + 1;
	if (driver.p_cuMemcpyHtoD((CUdeviceptr)(uintptr_t)args.count, list, lists))
		goto out;
	for (int turn = 0; turn < TURNS; turn++) {
		struct timespec start;
		double rate;

		clock_gettime(CLOCK_MONOTONIC, &start);
		if (driver.p_cuLaunchKernel(
			    gather, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL) ||
			driver.p_cuCtxSynchronize()) {
			best = 0;
			goto out;
		}
		rate = (double)ROWS * ROW / seconds_since(&start) / 1e9;
		best = rate > best ? rate : best;
	}
out:
	if (out)
		driver.p_cuMemFree(out);
	if (list)
		driver.p_cuMemFreeHost(list);
	if (pool)
		driver.p_cuMemFree((CUdeviceptr)(uintptr_t)pool);
	if (pinned)
		driver.p_cuMemFreeHost(pinned);
	if (module)
		driver.p_cuModuleUnload(module);
	driver.p_cuDevicePrimaryCtxRelease(device);
	return best;
}

static void read_line(char *out, size_t room, const char *root, const char *bus, const char *name)
{
	char path[PATH_MAX];
	FILE *file;

	*out = '\0';
	snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/%s", root, bus, name);
	file = fopen(path, "r");
	if (!file)
		return;
	if (fgets(out, (int)room, file))
		out[strcspn(out, "\n")] = '\0';
	fclose(file);
}

/* A link that is asleep tells a low speed: only the width and the most it can count. */
static void report_link(struct hs_findings *findings, const char *root, int index, char *bus)
{
	char speed[64], width[16], most[16], node[16];

	for (char *at = bus; *at; at++)
		*at = (char)tolower((unsigned char)*at);
	read_line(speed, sizeof(speed), root, bus, "max_link_speed");
	read_line(width, sizeof(width), root, bus, "current_link_width");
	read_line(most, sizeof(most), root, bus, "max_link_width");
	read_line(node, sizeof(node), root, bus, "numa_node");
	if (*speed)
		hs_find(findings, strcmp(width, most) ? HS_ACT : HS_FINE, "link",
			strcmp(width, most)
				? "fewer lanes than the GPU has: reseat it, or take another slot"
				: NULL,
			"GPU %d at %s: %s, %s of %s lanes, NUMA node %s", index, bus, speed, width,
			most, *node ? node : "unknown");
}

static void report_gpu(
	struct hs_findings *findings, const char *root, int index, CUdevice device, bool measure)
{
	char name[96] = "", bus[32] = "";
	int major = 0, minor = 0;
	size_t total = 0;
	const char *memory = "pinned";
	double rate;

	driver.p_cuDeviceGetName(name, sizeof(name), device);
	driver.p_cuDeviceTotalMem(&total, device);
	driver.p_cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
	driver.p_cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
	/* Swap-in rewrites lists of sm90's kernels; those of sm100 read rows through
	 * tensor maps (hooks/profiles/flashmla.profile). */
	hs_find(findings, major == 9 ? HS_FINE : HS_ACT, "GPU",
		major == 9 ? NULL
			   : "only kernels of sm_90 are known; others run as if nothing were there",
		"GPU %d: %s, sm_%d%d, %.1f GiB", index, name, major, minor,
		(double)total / 1073741824.);
	if (!driver.p_cuDeviceGetPCIBusId(bus, sizeof(bus), device))
		report_link(findings, root, index, bus);
	if (!measure)
		return;
	rate = copy_rate(device);
	if (rate <= 0)
		hs_find(findings, HS_ACT, "copy", "is the GPU's or the host's memory full?",
			"GPU %d: a copy of 64 MiB from pinned memory failed", index);
	else
		hs_find(findings, rate < 40 ? HS_ACT : HS_FINE, "copy",
			rate < 40 ? "PCIe 5 x16 gives 55: misses will cost that much more; look at "
				    "the "
				    "link, other users of it, and the NUMA node"
				  : NULL,
			"GPU %d: %.1f GB/s from pinned memory", index, rate);
	rate = gather_rate(device, &memory);
	if (rate > 0)
		hs_find(findings, rate < 30 ? HS_ACT : HS_FINE, "gather",
			rate < 30 ? "an H200 on PCIe 5 gives 45: misses will cost that much more; "
				    "look at what the copy needs, and at who else uses the GPU"
				  : NULL,
			"GPU %d: rows of %d bytes at %.1f GB/s from %s memory", index, ROW, rate,
			memory);
	else
		hs_find(findings, HS_NOTE, "gather",
			"it needs 512 MiB of host memory, and a GPU of sm_75 or later",
			"GPU %d: no gather of rows from host memory", index);
}

void hs_doctor_gpus(struct hs_findings *findings, const char *root, bool measure)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	const char *missing;
	int version = 0, count = 0, err;

	if (!library) {
		hs_find(findings, HS_ACT, "driver",
			"install NVIDIA's driver, or give the container its GPUs (--gpus all); "
			"plan, "
			"replay, synth and plot work without",
			"no libcuda.so.1: nothing can be served here");
		return;
	}
	missing = load(library);
	if (missing) {
		hs_find(findings, HS_ACT, "driver", "install a driver of CUDA 12 or later",
			"libcuda.so.1 has no %s", missing);
		return;
	}
	driver.p_cuDriverGetVersion(&version);
	err = (int)driver.p_cuInit(0);
	if (!err)
		err = (int)driver.p_cuDeviceGetCount(&count);
	if (err || !count) {
		hs_find(findings, HS_ACT, "driver",
			"look at nvidia-smi and at CUDA_VISIBLE_DEVICES",
			"a driver for CUDA %d.%d, but no GPU (error %d)", version / 1000,
			version % 1000 / 10, err);
		return;
	}
	hs_find(findings, version < 12000 ? HS_ACT : HS_FINE, "driver",
		version < 12000 ? "install a driver of CUDA 12 or later" : NULL,
		"CUDA %d.%d, %d GPU%s", version / 1000, version % 1000 / 10, count,
		count > 1 ? "s" : "");
	for (int index = 0; index < count; index++)
		report_gpu(findings, root, index, index, measure);
}

void hs_doctor_library(struct hs_findings *findings)
{
	char path[PATH_MAX];
	void *library;

	if (hs_place_library(path)) {
		hs_find(findings, HS_ACT, "library", "set HISPARSE_LIBRARY to libhisparse.so",
			"libhisparse.so is not where this command was built or installed");
		return;
	}
	library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (library)
		hs_find(findings, HS_FINE, "library", NULL, "%s", path);
	else
		hs_find(findings, HS_ACT, "library", "rebuild it on this machine", "%s", dlerror());
}
