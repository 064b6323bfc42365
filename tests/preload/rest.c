/* SPDX-License-Identifier: MIT */
/*
 * Description: our nodes in graphs do not run while no layer swaps, and attention
 * reads the engine's own list; when a window has to go to the host, the same
 * graphs swap and drop what writers store, with their own graphs long destroyed.
 * Whatever the engine does to a graph afterwards leaves it right.
 *
 * usage: rest moved | placed | changed | verified
 */
#include "touch.h"

#include <dlfcn.h>
#include <string.h>
#include "tests/coherence/model.h"

enum { ROW = 656, WRITES = 8, NODES = 64, EXECS = 3, CHUNKS = 64 };

#define AT (SEAM + (size_t)3000 * ROW) /* where attention looks and writers write */

static struct touch window;
static CUfunction writer;
static CUdeviceptr slots_ptr, values_ptr;
static uint64_t (*launches)(void); /* of the stand-in driver */

/* What came of one graph: writer, then attention. */
static struct {
	CUgraphExec execs[EXECS];
	CUgraphNode nodes[NODES], ours[NODES], attention;
	size_t count, nours;
} made;

/* Sets what the writer stores next, near AT, and of the model. */
static void aim_writer(void)
{
	long long slots[WRITES];
	uint32_t values[WRITES], word;

	for (int i = 0; i < WRITES; i++) {
		slots[i] = (long long)(AT / ROW) + i * 7;
		values[i] = touch_random();
		for (uint32_t w = 0; w < ROW / 4; w++) {
			word = coherence_word(values[i], w);
			memcpy(window.model + slots[i] * ROW + w * 4, &word, 4);
		}
	}
	CHECK(cuMemcpyHtoD_v2(slots_ptr, slots, sizeof(slots)));
	CHECK(cuMemcpyHtoD_v2(values_ptr, values, sizeof(values)));
}

static void write_rows(CUstream stream)
{
	int count = WRITES, row = ROW;
	void *params[] = {&window.ptr, &slots_ptr, &values_ptr, &count, &row};

	CHECK(cuLaunchKernel(writer, WRITES, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static const char *name_of(CUgraphNode node)
{
	CUDA_KERNEL_NODE_PARAMS params;
	const char *name;

	CHECK(cuGraphKernelNodeGetParams_v2(node, &params));
	if (params.func)
		CHECK(cuFuncGetName(&name, params.func));
	else
		CHECK(cuKernelGetName(&name, params.kern));
	return name;
}

static CUgraph capture(void)
{
	CUgraph graph;

	CHECK(cuStreamBeginCapture_v2(touch_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	write_rows(touch_stream);
	touch_attend(&window, touch_stream);
	CHECK(cuStreamEndCapture(touch_stream, &graph));
	made.count = NODES;
	made.nours = 0;
	CHECK(cuGraphGetNodes(graph, made.nodes, &made.count));
	for (size_t i = 0; i < made.count; i++) {
		const char *name = name_of(made.nodes[i]);

		if (!strncmp(name, "hs_", 3))
			made.ours[made.nours++] = made.nodes[i];
		else if (strstr(name, "attend"))
			made.attention = made.nodes[i];
	}
	EXPECT(made.nours >= 2); /* after the writer, and before attention */
	return graph;
}

/* How many of our nodes run in what was made of the graph; all or none. */
static bool on(CUgraphExec exec)
{
	unsigned enabled, sum = 0;

	for (size_t i = 0; i < made.nours; i++) {
		CHECK(cuGraphNodeGetEnabled(exec, made.ours[i], &enabled));
		sum += enabled;
	}
	EXPECT(!sum || sum == made.nours);
	return sum;
}

/* A replay stores new rows and reads them and others; ours: whether kernels of
 * ours run with it. */
static void replay(CUgraphExec exec, bool ours, const char *when)
{
	uint64_t before;
	size_t stale;

	aim_writer();
	touch_aim(&window, AT);
	before = launches ? launches() : 0;
	CHECK(cuGraphLaunch(exec, touch_stream));
	CHECK(cuStreamSynchronize(touch_stream));
	if (launches)
		before = launches() - before;
	stale = touch_read(&window);
	if (stale)
		touch_fail("%s: %zu stale rows", when, stale);
	if (launches && (ours ? before != made.count : before != made.count - made.nours))
		touch_fail("%s: %llu kernels ran", when, (unsigned long long)before);
}

/* Attention in the graph reads hot rows: a byte that the processor changes in the
 * window is not seen. Of a row that the writer leaves alone. */
static void reads_hot(CUgraphExec exec)
{
	volatile uint8_t *byte = (volatile uint8_t *)window.ptr + AT + 4 * ROW + 7;

	if (getenv("HISPARSE_DISABLE"))
		return;
	replay(exec, true, "before a row is spoilt");
	*byte ^= 0xff;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	replay(exec, true, "a row spoilt on the host");
	*byte ^= 0xff;
}

static void start(void)
{
	setenv("HISPARSE_PLACE", "auto", 0);
	setenv("HISPARSE_GPU_GIB", "0.09", 0); /* on a GPU, too, it is soon full */
	touch_start();
	launches = (uint64_t(*)(void))dlsym(RTLD_DEFAULT, "soft_launches");
	writer = touch_function("coherence_write");
	CHECK(cuMemAlloc_v2(&slots_ptr, WRITES * 8));
	CHECK(cuMemAlloc_v2(&values_ptr, WRITES * 4));
	touch_make(&window, TOUCH_WINDOW, 12 * MIB);
}

/* Two of one graph, which is destroyed in between: one more way to rest. */
static void make(void)
{
	CUgraph graph = capture();

	CHECK(cuGraphInstantiateWithFlags(&made.execs[0], graph, 0));
	CHECK(cuGraphInstantiateWithFlags(&made.execs[1], graph, 0));
	CHECK(cuGraphDestroy(graph));
	for (int i = 0; i < 2; i++) {
		EXPECT(!on(made.execs[i]));
		replay(made.execs[i], false, "everything fits");
	}
}

static void swaps(void)
{
	for (int i = 0; i < 2; i++) {
		if (!on(made.execs[i]))
			touch_fail("graph %d: a layer swaps, and our nodes are disabled", i);
		for (int turn = 0; turn < 3; turn++)
			replay(made.execs[i], true, "a window is on the host");
	}
}

static void finish(void)
{
	CHECK(cuGraphExecDestroy(made.execs[0]));
	touch_free(&window);
	/* Nothing swaps any more. */
	CHECK(cuCtxSynchronize());
	EXPECT(!on(made.execs[1]));
	CHECK(cuGraphExecDestroy(made.execs[1]));
}

/* Small allocations take the device until the window makes way. */
static void moved(void)
{
	CUdeviceptr chunks[CHUNKS];
	int n = 0;

	make();
	while (!on(made.execs[0])) {
		EXPECT(n < CHUNKS);
		replay(made.execs[1], false, "everything still fits");
		CHECK(cuMemAlloc_v2(&chunks[n++], 6 * MIB));
		CHECK(cuCtxSynchronize());
	}
	swaps();
	reads_hot(made.execs[0]);
	reads_hot(made.execs[1]);
	while (n)
		CHECK(cuMemFree_v2(chunks[--n]));
	finish();
}

/* More windows, until one has no place on the device: the first one stays. */
static void placed(void)
{
	struct touch others[CHUNKS];
	int n = 0;

	make();
	while (!on(made.execs[0])) {
		EXPECT(n < CHUNKS);
		touch_make(&others[n++], TOUCH_WINDOW, 12 * MIB);
		replay(made.execs[1], on(made.execs[1]), "another window");
	}
	swaps();
	while (n)
		touch_free(&others[--n]);
	finish();
}

/* The engine changes what rests: it runs as it was captured, or as it is told. */
static void changed(void)
{
	CUDA_KERNEL_NODE_PARAMS params;
	CUgraphExecUpdateResultInfo info;
	CUgraph graph = capture(), again;
	CUgraphExec exec;

	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	EXPECT(!on(exec));
	CHECK(cuGraphKernelNodeGetParams_v2(made.attention, &params));
	CHECK(cuGraphExecKernelNodeSetParams_v2(exec, made.attention, &params));
	EXPECT(on(exec));
	replay(exec, true, "set by the engine");
	CHECK(cuGraphExecDestroy(exec));

	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	EXPECT(!on(exec));
	CHECK(cuGraphKernelNodeSetParams_v2(made.attention, &params));
	EXPECT(on(exec));
	replay(exec, true, "set in the graph");
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0)); /* no longer as captured */
	EXPECT(on(exec));
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuGraphDestroy(graph));

	graph = capture();
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	EXPECT(!on(exec));
	again = capture();
	CHECK(cuGraphExecUpdate_v2(exec, again, &info));
	replay(exec, true, "updated");
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuGraphDestroy(again));
	EXPECT(cuGraphDestroy(graph) == CUDA_SUCCESS);
	touch_free(&window);
}

/* Launches are compared with the engine's list: everything runs. */
static void verified(void)
{
	CUgraph graph = capture();
	CUgraphExec exec;

	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	EXPECT(on(exec));
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuGraphDestroy(graph));
	touch_free(&window);
}

int main(int argc, char **argv)
{
	const char *part = argc == 2 ? argv[1] : "";

	if (!strcmp(part, "verified"))
		setenv("HISPARSE_VERIFY", "1", 1);
	start();
	if (!strcmp(part, "moved"))
		moved();
	else if (!strcmp(part, "placed"))
		placed();
	else if (!strcmp(part, "changed"))
		changed();
	else if (!strcmp(part, "verified"))
		verified();
	else
		touch_fail("usage: rest moved | placed | changed | verified");
	printf("rest %s: as the model\n", part);
	return 0;
}
