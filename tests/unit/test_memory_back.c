/* SPDX-License-Identifier: MIT */
/* The way back to the device, and windows in ranges that become one piece. */
#include "fake_driver.h"
#include "src/memory/budget.h"
#include "src/memory/place.h"

#define BYTES (8 * MIB)

static enum hs_place tail(CUdeviceptr ptr)
{
	return fake_place(ptr + HS_GRANULE);
}

static void reveal(CUdeviceptr ptr, enum hs_use use)
{
	hs_window_reveal(hs_window_find(ptr), use, use == HS_USE_KV ? 656 : 0);
}

/* What must not be on the host has the device, and rows make way for it. */
static void kv_makes_way_for_what_is_not(void **state)
{
	CUdeviceptr zeroed = fake_window(60), full = fake_window(140), kv;

	(void)state;
	reveal(full, HS_USE_OTHER);
	kv = fake_window(56);
	assert_int_equal(tail(zeroed), HS_PLACE_HOST);
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	fake_fill(zeroed, 60 * MIB, 1);
	fake_fill(kv, 56 * MIB, 2);
	reveal(kv, HS_USE_KV);
	reveal(zeroed, HS_USE_OTHER);
	hs_memory_settle(true);
	assert_int_equal(tail(kv), HS_PLACE_HOST);
	assert_int_equal(tail(zeroed), HS_PLACE_DEVICE);
	assert_int_equal(fake_wrong(kv, 56 * MIB, 2), 0);
	assert_int_equal(fake_wrong(zeroed, 60 * MIB, 1), 0);
	assert_int_equal(fake.lines, 0);
}

/* When there is room again, and nothing had to go for a while. */
static void kv_comes_back(void **state)
{
	CUdeviceptr kv = fake_window(48), other = fake_window(120), more;

	(void)state;
	hs_place_calm_ns = 0;
	fake_fill(kv, 48 * MIB, 1);
	reveal(kv, HS_USE_KV);
	reveal(other, HS_USE_OTHER);
	more = fake_window(60);
	assert_int_equal(tail(kv), HS_PLACE_HOST);
	hs_memory_settle(true);
	assert_int_equal(tail(kv), HS_PLACE_HOST); /* no room */
	fake_free(more);
	hs_memory_settle(true);
	assert_int_equal(tail(kv), HS_PLACE_DEVICE);
	assert_int_equal(fake_wrong(kv, 48 * MIB, 1), 0);
	assert_int_equal(fake.host_used, 0);
	/* And out again, where it stays while it is not calm. */
	hs_place_calm_ns = 3600000000000ll;
	more = fake_window(60);
	assert_int_equal(tail(kv), HS_PLACE_HOST);
	fake_free(more);
	hs_memory_mark();
	hs_memory_settle(true);
	assert_int_equal(tail(kv), HS_PLACE_HOST);
	assert_int_equal(fake_wrong(kv, 48 * MIB, 1), 0);
}

/* A large window is made of ranges on the device, and of one piece on the host. */
static void ranges_become_one_piece(void **state)
{
	CUdeviceptr ptr, other;
	size_t left;
	int step;

	(void)state;
	hs_place_calm_ns = 0;
	assert_int_equal(INSIDE(hs_memory_info(&left, NULL)), CUDA_SUCCESS);
	/* Of what is done for 49 granules alike, every seventh: each step fills the window. */
	for (step = 1;; step += step > 7 && step < 140 ? 7 : 1) {
		ptr = fake_window(100);
		assert_true(fake.handles > 40);
		fake_fill(ptr, 100 * MIB, step);
		other = fake_window(60);
		reveal(other, HS_USE_OTHER);
		hs_window_find(ptr)->use = HS_USE_KV;
		fake.options.window_bytes = 1024 * MIB;
		/* wait, 49 times unmap, map + access, the first granule: unmap, map +
		 * access, (register, pointer: see above), copy, wait */
		fake.fail_after = step <= 155 ? step : 0;
		hs_inside++;
		hs_memory_spare(90 * MIB);
		hs_inside--;
		fake.fail_after = 0;
		fake.options.window_bytes = 4 * MIB;
		assert_int_equal(fake_wrong(ptr, 100 * MIB, step), 0);
		if (fake.registered)
			break;
		hs_window_find(ptr)->use = HS_USE_OTHER; /* so that the size is not learnt */
		fake_free(ptr);
		fake_free(other);
		assert_int_equal(fake.reservations + fake.handles + fake.mappings, 0);
		fake.lines = 0;
		if (step == 151)
			step += 2;
	}
	assert_int_equal(hs_window_find(ptr)->place, HS_PLACE_HOST);
	assert_int_equal(fake.host_used, 98 * MIB);
	assert_int_equal(fake_place(ptr), HS_PLACE_DEVICE);
	fake_free(other);
	hs_memory_settle(true);
	assert_int_equal(tail(ptr), HS_PLACE_DEVICE);
	assert_int_equal(fake_wrong(ptr, 100 * MIB, step), 0);
	fake_free(ptr);
	assert_int_equal(fake.reservations + fake.handles + fake.mappings + fake.registered, 0);
}

/* A pool that is full now has room another time; so has the device. */
static void what_could_not_move_is_tried_again(void **state)
{
	CUdeviceptr ptr;

	(void)state;
	fake.options.place = HS_OPTION_HOST;
	fake.options.host_bytes = 10 * MIB;
	ptr = fake_window(8);
	fake_fill(ptr, BYTES, 1);
	fake.extents[0] = (struct hs_extent){.base = ptr, .end = ptr + 4 * MIB};
	fake.extents[1] = (struct hs_extent){.base = ptr + 4 * MIB, .end = ptr + 8 * MIB};
	fake.layers = 2;
	reveal(ptr, HS_USE_KV);
	fake.fail_after = 3; /* the device's part: a granule of the second layer */
	hs_memory_settle(true);
	fake.fail_after = 0;
	assert_int_equal(tail(ptr), HS_PLACE_DEVICE);
	assert_true(hs_budget_take(HS_PLACE_HOST, 0, 6 * MIB));
	hs_memory_mark();
	hs_memory_settle(true);
	assert_int_equal(tail(ptr), HS_PLACE_DEVICE);
	hs_budget_give(HS_PLACE_HOST, 0, 6 * MIB);
	hs_memory_mark();
	hs_memory_settle(true);
	assert_int_equal(tail(ptr), HS_PLACE_HOST);
	assert_int_equal(fake_wrong(ptr, BYTES, 1), 0);
	assert_int_equal(fake.lines, 0);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(kv_makes_way_for_what_is_not),
		cmocka_unit_test(kv_comes_back),
		cmocka_unit_test(ranges_become_one_piece),
		cmocka_unit_test(what_could_not_move_is_tried_again),
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
