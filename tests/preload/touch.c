/* SPDX-License-Identifier: MIT */
#include "touch.h"

#include <stdarg.h>
#include <string.h>
#include "tests/coherence/model.h"

enum { ROW = 656, K = 192, BEFORE = 40 /* rows of these before the place */ };

#define NEAR ((size_t)65536) /* bytes that are compared before the place, and twice after */

int hs_plant; /* of the CPU build of our kernels: none */
extern const unsigned char coherence_image[];

CUstream touch_stream;
CUcontext touch_context;
static CUmodule module;
static CUfunction attend;
static CUdeviceptr list_ptr, out_ptr;
/* All of these, of the devices that are not in use at the moment. */
static struct {
	CUstream stream;
	CUcontext context;
	CUmodule module;
	CUfunction attend;
	CUdeviceptr list, out;
} devices[8];
static int here;
static int32_t list[K];
static uint64_t state = 1;

void touch_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

uint32_t touch_random(void)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33);
}

void touch_noise(uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		bytes[i] = (uint8_t)(touch_random() >> 8);
}

CUfunction touch_function(const char *name)
{
	CUfunction function;

	CHECK(cuModuleGetFunction(&function, module, name));
	return function;
}

void touch_start(void)
{
	setenv("SOFTGPU_MEMORY_MIB", "96", 0);
	setenv("HISPARSE_WINDOW_MIB", "8", 0);
	setenv("HISPARSE_HOST_GIB", "0.25", 0);
	setenv("HISPARSE_PLACE", "host", 0);
	setenv("HISPARSE_SLOTS", "2048", 0);
	setenv("HISPARSE_PROFILES", PROFILE, 0);
	if (cuInit(0) != CUDA_SUCCESS || !touch_on(0))
		exit(77);
}

static void begin(CUdevice device)
{
	CHECK(cuDevicePrimaryCtxRetain(&touch_context, device));
	CHECK(cuCtxSetCurrent(touch_context));
	CHECK(cuStreamCreate(&touch_stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuModuleLoadData(&module, coherence_image));
	attend = touch_function("coherence_attend");
	CHECK(cuMemAlloc_v2(&list_ptr, sizeof(list)));
	CHECK(cuMemAlloc_v2(&out_ptr, K * sizeof(uint64_t)));
}

bool touch_on(int ordinal)
{
	CUdevice device;

	if (cuDeviceGet(&device, ordinal) != CUDA_SUCCESS)
		return false;
	devices[here] = (__typeof__(devices[0])){
		touch_stream, touch_context, module, attend, list_ptr, out_ptr};
	here = ordinal;
	if (!devices[ordinal].context) {
		begin(device);
		return true;
	}
	touch_stream = devices[ordinal].stream;
	touch_context = devices[ordinal].context;
	module = devices[ordinal].module;
	attend = devices[ordinal].attend;
	list_ptr = devices[ordinal].list;
	out_ptr = devices[ordinal].out;
	CHECK(cuCtxSetCurrent(touch_context));
	return true;
}

void touch_make(struct touch *t, enum touch_kind kind, size_t bytes)
{
	void *host = NULL;

	*t = (struct touch){.kind = kind, .bytes = bytes, .model = malloc(bytes)};
	touch_noise(t->model, bytes);
	switch (kind) {
	case TOUCH_PAGEABLE:
		host = malloc(bytes);
		break;
	case TOUCH_PINNED:
		CHECK(cuMemHostAlloc(&host, bytes, 0));
		break;
	default:
		CHECK(cuMemAlloc_v2(&t->ptr, bytes));
		CHECK(cuMemcpyHtoD_v2(t->ptr, t->model, bytes));
	}
	if (host) {
		memcpy(host, t->model, bytes);
		t->ptr = (CUdeviceptr)host;
	}
	if (kind == TOUCH_WINDOW)
		for (int i = 0; i < 2; i++) /* is seen to be KV, moves, starts to swap */
			EXPECT(!touch_stale(t, SEAM));
}

void touch_aim(struct touch *window, size_t at)
{
	const int32_t first = (int32_t)(at / ROW) - BEFORE;

	for (int i = 0; i < K; i++) {
		const int32_t slot = first + i;

		list[i] = slot >= 0 && (size_t)(slot + 1) * ROW <= window->bytes ? slot : -1;
	}
	CHECK(cuMemcpyHtoD_v2(list_ptr, list, sizeof(list)));
	CHECK(cuMemsetD8_v2(out_ptr, 0xff, K * sizeof(uint64_t)));
	CHECK(cuCtxSynchronize());
}

void touch_attend(struct touch *window, CUstream stream)
{
	struct coherence_attend_args args = {.kv = window->ptr,
		.list = list_ptr,
		.out = out_ptr,
		.rows = 1,
		.k = K,
		.stride = K,
		.row_bytes = ROW,
		.block_stride = 64 * ROW};
	void *params[] = {&args};

	CHECK(cuLaunchKernel(attend, 4, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static uint64_t row_hash(const struct touch *window, int32_t slot)
{
	uint64_t hash = 1, word;

	for (size_t i = 0; i < ROW / 8; i++) {
		memcpy(&word, window->model + (size_t)slot * ROW + i * 8, 8);
		hash = coherence_mix(hash, word);
	}
	return slot < 0 ? 0 : hash;
}

size_t touch_read(struct touch *window)
{
	uint64_t out[K];
	size_t stale = 0;

	CHECK(cuCtxSynchronize());
	CHECK(cuMemcpyDtoH_v2(out, out_ptr, sizeof(out)));
	for (int i = 0; i < K; i++)
		stale += out[i] != (list[i] < 0 ? 0 : row_hash(window, list[i]));
	return stale;
}

size_t touch_stale(struct touch *window, size_t at)
{
	touch_aim(window, at);
	touch_attend(window, touch_stream);
	return touch_read(window);
}

void touch_heat(struct touch *window, size_t at)
{
	const size_t row = (at > SEAM ? at / ROW : SEAM / ROW) + 4;
	volatile uint8_t *byte = (volatile uint8_t *)window->ptr + row * ROW + 7;

	EXPECT(!touch_stale(window, at));
	if (getenv("HISPARSE_DISABLE"))
		return;
	/* The processor writes, which nobody sees: the row is hot if attention
	 * does not. */
	*byte ^= 0xff;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	EXPECT(!touch_stale(window, at));
	*byte ^= 0xff;
}

/* The bytes of [from, to). */
static void compare(struct touch *t, size_t from, size_t to, const char *what)
{
	const bool device = t->kind == TOUCH_WINDOW || t->kind == TOUCH_DEVICE;
	uint8_t *bytes = (uint8_t *)t->ptr + from, *copy = NULL;
	size_t i;

	if (device) {
		bytes = copy = malloc(to - from);
		CHECK(cuMemcpyDtoH_v2(copy, t->ptr + from, to - from));
	}
	if (memcmp(bytes, t->model + from, to - from)) {
		for (i = 0; bytes[i] == t->model[from + i]; i++)
			;
		touch_fail("%s: byte %zu of kind %d is %02x, not %02x", what, from + i, t->kind,
			bytes[i], t->model[from + i]);
	}
	free(copy);
}

void touch_check(struct touch *t, size_t at, const char *what)
{
	const size_t from = at > NEAR ? at - NEAR : 0;
	size_t stale;

	CHECK(cuCtxSynchronize());
	stale = t->kind == TOUCH_WINDOW ? touch_stale(t, at) : 0;
	if (stale)
		touch_fail("%s: %zu stale rows", what, stale);
	compare(t, from, t->bytes - from > 3 * NEAR ? from + 3 * NEAR : t->bytes, what);
}

void touch_free(struct touch *t)
{
	CHECK(cuCtxSynchronize());
	compare(t, 0, t->bytes, "at the end");
	if (t->kind == TOUCH_PAGEABLE)
		free((void *)t->ptr);
	else if (t->kind == TOUCH_PINNED)
		CHECK(cuMemFreeHost((void *)t->ptr));
	else
		CHECK(cuMemFree_v2(t->ptr));
	free(t->model);
}
