/* SPDX-License-Identifier: MIT */
/* Nodes that rest, on a driver that may refuse any call: what is not certain to
 * be on is never said to be. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdint.h>
#include <string.h>
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/cache/nodes.h"
#include "src/cache/notes.h"

enum { NODES = 6, EXECS = 4, LIST = 1111, OURS = 2222, BOUND = 33, RAISED = 44 };

struct hs_driver hs_driver;
__thread int hs_inside;

static struct hs_options options;

/* One graph of resolve, attention, arrive at a time, and what is made of it. */
static struct {
	cuuint64_t capture;
	size_t count;
	CUgraphNode last;
	int budget;   /* calls from now on that succeed; -1: all */
	bool forever; /* after that none does, else only one does not */
	int destroyed;
	struct {
		bool off[NODES];
		uint64_t list;
		uint32_t bound;
	} execs[EXECS];
	int last_log;
} fake;

struct attention {
	uint64_t kv, list;
	uint32_t rows, bound;
};
static struct attention rewritten = {5, OURS, 7, RAISED};
static uint64_t first = 9;
static void *rewritten_params[] = {&first, &rewritten};

const struct hs_options *hs_options(void)
{
	return &options;
}

bool hs_window_any(void)
{
	return true;
}

bool hs_log_on(enum hs_log_level level)
{
	(void)level;
	return true;
}

void hs_log_write(enum hs_log_level level, const char *format, ...)
{
	(void)format;
	fake.last_log = (int)level;
}

static bool refuses(void)
{
	if (fake.budget < 0 || fake.budget--)
		return false;
	fake.budget = fake.forever ? 0 : -1;
	return true;
}

static size_t index_of(const void *handle)
{
	return (uintptr_t)handle & 0xff;
}

static CUresult real_enable(CUgraphExec exec, CUgraphNode node, unsigned on)
{
	if (refuses())
		return CUDA_ERROR_NOT_SUPPORTED;
	fake.execs[index_of(exec)].off[index_of(node)] = !on;
	return CUDA_SUCCESS;
}

static CUresult refuse_all(CUgraphExec exec, CUgraphNode node, unsigned on)
{
	(void)exec, (void)node, (void)on;
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult real_set(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	const struct attention *a = params->kernelParams[1];

	assert_int_equal(index_of(node), 1);
	if (refuses())
		return CUDA_ERROR_NOT_SUPPORTED;
	assert_int_equal(*(uint64_t *)params->kernelParams[0], 9);
	assert_int_equal(a->kv, 5);
	assert_int_equal(a->rows, 7);
	assert_int_equal(params->gridDimX, 3);
	fake.execs[index_of(exec)].list = a->list;
	fake.execs[index_of(exec)].bound = a->bound;
	return CUDA_SUCCESS;
}

static CUresult real_get(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
	assert_int_equal(index_of(node), 1);
	*params = (CUDA_KERNEL_NODE_PARAMS){.gridDimX = 3, .kernelParams = rewritten_params};
	return CUDA_SUCCESS;
}

static CUresult real_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
	CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
	(void)stream, (void)graph;
	*status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	*id = fake.capture;
	if (nodes) {
		*nodes = &fake.last;
		*count = fake.count;
	}
	return CUDA_SUCCESS;
}

static CUresult real_current(CUcontext *context)
{
	*context = (CUcontext)1;
	return CUDA_SUCCESS;
}

static CUresult real_push(CUcontext context)
{
	assert_ptr_equal(context, 1);
	return CUDA_SUCCESS;
}

static CUresult real_mode(CUstreamCaptureMode *mode)
{
	(void)mode;
	return CUDA_SUCCESS;
}

static CUresult real_destroy(CUgraph graph)
{
	(void)graph;
	fake.destroyed++;
	return CUDA_SUCCESS;
}

static CUgraphExec exec(int i)
{
	return (CUgraphExec)(uintptr_t)(0xe00 + i);
}

static CUgraph graph(void)
{
	return (CUgraph)(uintptr_t)(0x9000 + fake.capture);
}

static void capture(void)
{
	const struct hs_site site = {.capturing = true, .capture_id = ++fake.capture};
	const struct hs_notes_launch launch = {.params = 2,
		.count = 2,
		.fields = {{1, offsetof(struct attention, list), 8, sizeof(rewritten), LIST},
			{1, offsetof(struct attention, bound), 4, sizeof(rewritten), BOUND}}};

	hs_nodes_capture_began(NULL, false);
	fake.count = 1;
	for (int i = 0; i < 3; i++) {
		fake.last = (CUgraphNode)(uintptr_t)(0xa00 + i);
		hs_notes_add(&site, i == 1 ? &launch : NULL);
	}
	hs_nodes_captured(fake.capture, graph());
}

/* As the driver makes it: everything as captured. */
static void instantiate(int i)
{
	memset(&fake.execs[i], 0, sizeof(fake.execs[i]));
	fake.execs[i].list = OURS;
	fake.execs[i].bound = RAISED;
	hs_nodes_instantiated(exec(i), graph(), 0);
}

static bool is(int i, bool on)
{
	return fake.execs[i].off[0] == !on && fake.execs[i].off[2] == !on &&
	       fake.execs[i].list == (on ? OURS : LIST) &&
	       fake.execs[i].bound == (on ? RAISED : BOUND);
}

static int setup(void **state)
{
	(void)state;
	memset(&fake.execs, 0, sizeof(fake.execs));
	fake.budget = -1;
	fake.destroyed = 0;
	fake.forever = false;
	options.verify = 0;
	hs_driver.cuGraphNodeSetEnabled = real_enable;
	hs_driver.cuGraphExecKernelNodeSetParams_v2 = real_set;
	hs_driver.cuGraphKernelNodeGetParams_v2 = real_get;
	hs_driver.cuStreamGetCaptureInfo_v2 = real_info;
	hs_driver.cuCtxGetCurrent = real_current;
	hs_driver.cuCtxPushCurrent_v2 = real_push;
	hs_driver.cuCtxPopCurrent_v2 = real_current;
	hs_driver.cuThreadExchangeStreamCaptureMode = real_mode;
	hs_driver.cuGraphDestroy = real_destroy;
	assert_true(hs_nodes_wake());
	hs_nodes_rest();
	return 0;
}

static void all_rest_and_all_go_on(void **state)
{
	(void)state;
	capture();
	instantiate(0);
	instantiate(1);
	assert_true(is(0, false) && is(1, false));
	assert_true(hs_nodes_graph_goes(graph()));
	assert_false(hs_nodes_graph_goes(graph()));
	assert_true(hs_nodes_wake());
	assert_true(is(0, true) && is(1, true));
	hs_nodes_rest();
	assert_true(is(0, false) && is(1, false));
	hs_nodes_exec_goes(exec(0));
	assert_int_equal(fake.destroyed, 0);
	hs_nodes_exec_goes(exec(1));
	assert_int_equal(fake.destroyed, 1);
}

static void what_is_captured_or_made_while_layers_swap_stays_on(void **state)
{
	(void)state;
	assert_true(hs_nodes_wake());
	capture();
	hs_nodes_rest();
	instantiate(0);
	assert_true(is(0, true));
	capture();
	assert_true(hs_nodes_wake());
	instantiate(1);
	hs_nodes_rest();
	assert_true(is(1, true));
	instantiate(2); /* again, later */
	assert_true(is(2, false));
	assert_false(is(1, false));
	hs_nodes_exec_goes(exec(2));
	assert_false(hs_nodes_graph_goes(graph())); /* the driver's to destroy */
	options.verify = 1;
	capture();
	instantiate(3);
	assert_true(is(3, true));
}

static void spoilt_captures_stay_on(void **state)
{
	const struct hs_notes_launch packed = {.params = 0, .count = 1};
	const struct hs_site site = {.capturing = true, .capture_id = fake.capture + 1};

	(void)state;
	fake.capture++;
	hs_nodes_capture_began(NULL, false);
	fake.count = 1;
	hs_notes_add(&site, NULL);
	fake.count = 2; /* not what a launch leaves */
	hs_notes_add(&site, NULL);
	hs_nodes_captured(fake.capture, graph());
	instantiate(0);
	assert_true(is(0, true));

	fake.capture++;
	hs_nodes_capture_began(NULL, false);
	fake.count = 1;
	hs_notes_add(&(struct hs_site){.capturing = true, .capture_id = fake.capture}, NULL);
	hs_notes_add(&(struct hs_site){.capturing = true, .capture_id = fake.capture}, &packed);
	hs_nodes_captured(fake.capture, graph());
	instantiate(0);
	assert_true(is(0, true));
}

static void the_engines_changes_put_it_on(void **state)
{
	(void)state;
	capture();
	instantiate(0);
	instantiate(1);
	hs_nodes_changes(exec(0), NULL, NULL);
	assert_true(is(0, true) && is(1, false));
	hs_nodes_changes(NULL, (CUgraphNode)(uintptr_t)0xa05, NULL); /* another's */
	assert_true(is(1, false));
	hs_nodes_changes(NULL, (CUgraphNode)(uintptr_t)0xa01, NULL);
	assert_true(is(1, true));
	instantiate(2);
	assert_true(is(2, true));
}

/* Call number `call` fails on the way to rest: everything is as before, or if
 * nothing can be had back any more, right as long as no layer swaps. */
static int call;

static void refused_on_the_way_out(void **state)
{
	(void)state;
	capture();
	fake.budget = call;
	instantiate(0);
	assert_true(is(0, true));
	assert_int_equal(fake.last_log, HS_LOG_INFO);
	/* Not tried again. */
	capture();
	instantiate(1);
	assert_true(is(1, true));
	assert_true(hs_nodes_wake());
}

static void refused_for_good(void **state)
{
	(void)state;
	capture();
	fake.budget = call;
	fake.forever = true;
	instantiate(0);
	assert_false(fake.execs[0].off[0] && fake.execs[0].list == OURS);
	/* Where nothing was turned nothing is in the way. */
	assert_int_equal(hs_nodes_wake(), !call);
	assert_false(fake.execs[0].off[0] && fake.execs[0].list == OURS);
	hs_nodes_exec_goes(exec(0));
	assert_true(hs_nodes_wake());
}

/* The last of the cases: this one stays. */
static void no_layer_swaps_beside_nodes_that_are_off(void **state)
{
	(void)state;
	capture();
	instantiate(0);
	instantiate(1);
	fake.budget = 4;
	assert_false(hs_nodes_wake());
	assert_int_equal(fake.last_log, HS_LOG_WARN);
	hs_driver.cuGraphNodeSetEnabled = refuse_all;
	assert_false(hs_nodes_wake());
	instantiate(2);
	assert_true(is(2, true));
	hs_nodes_exec_goes(exec(1));
	hs_nodes_exec_goes(exec(0));
	assert_true(hs_nodes_wake());
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(all_rest_and_all_go_on, setup),
		cmocka_unit_test_setup(what_is_captured_or_made_while_layers_swap_stays_on, setup),
		cmocka_unit_test_setup(spoilt_captures_stay_on, setup),
		cmocka_unit_test_setup(the_engines_changes_put_it_on, setup),
		cmocka_unit_test_setup(no_layer_swaps_beside_nodes_that_are_off, setup),
	};
	/* A driver that refuses is not asked again in this process. */
	const struct CMUnitTest refused[] = {
		cmocka_unit_test_setup(refused_on_the_way_out, setup),
	};
	const struct CMUnitTest for_good[] = {
		cmocka_unit_test_setup(refused_for_good, setup),
	};

	if (argc == 1)
		return cmocka_run_group_tests(tests, NULL, NULL);
	call = argv[1][0] - '0';
	return argc == 2 ? cmocka_run_group_tests(refused, NULL, NULL)
			 : cmocka_run_group_tests(for_good, NULL, NULL);
}
