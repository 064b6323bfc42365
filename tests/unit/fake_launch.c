/* SPDX-License-Identifier: MIT */
#include "tests/unit/fake_launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "src/base/log.h"
#include "src/cache/device.h"
#include "src/launch/profiles.h"
#include "src/memory/gate.h"

struct fake fake;
struct hs_driver hs_driver;
__thread int hs_inside;

void fake_event(const char *format, ...)
{
	size_t used = strlen(fake.events);
	va_list list;

	va_start(list, format);
	vsnprintf(fake.events + used, sizeof(fake.events) - used, format, list);
	va_end(list);
	strncat(fake.events, ";", sizeof(fake.events) - strlen(fake.events) - 1);
}

static const struct fake_kernel *kernel_of(const void *handle)
{
	return handle;
}

static CUresult get_name(const char **name, CUfunction function)
{
	__atomic_fetch_add(&fake.queries, 1, __ATOMIC_RELAXED);
	if (kernel_of(function)->library)
		return CUDA_ERROR_INVALID_HANDLE;
	*name = kernel_of(function)->name;
	return CUDA_SUCCESS;
}

static CUresult kernel_name(const char **name, CUkernel kernel)
{
	__atomic_fetch_add(&fake.queries, 1, __ATOMIC_RELAXED);
	*name = kernel_of(kernel)->name;
	return CUDA_SUCCESS;
}

static CUresult param_info(const struct fake_kernel *kernel, size_t i, size_t *offset, size_t *size)
{
	*offset = 0;
	for (size_t n = 0; n <= i; n++) {
		if (!kernel->sizes[n])
			return CUDA_ERROR_INVALID_VALUE;
		*size = kernel->sizes[n];
		if (n < i)
			*offset += (*size + 7) / 8 * 8;
	}
	return CUDA_SUCCESS;
}

static CUresult func_param(CUfunction function, size_t i, size_t *offset, size_t *size)
{
	if (kernel_of(function)->library)
		return CUDA_ERROR_INVALID_HANDLE;
	return param_info(kernel_of(function), i, offset, size);
}

static CUresult kernel_param(CUkernel kernel, size_t i, size_t *offset, size_t *size)
{
	return param_info(kernel_of(kernel), i, offset, size);
}

static CUresult capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
	CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
	(void)stream;
	(void)graph;
	(void)nodes;
	(void)count;
	*status = fake.capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	*id = fake.capturing ? 42 : 0;
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device)
{
	*device = 0;
	return CUDA_SUCCESS;
}

static CUresult exchange(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode old = fake.mode;

	fake.mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}

static CUresult host_register(void *memory, size_t bytes, unsigned flags)
{
	assert_true(bytes && flags & CU_MEMHOSTREGISTER_DEVICEMAP);
	assert_int_equal(fake.mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	assert_non_null(memory);
	return CUDA_SUCCESS;
}

static CUresult device_pointer(CUdeviceptr *device, void *host, unsigned flags)
{
	assert_int_equal(flags, 0);
	*device = (CUdeviceptr)(uintptr_t)host;
	return CUDA_SUCCESS;
}

static CUresult fill_bytes(CUdeviceptr start, unsigned char value, size_t bytes, CUstream stream)
{
	(void)stream;
	memset((void *)(uintptr_t)start, value, bytes);
	fake_event("reset");
	return CUDA_SUCCESS;
}

void fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.any = true;
	for (uint32_t i = 0; i < FAKE_WINDOWS; i++) {
		fake.windows[i].start = FAKE_WINDOW(i);
		fake.windows[i].bytes = (size_t)1 << 30;
		fake.windows[i].id = i;
		fake.windows[i].virgin = true;
	}
	hs_driver.cuFuncGetName = get_name;
	hs_driver.cuKernelGetName = kernel_name;
	hs_driver.cuFuncGetParamInfo = func_param;
	hs_driver.cuKernelGetParamInfo = kernel_param;
	hs_driver.cuCtxGetDevice = get_device;
	hs_driver.cuThreadExchangeStreamCaptureMode = exchange;
	hs_driver.cuMemHostRegister_v2 = host_register;
	hs_driver.cuMemHostGetDevicePointer_v2 = device_pointer;
	hs_driver.cuMemsetD8Async = fill_bytes;
	hs_driver.cuStreamGetCaptureInfo_v2 = capture_info;
	hs_driver.cuStreamGetCaptureInfo_v2_ptsz = capture_info;
}

bool fake_profiles(const char *text)
{
	static char name[] = "hs-test-XXXXXX"; /* profiles point to it */
	const ssize_t length = (ssize_t)strlen(text);
	int file = mkstemp(name);
	bool written;

	if (file < 0)
		return false;
	written = write(file, text, strlen(text)) == length;
	close(file);
	fake_reset();
	fake.options.profiles = name;
	hs_profiles(); /* reads it once, now */
	fake.options.profiles = NULL;
	unlink(name);
	return written;
}

CUresult fake_forward(struct hs_launch *launch)
{
	const struct fake_kernel *kernel = kernel_of(launch->function);

	assert_true(!fake.any || fake.inside == 1);
	fake.launched = *launch;
	memset(fake.params, 0, sizeof(fake.params));
	for (size_t i = 0; kernel->sizes[i]; i++) {
		size_t offset = 0, size = 0;

		param_info(kernel, i, &offset, &size);
		assert_true(offset + size <= sizeof(fake.params));
		if (launch->params) {
			memcpy(fake.params + offset, launch->params[i], size);
		} else {
			assert_ptr_equal(launch->extra[0], CU_LAUNCH_PARAM_BUFFER_POINTER);
			assert_ptr_equal(launch->extra[2], CU_LAUNCH_PARAM_BUFFER_SIZE);
			assert_ptr_equal(launch->extra[4], CU_LAUNCH_PARAM_END);
			assert_true(offset + size <= *(size_t *)launch->extra[3]);
			memcpy(fake.params + offset, (char *)launch->extra[1] + offset, size);
		}
	}
	fake_event("launch");
	return fake.launch_result;
}

CUresult fake_launch(const struct fake_kernel *kernel, unsigned grid, void **params)
{
	struct hs_launch launch = {.function = (CUfunction)kernel,
		.grid = {grid, 1, 1},
		.block = {128, 1, 1},
		.params = params,
		.forward = fake_forward};

	return hs_launch(&launch);
}

uint64_t fake_param(const struct fake_kernel *kernel, unsigned param, size_t at, size_t width)
{
	uint64_t value = 0;
	size_t offset = 0, size = 0;

	param_info(kernel, param, &offset, &size);
	memcpy(&value, fake.params + offset + at, width);
	return value;
}

/* base */

bool hs_log_on(enum hs_log_level level)
{
	return level <= HS_LOG_WARN || (int)level <= fake.options.log;
}

void hs_log_write(enum hs_log_level level, const char *format, ...)
{
	size_t used = strlen(fake.log);
	va_list list;

	(void)level;
	va_start(list, format);
	vsnprintf(fake.log + used, sizeof(fake.log) - used, format, list);
	va_end(list);
	strncat(fake.log, "\n", sizeof(fake.log) - strlen(fake.log) - 1);
}

const struct hs_options *hs_options(void)
{
	return &fake.options;
}

/* memory */

bool hs_window_any(void)
{
	return fake.any;
}

struct hs_window *hs_window_find(CUdeviceptr ptr)
{
	for (unsigned i = 0; i < FAKE_WINDOWS && fake.any; i++) {
		if (ptr - fake.windows[i].start < fake.windows[i].bytes)
			return &fake.windows[i];
	}
	return NULL;
}

void hs_window_each(void (*visit)(struct hs_window *window, void *data), void *data)
{
	for (unsigned i = 0; i < FAKE_WINDOWS && fake.any; i++)
		visit(&fake.windows[i], data);
}

void hs_window_span(CUdeviceptr *low, size_t *span)
{
	*low = FAKE_WINDOW(0);
	*span = fake.any ? FAKE_WINDOW(FAKE_WINDOWS) - FAKE_WINDOW(0) : 0;
}

void hs_window_reveal(struct hs_window *window, enum hs_use use, uint32_t row)
{
	if (window->use != (int)use || window->row != row)
		fake_event("reveal %u %s %u", window->id, use == HS_USE_KV ? "kv" : "other", row);
	window->use = use;
	window->virgin = false;
	if (row)
		window->row = row;
}

void hs_gate_enter(void)
{
	fake.inside++;
}

void hs_gate_leave(void)
{
	fake.inside--;
}

int hs_memory_own(CUdeviceptr *out, size_t bytes)
{
	void *memory = calloc(1, bytes);

	*out = (CUdeviceptr)(uintptr_t)memory;
	return memory ? 0 : -1;
}

/* The verify kernels, on memory of this process. */

static void poison(const struct hs_poison_args *a)
{
	for (uint64_t r = 0; r < a->region.rows; r++)
		memset((void *)(uintptr_t)(a->region.start + r * a->region.stride), 0xff,
			a->region.bytes);
}

static void hash(const struct hs_hash_args *a)
{
	for (uint64_t r = 0; r < a->region.rows; r++) {
		const unsigned char *row =
			(unsigned char *)(uintptr_t)(a->region.start + r * a->region.stride);
		uint64_t h = 5381;

		for (uint64_t i = 0; i < a->region.bytes; i++)
			h = h * 33 + row[i];
		a->hashes[r] = h;
	}
}

static void compare(const struct hs_compare_args *a)
{
	fake.hashes = (CUdeviceptr)(uintptr_t)a->left;
	a->counts[0] += a->count;
	for (uint32_t i = 0; i < a->count; i++)
		a->counts[1] += a->left[i] != a->right[i];
}

int hs_device_rows(enum hs_device_kernel kernel, uint64_t rows, const void *args, size_t bytes,
	const struct hs_site *site)
{
	(void)bytes;
	assert_int_equal(site->capturing, fake.capturing);
	assert_true(rows > 0);
	if (fake.rows_fail_after && --fake.rows_fail_after == 0)
		return -1;
	if (kernel == HS_DEVICE_POISON) {
		fake_event("poison");
		poison(args);
	} else if (kernel == HS_DEVICE_HASH) {
		fake_event("hash");
		hash(args);
	} else {
		assert_int_equal(kernel, HS_DEVICE_COMPARE);
		fake_event("compare");
		compare(args);
	}
	return 0;
}

/* cache: a layer is its window */

struct hs_layer *hs_layer_find(
	struct hs_window *window, CUdeviceptr base, uint32_t row, bool create)
{
	assert_true(create);
	fake.base = base;
	fake.row = row;
	return fake.no_layer ? NULL : (struct hs_layer *)window;
}

void hs_memory_mark(void)
{
	fake_event("mark");
}

void hs_cache_arrived(const struct hs_slots *list, uint32_t unit, const struct hs_site *site)
{
	(void)site;
	fake.slots = *list;
	fake_event("arrived x%u", unit);
}

void hs_cache_tabled(const struct hs_blocks *table, const struct hs_site *site)
{
	(void)site;
	fake.blocks = *table;
	fake_event("tabled");
}

void hs_layer_told(struct hs_layer *layer, uint64_t slots)
{
	(void)layer;
	fake.told = slots;
}

uint32_t hs_layer_id(const struct hs_layer *layer)
{
	return ((const struct hs_window *)layer)->id;
}

static unsigned id_of(const struct hs_layer *layer, const struct hs_site *site)
{
	assert_int_equal(site->capturing, fake.capturing);
	assert_int_equal(site->capture_id, fake.capturing ? 42 : 0);
	return hs_layer_id(layer);
}

int hs_cache_resolve(struct hs_layer *layer, const struct hs_list *list, const struct hs_site *site,
	CUdeviceptr *remapped)
{
	fake_event("resolve %u", id_of(layer, site));
	fake.list = *list;
	if (fake.resolve_result == 0)
		*remapped = fake.unchanged ? list->indices : FAKE_REMAPPED;
	return fake.resolve_result;
}

void hs_cache_attended(struct hs_layer *layer, const struct hs_site *site)
{
	fake_event("attended %u", id_of(layer, site));
}

void hs_cache_written(
	struct hs_layer *layer, const struct hs_slots *slots, const struct hs_site *site)
{
	fake_event("written %u", id_of(layer, site));
	fake.slots = *slots;
}

void hs_cache_wrote(
	struct hs_window *window, CUdeviceptr start, size_t bytes, const struct hs_site *site)
{
	id_of((struct hs_layer *)window, site);
	fake_event("wrote %u+%llu %zu", window->id, (unsigned long long)(start - window->start),
		bytes);
}

void hs_notes_add(const struct hs_site *site, const struct hs_notes_launch *launch)
{
	assert_true(site->capturing && launch);
	fake.node = *launch;
}

void hs_cache_capture_end(const struct hs_site *site)
{
	(void)site;
	fake_event("capture end");
}
