/* SPDX-License-Identifier: MIT */
/* Where windows live, and that their bytes survive every way of moving. */
#include <stdio.h>
#include <string.h>
#include "fake_driver.h"
#include "src/memory/arena.h"
#include "src/memory/capture.h"
#include "src/memory/copy.h"
#include "src/memory/gate.h"
#include "src/memory/peer.h"

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
	hs_memory_settle(true);
	assert_int_equal(fake.settled, 0); /* nothing to do for it */
	reveal(kv, HS_USE_KV);
	assert_int_equal(tail(kv), HS_PLACE_DEVICE); /* marked only */
	fake.busy = true;
	hs_memory_settle(true);
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
	hs_memory_settle(true);
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
	hs_memory_settle(true);
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
	hs_memory_settle(true);
	assert_int_equal(fake.settled, 1);
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	assert_int_equal(fake.host_used, 0);
}

/* 256 MiB of device, about 40 of them in reserve. */
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
	more = fake_window(72);
	assert_int_equal(tail(more), HS_PLACE_DEVICE);
	assert_int_equal(tail(zeroed), HS_PLACE_HOST);
	assert_int_equal(tail(written), HS_PLACE_DEVICE);
	assert_int_equal(fake_wrong(kv, 48 * MIB, 2), 0);
	assert_int_equal(nonzero(zeroed, 64 * MIB), 0);
	fake_fill(zeroed, 64 * MIB, 3);
	/* It turns out to be something else: back, as soon as there is room. */
	reveal(zeroed, HS_USE_OTHER);
	hs_memory_settle(true);
	assert_int_equal(tail(zeroed), HS_PLACE_HOST);
	fake_free(more);
	hs_memory_settle(true);
	assert_int_equal(tail(zeroed), HS_PLACE_DEVICE);
	assert_int_equal(fake_wrong(zeroed, 64 * MIB, 3), 0);
}

static void unknown_sizes_are_refused_once(void **state)
{
	CUdeviceptr full = fake_window(208), ptr;

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
	hs_memory_settle(true);
	hs_capture_failed();
	hs_memory_settle(true);
	assert_int_equal(fake.syncs, 0);
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	hs_capture_failed();
	fake.capturing = false;
	hs_memory_settle(true);
	assert_int_equal(tail(kv), HS_PLACE_HOST);
}

/* Something on the device waits for what our gate holds up. */
static void a_device_that_never_idles_is_not_waited_for(void **state)
{
	CUdeviceptr kv = fake_window(8), other = fake_window(8);
	int tries;

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	reveal(kv, HS_USE_KV);
	fake.endless = fake.busy = true;
	hs_memory_settle(false);
	assert_int_equal(fake.syncs, 1);
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	/* For a while we are in nobody's way. */
	tries = fake.queries;
	hs_memory_settle(true);
	assert_int_equal(fake.queries, tries);
	/* A free is not held up for ever either. */
	assert_int_equal(INSIDE(hs_memory_free(other)), CUDA_SUCCESS);
	assert_null(hs_window_find(other));
	assert_int_equal(fake.handles, 4);
	fake.endless = false;
	while (tail(kv) == HS_PLACE_DEVICE)
		hs_memory_settle(true);
	assert_int_equal(fake.unmapped_while_busy, 0);
	assert_int_equal(fake.handles, 1);
	assert_int_equal(fake.full_syncs, 0);
	assert_int_equal(fake.events, 0);
}

/* A window of this context, a copy that another one's stream makes. */
static void who_copied_to_a_window_is_waited_for(void **state)
{
	CUdeviceptr kv = fake_window(8);
	CUcontext other = (CUcontext)0x2000, popped;

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	reveal(kv, HS_USE_KV);
	hs_driver.cuCtxPushCurrent_v2(other);
	hs_peer_note();
	hs_driver.cuCtxPopCurrent_v2(&popped);
	fake.busy_context = other;
	fake.endless = fake.busy = true;
	hs_memory_settle(false);
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	fake.endless = false;
	while (tail(kv) == HS_PLACE_DEVICE)
		hs_memory_settle(true);
	assert_int_equal(fake.unmapped_while_busy, 0);
	/* Nor is it asked once it is gone. */
	hs_memory_context_gone(other);
	fake.endless = true;
	kv = fake_window(8);
	reveal(kv, HS_USE_KV);
	hs_memory_settle(true);
	assert_int_equal(tail(kv), HS_PLACE_HOST);
}

static CUresult (*real_push)(CUcontext context);

static CUresult push_unless_gone(CUcontext context)
{
	return context == (CUcontext)0x2000 ? CUDA_ERROR_INVALID_CONTEXT : real_push(context);
}

/* As green contexts do, whose end nobody tells of. */
static void who_copied_and_has_gone_is_in_nobodys_way(void **state)
{
	CUdeviceptr kv = fake_window(8);
	CUcontext popped;

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	reveal(kv, HS_USE_KV);
	hs_driver.cuCtxPushCurrent_v2((CUcontext)0x2000);
	hs_peer_note();
	hs_driver.cuCtxPopCurrent_v2(&popped);
	real_push = hs_driver.cuCtxPushCurrent_v2;
	hs_driver.cuCtxPushCurrent_v2 = push_unless_gone;
	hs_memory_settle(true);
	assert_int_equal(tail(kv), HS_PLACE_HOST);
	assert_null(hs_peer_user(0));
}

/* A driver before 12.5: only calls that wait anyway may wait without an end. */
static void an_older_driver_moves_where_the_engine_waits(void **state)
{
	CUdeviceptr kv = fake_window(8);

	(void)state;
	hs_driver.cuCtxRecordEvent = NULL;
	fake.options.place = HS_OPTION_HOST;
	reveal(kv, HS_USE_KV);
	hs_memory_settle(false);
	assert_int_equal(fake.full_syncs, 0);
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	while (tail(kv) == HS_PLACE_DEVICE)
		hs_memory_settle(true);
	assert_int_equal(fake.full_syncs, 1);
}

static void nobody_inside_the_gate_moves_a_window(void **state)
{
	CUdeviceptr kv = fake_window(8);

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	reveal(kv, HS_USE_KV);
	hs_gate_enter();
	hs_memory_settle(true);
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	hs_gate_leave();
	hs_memory_settle(true);
	assert_int_equal(tail(kv), HS_PLACE_HOST);
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
	hs_memory_settle(true);
	assert_int_equal(tail(ptr), HS_PLACE_HOST);
	assert_int_equal(tail(written), HS_PLACE_HOST);
	assert_int_equal(nonzero(ptr + HS_GRANULE, 6 * MIB), 0);
	assert_int_equal(nonzero(written + HS_GRANULE, 6 * MIB), 6 * MIB / 512);
}

/* Registered memory has no reservation that parts could be mapped into. */
static void a_window_on_the_host_turns_into_parts(void **state)
{
	CUdeviceptr ptr = fake_window(8);

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	fake_fill(ptr, BYTES, 4);
	reveal(ptr, HS_USE_KV);
	hs_memory_settle(true);
	assert_int_equal(fake.registered, 1);
	/* Two layers: each begins with a granule of the device. */
	fake.extents[0] = (struct hs_extent){.base = ptr, .end = ptr + 4 * MIB};
	fake.extents[1] = (struct hs_extent){.base = ptr + 4 * MIB, .end = ptr + 8 * MIB};
	fake.layers = 2;
	for (int i = 0; i < 4; i++) { /* seen, still the same, to the device, out again */
		hs_memory_mark();
		hs_memory_settle(true);
	}
	assert_int_equal(fake_place(ptr), HS_PLACE_DEVICE);
	assert_int_equal(fake_place(ptr + 2 * MIB), HS_PLACE_HOST);
	assert_int_equal(fake_place(ptr + 4 * MIB), HS_PLACE_DEVICE);
	assert_int_equal(fake_place(ptr + 6 * MIB), HS_PLACE_HOST);
	assert_int_equal(fake.registered, 0);
	assert_int_equal(fake_wrong(ptr, BYTES, 4), 0);
	fake_free(ptr);
	assert_int_equal(fake.reservations + fake.handles + fake.mappings, 0);
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
	hs_memory_settle(true);
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
	hs_memory_settle(true);
	fake.no_addresses = false;
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	assert_int_equal(fake_wrong(kv, BYTES, 1), 0);
	assert_int_equal(fake.handles, 2);
	assert_int_equal(fake.host_used, 0);
	assert_int_equal(fake.lines, 1);
	/* That is no reason for others not to move. */
	kv = fake_window(16);
	reveal(kv, HS_USE_KV);
	hs_memory_settle(true);
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
		hs_memory_settle(true);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(tail(windows[i]), i < 3 ? HS_PLACE_HOST : HS_PLACE_DEVICE);
	assert_int_equal(fake.host_used, 18 * MIB);
	assert_int_equal(fake.lines, 0);
	fake_free(windows[0]);
	assert_int_equal(tail(windows[3]), HS_PLACE_DEVICE);
	hs_memory_mark();
	hs_memory_settle(true);
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
		cmocka_unit_test(a_device_that_never_idles_is_not_waited_for),
		cmocka_unit_test(who_copied_to_a_window_is_waited_for),
		cmocka_unit_test(who_copied_and_has_gone_is_in_nobodys_way),
		cmocka_unit_test(an_older_driver_moves_where_the_engine_waits),
		cmocka_unit_test(nobody_inside_the_gate_moves_a_window),
		cmocka_unit_test(windows_begin_on_the_host),
		cmocka_unit_test(virgins_are_not_copied),
		cmocka_unit_test(a_window_on_the_host_turns_into_parts),
		cmocka_unit_test(no_host_memory_is_said_once),
		cmocka_unit_test(no_second_address_keeps_the_window),
		cmocka_unit_test(the_pool_has_an_end),
		cmocka_unit_test(kv_outweighs_other),
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
