/* SPDX-License-Identifier: MIT */
/* Moves that fail half-way: the old memory is back, with its bytes. */
#include <string.h>
#include "fake_driver.h"

#define BYTES (8 * MIB)

static enum hs_place tail(CUdeviceptr ptr)
{
	return fake_place(ptr + HS_GRANULE);
}

static void reveal(CUdeviceptr ptr, enum hs_use use)
{
	hs_window_reveal(hs_window_find(ptr), use, use == HS_USE_KV ? 656 : 0);
}

/* Every call of a move fails once, in either direction and for both kinds of
 * host memory. Step 1 of a settle is the wait for the device. */

static void as_before(CUdeviceptr ptr, enum hs_place place, bool registered, int step)
{
	const bool host = place == HS_PLACE_HOST;

	assert_int_equal(fake_wrong(ptr, BYTES, step), 0);
	assert_int_equal(hs_window_find(ptr)->place, place);
	assert_int_equal(fake.reservations, 1);
	assert_int_equal(fake.mappings, host && registered ? 1 : 2);
	assert_int_equal(fake.handles, host && registered ? 1 : 2);
	assert_int_equal(fake.registered, host && registered);
	assert_int_equal(fake.device_used, host ? HS_GRANULE : BYTES);
	assert_int_equal(fake.host_used, host ? BYTES - HS_GRANULE : 0);
}

/* The kind that is tried first has been refused. */
static void refuse_registration(void)
{
	CUdeviceptr ptr = fake_window(8);

	fake.options.place = HS_OPTION_HOST;
	fake.register_refused = true;
	hs_window_find(ptr)->use = HS_USE_KV;
	hs_memory_mark();
	hs_memory_settle(true);
	assert_int_equal(tail(ptr), HS_PLACE_HOST);
	assert_int_equal(fake.registered, 0);
	assert_int_equal(fake.lines, 0);
	assert_non_null(strstr(fake.line, "does not register"));
	hs_window_find(ptr)->use = HS_USE_OTHER; /* so that the size is not learnt */
	fake_free(ptr);
	fake.options.place = HS_OPTION_AUTO;
}

static int broken_moves_to_the_device(bool registered)
{
	CUdeviceptr ptr = fake_window(8);
	int step;

	fake.options.place = HS_OPTION_HOST;
	reveal(ptr, HS_USE_KV);
	fake_fill(ptr, BYTES, 1);
	hs_memory_settle(true);
	as_before(ptr, HS_PLACE_HOST, registered, 1);
	hs_window_find(ptr)->use = HS_USE_OTHER;
	for (step = 1; step < 40; step++) {
		fake_fill(ptr, BYTES, step);
		hs_memory_mark();
		fake.fail_after = step;
		hs_memory_settle(true);
		fake.fail_after = 0;
		if (tail(ptr) == HS_PLACE_DEVICE)
			break;
		as_before(ptr, HS_PLACE_HOST, registered, step);
	}
	as_before(ptr, HS_PLACE_DEVICE, registered, step);
	assert_int_equal(fake.lines, 0);
	return step;
}

static void a_broken_move_to_the_device_is_undone(void **state)
{
	(void)state;
	/* wait, create, map + access, copy, wait, unmap, unregister, the first
	 * granule: unmap, map + access, map + access */
	assert_int_equal(broken_moves_to_the_device(true), 14);
}

static void a_broken_move_from_the_drivers_memory_is_undone(void **state)
{
	(void)state;
	refuse_registration();
	/* wait, create, map + access, copy, wait, unmap, unmap, map + access */
	assert_int_equal(broken_moves_to_the_device(false), 11);
}

/* 0: nothing fails. */
static void broken_moves_to_the_host(bool registered, const int *steps)
{
	CUdeviceptr ptr = 0;
	int lines = 0;

	for (int i = 0;; i++) {
		ptr = fake_window(8);
		fake_fill(ptr, BYTES, steps[i]);
		hs_window_find(ptr)->use = HS_USE_KV;
		fake.options.place = HS_OPTION_HOST;
		hs_memory_mark();
		fake.fail_after = steps[i];
		hs_memory_settle(true);
		fake.fail_after = 0;
		if (!steps[i])
			break;
		as_before(ptr, HS_PLACE_DEVICE, registered, steps[i]);
		if (steps[i] > 1) { /* 1: the wait, no move was begun */
			assert_int_equal(fake.lines, ++lines);
			assert_non_null(strstr(fake.line, "stays on the device"));
			/* Not tried again. */
			hs_memory_mark();
			hs_memory_settle(true);
			assert_int_equal(tail(ptr), HS_PLACE_DEVICE);
			assert_int_equal(fake.lines, lines);
		}
		hs_window_find(ptr)->use = HS_USE_OTHER; /* so that the size is not learnt */
		fake_free(ptr);
	}
	as_before(ptr, HS_PLACE_HOST, registered, 0);
}

static void a_broken_move_to_the_host_is_undone(void **state)
{
	/* wait, unmap, map + access, the first granule: unmap, map + access,
	 * (register, pointer: see below), copy, wait */
	static const int steps[] = {1, 2, 3, 4, 5, 6, 7, 10, 11, 0};

	(void)state;
	broken_moves_to_the_host(true, steps);
}

static void a_broken_move_to_the_drivers_memory_is_undone(void **state)
{
	/* wait, (create: no_host_memory_is_said_once), unmap, map + access,
	 * map + access, copy, wait */
	static const int steps[] = {1, 3, 4, 5, 6, 7, 8, 9, 0};

	(void)state;
	refuse_registration();
	broken_moves_to_the_host(false, steps);
}

/* A step of the list above that is about registering. */
static void fall_back(int step)
{
	CUdeviceptr ptr = fake_window(8);

	fake.options.place = HS_OPTION_HOST;
	fake_fill(ptr, BYTES, 7);
	reveal(ptr, HS_USE_KV);
	fake.fail_after = step;
	hs_memory_settle(true);
	as_before(ptr, HS_PLACE_HOST, false, 7);
	assert_int_equal(fake.lines, 0);
	ptr = fake_window(8); /* and its like at once */
	assert_int_equal(tail(ptr), HS_PLACE_HOST);
	assert_int_equal(fake.registered, 0);
}

static void refused_registration_falls_back(void **state)
{
	(void)state;
	fall_back(8);
}

static void a_registration_elsewhere_falls_back(void **state)
{
	(void)state;
	fall_back(9);
}

/* The kernel does not give the addresses: the driver's own memory goes there, and
 * the next window gets the better kind again. */
static void taken_addresses_fall_back(void **state)
{
	CUdeviceptr first = fake_window(8), next = fake_window(8);

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	fake_fill(first, BYTES, 7);
	fake_fill(next, BYTES, 8);
	fake.keeps = true;
	reveal(first, HS_USE_KV);
	hs_memory_settle(true);
	fake.keeps = false;
	assert_int_equal(tail(first), HS_PLACE_HOST);
	assert_int_equal(fake.registered, 0);
	reveal(next, HS_USE_KV);
	hs_memory_settle(true);
	assert_int_equal(tail(next), HS_PLACE_HOST);
	assert_int_equal(fake.registered, 1);
	assert_int_equal(fake_wrong(first, BYTES, 7), 0);
	assert_int_equal(fake_wrong(next, BYTES, 8), 0);
	assert_int_equal(fake.lines, 0);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_broken_move_to_the_device_is_undone),
		cmocka_unit_test(a_broken_move_from_the_drivers_memory_is_undone),
		cmocka_unit_test(a_broken_move_to_the_host_is_undone),
		cmocka_unit_test(a_broken_move_to_the_drivers_memory_is_undone),
		cmocka_unit_test(refused_registration_falls_back),
		cmocka_unit_test(a_registration_elsewhere_falls_back),
		cmocka_unit_test(taken_addresses_fall_back),
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
