/* SPDX-License-Identifier: MIT */
/* Windows: where they are, what they answer, how they go. */
#include <pthread.h>
#include <stdatomic.h>
#include "fake_driver.h"
#include "src/memory/arena.h"
#include "src/memory/capture.h"
#include "src/memory/copy.h"
#include "src/memory/gate.h"
#include "src/memory/window.h"

static void small_ones_are_the_drivers(void **state)
{
	CUdeviceptr ptr = 0;

	(void)state;
	assert_int_equal(INSIDE(hs_memory_alloc(&ptr, 4 * MIB - 1)), CUDA_SUCCESS);
	assert_int_equal(fake.driver_allocs, 1);
	assert_null(hs_window_find(ptr));
	assert_false(hs_window_any());
	fake_free(ptr);
	assert_int_equal(fake.driver_allocs, 0);
	assert_int_equal(INSIDE(hs_memory_alloc(NULL, 8 * MIB)), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(INSIDE(hs_memory_alloc(&ptr, 0)), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(fake.reservations, 0);
}

static void windows_lie_in_the_arena(void **state)
{
	CUdeviceptr ptr = 0, other = fake_window(6), low;
	struct hs_window *window;
	size_t span;

	(void)state;
	assert_int_equal(INSIDE(hs_memory_alloc(&ptr, 5 * MIB + 1)), CUDA_SUCCESS);
	/* The first granule ends with a step of the arena, its start unused. */
	assert_int_equal(other, HS_ARENA_BASE + 30 * MIB);
	assert_int_equal(ptr, HS_ARENA_BASE + 126 * MIB);
	assert_int_equal(fake.reservations, 2);
	assert_int_equal(fake.driver_allocs, 0);
	assert_true(hs_window_any());
	window = hs_window_find(ptr);
	assert_int_equal(window->start, ptr);
	assert_int_equal(window->requested, 5 * MIB + 1);
	assert_int_equal(window->bytes, 6 * MIB);
	assert_int_equal(window->use, HS_USE_UNKNOWN);
	assert_int_equal(window->place, HS_PLACE_DEVICE);
	assert_true(window->virgin);
	assert_ptr_equal(hs_window_find(ptr + 6 * MIB - 1), window);
	assert_null(hs_window_find(ptr + 6 * MIB));
	assert_null(hs_window_find(ptr - 1));
	assert_ptr_equal(hs_window_find(other + 6 * MIB - 1), hs_window_find(other));
	assert_null(hs_window_find(other - 1));
	hs_window_span(&low, &span);
	assert_true(low <= other && ptr + 6 * MIB - low <= span);
	assert_int_equal(fake.device_used, 12 * MIB);
	fake_fill(ptr, 6 * MIB, 1);
	assert_int_equal(fake_wrong(ptr, 6 * MIB, 1), 0);
}

static void frees_give_everything_back(void **state)
{
	CUdeviceptr a = fake_window(8), b = fake_window(62), c = fake_window(8);

	(void)state;
	assert_true(a && b && c);
	fake.busy = true;
	fake_free(b);
	assert_int_equal(fake.unmapped_while_busy, 0);
	assert_int_equal(fake.forgotten, 1);
	assert_int_equal(fake.device_used, 16 * MIB);
	assert_null(hs_window_find(b));
	assert_non_null(hs_window_find(a));
	assert_non_null(hs_window_find(c));
	/* The hole of 128 MiB of addresses is used again, first fit. */
	assert_int_equal(fake_window(72), c + 96 * MIB);
	assert_int_equal(fake_window(10), b);
	fake_free(a);
	fake_free(c);
	fake_free(b);
	fake_free(c + 96 * MIB);
	assert_int_equal(fake.reservations, 0);
	assert_int_equal(fake.handles, 0);
	assert_int_equal(fake.mappings, 0);
	assert_int_equal(fake.device_used, 0);
}

static void only_a_start_is_freed(void **state)
{
	CUdeviceptr ptr = fake_window(8);

	(void)state;
	assert_int_equal(INSIDE(hs_memory_free(ptr + 256)), CUDA_ERROR_INVALID_VALUE);
	assert_non_null(hs_window_find(ptr));
	assert_int_equal(INSIDE(hs_memory_free(0)), CUDA_SUCCESS);
	fake_free(ptr);
}

static void answers_are_those_of_device_memory(void **state)
{
	enum { COUNT = 5 };
	CUdeviceptr ptr = fake_window(8), at = ptr + 5 * MIB, start = 0;
	CUpointer_attribute which[COUNT] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_HOST_POINTER,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_BUFFER_ID};
	unsigned type = 0;
	int ordinal = 9;
	void *host = &type, *data[COUNT];
	size_t bytes = 0;
	unsigned long long id = 0;

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	hs_window_reveal(hs_window_find(ptr), HS_USE_KV, 656);
	hs_memory_settle(true);
	assert_int_equal(fake_place(at), HS_PLACE_HOST);
	assert_int_equal(hs_memory_range(&start, &bytes, at), CUDA_SUCCESS);
	assert_int_equal(start, ptr);
	assert_int_equal(bytes, 8 * MIB);
	assert_int_equal(hs_memory_range(NULL, NULL, at), CUDA_SUCCESS);
	assert_int_equal(
		hs_memory_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at), CUDA_SUCCESS);
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	assert_int_equal(
		hs_memory_attribute(&start, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at), CUDA_SUCCESS);
	assert_int_equal(start, at);
	assert_int_equal(hs_memory_attribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at),
		CUDA_ERROR_INVALID_VALUE);
	/* What we do not answer is asked about the part that never moves. */
	assert_int_equal(
		hs_memory_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at), CUDA_SUCCESS);
	assert_int_equal(id, ptr);

	type = 0, id = 0, bytes = 0;
	data[0] = &type, data[1] = &ordinal, data[2] = &host, data[3] = &bytes, data[4] = &id;
	assert_int_equal(hs_memory_attributes(COUNT, which, data, at), CUDA_SUCCESS);
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	assert_int_equal(ordinal, 0);
	assert_null(host);
	assert_int_equal(bytes, 8 * MIB);
	assert_int_equal(id, ptr);
}

static void captures_make_no_windows_and_defer_frees(void **state)
{
	CUdeviceptr a = fake_window(8), b = 0;

	(void)state;
	hs_capture_began();
	fake.capturing = fake.busy = true;
	assert_int_equal(INSIDE(hs_memory_alloc(&b, 8 * MIB)), CUDA_SUCCESS);
	assert_null(hs_window_find(b));
	assert_int_equal(fake.driver_allocs, 1);
	fake_free(a);
	assert_null(hs_window_find(a));
	assert_int_equal(fake.handles, 2);
	assert_int_equal(fake.broken_captures, 0);
	hs_capture_failed();
	fake.capturing = false;
	hs_memory_settle(true);
	assert_int_equal(fake.unmapped_while_busy, 0);
	assert_int_equal(fake.handles, 0);
	assert_int_equal(fake.reservations, 0);
	assert_int_equal(fake.forgotten, 1);
}

static void refused_addresses_are_stepped_over(void **state)
{
	CUdeviceptr ptr;

	(void)state;
	fake.misplace = HS_ARENA_BASE;
	ptr = fake_window(8);
	assert_int_equal(ptr, HS_ARENA_BASE + 4 * HS_ARENA_STEP + 30 * MIB);
	assert_int_equal(fake.reservations, 1);
}

static void no_addresses_means_the_driver(void **state)
{
	CUdeviceptr ptr;

	(void)state;
	fake.no_addresses = true;
	assert_int_equal(INSIDE(hs_memory_alloc(&ptr, 8 * MIB)), CUDA_SUCCESS);
	assert_int_equal(fake.driver_allocs, 1);
	assert_int_equal(fake.reservations + fake.handles + fake.mappings, 0);
	assert_null(hs_window_find(ptr));
	fake_free(ptr);
	fake.no_addresses = false;
	assert_int_equal(fake_window(8), HS_ARENA_BASE + 30 * MIB);
}

static void a_failed_window_leaves_nothing(void **state)
{
	CUdeviceptr ptr;
	int step;

	(void)state;
	for (step = 1; step < 20; step++) {
		fake.fail_after = step;
		ptr = fake_window(8);
		fake.fail_after = 0;
		if (ptr)
			break;
		assert_int_equal(fake.reservations + fake.handles + fake.mappings, 0);
		assert_int_equal(fake.device_used, 0);
	}
	assert_int_equal(step, 7); /* twice create, map, access */
}

static void a_gone_context_takes_its_windows(void **state)
{
	CUdeviceptr ptr = fake_window(8);

	(void)state;
	hs_inside++;
	hs_memory_context_gone((CUcontext)0x2000);
	assert_non_null(hs_window_find(ptr));
	hs_memory_context_gone((CUcontext)0x1000);
	hs_inside--;
	assert_null(hs_window_find(ptr));
	assert_int_equal(fake.reservations + fake.handles + fake.mappings, 0);
}

static void fills_split_at_the_seam(void **state)
{
	CUdeviceptr ptr = fake_window(8), seam = ptr + HS_GRANULE;

	(void)state;
	assert_int_equal(hs_copy_seam(ptr, 8 * MIB), seam);
	assert_int_equal(hs_copy_seam(ptr + 5, HS_GRANULE - 5), seam);
	assert_int_equal(hs_copy_seam(ptr, 100), ptr + 100);
	assert_int_equal(hs_copy_seam(seam, 6 * MIB), seam + 6 * MIB);
	assert_int_equal(hs_copy_seam(0x1234, 8 * MIB), 0x1234 + 8 * MIB);
}

static void copies_reach_the_cache(void **state)
{
	CUdeviceptr ptr;

	(void)state;
	hs_copy_wrote(0x1234, 100, NULL, false);
	ptr = fake_window(8);
	hs_copy_wrote(0x1234, 100, NULL, false);
	hs_copy_wrote(ptr, 0, NULL, false);
	assert_int_equal(fake.wrote, 0);
	hs_copy_filled(ptr + 7, 9 * MIB, (CUstream)0x55, true);
	assert_int_equal(fake.wrote, 1);
	assert_ptr_equal(fake.wrote_window, hs_window_find(ptr));
	assert_int_equal(fake.wrote_start, ptr + 7);
	assert_int_equal(fake.wrote_bytes, 8 * MIB - 7);
	assert_true(fake.wrote_site.per_thread);
	assert_false(fake.wrote_site.capturing);
	assert_true(hs_window_find(ptr)->virgin);
	hs_capture_began();
	hs_copy_wrote(ptr + 4096, 100, (CUstream)0x55, false);
	assert_true(fake.wrote_site.capturing);
	assert_int_equal(fake.wrote_site.capture_id, 9);
	assert_false(hs_window_find(ptr)->virgin);
	hs_copy_wrote(ptr + 4096, 100, (CUstream)0x44, false);
	assert_false(fake.wrote_site.capturing);
	hs_capture_failed();
}

static _Atomic bool looking;
static CUdeviceptr steady;

static void *look(void *data)
{
	size_t *bad = data;

	while (atomic_load(&looking)) {
		struct hs_window *window = hs_window_find(steady + 12345);

		*bad += !window || window->start != steady;
		*bad += hs_window_find(steady - 1) == window;
	}
	return NULL;
}

static void lookups_run_beside_changes(void **state)
{
	enum { LOOKERS = 4, OTHERS = 24, ROUNDS = 2000 };
	pthread_t threads[LOOKERS];
	size_t bad[LOOKERS] = {0};
	struct hs_holding *others[OTHERS];

	(void)state;
	hs_memory_lock();
	for (int i = 0; i < OTHERS; i++) {
		others[i] = hs_holding_take();
		others[i]->window.start = HS_ARENA_BASE + 16 * MIB * (unsigned)i;
		others[i]->window.bytes = 8 * MIB;
	}
	/* In the middle, so that its place in the table changes all the time. */
	steady = HS_ARENA_BASE + 16 * MIB * (OTHERS / 2) + 8 * MIB;
	struct hs_holding *holding = hs_holding_take();
	holding->window.start = steady;
	holding->window.bytes = 8 * MIB;
	hs_holding_publish(holding);
	atomic_store(&looking, true);
	for (int i = 0; i < LOOKERS; i++)
		pthread_create(&threads[i], NULL, look, &bad[i]);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < OTHERS; i++)
			hs_holding_publish(others[i]);
		for (int i = 0; i < OTHERS; i++)
			hs_holding_withdraw(others[(i * 7 + round) % OTHERS]);
	}
	atomic_store(&looking, false);
	for (int i = 0; i < LOOKERS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(bad[i], 0);
	}
	hs_memory_unlock();
}

/* Nothing of the window before is left in a record. */
static void records_are_used_again(void **state)
{
	struct hs_holding *holding;
	unsigned takes = 0;

	(void)state;
	hs_memory_lock();
	holding = hs_holding_take();
	holding->window.use = HS_USE_KV;
	holding->window.row = 656;
	holding->window.tail = HS_ARENA_BASE + MIB;
	hs_holding_drop(holding);
	for (struct hs_holding *next = NULL; next != holding; takes++) {
		next = hs_holding_take();
		assert_non_null(next);
		assert_int_equal(next->window.use, HS_USE_UNKNOWN);
		assert_int_equal(next->window.row, 0);
		assert_int_equal(next->window.tail, 0);
		hs_holding_drop(next);
	}
	assert_in_range(takes, 2, HS_WINDOW_MAX);
	hs_memory_unlock();
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_ones_are_the_drivers),
		cmocka_unit_test(windows_lie_in_the_arena),
		cmocka_unit_test(frees_give_everything_back),
		cmocka_unit_test(only_a_start_is_freed),
		cmocka_unit_test(answers_are_those_of_device_memory),
		cmocka_unit_test(captures_make_no_windows_and_defer_frees),
		cmocka_unit_test(refused_addresses_are_stepped_over),
		cmocka_unit_test(no_addresses_means_the_driver),
		cmocka_unit_test(a_failed_window_leaves_nothing),
		cmocka_unit_test(a_gone_context_takes_its_windows),
		cmocka_unit_test(fills_split_at_the_seam),
		cmocka_unit_test(copies_reach_the_cache),
		cmocka_unit_test(lookups_run_beside_changes),
		cmocka_unit_test(records_are_used_again),
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
