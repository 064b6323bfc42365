/* SPDX-License-Identifier: MIT */
/*
 * What our nodes in a captured decode step cost while everything fits, in one run:
 * a chain of layers of four small kernels, the second a writer and the last one
 * attention, replayed
 *	plain	  without us
 *	enabled	  with our nodes, whose layers do not swap: each leaves early
 *	disabled  the same, as src/cache/nodes.h leaves it then
 * and the last three again with attention that is launched ahead (programmatic
 * dependent launch). Then what it takes to turn many graphs, and the host memory of
 * graphs that are kept for it. What attention reads is checked after each turn.
 */
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "src/cache/cache.h"
#include "src/cache/nodes.h"
#include "src/cache/notes.h"
#include "tools/bench/median.h"
#include "tools/bench/memory.h"
#include "tools/bench/swapin_abi.h"

enum {
	BATCHES = 8,
	MOST = 1024,
	K = 2048,
	ROW = 656,
	SMALL = 4096,
	KERNELS = 4,
	AHEAD = 3,
	ARMS = 6
};

/* Addresses that nothing reads: the layers do not swap. */
#define WINDOW(i) (UINT64_C(0x200000000000) + ((uint64_t)(i) << 32))

static const char usage[] = "usage: nodes [options]\n"
			    "  --layers N       61, at most 64\n"
			    "  --batch N,N,...  1,16,64 requests with 2,048 slots each\n"
			    "  --graphs N       60 are turned at a time\n"
			    "  --rounds N       15, of which medians are printed\n"
			    "  --replays N      20 in a round\n"
			    "  --json\n";

static const char *const names[ARMS] = {
	"plain", "enabled", "disabled", "plain, ahead", "enabled, ahead", "disabled, ahead"};

extern const unsigned char swapin_image[];

static struct {
	unsigned layers, graphs, rounds, replays, batches, batch[BATCHES];
	bool json;
} plan = {61, 60, 15, 20, 3, {1, 16, 64}, false};

static struct {
	struct hs_layer *layers[HS_BENCH_WINDOWS];
	CUfunction small;
	CUstream stream;
	CUevent from, to;
	CUdeviceptr list, out, slots;
	int32_t *host;
} bench;

static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "nodes: %s: CUDA error %d\n", what, result);
	exit(1);
}
#define TRY(call) must(call, #call)

static void need(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "nodes: %s\n", what);
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void small(CUdeviceptr from, CUdeviceptr to, uint32_t count, bool ahead)
{
	struct hs_swapin_small_args args = {
		(const int32_t *)(uintptr_t)from, (int32_t *)(uintptr_t)to, count};
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		.value.programmaticStreamSerializationAllowed = 1};
	CUlaunchConfig config = {.gridDimX = 16,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 256,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = bench.stream,
		.attrs = &attribute,
		.numAttrs = ahead};
	void *params[] = {&args};

	TRY(hs_driver.cuLaunchKernelEx(&config, bench.small, params, NULL));
}

/* The launch of attention in a capture, as src/launch rewrites it. */
static void attend(unsigned layer, uint32_t count, const struct hs_site *site, bool ahead)
{
	const struct hs_list list = {
		.indices = bench.list, .outer = count / K, .inner = 1, .k = K, .outer_stride = K};
	const struct hs_notes_launch launch = {.params = 1,
		.count = 1,
		.fields = {{0, 0, 8, sizeof(struct hs_swapin_small_args), (int64_t)bench.list}}};
	CUdeviceptr remapped;

	need(!hs_cache_resolve(bench.layers[layer], &list, site, &remapped), "resolve");
	small(remapped, bench.out, count, ahead);
	hs_notes_add(site, &launch);
}

static CUgraph capture(uint32_t batch, bool ours, bool ahead)
{
	const struct hs_slots slots = {.slots = bench.slots, .count = batch, .width = 8};
	struct hs_site site = {.stream = bench.stream, .capturing = true};
	CUstreamCaptureStatus status;
	CUgraph graph;

	TRY(hs_driver.cuStreamBeginCapture_v2(bench.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	TRY(hs_driver.cuStreamGetCaptureInfo_v2(
		bench.stream, &status, (cuuint64_t *)&site.capture_id, NULL, NULL, NULL));
	if (ours)
		hs_nodes_capture_began(bench.stream, false);
	for (unsigned layer = 0; layer < plan.layers; layer++) {
		small(bench.slots, bench.slots + SMALL * 4, SMALL, false);
		small(bench.slots, bench.slots + SMALL * 4, SMALL, false); /* the writer */
		if (ours)
			hs_cache_written(bench.layers[layer], &slots, &site);
		small(bench.slots, bench.slots + SMALL * 4, SMALL, false);
		if (ours)
			attend(layer, batch * K, &site, ahead);
		else
			small(bench.list, bench.out, batch * K, ahead);
	}
	if (ours)
		hs_cache_capture_end(&site);
	TRY(hs_driver.cuStreamEndCapture(bench.stream, &graph));
	if (ours)
		hs_nodes_captured(site.capture_id, graph);
	return graph;
}

static CUgraphExec instantiate(CUgraph graph)
{
	CUgraphExec exec;

	TRY(hs_driver.cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

/* us of one replay. */
static double replay(CUgraphExec exec, unsigned count)
{
	float ms;

	TRY(hs_driver.cuEventRecord(bench.from, bench.stream));
	for (unsigned i = 0; i < count; i++)
		TRY(hs_driver.cuGraphLaunch(exec, bench.stream));
	TRY(hs_driver.cuEventRecord(bench.to, bench.stream));
	TRY(hs_driver.cuStreamSynchronize(bench.stream));
	TRY(hs_driver.cuEventElapsedTime(&ms, bench.from, bench.to));
	return (double)ms * 1e3 / count;
}

/* Attention's output is the list, whoever's list it read. */
static void check(CUgraphExec exec, uint32_t count, const char *when)
{
	static int32_t seed;

	seed++;
	for (uint32_t i = 0; i < count; i++)
		bench.host[i] = (int32_t)(i * 7 + (uint32_t)seed);
	TRY(hs_driver.cuMemcpyHtoD_v2(bench.list, bench.host, count * sizeof(int32_t)));
	TRY(hs_driver.cuMemsetD8_v2(bench.out, 0xff, count * sizeof(int32_t)));
	TRY(hs_driver.cuStreamSynchronize(NULL));
	replay(exec, 1);
	memset(bench.host, 0, count * sizeof(int32_t));
	TRY(hs_driver.cuMemcpyDtoH_v2(bench.host, bench.out, count * sizeof(int32_t)));
	for (uint32_t i = 0; i < count; i++)
		need(bench.host[i] == (int32_t)(i * 7 + (uint32_t)seed), when);
}

static void measure_chain(unsigned batch, bool first)
{
	double *times = calloc((size_t)ARMS * plan.rounds, sizeof(*times)), layer[ARMS];
	CUgraphExec execs[ARMS];
	CUgraph graphs[ARMS];

	need(times != NULL, "memory");
	for (unsigned arm = 0; arm < ARMS; arm++) {
		graphs[arm] = capture(batch, arm % AHEAD, arm >= AHEAD);
		execs[arm] = instantiate(graphs[arm]);
		if (arm % AHEAD == 2)
			hs_nodes_instantiated(execs[arm], graphs[arm], 0);
		check(execs[arm], batch * K, names[arm]);
		replay(execs[arm], plan.replays);
	}
	for (unsigned round = 0; round < plan.rounds; round++)
		for (unsigned i = 0; i < ARMS; i++) {
			const unsigned arm = (i + round) % ARMS;

			times[arm * plan.rounds + round] = replay(execs[arm], plan.replays);
		}
	for (unsigned arm = 0; arm < ARMS; arm++)
		layer[arm] = hs_bench_median(times + arm * plan.rounds, plan.rounds) / plan.layers;
	for (unsigned arm = 0; arm < ARMS; arm++) {
		const double plain = layer[arm / AHEAD * AHEAD];

		if (plan.json)
			printf("%s{\"batch\":%u,\"arm\":\"%s\",\"us_per_layer\":%.3f,"
			       "\"over_plain_us\":%.3f}",
				first && !arm ? "" : ",", batch, names[arm], layer[arm],
				layer[arm] - plain);
		else
			printf("batch %3u  %-16s %8.2f us a layer  %+7.2f us  %+6.1f %%\n", batch,
				names[arm], layer[arm], layer[arm] - plain,
				(layer[arm] / plain - 1) * 100);
	}
	for (unsigned arm = 0; arm < ARMS; arm++) {
		hs_nodes_exec_goes(execs[arm]);
		TRY(hs_driver.cuGraphExecDestroy(execs[arm]));
		if (!hs_nodes_graph_goes(graphs[arm]))
			TRY(hs_driver.cuGraphDestroy(graphs[arm]));
	}
	free(times);
}

static size_t heap(void)
{
#if __GLIBC_PREREQ(2, 33)
	return mallinfo2().uordblks;
#else
	return 0;
#endif
}

/* us of the first replay of each graph, on the whole. */
static double first_replays(CUgraphExec *execs)
{
	double total = 0;

	for (unsigned i = 0; i < plan.graphs; i++)
		total += replay(execs[i], 1);
	return total / plan.graphs;
}

static void measure_turns(void)
{
	CUgraphExec *execs = calloc(plan.graphs, sizeof(*execs));
	CUgraph *graphs = calloc(plan.graphs, sizeof(*graphs));
	double rest = 0, wake, again, after[3], start;
	size_t before, kept;

	need(execs && graphs, "memory");
	for (unsigned i = 0; i < plan.graphs; i++) {
		graphs[i] = capture(1, true, false);
		execs[i] = instantiate(graphs[i]);
		start = now_us();
		hs_nodes_instantiated(execs[i], graphs[i], 0);
		rest += now_us() - start;
		hs_nodes_graph_goes(graphs[i]);
	}
	after[0] = first_replays(execs);
	check(execs[0], K, "disabled");
	start = now_us();
	need(hs_nodes_wake(), "nodes that do not go on");
	wake = now_us() - start;
	after[1] = first_replays(execs);
	check(execs[0], K, "enabled again");
	start = now_us();
	hs_nodes_rest();
	again = now_us() - start;
	after[2] = first_replays(execs);
	check(execs[0], K, "disabled again");
	for (unsigned i = 0; i < plan.graphs; i++)
		TRY(hs_driver.cuGraphExecDestroy(execs[i]));
	before = heap();
	for (unsigned i = 0; i < plan.graphs; i++)
		hs_nodes_exec_goes(execs[i]); /* and the graphs */
	kept = before - heap();
	if (plan.json)
		printf("],\"turns\":{\"graphs\":%u,\"rest_us\":%.0f,\"wake_us\":%.0f,"
		       "\"rest_again_us\":%.0f,\"first_replay_us\":[%.1f,%.1f,%.1f],"
		       "\"kept_bytes_a_graph\":%zu}}\n",
			plan.graphs, rest, wake, again, after[0], after[1], after[2],
			kept / plan.graphs);
	else
		printf("%u graphs of %u layers: put to rest in %.1f ms, enabled in %.1f, to rest "
		       "again in %.1f\n"
		       "first replay of each after that: %.1f, %.1f, %.1f us\n"
		       "kept for it: %zu KiB of host memory a graph\n",
			plan.graphs, plan.layers, rest * 1e-3, wake * 1e-3, again * 1e-3, after[0],
			after[1], after[2], kept / plan.graphs >> 10);
	free(execs);
	free(graphs);
}

static void open_driver(char name[64])
{
	CUcontext context;
	CUdevice device;
	int count = 0;

	if (!hs_driver_open() || hs_driver.cuInit(0) != CUDA_SUCCESS ||
		hs_driver.cuDeviceGetCount(&count) != CUDA_SUCCESS || !count) {
		fprintf(stderr, "nodes: no GPU\n");
		exit(77);
	}
	TRY(hs_driver.cuDeviceGet(&device, 0));
	TRY(hs_driver.cuDeviceGetName(name, 64, device));
	TRY(hs_driver.cuDevicePrimaryCtxRetain(&context, device));
	TRY(hs_driver.cuCtxSetCurrent(context));
}

static void open_bench(void)
{
	const size_t lists = (size_t)K * MOST * sizeof(int32_t);
	CUmodule module;

	need(!hs_bench_memory_open((size_t)256 << 20, K, 0), "memory");
	need(!hs_cache_ready(), "cache");
	TRY(hs_driver.cuStreamCreate(&bench.stream, CU_STREAM_NON_BLOCKING));
	TRY(hs_driver.cuEventCreate(&bench.from, CU_EVENT_DEFAULT));
	TRY(hs_driver.cuEventCreate(&bench.to, CU_EVENT_DEFAULT));
	TRY(hs_driver.cuModuleLoadData(&module, swapin_image));
	TRY(hs_driver.cuModuleGetFunction(&bench.small, module, "hs_swapin_small"));
	TRY(hs_driver.cuMemAlloc_v2(&bench.list, lists));
	TRY(hs_driver.cuMemAlloc_v2(&bench.out, lists));
	TRY(hs_driver.cuMemAlloc_v2(&bench.slots, 2 * SMALL * sizeof(int32_t)));
	TRY(hs_driver.cuMemsetD8_v2(bench.slots, 0, 2 * SMALL * sizeof(int32_t)));
	bench.host = malloc(lists);
	need(bench.host != NULL, "memory");
	for (unsigned i = 0; i < plan.layers; i++) {
		struct hs_window *window = hs_bench_window(WINDOW(i), (size_t)1 << 30, ROW, false);

		bench.layers[i] = window ? hs_layer_find(window, WINDOW(i), ROW, true) : NULL;
		need(bench.layers[i] != NULL, "layer");
	}
}

static bool parse_batches(char *text)
{
	plan.batches = 0;
	for (char *one = strtok(text, ","); one; one = strtok(NULL, ",")) {
		const unsigned long n = strtoul(one, NULL, 10);

		if (plan.batches == BATCHES || !n || n > MOST)
			return false;
		plan.batch[plan.batches++] = (unsigned)n;
	}
	return plan.batches;
}

static bool parse(int argc, char **argv)
{
	unsigned *const numbers[] = {&plan.layers, &plan.graphs, &plan.rounds, &plan.replays};
	enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };
	const struct option options[] = {{"layers", 1, NULL, 0}, {"graphs", 1, NULL, 1},
		{"rounds", 1, NULL, 2}, {"replays", 1, NULL, 3}, {"batch", 1, NULL, 4},
		{"json", 0, NULL, 5}, {0}};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option > 5 || (option == 4 && !parse_batches(optarg)))
			return false;
		if (option < NUMBERS)
			*numbers[option] = (unsigned)strtoul(optarg, NULL, 10);
		plan.json |= option == 5;
	}
	for (unsigned i = 0; i < NUMBERS; i++)
		if (!*numbers[i])
			return false;
	return optind == argc && plan.layers <= HS_BENCH_WINDOWS;
}

int main(int argc, char **argv)
{
	char name[64] = "";

	if (!parse(argc, argv)) {
		fputs(usage, stderr);
		return 2;
	}
	open_driver(name);
	open_bench();
	if (plan.json)
		printf("{\"bench\":\"nodes\",\"device\":\"%s\",\"layers\":%u,\"cells\":[", name,
			plan.layers);
	else
		printf("%s, %u layers of %d small kernels, medians\n", name, plan.layers, KERNELS);
	for (unsigned i = 0; i < plan.batches; i++)
		measure_chain(plan.batch[i], !i);
	measure_turns();
	return 0;
}
