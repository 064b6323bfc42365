/* SPDX-License-Identifier: MIT */
/*
 * What a prefill's lists cost: many query rows whose union is the whole prefix,
 * made hot or staged by union (src/cache/many.h), beside the same lists by the ordinary
 * resolve with no row hot, and beside the bytes over the link. The prefix lies
 * in pages all over its layer's window. The L2 is flushed before every call,
 * every entry of every list is checked, byte by byte.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "src/cache/cache.h"
#include "src/cache/device.h"
#include "src/cache/many.h"
#include "tools/bench/median.h"
#include "tools/bench/many_plan.h"
#include "tools/bench/memory.h"
#include "tools/bench/place.h"
#include "tools/bench/rows.h"
#include "tools/bench/swapin_abi.h"
#include "tools/bench/workers.h"

enum { PHASES = 5, MARKS = 2 * PHASES, LINK_GBS = 45 };

static const enum hs_device_kernel steps[PHASES] = {HS_DEVICE_MANY_MARK, HS_DEVICE_MANY_RANK,
	HS_DEVICE_MANY_HOT, HS_DEVICE_MANY_GATHER, HS_DEVICE_MANY_REMAP};
static const char *const phases[PHASES] = {"mark", "rank", "hot", "gather", "remap"};

extern const unsigned char swapin_image[];

static struct hs_many_plan plan;

static struct {
	struct hs_rows pool;
	struct hs_window *windows[HS_MANY_LAYERS];
	struct hs_layer *layers[HS_MANY_LAYERS];
	CUstream stream;
	CUfunction check;
	CUdeviceptr list, flush, result;
	CUevent from, to, marks[MARKS];
	unsigned marked;
	int32_t *host; /* the list */
} bench;

struct cell {
	uint64_t prefix, hits, staged, fetched;	     /* of the first call */
	uint64_t misses, inplace;		     /* of an ordinary one */
	double phase[PHASES], total, host, ordinary; /* us */
};

static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "many: %s: CUDA error %d\n", what, result);
	exit(1);
}
#define TRY(call) must(call, #call)

static void need(int error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "many: %s: %s\n", what, strerror(-error));
	exit(1);
}

static size_t entries(void)
{
	return hs_many_plan_entries(&plan);
}

static uint64_t window_bytes(void)
{
	return plan.window_mib << 20;
}

/* splitmix64 */
static uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* k different positions of the prefix in no order; the first rows, as they would
 * see less of it, have -1 in their second half. */
static void fill_row(void *data, uint32_t i)
{
	const struct hs_places *places = data;
	const uint64_t random = mix(plan.seed * plan.rows + i);
	uint64_t step = (random >> 32) % places->ctx | 1, at = (uint32_t)random % places->ctx;
	int32_t *row = bench.host + i * plan.k;

	while (places->ctx % step == 0 && step > 1)
		step -= 2;
	/* A step that shares a factor with the prefix repeats positions: no harm. */
	for (uint64_t n = 0; n < plan.k; n++, at = (at + step) % places->ctx) {
		row[n] = hs_places_slot(places, 0, (int32_t)at);
		if (i < plan.rows / 64 && n >= plan.k / 2)
			row[n] = -1;
	}
}

static void fill_list(uint64_t prefix)
{
	struct hs_places places;
	const uint64_t skip = (HS_GRANULE + plan.row - 1) / plan.row + HS_PLACE_PAGE;
	const uint64_t slots = window_bytes() / plan.row;
	const uint64_t batch = slots > skip ? (slots - skip) / prefix : 0;

	if (!batch) {
		fprintf(stderr, "many: a prefix of %llu does not fit a window\n",
			(unsigned long long)prefix);
		exit(1);
	}
	need(hs_places_init(&places, (uint32_t)batch, prefix, (uint32_t)plan.row, plan.seed),
		"prefix");
	hs_workers_run((uint32_t)plan.rows, fill_row, &places);
	hs_places_finish(&places);
	TRY(hs_driver.cuMemcpyHtoD_v2(bench.list, bench.host, entries() * sizeof(int32_t)));
}

static CUresult (*real_launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
	unsigned, unsigned, CUstream, void **, void **);

/* Stands before the driver's while single kernels are timed. */
static CUresult marked_launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
	unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params,
	void **extra)
{
	const struct hs_device *device = hs_device_current();
	bool step = false;
	CUresult result;

	for (unsigned p = 0; p < PHASES; p++)
		step |= function == device->kernels[steps[p]];
	if (!step || bench.marked + 2 > MARKS)
		return real_launch(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
	TRY(hs_driver.cuEventRecord(bench.marks[bench.marked++], stream));
	result = real_launch(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
	TRY(hs_driver.cuEventRecord(bench.marks[bench.marked++], stream));
	return result;
}

static double between(CUevent from, CUevent to)
{
	float ms;

	TRY(hs_driver.cuEventElapsedTime(&ms, from, to));
	return (double)ms * 1e3;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* One call; *host: us of the launching thread. Returns us of the device. */
static double call(unsigned layer, CUdeviceptr *remapped, double *host)
{
	const struct hs_site site = {.stream = bench.stream};
	const struct hs_list list = {.indices = bench.list,
		.outer = (uint32_t)plan.rows,
		.inner = 1,
		.k = (uint32_t)plan.k,
		.outer_stride = (int64_t)plan.k};
	const struct hs_slots fresh = {
		.slots = bench.list, .count = (uint32_t)plan.fresh, .width = sizeof(int32_t)};
	double start;
	int error;

	hs_cache_written(bench.layers[layer], &fresh, &site);
	TRY(hs_driver.cuMemsetD32Async(
		bench.flush, 0, (plan.flush_mib << 20) / sizeof(uint32_t), bench.stream));
	TRY(hs_driver.cuEventRecord(bench.from, bench.stream));
	start = now();
	error = hs_cache_resolve(bench.layers[layer], &list, &site, remapped);
	*host = now() - start;
	need(error, "resolve");
	TRY(hs_driver.cuEventRecord(bench.to, bench.stream));
	hs_cache_attended(bench.layers[layer], &site);
	TRY(hs_driver.cuStreamSynchronize(bench.stream));
	return between(bench.from, bench.to);
}

/* Every entry must read the right bytes: from a row of [low, low + count), or in
 * place. */
static void check(unsigned layer, CUdeviceptr remapped, uint32_t low, uint32_t count)
{
	const CUdeviceptr base = bench.windows[layer]->start;
	struct hs_swapin_check_args args = {.indices = (const int32_t *)(uintptr_t)remapped,
		.slots = (const int32_t *)(uintptr_t)bench.list,
		.base = base,
		.word = (base - (uintptr_t)bench.pool.start) / sizeof(uint64_t),
		.count = (uint32_t)entries(),
		.row = (uint32_t)plan.row,
		.hot_low = low,
		.hot_count = count,
		.in_place = 1,
		.result = (uint32_t *)(uintptr_t)bench.result};
	uint32_t result[HS_SWAPIN_RESULTS];
	void *params[] = {&args};

	TRY(hs_driver.cuMemsetD8_v2(bench.result, 0, sizeof(result)));
	TRY(hs_driver.cuLaunchKernel(
		bench.check, 264, 1, 1, 512, 1, 1, 0, bench.stream, params, NULL));
	TRY(hs_driver.cuStreamSynchronize(bench.stream));
	TRY(hs_driver.cuMemcpyDtoH_v2(result, bench.result, sizeof(result)));
	if (!result[HS_SWAPIN_BAD_INDEX] && !result[HS_SWAPIN_BAD_BYTES] &&
		result[HS_SWAPIN_PADDING] == plan.rows / 64 * (plan.k - plan.k / 2))
		return;
	fprintf(stderr, "many: layer %u: %u bad indices, %u bad rows, %u of padding\n", layer,
		result[HS_SWAPIN_BAD_INDEX], result[HS_SWAPIN_BAD_BYTES],
		result[HS_SWAPIN_PADDING]);
	exit(1);
}

/* Rows are in the staging area, or else hot. */
static void check_many(unsigned layer, CUdeviceptr remapped, bool staged)
{
	const struct hs_layer *l = bench.layers[layer];
	int32_t low = (int32_t)((l->hot - l->base) / l->row);
	uint32_t count = l->rows;

	if (staged)
		count = hs_many_room(l, &low);
	check(layer, remapped, (uint32_t)low, count);
}

static void drop_all(unsigned layer)
{
	hs_cache_wrote(bench.windows[layer], 0, 0, &(struct hs_site){.stream = bench.stream});
}

static void measure_many(struct cell *cell)
{
	const size_t calls = plan.repeat * plan.layers;
	double *times = calloc((PHASES + 2) * calls, sizeof(*times)), unused;
	struct hs_cache_counts before, after;
	CUdeviceptr remapped;

	if (!times)
		exit(1);
	hs_many_limits.entries = entries();
	for (unsigned layer = 0; layer < plan.layers; layer++) {
		hs_cache_read(NULL, &before);
		call(layer, &remapped, &unused); /* also takes memory for the list */
		hs_cache_read(NULL, &after);
		cell->hits = after.hits - before.hits;
		cell->staged = after.staged - before.staged;
		cell->fetched = after.misses - before.misses;
		check_many(layer, remapped, cell->staged);
		for (unsigned i = 0; i < plan.repeat; i++) {
			double *at = times + layer * plan.repeat + i;

			at[PHASES * calls] = call(layer, &remapped, at + (PHASES + 1) * calls);
			bench.marked = 0;
			real_launch = hs_driver.cuLaunchKernel;
			hs_driver.cuLaunchKernel = marked_launch;
			call(layer, &remapped, &unused);
			hs_driver.cuLaunchKernel = real_launch;
			if (bench.marked != MARKS) {
				fprintf(stderr, "many: the lists went the ordinary way\n");
				exit(1);
			}
			for (unsigned p = 0; p < PHASES; p++)
				at[p * calls] = between(bench.marks[2 * p], bench.marks[2 * p + 1]);
		}
		check_many(layer, remapped, cell->staged);
	}
	for (unsigned p = 0; p < PHASES; p++)
		cell->phase[p] = hs_bench_median(times + p * calls, calls);
	cell->total = hs_bench_median(times + PHASES * calls, calls);
	cell->host = hs_bench_median(times + (PHASES + 1) * calls, calls);
	free(times);
}

static void measure_ordinary(struct cell *cell)
{
	double *times = calloc(plan.repeat * plan.layers, sizeof(*times)), unused;
	struct hs_cache_counts before, after;
	CUdeviceptr remapped;

	if (!times)
		exit(1);
	hs_many_limits.entries = UINT64_MAX;
	for (unsigned layer = 0; layer < plan.layers; layer++) {
		const struct hs_layer *l = bench.layers[layer];
		const uint32_t low = (uint32_t)((l->hot - l->base) / l->row);

		for (unsigned i = 0; i < plan.repeat; i++) {
			drop_all(layer);
			hs_cache_read(NULL, &before);
			times[layer * plan.repeat + i] = call(layer, &remapped, &unused);
			hs_cache_read(NULL, &after);
		}
		check(layer, remapped, low, l->rows);
		drop_all(layer);
	}
	cell->misses = after.misses - before.misses;
	cell->inplace = after.inplace - before.inplace;
	cell->ordinary = hs_bench_median(times, plan.repeat * plan.layers);
	free(times);
}

static double gbs(const struct cell *cell, double us)
{
	return (double)(cell->staged * plan.row) / us * 1e-3;
}

static double link_us(const struct cell *cell)
{
	return (double)(cell->staged * plan.row) / (LINK_GBS * 1e3);
}

static void print_text(const struct cell *cell)
{
	printf("%8llu %8llu %8.1f", (unsigned long long)cell->prefix,
		(unsigned long long)cell->staged, (double)(cell->staged * plan.row) * 1e-6);
	for (unsigned p = 0; p < PHASES; p++)
		printf(" %8.1f", cell->phase[p]);
	printf(" %8.1f %8.1f %6.1f %6.1f %8.1f %9.1f %9llu %10llu\n", cell->total, link_us(cell),
		gbs(cell, cell->phase[3]), gbs(cell, cell->total), cell->host, cell->ordinary,
		(unsigned long long)cell->misses, (unsigned long long)cell->inplace);
	fflush(stdout);
}

static void print_json(const struct cell *cell, bool first)
{
	printf("%s{\"prefix\":%llu,\"staged\":%llu,\"hits\":%llu,\"fetched\":%llu,\"bytes\":%llu",
		first ? "" : ",", (unsigned long long)cell->prefix,
		(unsigned long long)cell->staged, (unsigned long long)cell->hits,
		(unsigned long long)cell->fetched, (unsigned long long)(cell->staged * plan.row));
	for (unsigned p = 0; p < PHASES; p++)
		printf(",\"%s_us\":%.2f", phases[p], cell->phase[p]);
	printf(",\"total_us\":%.2f,\"link_us\":%.2f,\"gather_gbs\":%.2f,\"host_us\":%.2f,"
	       "\"ordinary_us\":%.2f,\"ordinary_misses\":%llu,\"ordinary_inplace\":%llu}",
		cell->total, link_us(cell), gbs(cell, cell->phase[3]), cell->host, cell->ordinary,
		(unsigned long long)cell->misses, (unsigned long long)cell->inplace);
}

static void open_driver(char name[64])
{
	CUcontext context;
	CUdevice device;

	if (!hs_driver_open()) {
		fprintf(stderr, "many: no driver\n");
		exit(77);
	}
	TRY(hs_driver.cuInit(0));
	TRY(hs_driver.cuDeviceGet(&device, 0));
	TRY(hs_driver.cuDeviceGetName(name, 64, device));
	TRY(hs_driver.cuDevicePrimaryCtxRetain(&context, device));
	TRY(hs_driver.cuCtxSetCurrent(context));
}

static void open_bench(void)
{
	const size_t lists = entries() * sizeof(int32_t), slots = window_bytes() / plan.row;
	/* The area may take a sixteenth; maps and hot rows' state; lists. */
	const size_t own = 17 * plan.staging * plan.row +
			   plan.layers * (slots + plan.hot * 16) * 8 + 3 * lists +
			   ((size_t)64 << 20);
	CUmodule module;

	hs_many_limits.rows_least = 1;
	hs_many_limits.rows_most = (uint32_t)plan.staging;
	need(hs_bench_memory_open(own, (uint32_t)plan.hot, 0), "memory");
	need(hs_rows_open(&bench.pool, plan.layers * window_bytes(), plan.kind), "host pool");
	need(hs_cache_ready(), "cache");
	TRY(hs_driver.cuStreamCreate(&bench.stream, CU_STREAM_NON_BLOCKING));
	TRY(hs_driver.cuModuleLoadData(&module, swapin_image));
	TRY(hs_driver.cuModuleGetFunction(&bench.check, module, "hs_swapin_check"));
	TRY(hs_driver.cuMemAlloc_v2(&bench.list, lists));
	TRY(hs_driver.cuMemAlloc_v2(&bench.flush, plan.flush_mib << 20));
	TRY(hs_driver.cuMemAlloc_v2(&bench.result, HS_SWAPIN_RESULTS * sizeof(uint32_t)));
	TRY(hs_driver.cuEventCreate(&bench.from, CU_EVENT_DEFAULT));
	TRY(hs_driver.cuEventCreate(&bench.to, CU_EVENT_DEFAULT));
	for (unsigned i = 0; i < MARKS; i++)
		TRY(hs_driver.cuEventCreate(&bench.marks[i], CU_EVENT_DEFAULT));
	for (unsigned i = 0; i < plan.layers; i++) {
		const CUdeviceptr start =
			(CUdeviceptr)(uintptr_t)bench.pool.start + i * window_bytes();

		bench.windows[i] = hs_bench_window(start, window_bytes(), (uint32_t)plan.row,
			bench.pool.kind == HS_ROWS_MANAGED);
		bench.layers[i] = hs_layer_find(bench.windows[i], start, (uint32_t)plan.row, true);
		need(bench.layers[i] ? 0 : -ENOSPC, "layer");
	}
	hs_cache_settle();
	bench.host = malloc(lists);
	need(bench.host ? 0 : -ENOMEM, "list");
}

int main(int argc, char **argv)
{
	struct cell cell;
	char name[64] = "";
	const char *memory;
	int driver = 0;

	if (!hs_many_plan_parse(&plan, argc, argv)) {
		fputs(hs_many_plan_usage, stderr);
		return 2;
	}
	open_driver(name);
	hs_driver.cuDriverGetVersion(&driver);
	open_bench();
	memory = bench.pool.kind == HS_ROWS_MANAGED ? "managed" : "registered";
	if (plan.json)
		printf("{\"bench\":\"many\",\"device\":\"%s\",\"cuda\":%d,\"memory\":\"%s\","
		       "\"rows\":%llu,\"k\":%llu,"
		       "\"row\":%llu,\"layers\":%llu,\"window_mib\":%llu,\"hot\":%llu,\"cells\":[",
			name, driver, memory, (unsigned long long)plan.rows,
			(unsigned long long)plan.k, (unsigned long long)plan.row,
			(unsigned long long)plan.layers, (unsigned long long)plan.window_mib,
			(unsigned long long)plan.hot);
	else
		printf("%s, %llu rows x %llu, %llu-byte rows, %llu layers x %llu MiB of %s memory; "
		       "us, medians\n"
		       "%8s %8s %8s %8s %8s %8s %8s %8s %8s %8s %6s %6s %8s %9s %9s %10s\n",
			name, (unsigned long long)plan.rows, (unsigned long long)plan.k,
			(unsigned long long)plan.row, (unsigned long long)plan.layers,
			(unsigned long long)plan.window_mib, memory, "prefix", "staged", "MB",
			phases[0], phases[1], phases[2], phases[3], phases[4], "total", "link",
			"GB/s", "all", "host", "ordinary", "misses", "in place");
	for (unsigned i = 0; i < plan.prefixes; i++) {
		cell = (struct cell){.prefix = plan.prefix[i]};
		fill_list(plan.prefix[i]);
		measure_many(&cell);
		measure_ordinary(&cell);
		if (plan.json)
			print_json(&cell, !i);
		else
			print_text(&cell);
	}
	if (plan.json)
		printf("]}\n");
	need(hs_rows_check(&bench.pool), "the window's own rows");
	return 0;
}
