/* SPDX-License-Identifier: MIT */
/* Windows whose host memory is the driver's managed memory: moves and moves that fail
 * half-way, who else may read it. */
#include <string.h>
#include <sys/mman.h>
#include "memory_rig.h"
#include "src/memory/peer.h"
#include "src/memory/place.h"
#include "src/memory/window.h"

static void is_at(CUdeviceptr ptr, enum hs_place place, unsigned seed)
{
	const bool host = place == HS_PLACE_HOST;
	struct hs_window *window = hs_window_find(ptr);

	assert_int_equal(fake_wrong(ptr, BYTES, seed), 0);
	assert_int_equal(window->place, place);
	assert_int_equal(window->any_order, host);
	assert_int_equal(is_managed(ptr), host);
	assert_int_equal(fake_place(ptr), HS_PLACE_DEVICE);
	assert_int_equal(fake.managed_count, host);
	assert_int_equal(fake.registered, 0);
	assert_int_equal(fake.reservations, 1);
	assert_int_equal(fake.mappings, host ? 1 : 2);
	assert_int_equal(fake.handles, host ? 1 : 2);
	assert_int_equal(fake.device_used, host ? HS_GRANULE : BYTES);
	assert_int_equal(fake.host_used, host ? REST : 0);
}

static void a_window_goes_there_and_back(void **state)
{
	CUdeviceptr ptr = ready(1);

	(void)state;
	is_at(ptr, HS_PLACE_DEVICE, 1);
	fake.busy = true;
	hs_memory_settle(true);
	is_at(ptr, HS_PLACE_HOST, 1);
	/* It stays there, and the device maps it; told of all of it and of nothing else. */
	assert_int_equal(fake.advised, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(fake.advice[i].at, ptr + HS_GRANULE);
		assert_int_equal(fake.advice[i].bytes, REST);
	}
	assert_int_equal(fake.advice[0].advice, CU_MEM_ADVISE_SET_PREFERRED_LOCATION);
	assert_int_equal(fake.advice[0].location.type, CU_MEM_LOCATION_TYPE_HOST);
	assert_int_equal(fake.advice[1].advice, CU_MEM_ADVISE_SET_ACCESSED_BY);
	assert_int_equal(fake.advice[1].location.type, CU_MEM_LOCATION_TYPE_DEVICE);
	assert_int_equal(fake.advice[1].location.id, 0);
	fake_fill(ptr, BYTES, 2);
	hs_window_find(ptr)->use = HS_USE_OTHER;
	fake.busy = true;
	hs_memory_mark();
	hs_memory_settle(true);
	is_at(ptr, HS_PLACE_DEVICE, 2);
	assert_int_equal(fake.managed_asked, 1);
	assert_int_equal(fake.lines, 0);
	drop(ptr);
	none_is_left();
}

static void freed_where_it_is(void **state)
{
	CUdeviceptr ptr = moved(1);

	(void)state;
	is_at(ptr, HS_PLACE_HOST, 1);
	fake_free(ptr);
	none_is_left();
}

/* Every call of a move fails once. Step 1 is the wait for the device. */

static void a_broken_move_to_the_device_is_undone(void **state)
{
	CUdeviceptr ptr = moved(1);
	int step;

	(void)state;
	is_at(ptr, HS_PLACE_HOST, 1);
	hs_window_find(ptr)->use = HS_USE_OTHER;
	for (step = 1; step < 40; step++) {
		fake_fill(ptr, BYTES, step);
		hs_memory_mark();
		fake.managed_asked = 0;
		fake.fail_after = step;
		hs_memory_settle(true);
		fake.fail_after = 0;
		if (tail(ptr) == HS_PLACE_DEVICE)
			break;
		is_at(ptr, HS_PLACE_HOST, step);
		/* From the ninth call on its bytes were gone, and have come back. */
		assert_int_equal(fake.managed_asked, step > 8);
	}
	is_at(ptr, HS_PLACE_DEVICE, step);
	/* wait, create, map + access, copy, wait, unmap, free, the first granule:
	 * unmap, map + access, map + access */
	assert_int_equal(step, 14);
	assert_int_equal(fake.lines, 0);
	drop(ptr);
	none_is_left();
}

static void a_broken_move_to_the_host_is_undone(void **state)
{
	/* wait, unmap, map + access, the first granule: unmap, map + access, (allocate,
	 * advise, advise: see below), copy, wait */
	static const int steps[] = {1, 2, 3, 4, 5, 6, 7, 11, 12};
	int lines = 0;
	CUdeviceptr ptr;

	(void)state;
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		ptr = ready(steps[i]);
		fake.fail_after = steps[i];
		hs_memory_settle(true);
		fake.fail_after = 0;
		is_at(ptr, HS_PLACE_DEVICE, steps[i]);
		lines += steps[i] > 1; /* 1: no move was begun */
		assert_int_equal(fake.lines, lines);
		assert_true(lines == 0 || strstr(fake.line, "stays on the device"));
		drop(ptr);
		none_is_left();
	}
	is_at(moved(9), HS_PLACE_HOST, 9);
	assert_int_equal(fake.lines, lines);
}

/* What had 49 parts on the device is one piece there, or has its parts again. */
static void a_window_in_ranges_goes_there(void **state)
{
	static const int steps[] = {155, 156, 0}; /* its copy, and the wait for that */
	CUdeviceptr ptr, other;
	size_t left;

	(void)state;
	hs_place_calm_ns = 0;
	assert_int_equal(INSIDE(hs_memory_info(&left, NULL)), CUDA_SUCCESS);
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		const bool host = !steps[i];

		ptr = fake_window(100);
		assert_true(fake.handles > 40);
		fake_fill(ptr, 100 * MIB, 5);
		other = fake_window(60);
		hs_window_find(other)->use = HS_USE_OTHER;
		hs_window_find(ptr)->use = HS_USE_KV;
		fake.options.window_bytes = 1024 * MIB;
		fake.managed_asked = 0;
		fake.fail_after = steps[i];
		hs_inside++;
		hs_memory_spare(90 * MIB);
		hs_inside--;
		fake.fail_after = 0;
		fake.options.window_bytes = 4 * MIB;
		assert_int_equal(fake_wrong(ptr, 100 * MIB, 5), 0);
		assert_int_equal(fake.managed_asked, 1);
		assert_int_equal(is_managed(ptr), host);
		assert_int_equal(hs_window_find(ptr)->any_order, host);
		assert_int_equal(fake.handles > 40, !host);
		drop(other);
		if (host)
			break;
		drop(ptr);
		none_is_left();
	}
	hs_memory_settle(true);
	assert_int_equal(tail(ptr), HS_PLACE_DEVICE);
	assert_false(hs_window_find(ptr)->any_order);
	assert_int_equal(fake_wrong(ptr, 100 * MIB, 5), 0);
	drop(ptr);
	none_is_left();
}

/* A size that is known to be KV. */
static void windows_begin_there(void **state)
{
	CUdeviceptr first = moved(1), next = fake_window(8);

	(void)state;
	assert_true(is_managed(first) && is_managed(next));
	assert_true(hs_window_find(next)->any_order);
	for (size_t i = HS_GRANULE; i < BYTES; i += 512)
		assert_int_equal(*(uint64_t *)(next + i), 0);
	fake_fill(next, BYTES, 2);
	assert_int_equal(fake_wrong(first, BYTES, 1), 0);
	assert_int_equal(fake_wrong(next, BYTES, 2), 0);
	fake_free(first);
	fake_free(next);
	none_is_left();
}

/* Context 0x2000 is another device's. */
static CUresult device_of_context(CUdevice *device)
{
	CUcontext current;

	hs_driver.cuCtxGetCurrent(&current);
	*device = current == (CUcontext)0x2000;
	return CUDA_SUCCESS;
}

static bool told(unsigned from, CUdeviceptr at, CUdevice device)
{
	for (unsigned i = from; i < fake.advised; i++)
		if (fake.advice[i].advice == CU_MEM_ADVISE_SET_ACCESSED_BY &&
			fake.advice[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
			fake.advice[i].location.id == device && fake.advice[i].at == at &&
			fake.advice[i].bytes == REST)
			return true;
	return false;
}

static void peers_map_it_too(void **state)
{
	CUdeviceptr ptr = moved(1), later;
	unsigned before = fake.advised;
	CUcontext popped;

	(void)state;
	hs_driver.cuCtxGetDevice = device_of_context;
	hs_inside++;
	hs_driver.cuCtxPushCurrent_v2((CUcontext)0x2000);
	hs_peer_enabled((CUcontext)0x1000);
	hs_driver.cuCtxPopCurrent_v2(&popped);
	hs_inside--;
	assert_int_equal(fake.advised, before + 1);
	assert_true(told(before, ptr + HS_GRANULE, 1));
	assert_int_equal(fake_wrong(ptr, BYTES, 1), 0);
	before = fake.advised;
	later = fake_window(8);
	assert_true(is_managed(later));
	assert_true(told(before, later + HS_GRANULE, 0));
	assert_true(told(before, later + HS_GRANULE, 1));
	fake_free(later);
	fake_free(ptr);
	none_is_left();
}

/* Its pages went to somebody else while they were nobody's: the device keeps the bytes,
 * or another kind of host memory gets them. */
static void pages_that_do_not_come_back(void **state)
{
	(void)state;
	for (int step = 8; step < 15; step++) {
		CUdeviceptr ptr = moved(step);
		struct hs_window *window = hs_window_find(ptr);

		window->use = HS_USE_OTHER;
		fake.managed_full = true;
		fake.fail_after = step;
		hs_memory_mark();
		hs_memory_settle(true);
		fake.fail_after = 0;
		fake.managed_full = false;
		assert_int_equal(fake_wrong(ptr, BYTES, step), 0);
		assert_true(window->place == HS_PLACE_DEVICE || is_managed(ptr));
		assert_int_equal(fake.lines, 0);
		drop(ptr);
	}
	none_is_left();
}

/* Somebody's page behind the window: neither the whole reservation nor managed memory is to be
 * had there again. */
static void addresses_that_do_not_come_back(void **state)
{
	CUdeviceptr ptr = moved(1);
	void *const at = (void *)(ptr + HS_GRANULE + 40 * MIB);
	void *page =
		mmap(at, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	(void)state;
	assert_ptr_equal(page, at);
	hs_window_find(ptr)->use = HS_USE_OTHER;
	hs_memory_mark();
	hs_memory_settle(true);
	assert_int_equal(fake_wrong(ptr, BYTES, 1), 0);
	assert_int_equal(tail(ptr), HS_PLACE_HOST);
	assert_int_equal(fake.registered, 1);
	assert_false(hs_window_find(ptr)->any_order);
	assert_int_equal(fake.lines, 0);
	munmap(page, 4096);
	drop(ptr);
	none_is_left();
}

/* A record is used again 4,096 windows later. */
static void nothing_is_left_of_it_in_the_record(void **state)
{
	CUdeviceptr ptr = moved(1);
	const uint32_t id = hs_window_find(ptr)->id;

	(void)state;
	drop(ptr);
	fake.options.place = HS_OPTION_DEVICE;
	for (int i = 1; i < HS_WINDOW_MAX; i++)
		fake_free(fake_window(8));
	ptr = fake_window(100); /* in ranges */
	assert_int_equal(hs_window_find(ptr)->id, id);
	assert_true(hs_holding_of(hs_window_find(ptr))->count > 1);
	assert_false(hs_window_find(ptr)->any_order);
	fake_free(ptr);
	none_is_left();
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_window_goes_there_and_back),
		cmocka_unit_test(freed_where_it_is),
		cmocka_unit_test(a_broken_move_to_the_device_is_undone),
		cmocka_unit_test(pages_that_do_not_come_back),
		cmocka_unit_test(addresses_that_do_not_come_back),
		cmocka_unit_test(nothing_is_left_of_it_in_the_record),
		cmocka_unit_test(a_broken_move_to_the_host_is_undone),
		cmocka_unit_test(a_window_in_ranges_goes_there),
		cmocka_unit_test(windows_begin_there),
		cmocka_unit_test(peers_map_it_too),
	};

	if (!fake_populates())
		return 77;
	fake.managed = true;
	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
