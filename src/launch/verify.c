/* SPDX-License-Identifier: MIT */
#include "src/launch/verify.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include "kernels/abi.h"
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/cache/device.h"
#include "src/launch/regions.h"
#include "src/memory/memory.h"

#define AREAS 256		     /* captures and eager streams that can be told apart */
#define POOL_BYTES ((size_t)8 << 20) /* hashes of all of them */
#define REPORT_EVERY 64
#define COUNTS_BYTES (AREAS * HS_LAYERS * sizeof(struct pair))

/* As hs_compare_hashes counts. */
struct pair {
	uint64_t rows, different;
};

/* Launches that share one never overlap: those of an eager stream, and those
 * of a stream in one capture. */
struct area {
	CUstream stream;
	unsigned long long capture_id;
	bool per_thread;
	CUdeviceptr hashes;
	uint64_t rows; /* room, on either side of the comparison */
};

static struct {
	_Atomic int state; /* 0 not prepared, 1 ready, -1 stands aside */
	CUdevice device; /* where the pool is */
	CUdeviceptr pool;
	size_t used;
	struct pair *counts; /* [AREAS][HS_LAYERS], ours, mapped for the device */
	CUdeviceptr counts_device;
	struct area areas[AREAS];
	unsigned nareas;
	pthread_mutex_t lock; /* areas, pool; no driver call inside */
	atomic_uint_fast64_t eager, captured, launches, skipped, reports;
	uint64_t said[HS_LAYERS];
} v = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Registered memory of ours, not the driver's: it can still be read at exit. */
static bool map_counts(void)
{
	void *memory = mmap(
		NULL, COUNTS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return false;
	if (hs_driver.cuMemHostRegister_v2(memory, COUNTS_BYTES,
		    CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE) != CUDA_SUCCESS)
		goto unmap;
	if (hs_driver.cuMemHostGetDevicePointer_v2(&v.counts_device, memory, 0) != CUDA_SUCCESS)
		goto unregister;
	v.counts = memory;
	return true;

unregister:
	hs_driver.cuMemHostUnregister(memory);
unmap:
	munmap(memory, COUNTS_BYTES);
	return false;
}

void hs_verify_prepare(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (!hs_options()->verify || atomic_load_explicit(&v.state, memory_order_acquire))
		return;
	if (!hs_window_any())
		return;
	pthread_mutex_lock(&v.lock);
	if (!atomic_load(&v.state)) {
		bool ready;

		/* another thread may be capturing in global mode */
		hs_driver.cuThreadExchangeStreamCaptureMode(&mode);
		ready = hs_driver.cuCtxGetDevice(&v.device) == CUDA_SUCCESS && map_counts() &&
			hs_memory_own(&v.pool, POOL_BYTES) == 0;
		hs_driver.cuThreadExchangeStreamCaptureMode(&mode);
		if (!ready)
			hs_warn("HISPARSE_VERIFY: no memory for it, nothing is checked");
		atomic_store_explicit(&v.state, ready ? 1 : -1, memory_order_release);
	}
	pthread_mutex_unlock(&v.lock);
}

bool hs_verify_due(const struct hs_site *site)
{
	uint64_t every = hs_options()->verify;
	atomic_uint_fast64_t *counter = site->capturing ? &v.captured : &v.eager;

	if (!every || atomic_load_explicit(&v.state, memory_order_acquire) != 1)
		return false;
	return atomic_fetch_add_explicit(counter, 1, memory_order_relaxed) % every == 0;
}

static bool owns(const struct area *area, const struct hs_site *site)
{
	return area->stream == site->stream && area->per_thread == site->per_thread &&
	       area->capture_id == site->capture_id;
}

/* The area of a site with room for `rows` hashes twice, or -1. */
static int find_area(const struct hs_site *site, uint64_t rows, struct area *out)
{
	size_t bytes = (rows * 16 + 255) & ~(size_t)255;
	struct area *area;
	unsigned i;
	int found = -1;

	pthread_mutex_lock(&v.lock);
	for (i = 0; i < v.nareas && !owns(&v.areas[i], site); i++)
		;
	if (i == AREAS)
		goto out;
	area = &v.areas[i];
	if (i == v.nareas || area->rows < rows) {
		if (v.used + bytes > POOL_BYTES)
			goto out;
		*area = (struct area){.stream = site->stream,
			.per_thread = site->per_thread,
			.capture_id = site->capture_id,
			.hashes = v.pool + v.used,
			.rows = bytes / 16};
		v.used += bytes;
		v.nareas += i == v.nareas;
	}
	*out = *area;
	found = (int)i;
out:
	pthread_mutex_unlock(&v.lock);
	return found;
}

static int poison(const struct hs_regions *regions, const struct hs_site *site)
{
	for (unsigned i = 0; i < regions->count; i++) {
		struct hs_poison_args args = {.region = regions->region[i]};
		int error = hs_device_rows(
			HS_DEVICE_POISON, args.region.rows, &args, sizeof(args), site);

		if (error)
			return error;
	}
	return 0;
}

static int hash(const struct hs_regions *regions, CUdeviceptr hashes, const struct hs_site *site)
{
	for (unsigned i = 0; i < regions->count; i++) {
		struct hs_hash_args args = {
			.region = regions->region[i], .hashes = (uint64_t *)(uintptr_t)hashes};
		int error =
			hs_device_rows(HS_DEVICE_HASH, args.region.rows, &args, sizeof(args), site);

		if (error)
			return error;
		hashes += args.region.rows * sizeof(uint64_t);
	}
	return 0;
}

static int reset(const struct hs_profile *profile, const struct hs_expr_values *values,
	const struct hs_site *site)
{
	for (unsigned i = 0; i < profile->nresets; i++) {
		int64_t pointer, bytes;
		CUresult result;

		if (!hs_expr_eval(profile->resets[i].pointer, values, &pointer) ||
			!hs_expr_eval(profile->resets[i].bytes, values, &bytes) || bytes < 0)
			return -1;
		if (!pointer || !bytes)
			continue;
		result = site->per_thread ? hs_driver.cuMemsetD8Async_ptsz((CUdeviceptr)pointer, 0,
						    (size_t)bytes, site->stream)
					  : hs_driver.cuMemsetD8Async((CUdeviceptr)pointer, 0,
						    (size_t)bytes, site->stream);
		if (result != CUDA_SUCCESS)
			return -1;
	}
	return 0;
}

static void skip(void)
{
	atomic_fetch_add_explicit(&v.skipped, 1, memory_order_relaxed);
}

CUresult hs_verify_launch(const struct hs_profile *profile, const struct hs_expr_values *values,
	struct hs_launch *engine, struct hs_launch *remapped, const struct hs_layer *layer,
	const struct hs_site *site)
{
	struct hs_compare_args compare = {0};
	uint32_t id = hs_layer_id(layer);
	struct hs_regions regions;
	struct area area;
	CUdevice device;
	CUresult result;
	int i = -1;
	bool bad;

	if (hs_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS && device == v.device &&
		id < HS_LAYERS && hs_regions_find(&regions, profile, values) &&
		regions.rows <= UINT32_MAX)
		i = find_area(site, regions.rows, &area);
	if (i < 0 || poison(&regions, site) != 0) {
		skip();
		return remapped->forward(remapped);
	}
	result = remapped->forward(remapped);
	if (result != CUDA_SUCCESS)
		return result;
	/* from here on the real outputs are there, and must be so at the end */
	if (hash(&regions, area.hashes, site) != 0) {
		skip();
		return result;
	}
	bad = poison(&regions, site) != 0;
	bad |= reset(profile, values, site) != 0;
	result = engine->forward(engine);
	if (result != CUDA_SUCCESS || bad) {
		skip();
		return result;
	}
	compare.left = (uint64_t *)(uintptr_t)area.hashes;
	compare.right = compare.left + area.rows;
	compare.counts = (uint64_t *)(uintptr_t)(v.counts_device + ((size_t)i * HS_LAYERS + id) *
									   sizeof(struct pair));
	compare.count = (uint32_t)regions.rows;
	if (hash(&regions, area.hashes + area.rows * sizeof(uint64_t), site) != 0 ||
		hs_device_rows(HS_DEVICE_COMPARE, 1, &compare, sizeof(compare), site) != 0)
		skip();
	else
		atomic_fetch_add_explicit(&v.launches, 1, memory_order_relaxed);
	return result;
}

static struct pair sum_layer(unsigned layer)
{
	struct pair sum = {0};

	for (unsigned i = 0; i < v.nareas; i++) {
		const volatile struct pair *p = &v.counts[(size_t)i * HS_LAYERS + layer];

		sum.rows += p->rows;
		sum.different += p->different;
	}
	return sum;
}

void hs_verify_read(struct hs_verify_counts *counts)
{
	*counts = (struct hs_verify_counts){.launches = v.launches, .skipped = v.skipped};
	if (atomic_load_explicit(&v.state, memory_order_acquire) != 1)
		return;
	for (unsigned layer = 0; layer < HS_LAYERS; layer++) {
		struct pair sum = sum_layer(layer);

		counts->rows += sum.rows;
		counts->different += sum.different;
	}
}

void hs_verify_report(void)
{
	/* safe moments are many, and this reads every counter */
	if (atomic_load_explicit(&v.state, memory_order_acquire) != 1 ||
		atomic_fetch_add_explicit(&v.reports, 1, memory_order_relaxed) % REPORT_EVERY)
		return;
	for (unsigned layer = 0; layer < HS_LAYERS; layer++) {
		struct pair sum = sum_layer(layer);

		if (sum.different && !v.said[layer])
			hs_error("verify: layer %u: %llu of %llu rows differ from the engine's"
				 " own list",
				layer, (unsigned long long)sum.different,
				(unsigned long long)sum.rows);
		v.said[layer] = sum.different;
	}
}
