/* SPDX-License-Identifier: MIT */
/*
 * Description: memory that the driver itself gives out, in every way it has,
 * under a cap and beside windows: all of it counts, all of it comes back, and
 * windows make way for it. Among them what torch's expandable segments do, and
 * vLLM's sleep mode and torch_memory_saver: mapped memory that is given away and
 * had again at its addresses.
 *
 * usage: allocs cap|segments|sleep
 */
#include "touch.h"

#include <string.h>

#define BLOCK (4 * MIB)
#define CAP 64 /* MiB */
#define MOST 64
#define WINDOWS 4

static CUmemoryPool pool;
static const CUmemAllocationProp prop = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
	.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static CUresult alloc(CUdeviceptr *out)
{
	return cuMemAlloc_v2(out, BLOCK);
}

static CUresult pitched(CUdeviceptr *out)
{
	size_t pitch;

	return cuMemAllocPitch_v2(out, &pitch, 4000, BLOCK / 4096, 4);
}

static CUresult managed(CUdeviceptr *out)
{
	return cuMemAllocManaged(out, BLOCK, CU_MEM_ATTACH_GLOBAL);
}

static CUresult async(CUdeviceptr *out)
{
	return cuMemAllocAsync(out, BLOCK, touch_stream);
}

static CUresult async_ptsz(CUdeviceptr *out)
{
	return cuMemAllocAsync_ptsz(out, BLOCK, touch_stream);
}

static CUresult pooled(CUdeviceptr *out)
{
	return cuMemAllocFromPoolAsync(out, BLOCK, pool, touch_stream);
}

static CUresult pooled_ptsz(CUdeviceptr *out)
{
	return cuMemAllocFromPoolAsync_ptsz(out, BLOCK, pool, touch_stream);
}

static CUresult created(CUdeviceptr *out)
{
	CUmemGenericAllocationHandle handle;
	const CUresult result = cuMemCreate(&handle, BLOCK, &prop, 0);

	*out = handle;
	return result;
}

static CUresult free_async(CUdeviceptr ptr)
{
	return cuMemFreeAsync(ptr, touch_stream);
}

static CUresult free_async_ptsz(CUdeviceptr ptr)
{
	return cuMemFreeAsync_ptsz(ptr, touch_stream);
}

static CUresult release(CUdeviceptr handle)
{
	return cuMemRelease(handle);
}

static const struct way {
	const char *name;
	CUresult (*take)(CUdeviceptr *out);
	CUresult (*give)(CUdeviceptr ptr);
	bool memory; /* can be written to */
} ways[] = {
	{"cuMemAlloc", alloc, cuMemFree_v2, true},
	{"cuMemAllocPitch", pitched, cuMemFree_v2, true},
	{"cuMemAllocManaged", managed, cuMemFree_v2, true},
	{"cuMemAllocAsync", async, free_async, true},
	{"cuMemAllocAsync_ptsz", async_ptsz, free_async_ptsz, true},
	{"cuMemAllocFromPoolAsync", pooled, free_async, true},
	{"cuMemAllocFromPoolAsync_ptsz", pooled_ptsz, free_async_ptsz, true},
	{"cuMemCreate", created, release, false},
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* As much as there is, all of it given back. How many blocks. */
static unsigned exhaust(const struct way *way)
{
	CUdeviceptr blocks[MOST];
	CUresult result = CUDA_SUCCESS;
	unsigned count = 0;

	while (count < MOST && (result = way->take(&blocks[count])) == CUDA_SUCCESS) {
		if (way->memory)
			CHECK(cuMemsetD8Async(blocks[count], 7, 4096, touch_stream));
		count++;
	}
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		touch_fail("%s: error %d after %u", way->name, result, count);
	for (unsigned i = 0; i < count; i++)
		CHECK(way->give(blocks[i]));
	CHECK(cuCtxSynchronize());
	return count;
}

static void under_a_cap(void)
{
	struct touch kv[WINDOWS];
	unsigned alone[WAYS], count, after = 0;

	for (size_t i = 0; i < WAYS; i++) {
		alone[i] = exhaust(&ways[i]);
		if (alone[i] != exhaust(&ways[i]) || alone[i] * BLOCK > CAP * MIB ||
			alone[i] != alone[0])
			touch_fail("%s: %u blocks, then another number; %u of cuMemAlloc",
				ways[i].name, alone[i], alone[0]);
	}
	EXPECT(alone[0] * BLOCK > CAP * MIB / 2);
	for (size_t i = 0; i < WAYS; i++) {
		for (int j = 0; j < WINDOWS; j++)
			touch_make(&kv[j], TOUCH_WINDOW, 12 * MIB);
		count = exhaust(&ways[i]);
		for (int j = 0; j < WINDOWS; j++)
			touch_check(&kv[j], SEAM, ways[i].name);
		/* First granules, and what it takes to swap, stay; what they held
		 * went, or there would be four. */
		if (count < 6)
			touch_fail("%s: %u blocks beside windows, %u without", ways[i].name, count,
				alone[i]);
		for (int j = 0; j < WINDOWS; j++)
			touch_free(&kv[j]);
		/* What the library took for itself, it took once. */
		count = exhaust(&ways[i]);
		after = i ? after : count;
		if (count != after || count + 5 < alone[i])
			touch_fail("%s: %u blocks after windows, %u before any, %u at first",
				ways[i].name, count, alone[i], after);
	}
	printf("cap: %u blocks in each of %zu ways\n", alone[0], WAYS);
}

/* One reservation, backed piece by piece as torch does that. */
#define PIECE SEAM
#define PIECES 24

struct segment {
	CUdeviceptr ptr;
	CUmemGenericAllocationHandle handles[PIECES];
};

static CUresult grow(struct segment *s, int i)
{
	CUmemGenericAllocationHandle handle;
	const CUresult result = cuMemCreate(&handle, PIECE, &prop, 0);

	if (result != CUDA_SUCCESS)
		return result;
	CHECK(cuMemMap(s->ptr + i * PIECE, PIECE, 0, handle, 0));
	CHECK(cuMemSetAccess(s->ptr + i * PIECE, PIECE, &access, 1));
	s->handles[i] = handle;
	return CUDA_SUCCESS;
}

static void shrink(struct segment *s, int i)
{
	CHECK(cuStreamSynchronize(touch_stream));
	CHECK(cuMemUnmap(s->ptr + i * PIECE, PIECE));
	CHECK(cuMemRelease(s->handles[i]));
	s->handles[i] = 0;
}

static void start_segment(struct segment *s)
{
	*s = (struct segment){0};
	CHECK(cuMemAddressReserve(&s->ptr, PIECES * PIECE, 0, 0, 0));
}

static void expandable_segments(void)
{
	static uint8_t noise[20000];
	struct segment s;
	struct touch kv;
	int most = 0, again = 0;

	touch_make(&kv, TOUCH_WINDOW, 12 * MIB);
	start_segment(&s);
	for (int i = 0; i < 4; i++)
		CHECK(grow(&s, i));
	/* Across its pieces and the window's seam, both ways. */
	touch_noise(noise, sizeof(noise));
	CHECK(cuMemcpyHtoDAsync_v2(s.ptr + PIECE - 3000, noise, 3000, touch_stream));
	CHECK(cuMemcpyHtoDAsync_v2(s.ptr + PIECE, noise + 3000, 17000, touch_stream));
	touch_heat(&kv, SEAM - 5000);
	CHECK(cuMemcpyDtoDAsync_v2(
		kv.ptr + SEAM - 5000, s.ptr + PIECE - 3000, sizeof(noise), touch_stream));
	memcpy(kv.model + SEAM - 5000, noise, sizeof(noise));
	touch_check(&kv, SEAM - 5000, "from a segment");
	CHECK(cuMemcpyDtoDAsync_v2(
		s.ptr + 3 * PIECE - 100, kv.ptr + SEAM - 5000, 200, touch_stream));
	/* It gives back what it hoards, and grows to what there is. */
	for (int turn = 0; turn < 2; turn++) {
		int count = 0;

		for (int i = 0; i < PIECES; i++)
			if (s.handles[i])
				shrink(&s, i);
		while (count < PIECES && grow(&s, count) == CUDA_SUCCESS)
			count++;
		*(turn ? &again : &most) = count;
	}
	if (most != again || most * PIECE < CAP * MIB / 4 || most * PIECE > CAP * MIB)
		touch_fail("%d pieces, then %d", most, again);
	touch_check(&kv, SEAM, "beside a segment");
	for (int i = 0; i < most; i++)
		shrink(&s, i);
	CHECK(cuMemAddressFree(s.ptr, PIECES * PIECE));
	touch_free(&kv);
	printf("segments: %d pieces, twice\n", most);
}

/* Weights that sleep, with a copy on the host or without one: what they had is
 * others' meanwhile, and is at its addresses again afterwards. */
static void sleep_mode(void)
{
	const size_t bytes = 8 * PIECE;
	unsigned char *copy = malloc(bytes), *back = malloc(bytes);
	unsigned awake, asleep;
	struct segment s;
	struct touch kv;

	touch_make(&kv, TOUCH_WINDOW, 12 * MIB);
	start_segment(&s);
	for (int i = 0; i < 8; i++)
		CHECK(grow(&s, i));
	for (int turn = 0; turn < 3; turn++) {
		touch_noise(copy, bytes);
		for (int i = 0; i < 8; i++)
			CHECK(cuMemcpyHtoD_v2(s.ptr + i * PIECE, copy + i * PIECE, PIECE));
		awake = exhaust(&ways[0]);
		memset(back, 0, bytes);
		for (int i = 0; i < 8; i++) {
			CHECK(cuMemcpyDtoH_v2(back + i * PIECE, s.ptr + i * PIECE, PIECE));
			shrink(&s, i);
		}
		asleep = exhaust(&ways[0]);
		if (asleep != awake + bytes / BLOCK)
			touch_fail("%u blocks while awake, %u while asleep", awake, asleep);
		touch_check(&kv, SEAM, "asleep");
		for (int i = 0; i < 8; i++) {
			CHECK(grow(&s, i));
			CHECK(cuMemcpyHtoD_v2(s.ptr + i * PIECE, back + i * PIECE, PIECE));
		}
		memset(back, 0, bytes);
		for (int i = 0; i < 8; i++)
			CHECK(cuMemcpyDtoH_v2(back + i * PIECE, s.ptr + i * PIECE, PIECE));
		EXPECT(!memcmp(copy, back, bytes));
		touch_check(&kv, SEAM, "awake");
	}
	for (int i = 0; i < 8; i++)
		shrink(&s, i);
	CHECK(cuMemAddressFree(s.ptr, PIECES * PIECE));
	touch_free(&kv);
	free(copy);
	free(back);
	printf("sleep: %u blocks awake, %u asleep\n", awake, asleep);
}

int main(int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "cap";
	const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

	setenv("SOFTGPU_MEMORY_MIB", "256", 0);
	setenv("HISPARSE_GPU_GIB", "0.0625", 0); /* CAP */
	setenv("HISPARSE_PLACE", strcmp(part, "cap") ? "host" : "auto", 0);
	touch_start();
	CHECK(cuMemPoolCreate(&pool, &props));
	if (!strcmp(part, "segments"))
		expandable_segments();
	else if (!strcmp(part, "sleep"))
		sleep_mode();
	else
		under_a_cap();
	CHECK(cuMemPoolDestroy(pool));
	return 0;
}
