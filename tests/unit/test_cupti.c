/* SPDX-License-Identifier: MIT */
/* Our side of CUPTI, on a library that does as the test says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <cupti.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "src/trace/cupti.h"
#include "tests/unit/fake_cupti.h"

static struct fake_cupti *fake;
static __typeof__(fake_deliver) *deliver;

static void test_not_loaded_before(void **state)
{
	size_t n = 9;

	(void)state;
	assert_null(dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD));
	assert_false(hs_cupti_on());
	assert_null(hs_cupti_take(&n));
	assert_int_equal(n, 0);
	hs_cupti_stop();
}

static void test_start(void **state)
{
	char why[160] = "";
	void *library;

	(void)state;
	assert_int_equal(hs_cupti_start(why), 0);
	assert_string_equal(why, "");
	assert_true(hs_cupti_on());
	assert_in_range(hs_cupti_ahead(), 122999000000ll, 123001000000ll);
	library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
	assert_non_null(library);
	fake = ((__typeof__(fake_cupti) *)dlsym(library, "fake_cupti"))();
	deliver = (__typeof__(fake_deliver) *)dlsym(library, "fake_deliver");
	/* Left free for a profiler that comes later. */
	assert_int_equal(fake->held, 0);
	assert_int_equal(fake->enabled, 1);
}

static void test_records(void **state)
{
	struct hs_cupti_kernel *kernels;
	char name[] = "kernel_a";
	size_t n;

	(void)state;
	deliver(0, 3, name);
	fake->dropped = 5;
	strcpy(name, "kernel_b");
	deliver(3, 2, name);
	memset(name, 'x', 3);
	kernels = hs_cupti_take(&n);
	assert_int_equal(n, 5);
	assert_string_equal(kernels[0].name, "kernel_a");
	assert_ptr_equal(kernels[0].name, kernels[2].name);
	assert_string_equal(kernels[4].name, "kernel_b");
	assert_int_equal(kernels[4].start, 1040);
	assert_int_equal(kernels[4].end, 1045);
	assert_int_equal(kernels[4].node, 101);
	assert_int_equal(kernels[4].graph, 3);
	assert_int_equal(kernels[4].stream, 7);
	assert_int_equal(kernels[4].device, 1);
	free(kernels);
	assert_int_equal(hs_cupti_lost(), 5);
	assert_null(hs_cupti_take(&n));
}

/* What waits in buffers that are not full comes when it is asked for. */
static void test_flush(void **state)
{
	const unsigned flushes = fake->flushes;
	size_t n;

	(void)state;
	fake->late = 3;
	assert_int_equal(hs_cupti_flush(true), 0);
	free(hs_cupti_take(&n));
	assert_int_equal(n, 3);
	assert_int_equal(hs_cupti_flush(true), 0);
	assert_int_equal(fake->flushes, flushes + 2);
	assert_int_equal(fake->forced, 0);
	assert_int_equal(fake->held, 0);
	assert_true(hs_cupti_on());
}

/* A buffer of somebody else's is theirs. */
static void test_foreign(void **state)
{
	static unsigned char buffer[4096];
	size_t n;

	(void)state;
	((__typeof__(fake_deliver_foreign) *)dlsym(dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD),
		"fake_deliver_foreign"))(buffer, sizeof(buffer));
	assert_null(hs_cupti_take(&n));
}

/* What the last flush brings counts, what comes after it does not. */
static void test_stop(void **state)
{
	struct hs_cupti_kernel *kernels;
	size_t n;

	(void)state;
	fake->late = 4;
	hs_cupti_stop();
	assert_int_equal(fake->held, 0);
	assert_int_equal(fake->enabled, 0);
	assert_int_equal(fake->forced, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
	kernels = hs_cupti_take(&n);
	assert_int_equal(n, 4);
	assert_string_equal(kernels[0].name, "late");
	free(kernels);
	deliver(0, 3, "later");
	assert_null(hs_cupti_take(&n));
}

static void test_again(void **state)
{
	char why[160];
	size_t n;

	(void)state;
	assert_int_equal(hs_cupti_start(why), 0);
	assert_int_equal(hs_cupti_lost(), 0);
	deliver(0, 1, "again");
	free(hs_cupti_take(&n));
	assert_int_equal(n, 1);
	hs_cupti_stop();
}

static void test_taken(void **state)
{
	char why[160];

	(void)state;
	fake->held = 1;
	assert_int_equal(hs_cupti_start(why), -EBUSY);
	assert_string_equal(why, "another profiler has CUPTI");
	assert_false(hs_cupti_on());
	assert_int_equal(fake->held, 1);
	assert_int_equal(fake->enabled, 0);
	fake->held = 0;
	fake->refuse = 1;
	assert_int_equal(hs_cupti_start(why), -EIO);
	assert_int_equal(fake->held, 0);
	fake->refuse = 0;
}

/* Another profiler came while we traced: it keeps what it enabled. */
static void test_taken_over(void **state)
{
	char why[160];

	(void)state;
	assert_int_equal(hs_cupti_start(why), 0);
	fake->held = 1;
	assert_int_equal(hs_cupti_flush(false), 0);
	deliver(0, 1, "ours");
	assert_int_equal(hs_cupti_flush(true), 0);
	assert_true(hs_cupti_on());
	assert_int_equal(hs_cupti_flush(true), -EBUSY);
	assert_false(hs_cupti_on());
	assert_int_equal(hs_cupti_flush(true), 0);
	hs_cupti_stop();
	assert_int_equal(fake->enabled, 1);
	assert_int_equal(fake->held, 1);
	fake->held = 0;
	fake->enabled = 0;
	/* The same between two flushes, at the end. */
	assert_int_equal(hs_cupti_start(why), 0);
	fake->held = 1;
	hs_cupti_stop();
	assert_false(hs_cupti_on());
	assert_int_equal(fake->enabled, 1);
	fake->held = 0;
}

/* The other one does not subscribe: nothing is delivered to us any more. */
static void test_overtaken(void **state)
{
	char why[160];

	(void)state;
	assert_int_equal(hs_cupti_start(why), 0);
	for (int i = 0; i < 30; i++) {
		/* A buffer that is never complete is asked for in the end. */
		fake->stuck = 1;
		assert_int_equal(hs_cupti_flush(true), 0);
	}
	fake->stuck = 0;
	for (int i = 0; i < 9; i++) {
		assert_int_equal(hs_cupti_flush(true), 0);
		assert_int_equal(hs_cupti_flush(false), 0);
	}
	for (int i = 0; i < 9 && hs_cupti_on(); i++)
		hs_cupti_flush(true);
	assert_false(hs_cupti_on());
	fake->enabled = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_not_loaded_before),
		cmocka_unit_test(test_start),
		cmocka_unit_test(test_records),
		cmocka_unit_test(test_flush),
		cmocka_unit_test(test_foreign),
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_taken_over),
		cmocka_unit_test(test_overtaken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
