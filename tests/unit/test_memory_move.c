/* SPDX-License-Identifier: MIT */
/* Where windows live, and that their bytes survive every way of moving. */
#include <stdio.h>
#include <string.h>
#include "fake_driver.h"
#include "src/memory/arena.h"
#include "src/memory/copy.h"
#include "src/memory/gate.h"

#define BYTES (8 * MIB)

static enum hs_place tail(CUdeviceptr ptr)
{
	return fake_place(ptr + HS_GRANULE);
}

static void reveal(CUdeviceptr ptr, enum hs_use use)
{
	hs_window_reveal(hs_window_find(ptr), use, use == HS_USE_KV ? 656 : 0);
}

static size_t nonzero(CUdeviceptr start, size_t bytes)
{
	size_t count = 0;

	for (size_t i = 0; i < bytes; i += 512)
		count += *(uint64_t *)(start + i) != 0;
	return count;
}

static void option_host_moves_kv_at_the_next_safe_moment(void **state)
{
	CUdeviceptr kv = fake_window(8), other = fake_window(16), next;

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	fake_fill(kv, BYTES, 1);
	reveal(other, HS_USE_OTHER);
	hs_memory_settle();
	assert_int_equal(fake.settled, 0); /* nothing to do for it */
	reveal(kv, HS_USE_KV);
	assert_int_equal(tail(kv), HS_PLACE_DEVICE); /* marked only */
	fake.busy = true;
	hs_memory_settle();
	assert_int_equal(fake.unmapped_while_busy, 0);
	assert_int_equal(fake.settled, 1);
	assert_int_equal(tail(kv), HS_PLACE_HOST);
	assert_int_equal(fake_place(kv + BYTES - 1), HS_PLACE_HOST);
	assert_int_equal(fake_place(kv), HS_PLACE_DEVICE); /* the first granule stays */
	assert_int_equal(hs_window_find(kv)->place, HS_PLACE_HOST);
	assert_int_equal(hs_window_find(kv)->row, 656);
	assert_int_equal(fake_wrong(kv, BYTES, 1), 0);
	assert_int_equal(tail(other), HS_PLACE_DEVICE);
	assert_int_equal(fake.host_used, BYTES - HS_GRANULE);
	assert_int_equal(fake.device_used, 16 * MIB + HS_GRANULE);
	/* Nothing marked: nothing happens. */
	hs_memory_settle();
	assert_int_equal(fake.settled, 1);
	/* The size is known now, also after its windows are gone. */
	next = fake_window(8);
	assert_int_equal(tail(next), HS_PLACE_HOST);
	fake_free(next);
	fake_free(kv);
	assert_int_equal(tail(fake_window(8)), HS_PLACE_HOST);
	assert_int_equal(tail(fake_window(6)), HS_PLACE_DEVICE);
	assert_int_equal(fake.outside, 0);
}

static void option_device_never_moves(void **state)
{
	CUdeviceptr kv, ptr = 0;

	(void)state;
	fake.options.place = HS_OPTION_DEVICE;
	kv = fake_window(128);
	reveal(kv, HS_USE_KV);
	hs_memory_settle();
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	/* All of the device is the engine's, and no more. */
	assert_int_not_equal(ptr = fake_window(128), 0);
	assert_int_equal(fake_window(128), 0);
	assert_int_equal(fake_window(128), 0);
	assert_int_equal(INSIDE(hs_memory_alloc(&ptr, MIB)), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(fake.host_used, 0);
	assert_int_equal(fake.lines, 0);
}

static void auto_keeps_what_fits(void **state)
{
	CUdeviceptr kv = fake_window(128);

	(void)state;
	reveal(kv, HS_USE_KV);
	hs_memory_settle();
	assert_int_equal(fake.settled, 1);
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	assert_int_equal(fake.host_used, 0);
}

/* 256 MiB of device, 32 of them in reserve. */
static void auto_moves_out_when_the_reserve_is_all_that_is_left(void **state)
{
	CUdeviceptr written = fake_window(96), zeroed = fake_window(64), kv = fake_window(48), more;

	(void)state;
	fake_fill(kv, 48 * MIB, 2);
	hs_window_find(written)->virgin = false;
	reveal(kv, HS_USE_KV);
	/* KV first, although the other is larger. */
	more = fake_window(40);
	assert_int_equal(tail(more), HS_PLACE_DEVICE);
	assert_int_equal(tail(kv), HS_PLACE_HOST);
	assert_int_equal(tail(zeroed), HS_PLACE_DEVICE);
	/* Then what only saw a fill; data of an unknown kind never. */
	more = fake_window(80);
	assert_int_equal(tail(more), HS_PLACE_DEVICE);
	assert_int_equal(tail(zeroed), HS_PLACE_HOST);
	assert_int_equal(tail(written), HS_PLACE_DEVICE);
	assert_int_equal(fake_wrong(kv, 48 * MIB, 2), 0);
	assert_int_equal(nonzero(zeroed, 64 * MIB), 0);
	fake_fill(zeroed, 64 * MIB, 3);
	/* It turns out to be something else: back, as soon as there is room. */
	reveal(zeroed, HS_USE_OTHER);
	hs_memory_settle();
	assert_int_equal(tail(zeroed), HS_PLACE_HOST);
	fake_free(more);
	hs_memory_settle();
	assert_int_equal(tail(zeroed), HS_PLACE_DEVICE);
	assert_int_equal(fake_wrong(zeroed, 64 * MIB, 3), 0);
}

static void unknown_sizes_are_refused_once(void **state)
{
	CUdeviceptr full = fake_window(220), ptr;

	(void)state;
	reveal(full, HS_USE_OTHER);
	assert_int_equal(fake_window(16), 0);
	ptr = fake_window(16);
	assert_int_equal(tail(ptr), HS_PLACE_HOST);
	fake_free(ptr);
	/* The retry must come at once, and for the same. */
	assert_int_equal(fake_window(16), 0);
	assert_int_equal(fake_window(18), 0);
	assert_int_equal(fake_window(16), 0);
	ptr = fake_window(16);
	assert_int_equal(tail(ptr), HS_PLACE_HOST);
	/* Known to be KV: no refusal. */
	reveal(ptr, HS_USE_KV);
	assert_int_equal(tail(fake_window(16)), HS_PLACE_HOST);
	assert_int_equal(fake.lines, 0);
}

static void a_failing_small_allocation_moves_a_window_out(void **state)
{
	CUdeviceptr kv = fake_window(64), other = fake_window(128), ptr;

	(void)state;
	reveal(kv, HS_USE_KV);
	reveal(other, HS_USE_OTHER);
	fake.options.window_bytes = 1024 * MIB; /* small ones from here on */
	assert_int_equal(INSIDE(hs_memory_alloc(&ptr, 60 * MIB)), CUDA_SUCCESS);
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	assert_int_equal(INSIDE(hs_memory_alloc(&ptr, 60 * MIB)), CUDA_SUCCESS);
	assert_int_equal(tail(kv), HS_PLACE_HOST);
	assert_int_equal(INSIDE(hs_memory_alloc(&ptr, 60 * MIB)), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(tail(other), HS_PLACE_DEVICE);
}

static void no_move_while_a_capture_is_open(void **state)
{
	CUdeviceptr kv = fake_window(8);

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	reveal(kv, HS_USE_KV);
	hs_capture_began();
	hs_capture_began();
	fake.capturing = true;
	hs_memory_settle();
	hs_capture_ended();
	hs_memory_settle();
	assert_int_equal(fake.syncs, 0);
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	hs_capture_ended();
	fake.capturing = false;
	hs_memory_settle();
	assert_int_equal(tail(kv), HS_PLACE_HOST);
}

static void nobody_inside_the_gate_moves_a_window(void **state)
{
	CUdeviceptr kv = fake_window(8);

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	reveal(kv, HS_USE_KV);
	hs_gate_enter();
	hs_memory_settle();
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	hs_gate_leave();
	hs_memory_settle();
	assert_int_equal(tail(kv), HS_PLACE_HOST);
}

/* Every call of a move fails once, in either direction and for both kinds of
 * host memory: afterwards everything is as before. Step 1 of a settle is the
 * wait for the device. */

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
	hs_memory_settle();
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
	hs_memory_settle();
	as_before(ptr, HS_PLACE_HOST, registered, 1);
	hs_window_find(ptr)->use = HS_USE_OTHER;
	for (step = 1; step < 40; step++) {
		fake_fill(ptr, BYTES, step);
		hs_memory_mark();
		fake.fail_after = step;
		hs_memory_settle();
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
		hs_memory_settle();
		fake.fail_after = 0;
		if (!steps[i])
			break;
		as_before(ptr, HS_PLACE_DEVICE, registered, steps[i]);
		if (steps[i] > 1) { /* 1: the wait, no move was begun */
			assert_int_equal(fake.lines, ++lines);
			assert_non_null(strstr(fake.line, "stays on the device"));
			/* Not tried again. */
			hs_memory_mark();
			hs_memory_settle();
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
	hs_memory_settle();
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

/* A new window of a known size, of memory that is registered. */
static void windows_begin_on_the_host(void **state)
{
	CUdeviceptr ptr = fake_window(8), next;

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	reveal(ptr, HS_USE_KV);
	for (int step = 1; step < 12; step++) {
		fake.fail_after = step;
		next = fake_window(8); /* step 1: the wait, which may fail */
		fake.fail_after = 0;
		if (!next)
			continue;
		assert_int_equal(nonzero(next + HS_GRANULE, 6 * MIB), 0);
		fake_fill(next, BYTES, step);
		assert_int_equal(fake_wrong(next, BYTES, step), 0);
		fake_free(next);
	}
	next = fake_window(8);
	assert_int_equal(tail(next), HS_PLACE_HOST);
	fake_free(next);
	fake_free(ptr);
	assert_int_equal(fake.reservations + fake.handles + fake.mappings + fake.registered, 0);
	assert_int_equal(fake.host_used + fake.device_used, 0);
}

/* What only saw zeros is zero on the host, and nothing is copied. */
static void virgins_are_not_copied(void **state)
{
	CUdeviceptr ptr = fake_window(8), written = fake_window(8);

	(void)state;
	memset((void *)ptr, 0xaa, BYTES); /* would be seen if it was copied */
	hs_copy_filled(ptr, BYTES, NULL, false);
	hs_copy_wrote(written + BYTES / 2, 8, NULL, false);
	memset((void *)written, 0xaa, BYTES);
	hs_window_find(ptr)->use = hs_window_find(written)->use = HS_USE_KV;
	fake.options.place = HS_OPTION_HOST;
	hs_memory_mark();
	hs_memory_settle();
	assert_int_equal(tail(ptr), HS_PLACE_HOST);
	assert_int_equal(tail(written), HS_PLACE_HOST);
	assert_int_equal(nonzero(ptr + HS_GRANULE, 6 * MIB), 0);
	assert_int_equal(nonzero(written + HS_GRANULE, 6 * MIB), 6 * MIB / 512);
}

static void no_host_memory_is_said_once(void **state)
{
	CUdeviceptr a = fake_window(8), b = fake_window(8);
	size_t free_bytes, total;

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	fake.host_refused = fake.register_refused = true;
	fake_fill(a, BYTES, 1);
	reveal(a, HS_USE_KV);
	reveal(b, HS_USE_KV);
	hs_memory_settle();
	assert_int_equal(tail(a), HS_PLACE_DEVICE);
	assert_int_equal(tail(b), HS_PLACE_DEVICE);
	assert_int_equal(fake_wrong(a, BYTES, 1), 0);
	assert_int_equal(fake.lines, 1);
	assert_non_null(strstr(fake.line, "HISPARSE_HOST_GIB"));
	assert_int_equal(tail(fake_window(8)), HS_PLACE_DEVICE);
	assert_int_equal(fake.lines, 1);
	assert_int_equal(INSIDE(hs_memory_info(&free_bytes, &total)), CUDA_SUCCESS);
	assert_int_equal(free_bytes, fake.device_bytes - fake.device_used);
	assert_int_equal(total, fake.device_bytes);
}

static void no_second_address_keeps_the_window(void **state)
{
	CUdeviceptr kv = fake_window(8);

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	fake_fill(kv, BYTES, 1);
	reveal(kv, HS_USE_KV);
	fake.no_addresses = true;
	hs_memory_settle();
	fake.no_addresses = false;
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	assert_int_equal(fake_wrong(kv, BYTES, 1), 0);
	assert_int_equal(fake.handles, 2);
	assert_int_equal(fake.host_used, 0);
	assert_int_equal(fake.lines, 1);
	/* That is no reason for others not to move. */
	kv = fake_window(16);
	reveal(kv, HS_USE_KV);
	hs_memory_settle();
	assert_int_equal(tail(kv), HS_PLACE_HOST);
}

static void the_pool_has_an_end(void **state)
{
	CUdeviceptr windows[4];

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	fake.options.host_bytes = 20 * MIB;
	for (int i = 0; i < 4; i++) {
		windows[i] = fake_window(8);
		reveal(windows[i], HS_USE_KV);
		hs_memory_settle();
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(tail(windows[i]), i < 3 ? HS_PLACE_HOST : HS_PLACE_DEVICE);
	assert_int_equal(fake.host_used, 18 * MIB);
	assert_int_equal(fake.lines, 0);
	fake_free(windows[0]);
	assert_int_equal(tail(windows[3]), HS_PLACE_DEVICE);
	hs_memory_mark();
	hs_memory_settle();
	assert_int_equal(tail(windows[3]), HS_PLACE_HOST);
}

static void kv_outweighs_other(void **state)
{
	struct hs_window *window = hs_window_find(fake_window(8));

	(void)state;
	hs_window_reveal(window, HS_USE_OTHER, 0);
	assert_int_equal(window->use, HS_USE_OTHER);
	assert_false(window->virgin);
	hs_window_reveal(window, HS_USE_KV, 1152);
	assert_int_equal(window->use, HS_USE_KV);
	hs_window_reveal(window, HS_USE_OTHER, 0);
	hs_window_reveal(window, HS_USE_UNKNOWN, 0);
	assert_int_equal(window->use, HS_USE_KV);
	assert_int_equal(window->row, 1152);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(option_host_moves_kv_at_the_next_safe_moment),
		cmocka_unit_test(option_device_never_moves),
		cmocka_unit_test(auto_keeps_what_fits),
		cmocka_unit_test(auto_moves_out_when_the_reserve_is_all_that_is_left),
		cmocka_unit_test(unknown_sizes_are_refused_once),
		cmocka_unit_test(a_failing_small_allocation_moves_a_window_out),
		cmocka_unit_test(no_move_while_a_capture_is_open),
		cmocka_unit_test(nobody_inside_the_gate_moves_a_window),
		cmocka_unit_test(a_broken_move_to_the_device_is_undone),
		cmocka_unit_test(a_broken_move_to_the_host_is_undone),
		cmocka_unit_test(a_broken_move_from_the_drivers_memory_is_undone),
		cmocka_unit_test(a_broken_move_to_the_drivers_memory_is_undone),
		cmocka_unit_test(refused_registration_falls_back),
		cmocka_unit_test(a_registration_elsewhere_falls_back),
		cmocka_unit_test(windows_begin_on_the_host),
		cmocka_unit_test(virgins_are_not_copied),
		cmocka_unit_test(no_host_memory_is_said_once),
		cmocka_unit_test(no_second_address_keeps_the_window),
		cmocka_unit_test(the_pool_has_an_end),
		cmocka_unit_test(kv_outweighs_other),
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
