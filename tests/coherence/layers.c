/* SPDX-License-Identifier: MIT */
/*
 * Description: one allocation for all layers and for the indexer's keys, laid
 * out as vLLM 0.29 does: a region for each kind, [layer][block] in it, none of
 * them at a round address; or interleaved by block. Decode steps write keys and
 * rows and attend, and every row that attention read is compared.
 *
 * usage: layers first|last|mixed BLOCKS STEPS; prints where the bytes are
 */
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model.h"
#include "softgpu/softgpu.h"

enum {
	LAYERS = 3,
	BLOCK = 64,
	ROW = 656,
	KEY = 132,
	K = 256,
	TOKENS = 16, /* written in a step */
};

int hs_plant;
extern const unsigned char coherence_image[];

static CUfunction write_rows, write_keys, attend_rows;
static CUstream stream;
static uint64_t state = 1;

#define CHECK(call)                                                                                \
	do {                                                                                       \
		CUresult result_ = (call);                                                         \
		if (result_ != CUDA_SUCCESS) {                                                     \
			fprintf(stderr, "%s: error %d\n", #call, result_);                         \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static uint32_t below(uint32_t n)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(((state >> 33) * (uint64_t)n) >> 31);
}

/* Where things lie in the allocation, in bytes from its start. */
struct layout {
	size_t bytes, kv[LAYERS], keys[LAYERS];
	size_t kv_block, key_block; /* from one block to the next */
};

static struct layout lay_out(const char *order, size_t blocks)
{
	const size_t kv = ROW * BLOCK, key = KEY * BLOCK, all = LAYERS * (kv + key);
	struct layout l = {.bytes = all * blocks, .kv_block = kv, .key_block = key};

	for (size_t i = 0; i < LAYERS; i++) {
		if (!strcmp(order, "mixed")) {
			l.kv[i] = LAYERS * key + i * kv;
			l.keys[i] = i * key;
		} else {
			l.kv[i] = (strcmp(order, "first") ? 0 : LAYERS * key * blocks) +
				  i * kv * blocks;
			l.keys[i] = (strcmp(order, "first") ? LAYERS * kv * blocks : 0) +
				    i * key * blocks;
		}
	}
	if (!strcmp(order, "mixed"))
		l.kv_block = l.key_block = all;
	return l;
}

static uint64_t row_hash(uint32_t value)
{
	uint64_t hash = 1, word;

	for (uint32_t i = 0; i < ROW / 8; i++) {
		word = 0;
		if (value)
			word = coherence_word(value, 2 * i) |
			       (uint64_t)coherence_word(value, 2 * i + 1) << 32;
		hash = coherence_mix(hash, word);
	}
	return hash;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	const size_t blocks = (size_t)atol(argv[2]);
	const uint32_t slots = (uint32_t)blocks * BLOCK;
	const struct layout l = lay_out(argv[1], blocks);
	const bool mixed = l.kv_block != ROW * BLOCK;
	uint32_t *model = calloc((size_t)LAYERS * slots, sizeof(*model));
	uint32_t values[TOKENS];
	int64_t written[TOKENS];
	int32_t list[K];
	uint64_t got[K];
	CUdeviceptr backing, list_d, out_d, written_d, values_d;
	CUdevice device;
	CUcontext context;
	CUmodule module;
	size_t compared = 0, on_device, on_host;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuModuleLoadData(&module, coherence_image));
	CHECK(cuModuleGetFunction(&write_rows, module, "coherence_write"));
	CHECK(cuModuleGetFunction(&write_keys, module, "coherence_keys"));
	CHECK(cuModuleGetFunction(&attend_rows, module, "coherence_attend"));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc(&list_d, sizeof(list)));
	CHECK(cuMemAlloc(&out_d, sizeof(got)));
	CHECK(cuMemAlloc(&written_d, sizeof(written)));
	CHECK(cuMemAlloc(&values_d, sizeof(values)));
	if (cuMemAlloc(&backing, l.bytes) != CUDA_SUCCESS)
		CHECK(cuMemAlloc(&backing, l.bytes)); /* as torch, after it freed what it hoards */
	CHECK(cuMemsetD8Async(backing, 0, l.bytes, stream));
	for (long step = 0; step < atol(argv[3]); step++) {
		/* a run of slots, so that keys and rows are right in either layout */
		const uint32_t first = below(slots - TOKENS);

		for (int i = 0; i < TOKENS; i++) {
			written[i] = (int64_t)first + i;
			values[i] = 1 + below(1u << 30);
		}
		CHECK(cuMemcpyHtoDAsync(written_d, written, sizeof(written), stream));
		CHECK(cuMemcpyHtoDAsync(values_d, values, sizeof(values), stream));
		for (int layer = 0; layer < LAYERS; layer++) {
			CUdeviceptr kv = backing + l.kv[layer], keys = backing + l.keys[layer];
			int count = TOKENS, row = ROW, key = KEY;
			void *key_params[] = {&keys, &written_d, &values_d, &count, &key};
			void *row_params[] = {&kv, &written_d, &values_d, &count, &row};
			struct coherence_attend_args args = {.kv = kv,
				.list = list_d,
				.out = out_d,
				.rows = 1,
				.k = K,
				.stride = K,
				.row_bytes = ROW,
				.block_stride = (int64_t)l.kv_block};
			void *params[] = {&args};

			if (!mixed) {
				CHECK(cuLaunchKernel(write_keys, TOKENS, 1, 1, 32, 1, 1, 0, stream,
					key_params, NULL));
				CHECK(cuLaunchKernel(write_rows, TOKENS, 1, 1, 32, 1, 1, 0, stream,
					row_params, NULL));
				for (int i = 0; i < TOKENS; i++)
					model[(size_t)layer * slots + (size_t)written[i]] =
						values[i];
			}
			for (int i = 0; i < K; i++)
				list[i] = i < TOKENS	? (int32_t)written[i]
					  : i % 50 == 1 ? -1
							: (int32_t)below(i % 2 ? 400 : slots);
			if (mixed) /* rows of its first block */
				for (int i = 0; i < K; i++)
					list[i] %= BLOCK;
			CHECK(cuMemcpyHtoDAsync(list_d, list, sizeof(list), stream));
			CHECK(cuLaunchKernel(
				attend_rows, 4, 1, 1, 32, 1, 1, 0, stream, params, NULL));
			CHECK(cuMemcpyDtoHAsync(got, out_d, sizeof(got), stream));
			CHECK(cuStreamSynchronize(stream));
			for (int i = 0; i < K; i++, compared++) {
				const uint64_t want =
					list[i] < 0 ? 0
						    : row_hash(model[(size_t)layer * slots +
								     (size_t)list[i]]);

				if (got[i] == want)
					continue;
				fprintf(stderr, "STALE in step %ld, layer %d, entry %d, slot %d\n",
					step, layer, i, list[i]);
				return 1;
			}
		}
	}
	/* A key that was written last is read as it was, wherever it lives. */
	if (!mixed) {
		uint32_t key;

		CHECK(cuMemcpyDtoH(
			&key, backing + l.keys[LAYERS - 1] + (size_t)written[0] * KEY, 4));
		if (key != coherence_word(values[0] + 1, 0))
			return 1;
	}
	soft_usage(&on_device, &on_host);
	printf("%zu rows compared, %zu MiB in all, %zu MiB on the device, %zu MiB on the host\n",
		compared, l.bytes >> 20, on_device >> 20, on_host >> 20);
	CHECK(cuMemFree(backing));
	soft_usage(NULL, &on_host);
	free(model);
	return on_host > (size_t)1 << 20; /* no window is left there */
}
