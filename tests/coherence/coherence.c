/* SPDX-License-Identifier: MIT */
/*
 * Description: no stale row, for any interleaving of writes, reads, frees,
 * block reuse, copies, fills, captures, replays, migrations, evictions and two
 * streams on one layer (invariant 3).
 *
 * A program as an engine would be: it links the driver, allocates windows,
 * runs writers and attention, eagerly and in graphs, and orders its own
 * conflicting accesses with events. Every row that attention read is compared
 * with a plain byte model. usage: coherence SEED OPERATIONS [BUG]
 */
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model.h"

enum {
	WINDOWS = 2,
	STREAMS = 2,
	GRAPHS = 3,
	K = 128,
	ROWS = 2,
	WRITES = 24,
	PENDING = 48, /* checks and buffers between two synchronisations */
};

struct window {
	CUdeviceptr ptr;
	size_t bytes;
	uint32_t row, slots;
	uint8_t *model;
};

/* One enqueued attention whose answer is still to be compared. */
struct check {
	CUdeviceptr list, out, slots, values;
	int32_t host_list[ROWS * K];
	int64_t host_slots[WRITES];
	uint32_t host_values[WRITES];
	uint64_t expect[ROWS * K];
	int rows;
	const char *what;
};

struct graph {
	CUgraphExec exec;
	int window, last_stream;
	int attends; /* 1, or 2 on parallel branches */
	CUdeviceptr list, out, slots, values;
};

/* Read by the CPU build of our kernels: enum hs_plant. */
int hs_plant;
extern const unsigned char coherence_image[];

static struct window windows[WINDOWS];
static struct graph graphs[GRAPHS];
static struct check *checks;
static int pending;
static CUstream streams[STREAMS];
static CUevent event;
static CUfunction write_rows, attend_rows, scribble;
static CUdeviceptr ballast;
static uint64_t state;
static long operation, compared;

#define CHECK(call)                                                                                \
	do {                                                                                       \
		CUresult result_ = (call);                                                         \
		if (result_ != CUDA_SUCCESS) {                                                     \
			fprintf(stderr, "operation %ld: %s: error %d\n", operation, #call,         \
				result_);                                                          \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static uint32_t below(uint32_t n)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(((state >> 33) * (uint64_t)n) >> 31);
}

static void window_create(struct window *w, uint32_t row)
{
	w->row = row;
	w->slots = 64 * (96 + below(32));
	w->bytes = (size_t)w->slots * row;
	if (cuMemAlloc(&w->ptr, w->bytes) == CUDA_ERROR_OUT_OF_MEMORY) {
		/* as torch's allocator: give back what it hoards, then once more */
		if (ballast)
			CHECK(cuMemFree(ballast));
		ballast = 0;
		CHECK(cuMemAlloc(&w->ptr, w->bytes));
	}
	w->model = calloc(1, w->bytes);
	CHECK(cuMemsetD8Async(w->ptr, 0, w->bytes, streams[0]));
	CHECK(cuStreamSynchronize(streams[0]));
}

/* Later work on every stream comes after the work enqueued so far on all. */
static void order_all(void)
{
	for (int a = 0; a < STREAMS; a++) {
		CHECK(cuEventRecord(event, streams[a]));
		for (int b = 0; b < STREAMS; b++)
			if (a != b)
				CHECK(cuStreamWaitEvent(streams[b], event, 0));
	}
}

static uint64_t row_hash(const struct window *w, int32_t slot)
{
	if (slot < 0)
		return 0;
	uint64_t hash = 1;
	for (uint32_t i = 0; i < w->row / 8; i++) {
		uint64_t word;
		memcpy(&word, w->model + (size_t)slot * w->row + i * 8, 8);
		hash = coherence_mix(hash, word);
	}
	return hash;
}

/* Half of the picks fall on few slots, so that there are hits and evictions. */
static int32_t pick_slot(const struct window *w)
{
	uint32_t r = below(100);
	if (r < 4)
		return -1;
	return (int32_t)(r < 50 ? below(300) * 7 % w->slots : below(w->slots));
}

static void settle_checks(void)
{
	CHECK(cuCtxSynchronize());
	for (int i = 0; i < pending; i++) {
		struct check *c = &checks[i];
		uint64_t got[ROWS * K];
		if (!c->rows)
			continue;
		CHECK(cuMemcpyDtoH(got, c->out, (size_t)c->rows * K * 8));
		for (int j = 0; j < c->rows * K; j++, compared++) {
			if (got[j] == c->expect[j])
				continue;
			fprintf(stderr, "STALE before operation %ld: %s entry %d slot %d: %llx, want %llx\n",
				operation, c->what, j, c->host_list[j], (unsigned long long)got[j],
				(unsigned long long)c->expect[j]);
			exit(1);
		}
	}
	pending = 0;
}

static struct check *next_check(const char *what)
{
	if (pending == PENDING)
		settle_checks();
	struct check *c = &checks[pending++];
	c->what = what;
	c->rows = 0;
	return c;
}

static void launch_write(const struct window *w, CUdeviceptr slots, CUdeviceptr values, int count,
	CUstream stream)
{
	CUdeviceptr kv = w->ptr;
	int row = (int)w->row;
	void *params[] = {&kv, &slots, &values, &count, &row};
	CHECK(cuLaunchKernel(write_rows, (unsigned)count, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static void launch_attend(const struct window *w, CUdeviceptr list, CUdeviceptr out, int rows,
	CUstream stream)
{
	struct coherence_attend_args args = {
		.kv = w->ptr,
		.list = list,
		.out = out,
		.rows = rows,
		.k = K,
		.stride = K,
		.row_bytes = (int)w->row,
		.block_stride = 64 * (int64_t)w->row,
	};
	void *params[] = {&args};
	CHECK(cuLaunchKernel(attend_rows, 4, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static void draw_list(struct check *c, const struct window *w, int rows)
{
	c->rows = rows;
	for (int i = 0; i < rows * K; i++)
		c->host_list[i] = i % 37 == 5 ? c->host_list[i / 2] : pick_slot(w);
}

static void expect_list(struct check *c, const struct window *w)
{
	for (int i = 0; i < c->rows * K; i++)
		c->expect[i] = row_hash(w, c->host_list[i]);
}

/* Distinct slots: two writers of one slot in one launch would race by themselves. */
static int draw_writes(struct check *c, struct window *w)
{
	int count = 1 + (int)below(WRITES);
	uint32_t first = below(w->slots), step = 1 + below(5);
	for (int i = 0; i < count; i++) {
		uint32_t slot = (first + (uint32_t)i * step) % w->slots;
		c->host_slots[i] = below(16) ? (int64_t)slot : -1;
		c->host_values[i] = below(1u << 30);
		if (c->host_slots[i] < 0)
			continue;
		for (uint32_t j = 0; j < w->row / 4; j++) {
			uint32_t word = coherence_word(c->host_values[i], j);
			memcpy(w->model + (size_t)slot * w->row + j * 4, &word, 4);
		}
	}
	return count;
}

static void upload_writes(const struct check *c, CUdeviceptr slots, CUdeviceptr values, int count,
	CUstream stream)
{
	CHECK(cuMemcpyHtoDAsync(slots, c->host_slots, (size_t)count * 8, stream));
	CHECK(cuMemcpyHtoDAsync(values, c->host_values, (size_t)count * 4, stream));
}

static void do_write(void)
{
	struct window *w = &windows[below(WINDOWS)];
	CUstream stream = streams[below(STREAMS)];
	struct check *c = next_check("write");
	order_all();
	int count = draw_writes(c, w);
	upload_writes(c, c->slots, c->values, count, stream);
	launch_write(w, c->slots, c->values, count, stream);
	order_all();
}

static void do_attend(void)
{
	const struct window *w = &windows[below(WINDOWS)];
	CUstream stream = streams[below(STREAMS)];
	struct check *c = next_check("eager attention");
	draw_list(c, w, 1 + (int)below(ROWS));
	expect_list(c, w);
	CHECK(cuMemcpyHtoDAsync(c->list, c->host_list, (size_t)c->rows * K * 4, stream));
	launch_attend(w, c->list, c->out, c->rows, stream);
}

static void do_copy(void)
{
	struct window *to = &windows[below(WINDOWS)], *from = &windows[below(WINDOWS)];
	size_t bytes = 16 * (1 + below(2000));
	size_t dst = 16 * below((uint32_t)((to->bytes - bytes) / 16));
	size_t src = 16 * below((uint32_t)((from->bytes - bytes) / 16));
	CUstream stream = streams[below(STREAMS)];
	if (to == from && dst < src + bytes && src < dst + bytes)
		return;
	order_all();
	CHECK(cuMemcpyDtoDAsync(to->ptr + dst, from->ptr + src, bytes, stream));
	memcpy(to->model + dst, from->model + src, bytes);
	order_all();
}

static void do_upload(void)
{
	struct window *w = &windows[below(WINDOWS)];
	size_t bytes = 4 * (1 + below(3000)), at = 4 * below((uint32_t)((w->bytes - bytes) / 4));
	settle_checks();
	for (size_t i = 0; i < bytes; i++)
		w->model[at + i] = (uint8_t)below(256);
	CHECK(cuMemcpyHtoD(w->ptr + at, w->model + at, bytes));
}

/* Often across the seam between the part that stays on the device and the rest. */
static void do_fill(void)
{
	struct window *w = &windows[below(WINDOWS)];
	size_t bytes = 4 * (1 + below(4000));
	size_t at = below(2) ? ((size_t)2 << 20) - bytes / 8 * 4
			     : 4 * below((uint32_t)((w->bytes - bytes) / 4));
	uint8_t value = (uint8_t)below(256);
	CUstream stream = streams[below(STREAMS)];
	order_all();
	if (below(2))
		CHECK(cuMemsetD8Async(w->ptr + at, value, bytes, stream));
	else
		CHECK(cuMemsetD32Async(w->ptr + at, value * 0x01010101u, bytes / 4, stream));
	memset(w->model + at, value, bytes);
	order_all();
}

static void do_scribble(void)
{
	struct window *w = &windows[below(WINDOWS)];
	int bytes = 4 * (1 + (int)below(500));
	size_t at = 4 * below((uint32_t)((w->bytes - (size_t)bytes) / 4));
	CUdeviceptr dst = w->ptr + at;
	uint32_t value = below(1u << 30);
	void *params[] = {&dst, &value, &bytes};
	order_all();
	CHECK(cuLaunchKernel(scribble, 1, 1, 1, 32, 1, 1, 0, streams[below(STREAMS)], params, NULL));
	for (uint32_t i = 0; i < (uint32_t)bytes / 4; i++) {
		uint32_t word = coherence_word(value, i);
		memcpy(w->model + at + i * 4, &word, 4);
	}
	order_all();
}

static void graph_destroy(struct graph *g)
{
	if (!g->exec)
		return;
	settle_checks();
	CHECK(cuGraphExecDestroy(g->exec));
	CHECK(cuMemFree(g->list));
	CHECK(cuMemFree(g->out));
	CHECK(cuMemFree(g->slots));
	CHECK(cuMemFree(g->values));
	memset(g, 0, sizeof(*g));
}

/* writer, then attention; or attention on two branches of one graph. */
static void do_capture(void)
{
	struct graph *g = &graphs[below(GRAPHS)];
	CUgraph captured;
	CUstream origin = streams[0];
	graph_destroy(g);
	settle_checks();
	g->window = (int)below(WINDOWS);
	g->attends = 1 + (int)below(2);
	CHECK(cuMemAlloc(&g->list, 2 * ROWS * K * 4));
	CHECK(cuMemAlloc(&g->out, 2 * ROWS * K * 8));
	CHECK(cuMemAlloc(&g->slots, WRITES * 8));
	CHECK(cuMemAlloc(&g->values, WRITES * 4));
	const struct window *w = &windows[g->window];
	CHECK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch_write(w, g->slots, g->values, WRITES, origin);
	if (g->attends == 2) {
		CHECK(cuEventRecord(event, origin));
		CHECK(cuStreamWaitEvent(streams[1], event, 0));
		launch_attend(w, g->list + ROWS * K * 4, g->out + ROWS * K * 8, ROWS, streams[1]);
	}
	launch_attend(w, g->list, g->out, ROWS, origin);
	if (g->attends == 2) {
		CHECK(cuEventRecord(event, streams[1]));
		CHECK(cuStreamWaitEvent(origin, event, 0));
	}
	CHECK(cuStreamEndCapture(origin, &captured));
	CHECK(cuGraphInstantiate(&g->exec, captured, 0));
	CHECK(cuGraphDestroy(captured));
}

static void do_replay(void)
{
	struct graph *g = &graphs[below(GRAPHS)];
	if (!g->exec)
		return;
	struct window *w = &windows[g->window];
	CUstream stream = streams[below(STREAMS)];
	if (pending + 3 > PENDING)
		settle_checks();
	struct check *writes = next_check("captured write");
	order_all();
	int count = draw_writes(writes, w);
	for (int i = count; i < WRITES; i++)
		writes->host_slots[i] = -1;
	upload_writes(writes, g->slots, g->values, WRITES, stream);
	struct check *c[2];
	for (int i = 0; i < g->attends; i++) {
		c[i] = next_check("replayed attention");
		draw_list(c[i], w, ROWS);
		expect_list(c[i], w);
		CHECK(cuMemcpyHtoDAsync(g->list + (size_t)i * ROWS * K * 4, c[i]->host_list,
			ROWS * K * 4, stream));
	}
	CHECK(cuGraphLaunch(g->exec, stream));
	for (int i = 0; i < g->attends; i++)
		CHECK(cuMemcpyDtoDAsync(c[i]->out, g->out + (size_t)i * ROWS * K * 8, ROWS * K * 8,
			stream));
	order_all();
}

static void do_reallocate(void)
{
	int i = (int)below(WINDOWS);
	for (int g = 0; g < GRAPHS; g++)
		if (graphs[g].exec && graphs[g].window == i)
			graph_destroy(&graphs[g]);
	settle_checks();
	CHECK(cuMemFree(windows[i].ptr));
	free(windows[i].model);
	window_create(&windows[i], windows[i].row);
}

/* Memory grows short and comes back: windows move both ways. */
static void do_pressure(void)
{
	settle_checks();
	if (ballast) {
		CHECK(cuMemFree(ballast));
		ballast = 0;
	} else {
		CUresult result = cuMemAlloc(&ballast, (size_t)(4 + below(60)) << 20);
		if (result != CUDA_SUCCESS)
			ballast = 0;
	}
}

int main(int argc, char **argv)
{
	static const struct {
		unsigned weight;
		void (*run)(void);
	} operations[] = {
		{40, do_write}, {150, do_attend}, {10, do_copy}, {4, do_upload}, {10, do_fill},
		/* drops all of a window: seldom, or nothing is ever evicted */
		{1, do_scribble},
		{5, do_capture}, {70, do_replay}, {2, do_reallocate}, {6, do_pressure},
		{8, settle_checks},
	};
	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: coherence SEED OPERATIONS [BUG]\n");
		return 2;
	}
	hs_plant = argc > 3 ? atoi(argv[3]) : 0;
	state = strtoull(argv[1], NULL, 0) * 0x9e3779b97f4a7c15ull + 1;
	long count = atol(argv[2]);
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuModuleLoadData(&module, coherence_image));
	CHECK(cuModuleGetFunction(&write_rows, module, "coherence_write"));
	CHECK(cuModuleGetFunction(&attend_rows, module, "coherence_attend"));
	CHECK(cuModuleGetFunction(&scribble, module, "coherence_scribble"));
	for (int i = 0; i < STREAMS; i++)
		CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	checks = calloc(PENDING, sizeof(*checks));
	for (int i = 0; i < PENDING; i++) {
		CHECK(cuMemAlloc(&checks[i].list, ROWS * K * 4));
		CHECK(cuMemAlloc(&checks[i].out, ROWS * K * 8));
		CHECK(cuMemAlloc(&checks[i].slots, WRITES * 8));
		CHECK(cuMemAlloc(&checks[i].values, WRITES * 4));
	}
	window_create(&windows[0], 656);
	window_create(&windows[1], 1152);

	unsigned total = 0;
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++)
		total += operations[i].weight;
	for (operation = 0; operation < count; operation++) {
		unsigned r = below(total), i = 0;
		while (r >= operations[i].weight)
			r -= operations[i++].weight;
		operations[i].run();
	}
	settle_checks();
	for (int i = 0; i < GRAPHS; i++)
		graph_destroy(&graphs[i]);
	for (int i = 0; i < WINDOWS; i++) {
		CHECK(cuMemFree(windows[i].ptr));
		free(windows[i].model);
	}
	printf("seed %s: %ld operations, %ld rows compared\n", argv[1], count, compared);
	free(checks);
	return compared ? 0 : 1;
}
