/* SPDX-License-Identifier: MIT */
#include "tests/unit/cache_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "softgpu/grid.h"
#include "softgpu/random.h"
#include "src/base/log.h"
#include "src/cache/device.h"
#include "src/cache/layer.h"
#include "src/cache/resolve.h"

#define OPS 4096
#define SPACE ((size_t)16 << 20)

struct op {
	enum { OP_KERNEL, OP_READ, OP_WRITE } kind;
	struct soft_launch launch;
	unsigned char args[256];
	struct hs_list list;
	CUdeviceptr remapped;
	unsigned steps;
	const int64_t *slots;
	uint32_t count;
	uint64_t value;
};

struct queue {
	struct op ops[OPS];
	unsigned head, count;
	struct soft_grid *grid;
};

struct rig rig;
struct hs_driver hs_driver;
__thread int hs_inside;
int hs_plant;
uint64_t soft_random_state;
const unsigned char hs_kernel_image[1];

static struct queue streams[RIG_STREAMS], graphs[2];
static struct soft_kernel *kernels;
static unsigned char *space;
static CUdeviceptr hots[2];
static size_t hot_bytes[2];

void soft_register(struct soft_kernel *kernel)
{
	kernel->next = kernels;
	kernels = kernel;
}

/* What src/cache needs of the rest of the library. */

const struct hs_options *hs_options(void)
{
	return &rig.options;
}

bool hs_log_on(enum hs_log_level level)
{
	return level <= HS_LOG_ERROR;
}

void hs_log_write(enum hs_log_level level, const char *format, ...)
{
	(void)level;
	(void)format;
}

CUdeviceptr hs_window_host_begins(struct hs_window *window, CUdeviceptr start, CUdeviceptr end)
{
	if (window->place != HS_PLACE_HOST)
		return end;
	return start < window->start + HS_GRANULE ? window->start + HS_GRANULE : start;
}

bool hs_window_any(void)
{
	return true;
}

void hs_memory_mark(void)
{
	rig.marked++;
}

size_t hs_memory_reserve(void)
{
	const size_t used = rig.shrinks ? rig.used : 0;
	const size_t all = rig.reserve ? rig.reserve : (size_t)1 << 20;

	return all > used ? all - used : 0;
}

int hs_memory_own(CUdeviceptr *out, size_t bytes)
{
	void *memory;

	if (rig.fail_own && !--rig.fail_own)
		return -ENOMEM;
	memory = aligned_alloc(256, (bytes + 511) & ~(size_t)255);
	*(size_t *)memory = bytes;
	rig.used += bytes;
	*out = (CUdeviceptr)(uintptr_t)memory + 256;
	memset((void *)(uintptr_t)*out, 0, bytes);
	return 0;
}

void hs_memory_disown(CUdeviceptr ptr)
{
	if (!ptr)
		return;
	rig.used -= *(size_t *)(uintptr_t)(ptr - 256);
	free((void *)(uintptr_t)(ptr - 256));
}

int hs_memory_hot(CUdeviceptr *out, CUdeviceptr base, uint32_t row, size_t bytes)
{
	CUdeviceptr hot = rig.window.start + SPACE / 2;
	unsigned i = hots[0] != 0;

	if (rig.fail_hot && rig.fail_hot--)
		return -ENOMEM;
	assert_false(hots[i]);
	hot += i * SPACE / 4;
	hot += row - (hot - base) % row;
	assert_true(bytes + row <= SPACE / 4);
	hots[i] = hot;
	hot_bytes[i] = bytes;
	rig.used += bytes;
	memset((void *)(uintptr_t)hot, 0xee, bytes);
	*out = hot;
	return 0;
}

void hs_memory_cold(CUdeviceptr hot)
{
	rig.used -= hot_bytes[hots[1] == hot];
	hots[hots[1] == hot] = 0;
}

static CUresult get_context(CUcontext *context)
{
	*context = (CUcontext)(uintptr_t)1;
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device)
{
	*device = 0;
	return CUDA_SUCCESS;
}

static CUresult stream_context(CUstream stream, CUcontext *context)
{
	(void)stream;
	return get_context(context);
}

static CUresult push_context(CUcontext context)
{
	(void)context;
	return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute which, CUdevice device)
{
	(void)which;
	(void)device;
	*value = 2;
	return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
	(void)mode;
	return CUDA_SUCCESS;
}

static CUresult load_module(CUmodule *module, const void *image)
{
	(void)image;
	*module = (CUmodule)(uintptr_t)1;
	return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *function, CUmodule module, const char *name)
{
	(void)module;
	for (struct soft_kernel *k = kernels; k; k = k->next) {
		if (strcmp(k->name, name))
			continue;
		*function = (CUfunction)k;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

static CUresult register_host(void *memory, size_t bytes, unsigned flags)
{
	(void)memory;
	(void)bytes;
	(void)flags;
	return CUDA_SUCCESS;
}

static CUresult device_pointer(CUdeviceptr *out, void *memory, unsigned flags)
{
	(void)flags;
	*out = (CUdeviceptr)(uintptr_t)memory;
	return CUDA_SUCCESS;
}

static CUresult copy_in(CUdeviceptr to, const void *from, size_t bytes)
{
	memcpy((void *)(uintptr_t)to, from, bytes);
	return CUDA_SUCCESS;
}

static CUresult fill(CUdeviceptr to, unsigned char value, size_t bytes)
{
	memset((void *)(uintptr_t)to, value, bytes);
	return CUDA_SUCCESS;
}

static CUresult synchronise(CUstream stream)
{
	(void)stream;
	rig_run();
	return CUDA_SUCCESS;
}

/* Stream n is (CUstream)(n + 1), graph n is (CUstream)(100 + n); the default
 * stream is stream 0. */
static struct op *enqueue(CUstream stream)
{
	uintptr_t n = (uintptr_t)stream;
	struct queue *queue = n >= 100 ? &graphs[n - 100] : &streams[n ? n - 1 : 0];

	assert_true(queue->count < OPS);
	return &queue->ops[queue->count++];
}

static CUresult launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
	unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
	struct op *op;

	(void)extra;
	if (rig.fail_launch && !--rig.fail_launch)
		return CUDA_ERROR_UNKNOWN;
	op = enqueue(stream);
	*op = (struct op){.kind = OP_KERNEL,
		.launch = {.kernel = (struct soft_kernel *)function,
			.grid = {gx, gy, gz},
			.block = {bx, by, bz},
			.shared = shared}};
	assert_true(op->launch.kernel->params[0].size <= sizeof(op->args));
	memcpy(op->args, params[0], op->launch.kernel->params[0].size);
	return CUDA_SUCCESS;
}

void rig_start(uint32_t slots, int policy, uint64_t seed)
{
	space = mmap((void *)0x200000000000, SPACE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(space, MAP_FAILED);
	hs_driver.cuCtxGetCurrent = get_context;
	hs_driver.cuCtxPopCurrent_v2 = get_context;
	hs_driver.cuStreamGetCtx = stream_context;
	hs_driver.cuCtxPushCurrent_v2 = push_context;
	hs_driver.cuCtxGetDevice = get_device;
	hs_driver.cuDeviceGetAttribute = get_attribute;
	hs_driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
	hs_driver.cuModuleLoadData = load_module;
	hs_driver.cuModuleGetFunction = get_function;
	hs_driver.cuMemHostRegister_v2 = register_host;
	hs_driver.cuMemHostGetDevicePointer_v2 = device_pointer;
	hs_driver.cuMemcpyHtoD_v2 = copy_in;
	hs_driver.cuMemsetD8_v2 = fill;
	hs_driver.cuStreamSynchronize = synchronise;
	hs_driver.cuLaunchKernel = launch;
	rig.options.slots = slots;
	rig.options.policy = policy;
	rig.seed = seed;
	soft_random_state = seed;
	rig.window.start = (CUdeviceptr)(uintptr_t)space;
	rig.base = rig.window.start + HS_GRANULE - RIG_FIRST * RIG_ROW;
	rig.window.requested = HS_GRANULE + (RIG_SLOTS - RIG_FIRST) * RIG_ROW;
	rig.window.bytes = 2 * HS_GRANULE;
	rig.window.place = HS_PLACE_HOST;
	for (uint32_t i = 0; i < RIG_SLOTS; i++)
		rig_fill(i, i);
	assert_int_equal(hs_cache_ready(), 0);
	rig.layer = hs_layer_find(&rig.window, rig.base, RIG_ROW, true);
	assert_non_null(rig.layer);
	hs_cache_settle();
}

void rig_fill(uint32_t slot, uint64_t value)
{
	uint64_t *row = (uint64_t *)(uintptr_t)(rig.base + (CUdeviceptr)slot * RIG_ROW);

	for (unsigned i = 0; i < RIG_ROW / 8; i++)
		row[i] = (value << 8 | i) * 0x9e3779b97f4a7c15u + slot;
}

struct hs_site rig_site(int stream)
{
	return (struct hs_site){.stream = (CUstream)(uintptr_t)(stream + 1)};
}

struct hs_list rig_list(const int32_t *entries, uint32_t outer, uint32_t k)
{
	return (struct hs_list){.indices = (CUdeviceptr)(uintptr_t)entries,
		.outer = outer,
		.inner = 1,
		.k = k,
		.outer_stride = k};
}

int rig_attend(const struct hs_list *list, const struct hs_site *site, unsigned steps,
	CUdeviceptr *remapped)
{
	CUdeviceptr out = list->indices;
	int error = hs_cache_resolve(rig.layer, list, site, &out);

	*enqueue(site->stream) =
		(struct op){.kind = OP_READ, .list = *list, .remapped = out, .steps = steps};
	hs_cache_attended(rig.layer, site);
	if (remapped)
		*remapped = out;
	return error;
}

void rig_write(const int64_t *slots, uint32_t count, uint64_t value, const struct hs_site *site)
{
	struct hs_slots written = {(CUdeviceptr)(uintptr_t)slots, count, 8};

	*enqueue(site->stream) =
		(struct op){.kind = OP_WRITE, .slots = slots, .count = count, .value = value};
	hs_cache_written(rig.layer, &written, site);
}

struct hs_site rig_capture(int stream, int graph)
{
	(void)stream;
	return (struct hs_site){.stream = (CUstream)(uintptr_t)(100 + graph),
		.capturing = true,
		.capture_id = 7 + (unsigned)graph};
}

void rig_capture_end(const struct hs_site *site)
{
	hs_cache_capture_end(site);
}

void rig_replay(int graph, int stream)
{
	for (unsigned i = 0; i < graphs[graph].count; i++)
		*enqueue((CUstream)(uintptr_t)(stream + 1)) = graphs[graph].ops[i];
}

static const unsigned char *row_at(int64_t index)
{
	return (const unsigned char *)(uintptr_t)(rig.base + (CUdeviceptr)(index * RIG_ROW));
}

/* Attention: every index must name the bytes that its slot has now. */
static void read_rows(const struct op *op)
{
	const int32_t *lengths = (const int32_t *)(uintptr_t)op->list.lengths;

	for (uint32_t i = 0; i < op->list.outer * op->list.inner; i++) {
		uint32_t outer = i / op->list.inner, inner = i % op->list.inner;
		int64_t at = outer * op->list.outer_stride + inner * op->list.inner_stride;
		const int32_t *slots = (const int32_t *)(uintptr_t)op->list.indices + at;
		const int32_t *indices = (const int32_t *)(uintptr_t)op->remapped + at;

		for (uint32_t n = 0; n < op->list.k; n++) {
			bool none = slots[n] < 0 || (lengths && (int64_t)n >= lengths[outer] &&
							    op->remapped != op->list.indices);

			rig.read++;
			if (none) {
				rig.wrong += indices[n] != -1;
				continue;
			}
			rig.hot += indices[n] != slots[n];
			rig.wrong += indices[n] < 0 ||
				     memcmp(row_at(indices[n]), row_at(slots[n]), RIG_ROW);
		}
	}
}

/* One step of the stream's first operation. */
static void step(struct queue *queue)
{
	struct op *op = &queue->ops[queue->head];
	enum soft_progress progress;

	switch (op->kind) {
	case OP_KERNEL:
		if (!queue->grid) {
			op->launch.bytes = op->args;
			queue->grid = soft_grid_create(&op->launch);
		}
		progress = soft_grid_step(queue->grid);
		assert_int_not_equal(progress, SOFT_STUCK);
		if (progress == SOFT_RUNNING)
			return;
		soft_grid_destroy(queue->grid);
		queue->grid = NULL;
		break;
	case OP_READ:
		if (op->steps) {
			op->steps--;
			return;
		}
		read_rows(op);
		break;
	case OP_WRITE:
		for (uint32_t i = 0; i < op->count; i++) {
			if (op->slots[i] >= 0)
				rig_fill((uint32_t)op->slots[i], op->value);
		}
		break;
	}
	if (++queue->head == queue->count)
		queue->head = queue->count = 0;
}

void rig_run(void)
{
	unsigned busy = 1, n = 0;

	while (busy) {
		busy = 0;
		for (unsigned i = 0; i < RIG_STREAMS; i++)
			busy += streams[i].count > 0;
		n = soft_fuzzing() ? soft_random(RIG_STREAMS) : n + 1;
		if (streams[n % RIG_STREAMS].count)
			step(&streams[n % RIG_STREAMS]);
	}
}

void rig_settle(void)
{
	rig_run();
	hs_resolve_settle(hs_device_get(0));
	rig_run();
}

int rig_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count)
{
	int failed = 0, status;

	for (size_t i = 0; i < count; i++) {
		pid_t child;

		if (argc > 1 && strcmp(argv[1], tests[i].name))
			continue;
		fflush(NULL);
		child = fork();
		if (!child) {
			struct CMUnitTest one = tests[i];

			_exit(_cmocka_run_group_tests(one.name, &one, 1, NULL, NULL));
		}
		waitpid(child, &status, 0);
		failed += status != 0;
		if (argc > 1)
			break;
	}
	return failed != 0;
}
