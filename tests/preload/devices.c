/* SPDX-License-Identifier: MIT */
/*
 * Description: one process that drives two devices. What one holds is not taken
 * from the other, under a cap or without one; each is told about itself; windows
 * of both share one host pool; and a copy from one to the other leaves no stale
 * row, whichever of them has the stream that it runs on, and whichever is current.
 * Windows are within reach of the other device as memory of cuMemAlloc is: of copies
 * always, of its kernels once peer access is enabled, be they from before or after
 * that, on the device (near) or in two parts (peers).
 *
 * usage: devices caps|told|across|peers|near
 */
#include "touch.h"

#include <string.h>

#define BLOCK (4 * MIB)
#define CAP 64 /* MiB */
#define MOST 64

static CUdeviceptr blocks[2][MOST];

static void on(int ordinal)
{
	EXPECT(touch_on(ordinal));
}

static size_t left(void)
{
	size_t bytes, all;

	CHECK(cuMemGetInfo_v2(&bytes, &all));
	return bytes;
}

/* As many blocks as the device has. */
static unsigned fill(int ordinal)
{
	unsigned count = 0;

	on(ordinal);
	while (count < MOST && cuMemAlloc_v2(&blocks[ordinal][count], BLOCK) == CUDA_SUCCESS)
		count++;
	return count;
}

/* From the other device's context: memory is given back where it was taken. */
static void empty(int ordinal, unsigned count)
{
	on(!ordinal);
	while (count)
		CHECK(cuMemFree_v2(blocks[ordinal][--count]));
}

static void under_a_cap(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
	CUmemGenericAllocationHandle handle;
	const unsigned first = fill(0), second = fill(1);
	size_t free_bytes;

	EXPECT(first * BLOCK > CAP * MIB / 2 && first * BLOCK <= CAP * MIB);
	EXPECT(first == second);
	EXPECT(left() < BLOCK);
	empty(0, first);
	EXPECT(left() < BLOCK); /* here is the second */
	EXPECT(fill(0) == first);
	empty(0, first);
	empty(1, second);
	EXPECT(fill(1) == second);
	empty(1, second);
	/* Created for a device that is not the current one. */
	free_bytes = left();
	CHECK(cuMemCreate(&handle, BLOCK, &prop, 0));
	EXPECT(left() == free_bytes);
	EXPECT(fill(1) == second - 1);
	CHECK(cuMemRelease(handle));
	empty(1, second - 1);
	printf("caps: %u blocks on either device\n", first);
}

static void each_for_itself(void)
{
	const size_t bytes = 24 * MIB;
	size_t before[2], alone, total;
	CUdeviceptr ptr[2];

	/* A cache of so many layers as the first has room for, on both. */
	for (int i = 0; i < 2; i++) {
		on(i);
		before[i] = left();
	}
	EXPECT(before[0] == before[1] && before[0] > 96 * MIB);
	on(0);
	CHECK(cuMemAlloc_v2(&ptr[0], bytes));
	EXPECT(left() <= before[0] - bytes);
	/* Both count on the pool, of which there is one. */
	on(1);
	alone = left();
	EXPECT(alone < before[1]);
	CHECK(cuDeviceTotalMem_v2(&total, 1));
	EXPECT(total >= alone);
	CHECK(cuMemAlloc_v2(&ptr[1], bytes));
	EXPECT(left() <= alone - bytes);
	for (int i = 0; i < 2; i++)
		CHECK(cuMemFree_v2(ptr[i]));
	printf("told: %zu MiB each alone, %zu beside the other\n", before[0] / MIB, alone / MIB);
}

static void from_one_to_the_other(void)
{
	struct touch here, there;
	const size_t at = SEAM + 5000, bytes = 30000;
	CUstream streams[2];

	on(1);
	streams[1] = touch_stream;
	touch_make(&there, TOUCH_WINDOW, 12 * MIB);
	on(0);
	streams[0] = touch_stream;
	touch_make(&here, TOUCH_WINDOW, 12 * MIB);
	for (int i = 0; i < 8; i++) {
		const int stream = i & 1, current = stream ^ !!(i & 4);
		struct touch *dst = i & 2 ? &there : &here, *src = i & 2 ? &here : &there;
		CUcontext to, from;
		CUevent copied;

		on(!!(i & 2));
		to = touch_context;
		touch_heat(dst, at);
		touch_aim(dst, at);
		on(!(i & 2));
		from = touch_context;
		on(stream);
		CHECK(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
		on(current);
		CHECK(cuMemcpyPeerAsync(
			dst->ptr + at, to, src->ptr + at + 64 * i, from, bytes, streams[stream]));
		memcpy(dst->model + at, src->model + at + 64 * i, bytes);
		CHECK(cuEventRecord(copied, streams[stream]));
		on(!!(i & 2));
		/* Attention waits for the copy, nobody else does. */
		CHECK(cuStreamWaitEvent(touch_stream, copied, 0));
		touch_attend(dst, touch_stream);
		EXPECT(!touch_read(dst));
		touch_check(dst, at, "from the other device");
		CHECK(cuEventDestroy_v2(copied));
	}
	on(0);
	touch_free(&here);
	on(1);
	touch_free(&there);
	printf("across: both ways, on streams of both devices, from both\n");
}

/* Over the seam of a window of the other device, by a copy that is not told whose
 * memory it is given. */
static void box(struct touch *dst, struct touch *src, size_t at)
{
	const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = src->ptr,
		.srcPitch = 4096,
		.srcY = at / 4096,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = dst->ptr,
		.dstPitch = 4096,
		.WidthInBytes = 4096,
		.Height = 32};

	CHECK(cuMemcpy2D_v2(&copy));
	memcpy(dst->model, src->model + at / 4096 * 4096, 32 * 4096);
	touch_check(dst, 0, "a box");
}

static void within_reach(void)
{
	const size_t at = SEAM - 65536, bytes = 2 * 65536;
	struct touch early, late, other;
	CUcontext first;

	on(0);
	first = touch_context;
	touch_make(&early, TOUCH_WINDOW, 12 * MIB);
	on(1);
	touch_make(&other, TOUCH_DEVICE, MIB);
	CHECK(cuMemcpyDtoDAsync_v2(other.ptr, early.ptr + at, bytes, touch_stream));
	memcpy(other.model, early.model + at, bytes);
	touch_check(&other, 0, "without peer access");
	CHECK(cuMemcpyDtoD_v2(early.ptr + at + 999, other.ptr + bytes, bytes));
	memcpy(early.model + at + 999, other.model + bytes, bytes);
	on(0);
	touch_check(&early, SEAM, "back without peer access");
	on(1);
	CHECK(cuCtxEnablePeerAccess(first, 0));
	EXPECT(cuCtxEnablePeerAccess(first, 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	box(&other, &early, at);
	EXPECT(!touch_stale(&early, SEAM));
	on(0);
	touch_make(&late, TOUCH_WINDOW, 12 * MIB);
	on(1);
	box(&other, &late, at);
	EXPECT(!touch_stale(&late, SEAM));
	touch_free(&other);
	on(0);
	touch_free(&early);
	touch_free(&late);
	printf("peers: within reach of copies, and of kernels with peer access\n");
}

int main(int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "";

	setenv("SOFTGPU_DEVICES", "2", 1);
	if (!strcmp(part, "caps")) {
		setenv("HISPARSE_GPU_GIB", "0.0625", 1);
		setenv("HISPARSE_PLACE", "device", 1);
	}
	if (!strcmp(part, "told"))
		setenv("HISPARSE_PLACE", "auto", 1);
	if (!strcmp(part, "near"))
		setenv("HISPARSE_PLACE", "device", 1);
	touch_start();
	if (!touch_on(1))
		return 77;
	if (!strcmp(part, "caps"))
		under_a_cap();
	else if (!strcmp(part, "told"))
		each_for_itself();
	else if (!strcmp(part, "across"))
		from_one_to_the_other();
	else if (!strcmp(part, "peers") || !strcmp(part, "near"))
		within_reach();
	else
		touch_fail("usage: devices caps|told|across|peers|near");
	return 0;
}
