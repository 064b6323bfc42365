/* SPDX-License-Identifier: MIT */
#include "tools/bench/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "src/base/options.h"

/* One reservation for all hot areas, above every window, as the library has
 * its. Driver 580.159 takes a hint only at a multiple of 32 MiB and not for a
 * small size (src/memory/arena.h): an area of a few thousand rows alone got an
 * address out of reach. */
#define HOT_SPAN (UINT64_C(64) << 30)
#define HOT_STEP (UINT64_C(32) << 20)

/* GiB above the first window, to try in this order. */
static const uint64_t hot_above[] = {768, 640, 512, 256, 128, 832};

struct hot {
	CUdeviceptr base, start; /* of the layer; of its first hot row */
	CUdeviceptr mapped_at;
	size_t bytes, mapped; /* asked for; mapped */
	CUmemGenericAllocationHandle handle;
};

static struct {
	struct hs_window windows[HS_BENCH_WINDOWS];
	uint32_t window_count;
	struct hot hots[HS_BENCH_WINDOWS];
	CUdeviceptr span; /* HOT_SPAN bytes for hot areas, or 0 */
	size_t span_used;
	CUdeviceptr own;
	size_t own_bytes, own_used;
	struct hs_options options;
} bench;

const struct hs_options *hs_options(void)
{
	return &bench.options;
}

int hs_bench_memory_open(size_t own, uint32_t slots, int policy)
{
	CUdeviceptr arena;

	if (hs_driver.cuMemAlloc_v2(&arena, own) != CUDA_SUCCESS)
		return -ENOMEM;
	if (hs_driver.cuMemsetD8_v2(arena, 0, own) != CUDA_SUCCESS) {
		hs_driver.cuMemFree_v2(arena);
		return -EIO;
	}
	memset(&bench, 0, sizeof(bench));
	bench.own = arena;
	bench.own_bytes = own;
	bench.options = (struct hs_options){.slots = slots,
		.host_bytes = HS_AUTO,
		.gpu_bytes = HS_AUTO,
		.row = 656,
		.policy = policy,
		.place = HS_OPTION_HOST,
		.window_bytes = HS_GRANULE,
		.log = 1};
	return 0;
}

void hs_bench_memory_close(void)
{
	for (size_t i = 0; i < HS_BENCH_WINDOWS; i++)
		if (bench.hots[i].start)
			hs_memory_cold(bench.hots[i].start);
	if (bench.span)
		hs_driver.cuMemAddressFree(bench.span, HOT_SPAN);
	if (bench.own)
		hs_driver.cuMemFree_v2(bench.own);
	memset(&bench, 0, sizeof(bench));
}

struct hs_window *hs_bench_window(CUdeviceptr start, size_t bytes, uint32_t row, bool any_order)
{
	struct hs_window *window;

	if (bench.window_count == HS_BENCH_WINDOWS)
		return NULL;
	window = &bench.windows[bench.window_count];
	window->start = start;
	window->bytes = window->requested = bytes;
	window->id = bench.window_count++;
	window->use = HS_USE_KV;
	window->place = HS_PLACE_HOST;
	window->row = row;
	window->any_order = any_order;
	return window;
}

void hs_bench_hot(CUdeviceptr base, uint32_t row, uint32_t *low, uint32_t *count)
{
	*low = *count = 0;
	for (size_t i = 0; i < HS_BENCH_WINDOWS; i++) {
		const struct hot *hot = &bench.hots[i];

		if (hot->start && hot->base == base) {
			*low = (uint32_t)((hot->start - base) / row);
			*count = (uint32_t)(hot->bytes / row);
		}
	}
}

void hs_bench_taken(size_t *own, size_t *hot)
{
	*own = bench.own_used;
	*hot = 0;
	for (size_t i = 0; i < HS_BENCH_WINDOWS; i++)
		*hot += bench.hots[i].bytes;
}

struct hs_window *hs_window_find(CUdeviceptr ptr)
{
	for (uint32_t i = 0; i < bench.window_count; i++)
		if (ptr - bench.windows[i].start < bench.windows[i].bytes)
			return &bench.windows[i];
	return NULL;
}

bool hs_window_any(void)
{
	return bench.window_count > 0;
}

void hs_window_span(CUdeviceptr *low, size_t *span)
{
	CUdeviceptr end = 0;

	*low = bench.window_count ? bench.windows[0].start : 0;
	for (uint32_t i = 0; i < bench.window_count; i++) {
		const struct hs_window *window = &bench.windows[i];

		*low = window->start < *low ? window->start : *low;
		end = window->start + window->bytes > end ? window->start + window->bytes : end;
	}
	*span = end - *low;
}

void hs_window_each(void (*visit)(struct hs_window *window, void *data), void *data)
{
	for (uint32_t i = 0; i < bench.window_count; i++)
		visit(&bench.windows[i], data);
}

void hs_window_reveal(struct hs_window *window, enum hs_use use, uint32_t row)
{
	(void)use;
	window->row = row ? row : window->row;
}

size_t hs_memory_reserve(void)
{
	return bench.own_bytes - bench.own_used;
}

CUdeviceptr hs_window_host_begins(struct hs_window *window, CUdeviceptr start, CUdeviceptr end)
{
	return start < window->start + HS_GRANULE ? window->start + HS_GRANULE
	       : start < end			  ? start
						  : end;
}

void hs_memory_mark(void)
{
}

int hs_memory_own(CUdeviceptr *out, size_t bytes)
{
	bytes = (bytes + 511) & ~(size_t)511;
	if (bytes > bench.own_bytes - bench.own_used)
		return -ENOMEM;
	*out = bench.own + bench.own_used;
	bench.own_used += bytes;
	return 0;
}

/* The arena goes as a whole. */
void hs_memory_disown(CUdeviceptr ptr)
{
	(void)ptr;
}

/* Whether base + index * row reaches all of it with an int32. */
static bool addressable(const struct hot *hot, uint32_t row)
{
	return hot->mapped_at > hot->base &&
	       (hot->mapped_at - hot->base + hot->mapped) / row < INT32_MAX;
}

/* Says what the driver offers: that it takes no hint is what to know then. */
static void reserve_span(CUdeviceptr base)
{
	for (size_t i = 0; i < sizeof(hot_above) / sizeof(hot_above[0]); i++) {
		CUdeviceptr hint = (base + (hot_above[i] << 30) + HOT_STEP - 1) & ~(HOT_STEP - 1);
		CUdeviceptr got = 0;
		CUresult result =
			hs_driver.cuMemAddressReserve(&got, HOT_SPAN, HS_GRANULE, hint, 0);

		if (result == CUDA_SUCCESS && got == hint) {
			bench.span = got;
			return;
		}
		fprintf(stderr, "swapin: hot areas at 0x%llx: CUDA error %d, offered 0x%llx\n",
			(unsigned long long)hint, result, (unsigned long long)got);
		if (result == CUDA_SUCCESS)
			hs_driver.cuMemAddressFree(got, HOT_SPAN);
	}
}

/* The next free addresses; an area that is given back is not used again. */
static int place(struct hot *hot, uint32_t row)
{
	if (!bench.span)
		reserve_span(hot->base);
	if (!bench.span)
		return -ERANGE;
	if (hot->mapped > HOT_SPAN - bench.span_used)
		return -ENOSPC;
	hot->mapped_at = bench.span + bench.span_used;
	return addressable(hot, row) ? 0 : -ERANGE;
}

static int map(struct hot *hot, CUdevice device)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
	CUmemAccessDesc access = {
		.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	if (hs_driver.cuMemCreate(&hot->handle, hot->mapped, &prop, 0) != CUDA_SUCCESS)
		return -ENOMEM;
	if (hs_driver.cuMemMap(hot->mapped_at, hot->mapped, 0, hot->handle, 0) != CUDA_SUCCESS)
		goto release;
	if (hs_driver.cuMemSetAccess(hot->mapped_at, hot->mapped, &access, 1) != CUDA_SUCCESS)
		goto unmap;
	return 0;
unmap:
	hs_driver.cuMemUnmap(hot->mapped_at, hot->mapped);
release:
	hs_driver.cuMemRelease(hot->handle);
	return -ENOMEM;
}

int hs_memory_hot(CUdeviceptr *out, CUdeviceptr base, uint32_t row, size_t bytes)
{
	struct hot *hot = bench.hots;
	CUdevice device;
	int error;

	while (hot < bench.hots + HS_BENCH_WINDOWS && hot->start)
		hot++;
	if (hot == bench.hots + HS_BENCH_WINDOWS)
		return -ENOMEM;
	if (hs_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
		return -EIO;
	hot->base = base;
	hot->bytes = bytes;
	hot->mapped = (bytes + row + HOT_STEP - 1) & ~(HOT_STEP - 1);
	error = place(hot, row);
	if (!error)
		error = map(hot, device);
	if (error) {
		memset(hot, 0, sizeof(*hot));
		return error;
	}
	bench.span_used += hot->mapped;
	hot->start = base + (hot->mapped_at - base + row - 1) / row * row;
	*out = hot->start;
	return 0;
}

void hs_memory_cold(CUdeviceptr start)
{
	for (size_t i = 0; i < HS_BENCH_WINDOWS; i++) {
		struct hot *hot = &bench.hots[i];

		if (hot->start != start)
			continue;
		hs_driver.cuMemUnmap(hot->mapped_at, hot->mapped);
		hs_driver.cuMemRelease(hot->handle);
		memset(hot, 0, sizeof(*hot));
	}
}
