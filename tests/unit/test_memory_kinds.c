/* SPDX-License-Identifier: MIT */
/* Which kind of host memory windows get: the best one that there is, or that was asked
 * for. */
#include <string.h>
#include "memory_rig.h"

/* Not with this driver: registered memory is taken, now and from here on. `says`: in
 * the one line about it. */
static void falls_back(const char *says, int asked)
{
	CUdeviceptr ptr = ready(1), next;

	*fake.line = '\0';
	hs_memory_settle(true);
	assert_int_equal(tail(ptr), HS_PLACE_HOST);
	assert_int_equal(fake.registered, 1);
	assert_int_equal(fake.managed_count, 0);
	assert_int_equal(fake.host_used, REST);
	assert_int_equal(fake.reservations, 1);
	assert_false(hs_window_find(ptr)->any_order);
	assert_int_equal(fake_wrong(ptr, BYTES, 1), 0);
	assert_true(says ? strstr(fake.line, says) != NULL : !*fake.line);
	assert_int_equal(fake.managed_asked, asked);
	*fake.line = '\0';
	next = fake_window(8); /* begins on the host */
	assert_int_equal(fake.registered, 2);
	fake_free(next);
	drop(ptr);
	fake.options.place = HS_OPTION_AUTO;
	ptr = moved(3); /* goes there */
	assert_int_equal(fake.registered, 1);
	assert_int_equal(fake_wrong(ptr, BYTES, 3), 0);
	assert_int_equal(fake.managed_asked, asked);
	assert_string_equal(fake.line, "");
	assert_int_equal(fake.lines, 0);
	drop(ptr);
	none_is_left();
}

static void a_driver_that_does_not_ask_is_not_steered(void **state)
{
	(void)state;
	fake.managed_astray = 1000;
	falls_back("no managed memory", 17);
}

/* What it has left of earlier allocations it gives first, and gets back. */
static void the_drivers_stock_is_used_up(void **state)
{
	CUdeviceptr ptr = ready(1);

	(void)state;
	fake.managed_astray = 3;
	hs_memory_settle(true);
	assert_true(is_managed(ptr));
	assert_int_equal(fake.managed_asked, 4);
	assert_int_equal(fake.managed_count, 1);
	assert_int_equal(fake.host_used, REST);
	assert_int_equal(fake_wrong(ptr, BYTES, 1), 0);
	assert_int_equal(fake.lines, 0);
	fake_free(ptr);
	none_is_left();
}

/* The kernel gives others than it was asked for: this window is the driver's memory,
 * wherever it was, and the next one is managed again. */
static void taken_addresses_get_the_drivers_memory(void **state)
{
	CUdeviceptr first = ready(1), windows[2];

	(void)state;
	fake.keeps = true;
	hs_memory_settle(true);
	windows[0] = fake_window(8); /* begins on the host */
	fake.keeps = false;
	assert_int_equal(fake.managed_asked, 2);
	assert_int_equal(fake.managed_count + fake.registered, 0);
	assert_int_equal(tail(first), HS_PLACE_HOST);
	assert_int_equal(tail(windows[0]), HS_PLACE_HOST);
	assert_false(hs_window_find(first)->any_order);
	assert_false(hs_window_find(windows[0])->any_order);
	assert_int_equal(fake_wrong(first, BYTES, 1), 0);
	windows[1] = fake_window(8);
	assert_true(is_managed(windows[1]));
	assert_int_equal(fake.host_used, 3 * REST);
	assert_int_equal(fake.lines, 0);
	for (int i = 0; i < 2; i++)
		fake_free(windows[i]);
	fake_free(first);
	none_is_left();
}

/* Of a device that cannot, nothing is said. */
static void a_device_without_is_not_asked(void **state)
{
	(void)state;
	fake.managed = false;
	falls_back(NULL, 0);
}

static void a_driver_without_is_not_asked(void **state)
{
	(void)state;
	hs_driver.cuMemAdvise_v2 = NULL;
	falls_back("no managed memory", 0);
}

static void without_advice_it_is_not_taken(void **state)
{
	(void)state;
	fake.advice_refused = true;
	falls_back("no managed memory", 1);
}

static void an_old_kernel_has_none(void **state)
{
	(void)state;
	fake.managed_fixed = true;
	falls_back("no managed memory", 1);
}

/* The tenth call: mapped by no device. */
static void mapped_by_none_it_is_not_taken(void **state)
{
	CUdeviceptr ptr = ready(1);

	(void)state;
	fake.fail_after = 10;
	hs_memory_settle(true);
	fake.fail_after = 0;
	assert_int_equal(fake.advised, 1);
	assert_int_equal(fake.registered, 1);
	assert_int_equal(fake.managed_count, 0);
	assert_int_equal(fake_wrong(ptr, BYTES, 1), 0);
	assert_int_equal(fake.lines, 0);
}

/* No memory is no reason to try another kind of it. */
static void without_pages_it_stays(void **state)
{
	CUdeviceptr ptr = ready(1), next;

	(void)state;
	fake.managed_full = true;
	hs_memory_settle(true);
	assert_int_equal(tail(ptr), HS_PLACE_DEVICE);
	assert_int_equal(fake_wrong(ptr, BYTES, 1), 0);
	assert_int_equal(fake.host_used, 0);
	assert_int_equal(fake.device_used, BYTES);
	assert_false(hs_window_find(ptr)->any_order);
	assert_int_equal(fake.managed_asked, 1);
	assert_int_equal(fake.lines, 1);
	assert_non_null(strstr(fake.line, "HISPARSE_HOST_GIB"));
	next = fake_window(8);
	assert_int_equal(tail(next), HS_PLACE_DEVICE);
	hs_memory_mark();
	hs_memory_settle(true);
	assert_int_equal(fake.managed_asked, 1);
	assert_int_equal(fake.lines, 1);
	fake_free(next);
	fake_free(ptr);
	none_is_left();
}

/* The eighth call: none this time, which may pass. */
static void without_addresses_it_gets_the_drivers_memory(void **state)
{
	CUdeviceptr ptr = ready(1), next;

	(void)state;
	fake.fail_after = 8;
	hs_memory_settle(true);
	fake.fail_after = 0;
	assert_int_equal(tail(ptr), HS_PLACE_HOST);
	assert_int_equal(fake.managed_count + fake.registered, 0);
	assert_false(hs_window_find(ptr)->any_order);
	assert_int_equal(fake_wrong(ptr, BYTES, 1), 0);
	next = fake_window(8);
	assert_true(is_managed(next));
	assert_int_equal(fake.lines, 0);
	fake_free(next);
	fake_free(ptr);
	none_is_left();
}

/* The engine's allocation that would have begun there. */
static void without_pages_windows_begin_on_the_device(void **state)
{
	CUdeviceptr first = moved(1), next;

	(void)state;
	fake.managed_full = true;
	next = fake_window(8);
	assert_int_equal(fake.lines, 1);
	assert_non_null(strstr(fake.line, "HISPARSE_HOST_GIB"));
	assert_int_equal(fake.managed_count, 1);
	assert_int_equal(tail(next), HS_PLACE_DEVICE);
	assert_int_equal(fake_wrong(first, BYTES, 1), 0);
	assert_true(hs_window_find(first)->any_order);
	assert_false(hs_window_find(next)->any_order);
	fake_free(next);
	fake_free(first);
	none_is_left();
}

static void option_registered_takes_that(void **state)
{
	(void)state;
	fake.options.host_memory = HS_OPTION_REGISTERED;
	falls_back(NULL, 0);
}

static void option_driver_takes_that(void **state)
{
	CUdeviceptr ptr;

	(void)state;
	fake.options.host_memory = HS_OPTION_DRIVER;
	ptr = moved(1);
	assert_int_equal(tail(ptr), HS_PLACE_HOST);
	assert_int_equal(fake.managed_asked + fake.registered, 0);
	assert_int_equal(fake.handles, 2);
	assert_int_equal(fake.host_used, REST);
	assert_false(hs_window_find(ptr)->any_order);
	assert_int_equal(fake_wrong(ptr, BYTES, 1), 0);
	assert_int_equal(fake.lines, 0);
	fake_free(ptr);
	none_is_left();
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_driver_that_does_not_ask_is_not_steered),
		cmocka_unit_test(the_drivers_stock_is_used_up),
		cmocka_unit_test(taken_addresses_get_the_drivers_memory),
		cmocka_unit_test(a_device_without_is_not_asked),
		cmocka_unit_test(a_driver_without_is_not_asked),
		cmocka_unit_test(without_advice_it_is_not_taken),
		cmocka_unit_test(an_old_kernel_has_none),
		cmocka_unit_test(mapped_by_none_it_is_not_taken),
		cmocka_unit_test(without_pages_it_stays),
		cmocka_unit_test(without_addresses_it_gets_the_drivers_memory),
		cmocka_unit_test(without_pages_windows_begin_on_the_device),
		cmocka_unit_test(option_registered_takes_that),
		cmocka_unit_test(option_driver_takes_that),
	};

	if (!fake_populates())
		return 77;
	fake.managed = true;
	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
