/* SPDX-License-Identifier: MIT */
/* The gate under threads, and windows that move while others pass it. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "fake_driver.h"
#include "src/memory/capture.h"
#include "src/memory/gate.h"

static _Atomic int inside, go, passes, seen_moving;
static _Atomic bool moving;

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static void *pass(void *data)
{
	(void)data;
	while (atomic_load(&go)) {
		hs_gate_enter();
		atomic_fetch_add(&inside, 1);
		hs_gate_enter();
		if (atomic_load(&moving))
			atomic_fetch_add(&seen_moving, 1);
		hs_gate_leave();
		atomic_fetch_sub(&inside, 1);
		hs_gate_leave();
		atomic_fetch_add(&passes, 1);
	}
	return NULL;
}

static void nobody_is_inside_while_it_is_closed(void **state)
{
	pthread_t threads[4];
	int closed = 0, before;

	(void)state;
	atomic_store(&go, 1);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, pass, NULL);
	for (int i = 0; i < 200; i++) {
		if (!hs_gate_close())
			continue;
		closed++;
		atomic_store(&moving, true);
		assert_int_equal(atomic_load(&inside), 0);
		before = atomic_load(&passes);
		nap();
		assert_in_range(atomic_load(&passes) - before, 0, 4); /* between leave and count */
		assert_false(hs_gate_close());
		atomic_store(&moving, false);
		hs_gate_open();
		before = atomic_load(&passes);
		while (atomic_load(&passes) - before < 8)
			nap();
	}
	atomic_store(&go, 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(closed, 200);
	assert_int_equal(atomic_load(&seen_moving), 0);
}

static void one_who_stays_inside_is_not_waited_for_forever(void **state)
{
	(void)state;
	hs_gate_enter();
	assert_false(hs_gate_close());
	hs_gate_leave();
	assert_true(hs_gate_close());
	hs_gate_open();
}

static void *stay(void *data)
{
	hs_gate_enter();
	atomic_store((_Atomic int *)data, 1);
	while (atomic_load(&go))
		nap();
	hs_gate_leave();
	return NULL;
}

static void patience_ends(void **state)
{
	static _Atomic int there;
	pthread_t thread;

	(void)state;
	atomic_store(&go, 1);
	pthread_create(&thread, NULL, stay, &there);
	while (!atomic_load(&there))
		nap();
	assert_false(hs_gate_close());
	/* It is open again: others pass. */
	hs_gate_enter();
	hs_gate_leave();
	atomic_store(&go, 0);
	pthread_join(thread, NULL);
	assert_true(hs_gate_close());
	hs_gate_open();
}

static void *begin(void *data)
{
	hs_capture_began();
	atomic_store((_Atomic int *)data, 1);
	return NULL;
}

static void captures_wait_for_the_gate(void **state)
{
	static _Atomic int began;
	pthread_t thread;

	(void)state;
	assert_true(hs_gate_close());
	pthread_create(&thread, NULL, begin, &began);
	for (int i = 0; i < 20; i++)
		nap();
	assert_int_equal(atomic_load(&began), 0);
	assert_int_equal(hs_capture_count(), 0);
	hs_gate_open();
	pthread_join(thread, NULL);
	assert_int_equal(hs_capture_count(), 1);
	hs_capture_failed();
	assert_int_equal(hs_capture_count(), 0);
}

static CUdeviceptr window;
static _Atomic int wrong;

/* A launch: what it reads through the window is always there. */
static void *use(void *data)
{
	(void)data;
	while (atomic_load(&go)) {
		hs_gate_enter();
		atomic_fetch_add(&wrong, fake_wrong(window, 8 * MIB, 3) != 0);
		hs_gate_leave();
	}
	return NULL;
}

static void windows_move_between_launches(void **state)
{
	pthread_t threads[2];
	struct hs_window *w;

	(void)state;
	window = fake_window(8);
	w = hs_window_find(window);
	fake_fill(window, 8 * MIB, 3);
	fake.options.place = HS_OPTION_HOST;
	atomic_store(&go, 1);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, use, NULL);
	for (int i = 0; i < 40; i++) {
		const enum hs_place before = atomic_load(&w->place);

		atomic_store(&w->use, i % 2 ? HS_USE_OTHER : HS_USE_KV);
		while ((int)before == atomic_load(&w->place)) {
			hs_memory_mark();
			hs_memory_settle(true);
		}
	}
	atomic_store(&go, 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&wrong), 0);
	assert_int_equal(w->place, HS_PLACE_DEVICE);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_is_inside_while_it_is_closed),
		cmocka_unit_test(one_who_stays_inside_is_not_waited_for_forever),
		cmocka_unit_test(patience_ends),
		cmocka_unit_test(captures_wait_for_the_gate),
		cmocka_unit_test(windows_move_between_launches),
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
