/* SPDX-License-Identifier: MIT */
/* The memory module on a whole driver: streams, graphs and captures. That of
 * the stand-in, with its order of things from a seed, or of a GPU; with
 * neither, 77. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "hooks/driver.h"
#include "src/cache/cache.h"
#include "src/memory/arena.h"
#include "src/memory/capture.h"
#include "src/memory/copy.h"
#include "src/memory/gate.h"

#define MIB ((size_t)1 << 20)

struct hs_driver hs_driver;
__thread int hs_inside;

void hs_cache_settle(void)
{
}

int hs_cache_ready(void)
{
	return 0;
}

struct hs_cache_wants hs_cache_wants(CUdevice device)
{
	(void)device;
	return (struct hs_cache_wants){0};
}

void hs_cache_stop(CUdevice device)
{
	(void)device;
}

void hs_cache_context_gone(CUcontext context)
{
	(void)context;
}

static struct hs_extent layers[8];
static unsigned nlayers; /* of whatever window */

unsigned hs_cache_extents(const struct hs_window *window, struct hs_extent *out, unsigned most)
{
	(void)window;
	for (unsigned i = 0; i < nlayers && i < most; i++)
		out[i] = layers[i];
	return nlayers;
}

void hs_cache_forget(struct hs_window *window)
{
	(void)window;
}

void hs_cache_wrote(
	struct hs_window *window, CUdeviceptr start, size_t bytes, const struct hs_site *site)
{
	(void)window, (void)start, (void)bytes, (void)site;
}

static CUstream stream;
static void (*soft_seed)(uint64_t seed);
static void (*soft_usage)(size_t *device, size_t *host);

static void seed(uint64_t value)
{
	if (soft_seed)
		soft_seed(value);
}

/* Bytes in use; on a GPU, where others come and go, nothing. */
static void usage(size_t *device, size_t *host)
{
	*device = *host = 0;
	if (soft_usage)
		soft_usage(device, host);
}

static size_t moved(size_t bytes)
{
	return soft_usage ? bytes : 0;
}

static bool open_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library)
		return false;
#define ROW(name, proof, flags) hs_driver.name = (__typeof__(name) *)dlsym(library, #name);
	HS_DRIVER_TABLE(ROW, ROW)
#undef ROW
	soft_seed = (void (*)(uint64_t))dlsym(library, "soft_seed");
	soft_usage = (void (*)(size_t *, size_t *))dlsym(library, "soft_usage");
	return true;
}

#define OK(call) assert_int_equal(call, CUDA_SUCCESS)

static size_t reserve;

static int start(void **state)
{
	CUcontext context;

	(void)state;
	OK(hs_driver.cuDevicePrimaryCtxRetain(&context, 0));
	OK(hs_driver.cuCtxSetCurrent(context));
	OK(hs_driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return 0;
}

static CUdeviceptr window(size_t bytes)
{
	CUdeviceptr ptr = 0;

	hs_memory_settle(true);
	OK(hs_memory_alloc(&ptr, bytes));
	return ptr;
}

static void drop(CUdeviceptr ptr)
{
	hs_memory_settle(true);
	OK(hs_memory_free(ptr));
}

/* The reserve stands still from the first KV window on; until then it follows what
 * the driver has left, of which its contexts take more and more. */
static void kv_holds_the_reserve_still(void **state)
{
	CUdeviceptr ptr = window(18 * MIB);

	(void)state;
	hs_window_reveal(hs_window_find(ptr), HS_USE_KV, 656);
	drop(ptr);
	reserve = hs_memory_reserve();
	assert_true(reserve > 0);
}

/* The engine's fill, split as the hook does it. */
static void fill(CUdeviceptr at, unsigned char value, size_t bytes)
{
	while (bytes) {
		const size_t run = hs_copy_seam(at, bytes) - at;

		OK(hs_driver.cuMemsetD8Async(at, value, run, stream));
		if (value)
			hs_copy_wrote(at, run, stream, false);
		else
			hs_copy_filled(at, run, stream, false);
		at += run;
		bytes -= run;
	}
}

static size_t other_than(CUdeviceptr at, unsigned char value, size_t bytes)
{
	unsigned char *host = malloc(bytes);
	size_t wrong = 0;

	for (size_t done = 0, run; done < bytes; done += run) {
		run = hs_copy_seam(at + done, bytes - done) - (at + done);
		OK(hs_driver.cuMemcpyDtoHAsync_v2(host + done, at + done, run, stream));
	}
	OK(hs_driver.cuStreamSynchronize(stream));
	for (size_t i = 0; i < bytes; i++)
		wrong += host[i] != value;
	free(host);
	return wrong;
}

/* To and fro: KV goes to the host, and what is found to be something else
 * comes back. */
static void move(CUdeviceptr ptr, enum hs_place place)
{
	struct hs_window *w = hs_window_find(ptr);

	atomic_store(&w->use, place == HS_PLACE_HOST ? HS_USE_KV : HS_USE_OTHER);
	hs_memory_mark();
	hs_memory_settle(true);
	assert_int_equal(atomic_load(&w->place), place);
}

static void moves_wait_for_what_is_in_flight(void **state)
{
	const size_t bytes = 8 * MIB;

	(void)state;
	for (unsigned order = 0; order < 20; order++) {
		CUdeviceptr ptr = window(bytes);
		size_t device, host, device_after, host_after;

		seed(order);
		usage(&device, &host);
		fill(ptr, 1, bytes);
		fill(ptr + MIB, 2, 3 * MIB);
		move(ptr, HS_PLACE_HOST);
		usage(&device_after, &host_after);
		assert_int_equal(device_after, device - moved(bytes - HS_GRANULE));
		assert_int_equal(host_after, host + moved(bytes - HS_GRANULE));
		assert_int_equal(other_than(ptr, 1, MIB), 0);
		assert_int_equal(other_than(ptr + MIB, 2, 3 * MIB), 0);
		assert_int_equal(other_than(ptr + 4 * MIB, 1, 4 * MIB), 0);
		fill(ptr + MIB, 3, 2 * MIB);
		move(ptr, HS_PLACE_DEVICE);
		assert_int_equal(other_than(ptr + MIB, 3, 2 * MIB), 0);
		assert_int_equal(other_than(ptr + 3 * MIB, 2, MIB), 0);
		fill(ptr, 4, bytes);
		drop(ptr); /* beside the fill */
		usage(&device_after, &host_after);
		assert_int_equal(device_after, device - moved(bytes));
		assert_int_equal(host_after, host);
	}
	seed(0);
}

/* As the hooks do it. */
static void begin_capture(CUstream on)
{
	hs_capture_began();
	OK(hs_driver.cuStreamBeginCapture_v2(on, CU_STREAM_CAPTURE_MODE_GLOBAL));
	hs_capture_opened(on, false);
}

static CUgraph end_capture(CUstream on)
{
	CUstreamCaptureStatus status;
	CUgraph graph = NULL;
	cuuint64_t id;

	OK(hs_driver.cuStreamGetCaptureInfo_v2(on, &status, &id, NULL, NULL, NULL));
	OK(hs_driver.cuStreamEndCapture(on, &graph));
	hs_capture_ended(id);
	return graph;
}

static void a_graph_follows_its_addresses(void **state)
{
	const size_t bytes = 8 * MIB;
	CUdeviceptr ptr = window(bytes), copy = window(bytes);
	CUgraph graph;
	CUgraphExec exec;

	(void)state;
	begin_capture(stream);
	fill(ptr, 7, bytes);
	OK(hs_driver.cuMemcpyDtoDAsync_v2(copy, ptr, HS_GRANULE, stream));
	OK(hs_driver.cuMemcpyDtoDAsync_v2(
		copy + HS_GRANULE, ptr + HS_GRANULE, bytes - HS_GRANULE, stream));
	hs_memory_mark();
	hs_memory_settle(true); /* would break the capture */
	graph = end_capture(stream);
	OK(hs_driver.cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 3; i++) {
		fill(ptr, 0, bytes);
		fill(copy, 0, bytes);
		OK(hs_driver.cuGraphLaunch(exec, stream));
		assert_int_equal(other_than(copy, 7, bytes), 0);
		move(ptr, i % 2 ? HS_PLACE_DEVICE : HS_PLACE_HOST);
		move(copy, i % 2 ? HS_PLACE_HOST : HS_PLACE_DEVICE);
	}
	OK(hs_driver.cuGraphExecDestroy(exec));
	OK(hs_driver.cuGraphDestroy(graph));
	drop(ptr);
	drop(copy);
}

/* What nobody ends does not keep windows where they are. */
static void lost_captures_are_forgotten(void **state)
{
	CUdeviceptr ptr = window(8 * MIB);
	CUstream other;
	CUgraph graph;
	cuuint64_t id;

	(void)state;
	OK(hs_driver.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	begin_capture(stream);
	begin_capture(other);
	assert_int_equal(hs_capture_count(), 2);
	assert_false(hs_capture_none());
	OK(hs_driver.cuStreamEndCapture(stream, &graph)); /* by a way that we do not see */
	OK(hs_driver.cuGraphDestroy(graph));
	assert_false(hs_capture_none());
	assert_int_equal(hs_capture_count(), 1);
	/* Invalidated, and not ended yet. */
	assert_int_not_equal(hs_driver.cuCtxSynchronize(), CUDA_SUCCESS);
	assert_true(hs_capture_none());
	assert_int_equal(hs_capture_count(), 0);
	id = hs_capture_of(other);
	assert_int_equal(id, 0);
	assert_int_not_equal(hs_driver.cuStreamEndCapture(other, &graph), CUDA_SUCCESS);
	hs_capture_ended(99); /* late, and not known any more */
	assert_int_equal(hs_capture_count(), 0);
	/* The same stream again is another capture. */
	begin_capture(other);
	assert_int_equal(hs_capture_count(), 1);
	id = hs_capture_of(other);
	assert_int_not_equal(id, 0);
	hs_capture_context_gone(NULL);
	assert_int_equal(hs_capture_count(), 1);
	OK(hs_driver.cuGraphDestroy(end_capture(other)));
	assert_int_equal(hs_capture_count(), 0);
	OK(hs_driver.cuStreamDestroy_v2(other));
	move(ptr, HS_PLACE_HOST);
	drop(ptr);
}

/* The context takes its captures along. */
static void contexts_take_captures_along(void **state)
{
	CUcontext context;

	(void)state;
	OK(hs_driver.cuStreamGetCtx(stream, &context));
	begin_capture(stream);
	hs_capture_context_gone(context);
	assert_int_equal(hs_capture_count(), 0);
	OK(hs_driver.cuGraphDestroy(end_capture(stream)));
	assert_int_equal(hs_capture_count(), 0);
}

static void *take(void *data)
{
	CUcontext context;

	OK(hs_driver.cuDevicePrimaryCtxRetain(&context, 0));
	OK(hs_driver.cuCtxSetCurrent(context));
	assert_int_equal(hs_memory_own(data, 100000), 0);
	return NULL;
}

static void own_memory_beside_a_capture(void **state)
{
	CUdeviceptr ptr = window(8 * MIB), own[2] = {0, 0};
	CUgraph graph;
	pthread_t thread;

	(void)state;
	begin_capture(stream);
	fill(ptr, 7, MIB);
	hs_gate_enter(); /* as from a launch */
	assert_int_equal(hs_memory_own(&own[0], 100000), 0);
	hs_gate_leave();
	pthread_create(&thread, NULL, take, &own[1]);
	pthread_join(thread, NULL);
	drop(ptr); /* the window goes when the capture has ended */
	graph = end_capture(stream);
	OK(hs_driver.cuGraphDestroy(graph));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(other_than(own[i], 0, 100000), 0);
		hs_memory_disown(own[i]);
	}
	hs_memory_settle(true);
}

static void hot_rows_are_device_memory(void **state)
{
	CUdeviceptr ptr = window(8 * MIB), hot;
	size_t before, after, host;

	(void)state;
	usage(&before, &host);
	assert_int_equal(hs_memory_hot(&hot, ptr + 656, 656, 656 * 4096), 0);
	assert_int_equal((hot - ptr) % 656, 0);
	fill(hot, 9, 656 * 4096);
	assert_int_equal(other_than(hot, 9, 656 * 4096), 0);
	hs_memory_cold(hot);
	usage(&after, &host);
	assert_int_equal(after, before);
	drop(ptr);
}

static void full_devices_spill(void **state)
{
	CUdeviceptr kv[14], ptr = 0;
	size_t device, host;

	(void)state;
	/* 14 x 14 MiB on a device of 128. */
	for (int i = 0; i < 14; i++) {
		kv[i] = window(14 * MIB);
		fill(kv[i], (unsigned char)i, 14 * MIB);
		hs_window_reveal(hs_window_find(kv[i]), HS_USE_KV, 656);
	}
	hs_memory_settle(true);
	usage(&device, &host);
	assert_int_equal(host, moved(14 * 12 * MIB));
	for (int i = 0; i < 14; i++)
		assert_int_equal(other_than(kv[i], (unsigned char)i, 14 * MIB), 0);
	/* The device is free for others. */
	OK(hs_memory_alloc(&ptr, 60 * MIB));
	drop(ptr);
	for (int i = 0; i < 14; i++)
		drop(kv[i]);
}

static void all_is_given_back(void **state)
{
	size_t device, host;

	(void)state;
	usage(&device, &host);
	assert_int_equal(device, 0);
	assert_int_equal(host, 0);
	assert_int_equal(hs_memory_reserve(), reserve);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kv_holds_the_reserve_still),
		cmocka_unit_test(moves_wait_for_what_is_in_flight),
		cmocka_unit_test(a_graph_follows_its_addresses),
		cmocka_unit_test(lost_captures_are_forgotten),
		cmocka_unit_test(contexts_take_captures_along),
		cmocka_unit_test(own_memory_beside_a_capture),
		cmocka_unit_test(hot_rows_are_device_memory),
		cmocka_unit_test(full_devices_spill),
		cmocka_unit_test(all_is_given_back),
	};

	setenv("SOFTGPU_MEMORY_MIB", "128", 1);
	setenv("HISPARSE_HOST_GIB", "0.25", 1);
	setenv("HISPARSE_WINDOW_MIB", "4", 1);
	setenv("HISPARSE_PLACE", "host", 1);
	if (!open_driver() || hs_driver.cuInit(0) != CUDA_SUCCESS)
		return 77;
	return cmocka_run_group_tests(tests, start, NULL);
}
