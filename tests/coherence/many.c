/* SPDX-License-Identifier: MIT */
/*
 * Lists of many entries: two layers, whose bases are not congruent, read
 * through one staging area, or with a hot buffer that has room for their unions through
 * that; rows written between launches; a second stream. Links the driver as an engine
 * does, with our library in front of it. What was staged is told by the library's own
 * counters.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "model.h"

enum { ROW = 656, ROWS = 512, K = 2048, WRITTEN = 300, SHORT = 256 };
#define MIB ((size_t)1 << 20)
#define WINDOW (32 * MIB)
#define SLOTS (WINDOW / ROW)
#define LOW (2 * MIB / ROW + 64) /* slots below may lie on the device */

#define CHECK(call)                                                                                \
	do {                                                                                       \
		const CUresult result_ = (call);                                                   \
		if (result_ != CUDA_SUCCESS) {                                                     \
			fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call,        \
				result_);                                                          \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

int hs_plant; /* of the CPU build of our kernels: none */
extern const unsigned char coherence_image[];

struct layer {
	CUdeviceptr base;
	uint32_t values[SLOTS];
	uint64_t hashes[SLOTS];
};

static struct layer layers[2];
static CUfunction attend, writes;
static CUstream streams[2];
static CUdeviceptr list_ptr, out_ptr, slots_ptr, values_ptr;
static int32_t list[ROWS * K];
static uint64_t out[ROWS * K], state = 1;

static uint32_t pick(uint32_t n)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((state >> 33) * n >> 31);
}

static void set(struct layer *layer, size_t slot, uint32_t value)
{
	uint64_t hash = 1;

	for (uint32_t w = 0; w < ROW / 4; w += 2)
		hash = coherence_mix(hash,
			(uint64_t)coherence_word(value, w + 1) << 32 | coherence_word(value, w));
	layer->values[slot] = value;
	layer->hashes[slot] = hash;
}

static void make(struct layer *layer)
{
	uint32_t *bytes = malloc(SLOTS * ROW);

	CHECK(cuMemAlloc_v2(&layer->base, WINDOW));
	for (size_t slot = 0; slot < SLOTS; slot++) {
		set(layer, slot, pick(1u << 30));
		for (uint32_t w = 0; w < ROW / 4; w++)
			bytes[slot * (ROW / 4) + w] = coherence_word(layer->values[slot], w);
	}
	CHECK(cuMemcpyHtoD_v2(layer->base, bytes, SLOTS * ROW));
	free(bytes);
}

/* Attention over rows x k entries from [low, high), one in eight -1; every entry
 * must be what its slot holds. */
static void attended(struct layer *layer, CUstream stream, int rows, int k, size_t low, size_t high)
{
	struct coherence_attend_args args = {.kv = layer->base,
		.list = list_ptr,
		.out = out_ptr,
		.rows = rows,
		.k = k,
		.stride = k,
		.row_bytes = ROW,
		.block_stride = 64 * ROW};
	const size_t count = (size_t)rows * (size_t)k;
	void *params[] = {&args};
	size_t wrong = 0;

	for (size_t i = 0; i < count; i++)
		list[i] = pick(8) ? (int32_t)(low + pick((uint32_t)(high - low))) : -1;
	CHECK(cuMemcpyHtoD_v2(list_ptr, list, count * sizeof(*list)));
	CHECK(cuMemsetD8_v2(out_ptr, 0xee, count * sizeof(*out)));
	CHECK(cuCtxSynchronize());
	CHECK(cuLaunchKernel(attend, 64, 1, 1, 128, 1, 1, 0, stream, params, NULL));
	CHECK(cuCtxSynchronize());
	CHECK(cuMemcpyDtoH_v2(out, out_ptr, count * sizeof(*out)));
	for (size_t i = 0; i < count; i++)
		wrong += out[i] != (list[i] < 0 ? 0 : layer->hashes[list[i]]);
	if (wrong)
		fprintf(stderr, "%zu of %zu entries read something else\n", wrong, count);
	EXPECT(!wrong);
}

static void write_some(struct layer *layer, size_t low)
{
	int count = WRITTEN, row = ROW;
	void *params[] = {&layer->base, &slots_ptr, &values_ptr, &count, &row};
	int64_t slots[WRITTEN];
	uint32_t values[WRITTEN];

	for (size_t i = 0; i < WRITTEN; i++) {
		slots[i] = (int64_t)(low + i);
		values[i] = pick(1u << 30);
		set(layer, low + i, values[i]);
	}
	CHECK(cuMemcpyHtoD_v2(slots_ptr, slots, sizeof(slots)));
	CHECK(cuMemcpyHtoD_v2(values_ptr, values, sizeof(values)));
	CHECK(cuCtxSynchronize());
	CHECK(cuLaunchKernel(writes, WRITTEN, 1, 1, 32, 1, 1, 0, streams[0], params, NULL));
}

static void work(void)
{
	CUcontext context;
	CUmodule module;
	CUdevice device;

	if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS)
		exit(77);
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	for (int i = 0; i < 2; i++)
		CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	CHECK(cuModuleLoadData(&module, coherence_image));
	CHECK(cuModuleGetFunction(&attend, module, "coherence_attend"));
	CHECK(cuModuleGetFunction(&writes, module, "coherence_write"));
	CHECK(cuMemAlloc_v2(&list_ptr, sizeof(list)));
	CHECK(cuMemAlloc_v2(&out_ptr, sizeof(out)));
	CHECK(cuMemAlloc_v2(&slots_ptr, WRITTEN * sizeof(int64_t)));
	CHECK(cuMemAlloc_v2(&values_ptr, WRITTEN * sizeof(uint32_t)));
	make(&layers[0]);
	make(&layers[1]);
	EXPECT((layers[1].base - layers[0].base) % ROW);
	/* Seen to be KV, moved, started. */
	for (int i = 0; i < 4; i++)
		attended(&layers[i & 1], streams[0], 1, SHORT, LOW, LOW + 1000);
	/* 3000 rows, some of them hot; 2000 of which 300 were written, and some that
	 * are always on the device. */
	attended(&layers[0], streams[0], ROWS, K, LOW, LOW + 3000);
	attended(&layers[1], streams[0], ROWS, K, LOW + 500, LOW + 3500);
	write_some(&layers[0], LOW);
	attended(&layers[0], streams[0], ROWS, K, LOW - 200, LOW + 2000);
	/* The area is another stream's, and this one's resolve finds few hot rows. */
	attended(&layers[1], streams[1], ROWS, K, LOW, LOW + 3000);
	attended(&layers[1], streams[0], ROWS, K, LOW + 4000, LOW + 6000);
	CHECK(cuMemFree_v2(layers[0].base));
	CHECK(cuMemFree_v2(layers[1].base));
}

static unsigned long long sum_of(const char *text, const char *name)
{
	unsigned long long sum = 0;
	const size_t length = strlen(name);

	while ((text = strstr(text, name))) {
		text += length;
		if (*text == '{' && (text = strchr(text, '}')))
			sum += strtoull(text + 1, NULL, 10);
	}
	return sum;
}

/* All of it with so many hot rows a layer; what was staged and what was fetched to hot
 * rows. Returns the child's status. */
static int run(const char *slots, unsigned long long *staged, unsigned long long *misses)
{
	char path[64], text[65536] = "";
	int status;
	FILE *file;
	pid_t pid;

	snprintf(path, sizeof(path), "/tmp/hs-many-%d.prom", (int)getpid());
	setenv("HISPARSE_SLOTS", slots, 1);
	setenv("HISPARSE_METRICS", path, 1);
	pid = fork();
	if (!pid) {
		work();
		exit(0);
	}
	EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	if (WEXITSTATUS(status))
		return WEXITSTATUS(status);
	file = fopen(path, "r");
	EXPECT(file && fread(text, 1, sizeof(text) - 1, file) > 0);
	fclose(file);
	unlink(path);
	*staged = sum_of(text, "hisparse_layer_staged_total");
	*misses = sum_of(text, "hisparse_layer_misses_total");
	fprintf(stderr, "%s hot rows: %llu rows staged, %llu missed\n", slots, *staged, *misses);
	return 0;
}

int main(void)
{
	unsigned long long staged, misses;
	int status;

	if (!getenv("HISPARSE_PROFILES")) {
		fputs("many: its kernels are known by HISPARSE_PROFILES=coherence.profile\n",
			stderr);
		return 2;
	}
	setenv("SOFTGPU_MEMORY_MIB", "1024", 0);
	setenv("HISPARSE_WINDOW_MIB", "24", 0);
	setenv("HISPARSE_HOST_GIB", "0.5", 0);
	setenv("HISPARSE_PLACE", "host", 0);
	/* The unions are 3000, 3000, about 2064 and 2000 rows, less what is hot. */
	status = run("2048", &staged, &misses);
	if (status)
		return status;
	EXPECT(staged > 9000 && staged < 10100);
	/* With room for them: 3000, 3000 and what was written of the third; the fourth. */
	status = run("16384", &staged, &misses);
	if (status)
		return status;
	EXPECT(misses > 8000 && misses < 8900 && staged < 100);
	return 0;
}
