/* SPDX-License-Identifier: MIT */
/*
 * Description: what the driver says of a window is what it says of memory of
 * cuMemAlloc, wherever in the window one asks; of all that is for other kinds of
 * memory it says what it says there; and managed memory is left to the driver.
 *
 * usage: answers
 */
#include "touch.h"

#include <string.h>

/* The attributes that are the same for any two allocations, but for what their
 * addresses and sizes are. */
static const CUpointer_attribute attributes[] = {
	CU_POINTER_ATTRIBUTE_CONTEXT,
	CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
	CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
	CU_POINTER_ATTRIBUTE_HOST_POINTER,
	CU_POINTER_ATTRIBUTE_IS_MANAGED,
	CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
	CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
	CU_POINTER_ATTRIBUTE_RANGE_SIZE,
	CU_POINTER_ATTRIBUTE_MAPPED,
};
enum { ATTRIBUTES = sizeof(attributes) / sizeof(attributes[0]) };

struct answers {
	CUresult results[ATTRIBUTES], all, range, mapped_host, retained, prefetch[4], advise[2],
		beyond;
	uint64_t values[ATTRIBUTES], together[ATTRIBUTES];
	size_t range_bytes;
};

/* Addresses are given from the start of the allocation on. */
static uint64_t relative(CUpointer_attribute which, uint64_t value, CUdeviceptr start)
{
	return which == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
			       which == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
		       ? value - start
		       : value;
}

static void ask(struct answers *a, const struct touch *t, size_t at)
{
	const CUdeviceptr ptr = t->ptr + at;
	const CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUpointer_attribute which[ATTRIBUTES];
	CUmemGenericAllocationHandle handle;
	CUdeviceptr start = 0, device;
	void *data[ATTRIBUTES];

	memset(a, 0, sizeof(*a));
	for (int i = 0; i < ATTRIBUTES; i++) {
		a->results[i] = cuPointerGetAttribute(&a->values[i], attributes[i], ptr);
		a->values[i] = relative(attributes[i], a->values[i], t->ptr);
		if (a->results[i] != CUDA_SUCCESS)
			a->values[i] = 0;
		data[i] = &a->together[i];
		which[i] = attributes[i];
	}
	a->all = cuPointerGetAttributes(ATTRIBUTES, which, data, ptr);
	for (int i = 0; i < ATTRIBUTES; i++)
		a->together[i] = relative(attributes[i], a->together[i], t->ptr);
	a->range = cuMemGetAddressRange_v2(&start, &a->range_bytes, ptr);
	EXPECT(start == t->ptr);
	CHECK(cuMemGetAddressRange_v2(NULL, NULL, ptr));
	a->mapped_host = cuMemHostGetDevicePointer_v2(&device, (void *)ptr, 0);
	a->retained = cuMemRetainAllocationHandle(&handle, (void *)ptr);
	a->prefetch[0] = cuMemPrefetchAsync(ptr, 4096, 0, touch_stream);
	a->prefetch[1] = cuMemPrefetchAsync_ptsz(ptr, 4096, 0, touch_stream);
	a->prefetch[2] = cuMemPrefetchAsync_v2(ptr, 4096, place, 0, touch_stream);
	a->prefetch[3] = cuMemPrefetchAsync_v2_ptsz(ptr, 4096, place, 0, touch_stream);
	a->advise[0] = cuMemAdvise(ptr, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
	a->advise[1] = cuMemAdvise_v2(ptr, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, place);
	a->beyond = cuMemFree_v2(ptr + 1);
}

static void windows_answer_as_memory(void)
{
	struct touch window, small;
	struct answers of_window, of_small;
	CUdeviceptr offsets[] = {8, SEAM - 1, SEAM, SEAM + 70001, 0};

	touch_make(&window, TOUCH_WINDOW, 12 * MIB + 100);
	touch_make(&small, TOUCH_DEVICE, MIB);
	offsets[4] = window.bytes - 4096;
	for (int i = 0; i < 5; i++) {
		const size_t at = i ? 4096 : 8;

		ask(&of_window, &window, offsets[i]);
		ask(&of_small, &small, at);
		for (int j = 0; j < ATTRIBUTES; j++) {
			uint64_t want = of_small.values[j], both = of_small.together[j];

			if (attributes[j] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
				want = both = offsets[i];
			if (attributes[j] == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
				want = both = window.bytes;
			if (of_window.results[j] != of_small.results[j] ||
				of_window.values[j] != want || of_window.together[j] != both)
				touch_fail(
					"attribute %d at %llu: %d %#llx %#llx, want %d %#llx %#llx",
					attributes[j], offsets[i], of_window.results[j],
					(long long)of_window.values[j],
					(long long)of_window.together[j], of_small.results[j],
					(long long)want, (long long)both);
		}
		EXPECT(of_window.all == of_small.all);
		EXPECT(of_window.range == CUDA_SUCCESS && of_window.range_bytes == window.bytes);
		EXPECT(of_window.mapped_host == of_small.mapped_host);
		EXPECT(of_window.retained == of_small.retained);
		EXPECT(!memcmp(of_window.prefetch, of_small.prefetch, sizeof(of_small.prefetch)));
		EXPECT(!memcmp(of_window.advise, of_small.advise, sizeof(of_small.advise)));
		EXPECT(of_window.beyond == of_small.beyond);
	}
	touch_check(&window, SEAM, "only asked");
	touch_free(&small);
	touch_free(&window);
}

/* A synchronous copy is then over when it returns. */
static void windows_may_be_synchronous(void)
{
	const unsigned yes = 1, no = 0;
	unsigned flags;
	struct touch window, small;

	touch_make(&window, TOUCH_WINDOW, 12 * MIB);
	touch_make(&small, TOUCH_DEVICE, MIB);
	for (int i = 0; i < 2; i++) {
		struct touch *t = i ? &window : &small;

		for (size_t at = 0; at < t->bytes; at += t->bytes / 3)
			CHECK(cuPointerSetAttribute(
				&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, t->ptr + at));
		CHECK(cuPointerSetAttribute(&no, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, t->ptr));
		EXPECT(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_MAPPED, t->ptr) ==
			CUDA_ERROR_INVALID_VALUE);
		EXPECT(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, t->ptr) ==
			CUDA_ERROR_INVALID_VALUE);
	}
	CHECK(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, window.ptr + SEAM));
	CHECK(cuCtxGetFlags(&flags)); /* for windows it is the context's */
	EXPECT(flags & CU_CTX_SYNC_MEMOPS || getenv("HISPARSE_DISABLE"));
	touch_free(&small);
	touch_free(&window);
}

/* It moves, is counted, and is never a window, however large. */
static void managed_memory_is_the_drivers(void)
{
	const CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
	unsigned char byte = 0, managed = 0;
	struct touch window;
	CUdeviceptr ptr;

	touch_make(&window, TOUCH_WINDOW, 12 * MIB);
	CHECK(cuMemAllocManaged(&ptr, 12 * MIB, CU_MEM_ATTACH_GLOBAL));
	CHECK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr));
	EXPECT(managed == 1);
	memcpy((void *)ptr, window.model, 12 * MIB); /* as the processor */
	CHECK(cuMemPrefetchAsync_v2(ptr, 12 * MIB, place, 0, touch_stream));
	CHECK(cuMemAdvise_v2(ptr, 12 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, place));
	CHECK(cuMemsetD8Async(ptr + 7, 0x77, 1, touch_stream));
	CHECK(cuStreamSynchronize(touch_stream));
	CHECK(cuMemcpyDtoH_v2(&byte, ptr + 7, 1));
	EXPECT(byte == 0x77);
	touch_heat(&window, SEAM - 5001);
	memset((void *)(ptr + SEAM - 5001), 0x11, 12000);
	CHECK(cuMemcpyAsync(window.ptr + SEAM - 5001, ptr + SEAM - 5001, 12000, touch_stream));
	memset(window.model + SEAM - 5001, 0x11, 12000);
	touch_check(&window, SEAM - 5001, "from managed memory");
	CHECK(cuMemFree_v2(ptr));
	touch_free(&window);
}

/* In the order of a stream, if the driver lets memory of cuMemAlloc be freed so;
 * and memory of a pool at once. */
static void either_free_frees(void)
{
	struct touch window;
	CUdeviceptr ptr, start;
	size_t bytes;

	for (int i = 0; i < 2; i++) {
		CUresult (*const release)(CUdeviceptr, CUstream) =
			i ? cuMemFreeAsync_ptsz : cuMemFreeAsync;

		CHECK(cuMemAlloc_v2(&ptr, MIB));
		if (release(ptr, touch_stream) != CUDA_SUCCESS) {
			CHECK(cuMemFree_v2(ptr));
			continue;
		}
		touch_make(&window, TOUCH_WINDOW, 12 * MIB);
		CHECK(cuMemsetD8Async(window.ptr, 1, window.bytes, touch_stream));
		CHECK(release(window.ptr, touch_stream));
		CHECK(cuStreamSynchronize(touch_stream));
		EXPECT(cuMemGetAddressRange_v2(&start, &bytes, window.ptr) != CUDA_SUCCESS);
		free(window.model);
	}
	CHECK(cuMemAllocAsync(&ptr, MIB, touch_stream));
	CHECK(cuMemFree_v2(ptr));
}

int main(void)
{
	touch_start();
	either_free_frees();
	windows_answer_as_memory();
	windows_may_be_synchronous();
	managed_memory_is_the_drivers();
	printf("answers: as of ordinary memory\n");
	return 0;
}
