/* SPDX-License-Identifier: MIT */
/* hs_memory_read: right, beside changes, and without the driver. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include "fake_driver.h"
#include "src/memory/arena.h"
#include "src/memory/window.h"

/* A driver whose every entry is NULL, meanwhile. */
static struct hs_memory_counts read_alone(void)
{
	struct hs_memory_counts counts;
	const __typeof__(hs_driver) driver = hs_driver;

	memset((void *)&hs_driver, 0, sizeof(hs_driver));
	hs_memory_read(&counts);
	memcpy((void *)&hs_driver, (const void *)&driver, sizeof(driver));
	return counts;
}

static void counts_are_those_of_the_windows(void **state)
{
	struct hs_memory_counts counts = read_alone();
	CUdeviceptr kv, other;

	(void)state;
	assert_int_equal(counts.windows[0] + counts.windows[1], 0);
	assert_int_equal(counts.window_bytes[0] + counts.window_bytes[1], 0);
	fake.options.place = HS_OPTION_HOST;
	kv = fake_window(8);
	other = fake_window(16);
	counts = read_alone();
	assert_int_equal(counts.windows[HS_PLACE_DEVICE], 2);
	assert_int_equal(counts.window_bytes[HS_PLACE_DEVICE], 24 * MIB);
	assert_int_equal(counts.pool_used, 0);
	assert_true(counts.pool > 0);
	assert_true(counts.reserve > 0);
	hs_window_reveal(hs_window_find(kv), HS_USE_KV, 656);
	hs_memory_settle(true);
	counts = read_alone();
	assert_int_equal(counts.windows[HS_PLACE_DEVICE], 1);
	assert_int_equal(counts.windows[HS_PLACE_HOST], 1);
	assert_int_equal(counts.window_bytes[HS_PLACE_DEVICE], 16 * MIB);
	assert_int_equal(counts.window_bytes[HS_PLACE_HOST], 8 * MIB);
	assert_int_equal(counts.pool_used, 8 * MIB - HS_GRANULE);
	fake_free(kv);
	fake_free(other);
	counts = read_alone();
	assert_int_equal(counts.windows[0] + counts.windows[1], 0);
	assert_int_equal(counts.pool_used, 0);
}

static void own_memory_is_counted(void **state)
{
	const uint64_t before = read_alone().own;
	CUdeviceptr own;

	(void)state;
	fake_window(8);
	assert_int_equal(hs_memory_own(&own, MIB), 0);
	assert_int_equal(read_alone().own, before + MIB);
	hs_memory_disown(own);
	assert_int_equal(read_alone().own, before);
}

static atomic_bool done;

/* 1 to 3 windows of 8 MiB, whenever one looks. */
static void *reader(void *data)
{
	struct hs_memory_counts counts;
	uint64_t n;

	(void)data;
	while (!atomic_load(&done)) {
		hs_memory_read(&counts);
		n = counts.windows[HS_PLACE_DEVICE];
		if (n < 1 || n > 3 || counts.window_bytes[HS_PLACE_DEVICE] != n * 8 * MIB)
			return (void *)"wrong";
	}
	return NULL;
}

static struct hs_holding *make(CUdeviceptr start)
{
	struct hs_holding *holding = hs_holding_take();

	holding->window.start = start;
	holding->window.bytes = 8 * MIB;
	hs_holding_publish(holding);
	return holding;
}

static void unmake(struct hs_holding *holding)
{
	hs_holding_withdraw(holding);
	hs_holding_drop(holding);
}

/* Records with nothing behind them: the table changes as fast as it can. */
static void counts_are_whole_beside_changes(void **state)
{
	pthread_t threads[2];
	void *wrong;

	(void)state;
	hs_memory_lock();
	make(HS_ARENA_BASE + 64 * MIB);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, reader, NULL);
	for (int i = 0; i < 1000000; i++) {
		struct hs_holding *below = make(HS_ARENA_BASE);
		struct hs_holding *above = make(HS_ARENA_BASE + 128 * MIB);

		unmake(below);
		unmake(above);
	}
	hs_memory_unlock();
	atomic_store(&done, true);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], &wrong);
		assert_null(wrong);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_are_those_of_the_windows),
		cmocka_unit_test(own_memory_is_counted),
		cmocka_unit_test(counts_are_whole_beside_changes),
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
