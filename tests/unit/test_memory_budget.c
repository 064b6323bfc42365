/* SPDX-License-Identifier: MIT */
/* What is told, what is kept back, what is ours, and how big the pool is. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fake_driver.h"
#include "src/memory/account.h"
#include "src/memory/arena.h"
#include "src/memory/copy.h"
#include "src/memory/pool.h"
#include "src/memory/settle.h"
#include "src/memory/window.h"

static size_t told(size_t *total)
{
	size_t left = 0;

	assert_int_equal(INSIDE(hs_memory_info(&left, total)), CUDA_SUCCESS);
	return left;
}

/* 32 MiB for lists and graphs of a device like this. */
static size_t story(size_t device, size_t host, size_t row)
{
	const size_t hot = row + 28, room = device - 32 * MIB;
	const size_t kv = room * 38 * (row + 132) / (38 * 136 + hot);
	const size_t all = (room + host) * 38 * (row + 132) / (38 * 136 + hot + 38 * row);

	return kv < all ? kv : all;
}

/* What is kept of that: hot rows and maps. */
static size_t kept(size_t told, size_t row)
{
	const size_t tokens = told / (row + 132);

	return 32 * MIB + tokens / 38 * (row + 28) + tokens * 4;
}

static void the_formula_holds(void **state)
{
	const size_t host = fake.options.host_bytes;
	size_t total = 0, bytes = 0, first, before;
	CUdeviceptr scratch, kv;

	(void)state;
	fake.device_used = 40 * MIB; /* somebody else's */
	first = told(&total);
	assert_int_equal(first, story(216 * MIB, host, 656));
	assert_int_equal(total, story(256 * MIB, host, 656));
	assert_int_equal(INSIDE(hs_memory_total(&bytes, 0)), CUDA_SUCCESS);
	assert_int_equal(bytes, total);
	assert_int_equal(INSIDE(hs_memory_info(NULL, NULL)), CUDA_SUCCESS);
	assert_int_equal(INSIDE(hs_memory_total(NULL, 0)), CUDA_ERROR_INVALID_VALUE);
	/* Device-bound now: a device byte is worth 5.1. */
	scratch = fake_window(140);
	assert_int_equal(told(NULL), story(76 * MIB, host, 656));
	assert_int_equal(told(NULL), 44 * MIB * 38 * 788 / (38 * 136 + 684));
	/* Never above the first, whatever comes free. */
	fake_free(scratch);
	assert_int_equal(told(NULL), first);
	fake.device_used = 0;
	assert_int_equal(told(NULL), first);
	/* Our own memory is the reserve's: the story does not change. */
	fake.device_used = 190 * MIB;
	before = told(NULL);
	assert_true(before < first);
	assert_int_equal(hs_memory_reserve(), kept(before, 656));
	assert_int_equal(hs_memory_own(&kv, 10 * MIB), 0);
	assert_int_equal(told(NULL), before);
	assert_int_equal(hs_memory_reserve(), kept(before, 656) - 10 * MIB);
	hs_memory_disown(kv);
	/* KV seen: the device as it is. */
	kv = fake_window(20);
	hs_window_reveal(hs_window_find(kv), HS_USE_KV, 656);
	assert_int_equal(told(&bytes), 256 * MIB - 210 * MIB);
	assert_int_equal(bytes, total);
	/* Its map is part of what was kept. */
	assert_int_equal(hs_memory_reserve(), kept(before, 656));
	fake_free(kv);
	assert_int_equal(hs_memory_reserve(), kept(before, 656));
}

/* More rows than were told, by an engine that was told how many to make. */
static void maps_beyond_what_was_told(void **state)
{
	const size_t rows = 128 * MIB / 64;
	CUdeviceptr kv;
	size_t before;

	(void)state;
	fake.options.host_bytes = 4 * MIB;
	kv = fake_window(128);
	before = kept(story(256 * MIB, 4 * MIB, 656), 656);
	assert_int_equal(hs_memory_reserve(), before);
	hs_window_reveal(hs_window_find(kv), HS_USE_KV, 64);
	assert_int_equal(
		hs_memory_reserve(), before - story(256 * MIB, 4 * MIB, 656) / 788 * 4 + rows * 4);
	fake_free(kv);
	assert_int_equal(hs_memory_reserve(), before);
}

/* The reserve is what KV will need, not what it would have needed. */
static void weights_make_the_reserve_smaller(void **state)
{
	CUdeviceptr weights[4];
	size_t before;

	(void)state;
	before = told(NULL);
	assert_int_equal(hs_memory_reserve(), kept(before, 656));
	for (int i = 0; i < 4; i++) {
		weights[i] = fake_window(40);
		assert_int_not_equal(weights[i], 0);
		hs_copy_wrote(weights[i], 40 * MIB, NULL, false);
	}
	assert_true(told(NULL) < before);
	assert_int_equal(hs_memory_reserve(), kept(story(96 * MIB, 256 * MIB, 656), 656));
	before = hs_memory_reserve();
	/* And what is zero may be KV: the reserve stays. */
	weights[0] = fake_window(30);
	hs_copy_filled(weights[0], 30 * MIB, NULL, false);
	assert_int_equal(hs_memory_reserve(), before);
	told(NULL);
	assert_int_equal(hs_memory_reserve(), before);
}

/* What a trial run took for a while, the engine will take again. */
static void what_came_and_went_comes_again(void **state)
{
	const size_t host = fake.options.host_bytes = 1024 * MIB;
	CUdeviceptr window, small;
	size_t first = told(NULL);

	(void)state;
	assert_int_equal(first, story(256 * MIB, host, 656));
	window = fake_window(30);
	hs_copy_wrote(window, 30 * MIB, NULL, false);
	fake.options.window_bytes = 1024 * MIB;
	assert_int_equal(INSIDE(hs_memory_alloc(&small, 20 * MIB)), CUDA_SUCCESS);
	assert_int_equal(told(NULL), story(206 * MIB, host, 656));
	fake_free(window);
	assert_int_equal(told(NULL), story(206 * MIB, host, 656) + 30 * MIB);
	fake_free(small);
	assert_int_equal(told(NULL), story(206 * MIB, host, 656) + 50 * MIB);
	assert_int_equal(hs_memory_reserve(), kept(story(206 * MIB, host, 656), 656));
}

/* An allocator hoards windows: of several the largest comes again, or half of all. */
static void hoarded_windows_do_not_all_come_again(void **state)
{
	const size_t host = fake.options.host_bytes = 1024 * MIB;
	CUdeviceptr window[4], small;

	(void)state;
	told(NULL);
	for (int i = 0; i < 2; i++) {
		window[i] = fake_window(60);
		hs_copy_wrote(window[i], 60 * MIB, NULL, false);
	}
	assert_int_equal(INSIDE(hs_memory_alloc(&small, 3 * MIB)), CUDA_SUCCESS);
	for (int i = 0; i < 2; i++)
		fake_free(window[i]);
	assert_int_equal(told(NULL), story(193 * MIB, host, 656) + 60 * MIB);
	for (int i = 0; i < 4; i++) {
		window[i] = fake_window(50);
		hs_copy_wrote(window[i], 50 * MIB, NULL, false);
	}
	for (int i = 0; i < 4; i++)
		fake_free(window[i]);
	assert_int_equal(told(NULL), story(153 * MIB, host, 656) + 100 * MIB);
	fake_free(small);
}

/* Hot rows of a given number for a given number of layers. */
static void rows_of_all_layers_are_promised(void **state)
{
	const size_t rows = 6 * (size_t)8192 * 684, room = 224 * MIB - rows;
	CUdeviceptr hot[6], window;
	size_t expected;

	(void)state;
	fake.options.host_bytes = 2048 * MIB;
	fake.options.slots = 8192;
	fake.options.layers = 6;
	expected = room * 788 / 136;
	assert_int_equal(told(NULL), expected);
	assert_int_equal(hs_memory_reserve(), 32 * MIB + rows + expected / 788 * 4);
	/* KV takes what is not promised, and a little more; every layer gets its rows. */
	window = fake_window(8);
	while (hs_window_find(window)->place == HS_PLACE_DEVICE) {
		hs_window_reveal(hs_window_find(window), HS_USE_KV, 656);
		window = fake_window(8);
	}
	for (int i = 0; i < 6; i++)
		assert_int_equal(hs_memory_hot(&hot[i], window, 656, (size_t)656 * 8192), 0);
	for (int i = 0; i < 6; i++)
		hs_memory_cold(hot[i]);
}

static void too_many_rows_leave_half_to_kv(void **state)
{
	(void)state;
	fake.options.host_bytes = 2048 * MIB;
	fake.options.slots = 1 << 30;
	fake.options.layers = 1024;
	assert_int_equal(told(NULL), 112 * MIB * 788 / 136);
}

/* KV that is on the device makes way for rows that were asked for. */
static void kv_makes_way_for_rows(void **state)
{
	CUdeviceptr kv[20], hot;
	int count = 0;

	(void)state;
	fake.options.host_bytes = 1024 * MIB;
	for (int i = 0; i < 20; i++) {
		kv[i] = fake_window(16);
		hs_window_reveal(hs_window_find(kv[i]), HS_USE_KV, 656);
		fake_fill(kv[i], 16 * MIB, i);
	}
	/* Not when windows may not move. */
	assert_int_equal(hs_memory_hot(&hot, kv[0], 656, 100 * MIB), -ENOMEM);
	hs_memory_lock();
	assert_true(hs_world_stop(true));
	assert_int_equal(hs_memory_hot(&hot, kv[0], 656, 100 * MIB), 0);
	hs_world_start();
	hs_memory_unlock();
	for (int i = 0; i < 20; i++) {
		count += hs_window_find(kv[i])->place == HS_PLACE_HOST;
		assert_int_equal(fake_wrong(kv[i], 16 * MIB, i), 0);
	}
	assert_true(count >= 10);
	hs_memory_cold(hot);
	assert_int_equal(fake.lines, 0);
}

static void a_wide_row_and_a_small_pool(void **state)
{
	(void)state;
	fake.options.row = 1152;
	fake.options.host_bytes = 900 * MIB;
	fake.device_used = 192 * MIB;
	assert_int_equal(told(NULL), 32 * MIB * 38 * 1284 / (38 * 136 + 1180));
	fake.device_used = 240 * MIB; /* only the reserve is left */
	assert_int_equal(told(NULL), 0);
	fake.device_used = 64 * MIB;
	assert_int_equal(told(NULL), 32 * MIB * 38 * 1284 / (38 * 136 + 1180));
}

static void a_small_device_keeps_an_eighth_for_lists(void **state)
{
	(void)state;
	fake.device_bytes = 48 * MIB;
	assert_int_equal(told(NULL), 42 * MIB * 38 * 788 / (38 * 136 + 684));
	assert_int_equal(
		hs_memory_reserve(), kept(42 * MIB * 38 * 788 / (38 * 136 + 684), 656) - 26 * MIB);
}

static void standing_aside_is_the_driver(void **state)
{
	size_t total = 0;
	CUdeviceptr ptr;

	(void)state;
	fake.options.host_bytes = 0;
	fake.device_used = 40 * MIB;
	assert_int_equal(told(&total), 216 * MIB);
	assert_int_equal(total, 256 * MIB);
	assert_int_equal(hs_memory_reserve(), 0);
	/* No reserve either. */
	assert_int_not_equal(ptr = fake_window(216), 0);
	assert_int_equal(told(&total), 0);
	fake_free(ptr);
	assert_int_equal(INSIDE(hs_memory_total(&total, 0)), CUDA_SUCCESS);
	assert_int_equal(total, 256 * MIB);
}

static void the_cap_holds(void **state)
{
	CUdeviceptr window, small, hot;
	size_t total = 0;

	(void)state;
	fake.options.gpu_bytes = 64 * MIB;
	fake.options.place = HS_OPTION_DEVICE;
	assert_int_equal(told(&total), 64 * MIB);
	assert_int_equal(total, 64 * MIB);
	window = fake_window(32);
	assert_int_equal(INSIDE(hs_memory_alloc(&small, 3 * MIB)), CUDA_SUCCESS);
	assert_int_equal(told(NULL), 29 * MIB);
	assert_int_equal(fake_window(30), 0);
	assert_int_equal(hs_memory_hot(&hot, window, 656, 8 * MIB - 656 * 16), 0);
	assert_int_equal(told(NULL), 21 * MIB);
	fake.options.window_bytes = 1024 * MIB;
	assert_int_equal(INSIDE(hs_memory_alloc(&small, 22 * MIB)), CUDA_ERROR_OUT_OF_MEMORY);
	fake_free(small);
	fake_free(window);
	hs_memory_cold(hot);
	assert_int_equal(told(NULL), 64 * MIB);
	assert_int_equal(fake.device_used, 0);
}

/* Many of them, in an order that the table does not like. */
static void what_the_driver_allocates_counts(void **state)
{
	enum { COUNT = 3000 };

	(void)state;
	fake.options.gpu_bytes = 64 * MIB;
	fake.options.place = HS_OPTION_DEVICE;
	for (uint64_t i = 1; i <= COUNT; i++) {
		assert_int_equal(hs_account_take(0, i), CUDA_SUCCESS);
		hs_account_keep(CUDA_SUCCESS, 0, HS_ACCOUNT_PTR(i << 21), i);
		assert_int_equal(hs_account_take(0, 1), CUDA_SUCCESS);
		hs_account_keep(CUDA_ERROR_UNKNOWN, 0, 0, 1);
	}
	assert_int_equal(told(NULL), 64 * MIB - COUNT * (COUNT + 1) / 2);
	hs_account_give(HS_ACCOUNT_HANDLE(1 << 21)); /* never heard of */
	for (uint64_t i = COUNT; i >= 2; i -= 2)
		hs_account_give(HS_ACCOUNT_PTR(i << 21));
	for (uint64_t i = 1; i < COUNT; i += 2) {
		hs_account_give(HS_ACCOUNT_PTR(i << 21));
		hs_account_give(HS_ACCOUNT_PTR(i << 21)); /* once only */
	}
	assert_int_equal(told(NULL), 64 * MIB);
	assert_int_equal(hs_account_take(0, 64 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(hs_account_take(0, 64 * MIB), CUDA_SUCCESS);
	assert_int_equal(fake_window(8), 0);
	hs_account_keep(CUDA_ERROR_UNKNOWN, 0, 0, 64 * MIB);
}

static void own_memory_is_zeroed_and_bounded(void **state)
{
	const size_t reserve = hs_memory_reserve();
	CUdeviceptr own = 0, more;

	(void)state;
	assert_int_equal(reserve, kept(story(256 * MIB, 256 * MIB, 656), 656));
	assert_int_equal(hs_memory_own(&own, 0), -EINVAL);
	assert_int_equal(hs_memory_own(&own, 10000), 0);
	for (size_t i = 0; i < 10000; i++)
		assert_int_equal(((unsigned char *)own)[i], 0);
	assert_int_equal(hs_memory_reserve(), reserve - 10000);
	/* Beyond the reserve: while a sixteenth of the device stays free. */
	assert_int_equal(hs_memory_own(&more, 100 * MIB), 0);
	assert_int_equal(hs_memory_reserve(), 0);
	more = 0;
	assert_int_equal(hs_memory_own(&more, 144 * MIB), -ENOMEM);
	assert_int_equal(more, 0);
	assert_int_equal(hs_memory_own(&more, 136 * MIB), 0);
	hs_memory_disown(own);
	hs_memory_disown(own); /* not ours any more */
	assert_int_equal(fake.driver_allocs, 2);
	assert_int_equal(fake.outside, 0);
}

static char root[] = "hs-pool-XXXXXX";

static void put(const char *path, const char *text)
{
	char whole[256];
	FILE *f;

	snprintf(whole, sizeof(whole), "%s%s", root, path);
	for (char *slash = whole + strlen(root); (slash = strchr(slash + 1, '/'));) {
		*slash = '\0';
		mkdir(whole, 0755);
		*slash = '/';
	}
	f = fopen(whole, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void the_pool_follows_the_machine(void **state)
{
	const uint64_t gib = 1ull << 30;

	(void)state;
	assert_non_null(mkdtemp(root));
	assert_int_equal(hs_pool_machine(root), 0);
	assert_int_equal(hs_pool_size(root, HS_AUTO, 1), 0);
	put("/proc/meminfo", "MemTotal:  104857600 kB\nMemFree: 1 kB\nMemAvailable: 83886080 kB\n");
	assert_int_equal(hs_pool_machine(root), 100 * gib);
	assert_int_equal(hs_pool_free(root), 80 * gib);
	assert_int_equal(hs_pool_size(root, HS_AUTO, 1), 70 * gib);
	assert_int_equal(hs_pool_size(root, HS_AUTO, 2), 35 * gib);
	assert_int_equal(hs_pool_size(root, 90 * gib, 2), 90 * gib);
	assert_int_equal(fake.lines, 0);
	assert_int_equal(hs_pool_size(root, 101 * gib, 2), 0);
	assert_int_equal(fake.lines, 1);
	assert_non_null(strstr(fake.line, "HISPARSE_HOST_GIB=70.0"));
	assert_non_null(strstr(fake.line, "101.0"));

	/* A limit above ours counts too. */
	put("/proc/self/cgroup", "0::/pod:1/box\n");
	put("/sys/fs/cgroup/pod:1/box/memory.max", "max\n");
	put("/sys/fs/cgroup/pod:1/memory.max", "42949672960\n");
	put("/sys/fs/cgroup/pod:1/memory.current", "10737418240\n");
	assert_int_equal(hs_pool_machine(root), 40 * gib);
	assert_int_equal(hs_pool_free(root), 30 * gib);
	put("/sys/fs/cgroup/memory.max", "21474836480\n");
	assert_int_equal(hs_pool_machine(root), 20 * gib);

	put("/proc/self/cgroup", "5:cpu:/\n4:memory:/\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	assert_int_equal(hs_pool_machine(root), 100 * gib);
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "10737418240\n");
	put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
	assert_int_equal(hs_pool_free(root), 9 * gib);

	assert_int_equal(hs_pool_gpus(root), 0);
	put("/proc/driver/nvidia/gpus/0000:01:00.0/information", "");
	put("/proc/driver/nvidia/gpus/0000:02:00.0/information", "");
	assert_int_equal(hs_pool_gpus(root), 2);
}

static int tear_down(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_formula_holds),
		cmocka_unit_test(maps_beyond_what_was_told),
		cmocka_unit_test(weights_make_the_reserve_smaller),
		cmocka_unit_test(what_came_and_went_comes_again),
		cmocka_unit_test(hoarded_windows_do_not_all_come_again),
		cmocka_unit_test(rows_of_all_layers_are_promised),
		cmocka_unit_test(too_many_rows_leave_half_to_kv),
		cmocka_unit_test(kv_makes_way_for_rows),
		cmocka_unit_test(a_wide_row_and_a_small_pool),
		cmocka_unit_test(a_small_device_keeps_an_eighth_for_lists),
		cmocka_unit_test(standing_aside_is_the_driver),
		cmocka_unit_test(the_cap_holds),
		cmocka_unit_test(what_the_driver_allocates_counts),
		cmocka_unit_test(own_memory_is_zeroed_and_bounded),
		cmocka_unit_test_teardown(the_pool_follows_the_machine, tear_down),
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
