/* SPDX-License-Identifier: MIT */
/* Where hot areas lie, and what they are refused for. */
#include <errno.h>
#include "fake_driver.h"
#include "src/memory/arena.h"

static void hot_areas_are_congruent(void **state)
{
	static const uint32_t rows[] = {656, 1152, 576, 528, 584, 448};
	CUdeviceptr window = fake_window(8), hot[6], last = 0;
	const size_t used = fake.device_used, reserve = hs_memory_reserve();

	(void)state;
	for (int i = 0; i < 6; i++) {
		const CUdeviceptr base = window + (CUdeviceptr)i * 64 * rows[i];
		const size_t bytes = 1000 * (size_t)rows[i];

		assert_int_equal(hs_memory_hot(&hot[i], base, rows[i], bytes), 0);
		assert_int_equal((hot[i] - base) % rows[i], 0);
		assert_int_equal(hot[i] % 16, 0);
		assert_true((hot[i] - base) / rows[i] + 1000 < (CUdeviceptr)1 << 31);
		assert_true(hot[i] >= HS_ARENA_BASE + HS_ARENA_HOT && hot[i] >= last);
		last = hot[i] + bytes;
		fake_fill(hot[i], bytes, i);
		assert_int_equal(fake_place(hot[i] + bytes - 1), HS_PLACE_DEVICE);
	}
	for (int i = 0; i < 6; i++)
		assert_int_equal(fake_wrong(hot[i], 1000 * (size_t)rows[i], i), 0);
	for (int i = 0; i < 6; i++)
		hs_memory_cold(hot[i]);
	assert_int_equal(fake.device_used, used);
	assert_int_equal(fake.reservations, 1);
	assert_int_equal(hs_memory_reserve(), reserve);
	assert_int_equal(fake.outside, 0);
}

static void hot_areas_refuse(void **state)
{
	CUdeviceptr window = fake_window(8), hot = 0;
	const size_t reserve = hs_memory_reserve();

	(void)state;
	/* nearest under the thread sanitizer, whose areas begin 128 GiB above */
	assert_int_equal(hs_memory_hot(&hot, window, 48, 48 * 1000), -ERANGE);
	assert_int_equal(hs_memory_hot(&hot, window + 1, 656, 65600), -EINVAL);
	assert_int_equal(hs_memory_hot(&hot, 0x1000, 656, 65600), -EINVAL);
	assert_int_equal(hs_memory_hot(&hot, window, 0, 65600), -EINVAL);
	assert_int_equal(hs_memory_hot(&hot, window, 656, 250 * MIB), -ENOMEM);
	for (int step = 1; step < 4; step++) {
		fake.fail_after = step;
		assert_true(hs_memory_hot(&hot, window, 656, 65600) < 0);
		fake.fail_after = 0;
	}
	assert_int_equal(hot, 0);
	assert_int_equal(fake.reservations, 1);
	assert_int_equal(fake.handles, 2);
	assert_int_equal(hs_memory_reserve(), reserve);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(hot_areas_are_congruent),
		cmocka_unit_test(hot_areas_refuse),
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
