/* SPDX-License-Identifier: MIT */
/*
 * Description: what streams write to windows by themselves, alone, in a batch and
 * captured, and copies from and to arrays: the bytes are those of a plain model, and
 * no hot row of what was written stays.
 *
 * usage: values values|arrays
 */
#include "touch.h"

#include <string.h>

#define S touch_stream

static struct touch window;

#define WAYS(ROW)                                                                                  \
	ROW(cuStreamWriteValue32)                                                                  \
	ROW(cuStreamWriteValue32_ptsz)                                                             \
	ROW(cuStreamWriteValue32_v2)                                                               \
	ROW(cuStreamWriteValue32_v2_ptsz)                                                          \
	ROW(cuStreamWriteValue64)                                                                  \
	ROW(cuStreamWriteValue64_ptsz)                                                             \
	ROW(cuStreamWriteValue64_v2)                                                               \
	ROW(cuStreamWriteValue64_v2_ptsz)
#define BATCHES(ROW)                                                                               \
	ROW(cuStreamBatchMemOp)                                                                    \
	ROW(cuStreamBatchMemOp_ptsz)                                                               \
	ROW(cuStreamBatchMemOp_v2)                                                                 \
	ROW(cuStreamBatchMemOp_v2_ptsz)

#define RUN(name)                                                                                  \
	static CUresult run_##name(CUdeviceptr at, uint64_t value)                                 \
	{                                                                                          \
		return name(S, at, (__typeof__(value))value, 0);                                   \
	}
WAYS(RUN)

/* Two values, of which only the second goes to the window's row. */
#define RUN_BATCH(name)                                                                            \
	static CUresult run_##name(CUdeviceptr at, uint64_t value)                                 \
	{                                                                                          \
		CUstreamBatchMemOpParams ops[2] = {0};                                             \
		ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;                     \
		ops[0].writeValue.address = window.ptr;                                            \
		ops[0].writeValue.value = 7;                                                       \
		ops[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;                     \
		ops[1].writeValue.address = at;                                                    \
		ops[1].writeValue.value64 = value;                                                 \
		memcpy(window.model, &(uint32_t){7}, 4);                                           \
		return name(S, 2, ops, 0);                                                         \
	}
BATCHES(RUN_BATCH)

static const struct {
	const char *name;
	size_t bytes;
	CUresult (*run)(CUdeviceptr at, uint64_t value);
} ways[] = {
#define ENTRY(name) {#name, strstr(#name, "32") ? 4 : 8, run_##name},
	WAYS(ENTRY) BATCHES(ENTRY)};

static void expect(const char *name, size_t at, uint64_t value, size_t bytes)
{
	memcpy(window.model + at, &value, bytes);
	touch_check(&window, at, name);
}

static unsigned values(void)
{
	static const size_t places[] = {SEAM - 8, SEAM, SEAM + 80000};
	const CUstream stream = touch_stream;
	unsigned done = 0;
	CUgraphExec exec;
	int first = 0;
	CUgraph graph;

	CHECK(cuDeviceGetAttribute(&first, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 0));
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		/* The first version is switched off in drivers since 12.0. */
		if (!first && !strstr(ways[i].name, "_v2"))
			continue;
		for (size_t p = 0; p < 3; p++, done++) {
			const uint64_t value = (uint64_t)touch_random() << 32 | touch_random();
			CUresult result;

			touch_heat(&window, places[p]);
			result = ways[i].run(window.ptr + places[p], value);
			if (result != CUDA_SUCCESS)
				touch_fail("%s: error %d", ways[i].name, result);
			expect(ways[i].name, places[p], value, ways[i].bytes);
		}
		/* And when it is replayed. */
		CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
		CHECK(ways[i].run(window.ptr + SEAM + 4096, i + 5));
		CHECK(cuStreamEndCapture(stream, &graph));
		CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
		touch_heat(&window, SEAM + 4096);
		CHECK(cuGraphLaunch(exec, stream));
		expect(ways[i].name, SEAM + 4096, i + 5, ways[i].bytes);
		CHECK(cuGraphExecDestroy(exec));
		CHECK(cuGraphDestroy(graph));
		done++;
	}
	return done;
}

static unsigned arrays(void)
{
	static const size_t places[] = {SEAM - 5003, SEAM + 80001};
	const size_t bytes = 12007, offset = 101;
	const CUDA_ARRAY_DESCRIPTOR what = {
		.Width = 16384, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
	struct touch other;
	unsigned done = 0;
	CUarray array;

	touch_make(&other, TOUCH_DEVICE, MIB / 8);
	CHECK(cuArrayCreate_v2(&array, &what));
	for (int twin = 0; twin < 2; twin++) {
		for (int p = 0; p < 2; p++, done += 2) {
			const size_t at = places[p];

			/* From other memory to the window, and from there back. */
			CHECK((twin ? cuMemcpyDtoA_v2_ptds : cuMemcpyDtoA_v2)(
				array, offset, other.ptr + 77 * (p + 1), bytes));
			touch_heat(&window, at);
			CHECK((twin ? cuMemcpyAtoD_v2_ptds : cuMemcpyAtoD_v2)(
				window.ptr + at, array, offset, bytes));
			memcpy(window.model + at, other.model + 77 * (p + 1), bytes);
			touch_check(&window, at, "from an array");
			CHECK((twin ? cuMemcpyDtoA_v2_ptds : cuMemcpyDtoA_v2)(
				array, offset, window.ptr + at - 500, bytes));
			CHECK(cuMemcpyAtoD_v2(other.ptr + 20000, array, offset, bytes));
			memcpy(other.model + 20000, window.model + at - 500, bytes);
			touch_check(&other, 20000, "by way of an array");
		}
	}
	CHECK(cuArrayDestroy(array));
	touch_free(&other);
	return done;
}

int main(int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "";

	touch_start();
	touch_make(&window, TOUCH_WINDOW, 12 * MIB);
	if (!strcmp(part, "values"))
		printf("values: %u as the model\n", values());
	else if (!strcmp(part, "arrays"))
		printf("arrays: %u as the model\n", arrays());
	else
		touch_fail("usage: values values|arrays");
	touch_free(&window);
	return 0;
}
