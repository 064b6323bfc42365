/* SPDX-License-Identifier: MIT */
/*
 * Description: what the driver takes and refuses of boxes, of memory that is no
 * window. hooks/box.c and the stand-in driver go by it; where the real driver
 * differs this says so.
 *
 * usage: boxes
 */
#include "touch.h"

enum { PITCH = 1000, WIDTH = 100 };

static CUdeviceptr source;

/* From packed rows at the source. */
static CUDA_MEMCPY3D rows(CUdeviceptr dst, size_t height, size_t depth)
{
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = source,
		.srcPitch = WIDTH,
		.srcHeight = height,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = dst,
		.dstPitch = PITCH,
		.dstHeight = height,
		.WidthInBytes = WIDTH,
		.Height = height,
		.Depth = depth};
}

static CUresult flat(const CUDA_MEMCPY3D *box)
{
	return cuMemcpy2D_v2(&(CUDA_MEMCPY2D){.srcMemoryType = box->srcMemoryType,
		.srcDevice = box->srcDevice,
		.srcPitch = box->srcPitch,
		.dstMemoryType = box->dstMemoryType,
		.dstDevice = box->dstDevice,
		.dstY = box->dstY,
		.dstPitch = box->dstPitch,
		.WidthInBytes = box->WidthInBytes,
		.Height = box->Height});
}

/* Two handles in one reservation. */
static CUdeviceptr mapped(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	const CUmemAccessDesc access = {
		{.type = CU_MEM_LOCATION_TYPE_DEVICE}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr start;

	CHECK(cuMemAddressReserve(&start, 4 * MIB, 0, 0, 0));
	for (size_t at = 0; at < 4 * MIB; at += 2 * MIB) {
		CHECK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
		CHECK(cuMemMap(start + at, 2 * MIB, 0, handle, 0));
		CHECK(cuMemRelease(handle));
	}
	CHECK(cuMemSetAccess(start, 4 * MIB, &access, 1));
	return start;
}

static unsigned differs;

static void expect(const char *what, CUresult result, CUresult want)
{
	if (result == want)
		return;
	printf("%s: error %d, not %d\n", what, result, want);
	differs++;
}

int main(void)
{
	const CUresult refused = CUDA_ERROR_INVALID_VALUE;
	CUdeviceptr start, end, two;
	CUDA_MEMCPY3D box;

	touch_start();
	CHECK(cuMemAlloc_v2(&source, MIB));
	CHECK(cuMemAlloc_v2(&start, 2 * MIB));
	end = start + 2 * MIB;
	two = mapped();

	box = rows(start - PITCH, 1, 1);
	box.dstY = 1;
	expect("a rectangle whose base is not in its memory", flat(&box), refused);
	box.dstHeight = 2;
	expect("a box whose base is not in its memory", cuMemcpy3D_v2(&box), refused);
	box = rows(start, 2, 1);
	box.dstY = 1;
	expect("rows beyond the height", cuMemcpy3D_v2(&box), refused);
	box = rows(end - PITCH - WIDTH, 2, 1);
	expect("a rectangle whose last gap ends behind its memory", flat(&box), CUDA_SUCCESS);
	expect("a box whose last gap ends behind its memory", cuMemcpy3D_v2(&box), CUDA_SUCCESS);
	box = rows(end - 3 * PITCH - WIDTH, 1, 2);
	box.dstHeight = 3;
	expect("a box whose last plane ends behind its memory", cuMemcpy3D_v2(&box), CUDA_SUCCESS);
	box = rows(end - PITCH - WIDTH + 1, 2, 1);
	expect("a rectangle that ends behind its memory", flat(&box), refused);
	box = rows(two + 2 * MIB - PITCH, 2, 1);
	expect("a rectangle in two handles", flat(&box), CUDA_SUCCESS);
	box.dstY = 1;
	expect("a rectangle with its base in another handle", flat(&box), CUDA_SUCCESS);
	CHECK(cuCtxSynchronize());
	printf("boxes: %u answers differ from the stand-in's\n", differs);
	return differs != 0;
}
