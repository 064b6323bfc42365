/* SPDX-License-Identifier: MIT */
/* What an engine left free stays free once its KV is on the host, and the rest of the
 * device is for hot rows. */
#include <errno.h>
#include "fake_driver.h"
#include "src/memory/budget.h"
#include "src/memory/settle.h"
#include "src/memory/slack.h"
#include "src/memory/window.h"

#define LAYERS 8

/* An engine on 256 MiB of device and 512 of pool. It sizes its cache by what it was
 * told and uses `share` of that. */
struct engine {
	CUdeviceptr kv[LAYERS];
	size_t each; /* MiB */
	size_t told, device;
};

static size_t told(void)
{
	size_t left = 0;

	assert_int_equal(INSIDE(hs_memory_info(&left, NULL)), CUDA_SUCCESS);
	return left;
}

static size_t left(void)
{
	return fake.device_bytes - fake.device_used;
}

static void begin(struct engine *e, double share)
{
	fake.options.host_bytes = 512 * MIB;
	e->device = left();
	e->told = told();
	e->each = (size_t)(share * (double)e->told / LAYERS) / (2 * MIB) * 2;
	for (unsigned i = 0; i < LAYERS; i++) {
		e->kv[i] = fake_window(e->each);
		if (!e->kv[i]) /* as an engine's allocator does */
			e->kv[i] = fake_window(e->each);
		assert_int_not_equal(e->kv[i], 0);
		fake_fill(e->kv[i], e->each * MIB, i);
	}
}

static void reveal(struct engine *e)
{
	for (unsigned i = 0; i < LAYERS; i++)
		hs_window_reveal(hs_window_find(e->kv[i]), HS_USE_KV, 656);
	hs_memory_settle(true);
}

static unsigned away(const struct engine *e)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LAYERS; i++) {
		assert_int_equal(fake_wrong(e->kv[i], e->each * MIB, i), 0);
		n += hs_window_find(e->kv[i])->place == HS_PLACE_HOST;
	}
	return n;
}

/* As large a part of the device as what it left is of what it was told. */
static size_t slack_of(const struct engine *e)
{
	const size_t taken = LAYERS * e->each * MIB;

	return (size_t)((double)(e->told - taken) * (double)e->device / (double)e->told);
}

static void near(size_t a, size_t b)
{
	assert_true(a < b + MIB && b < a + MIB);
}

static void what_was_left_free_stays_free(void **state)
{
	struct engine e;
	unsigned before;

	(void)state;
	begin(&e, 0.55);
	before = away(&e);
	assert_true(before > 0 && before < LAYERS);
	assert_int_equal(hs_slack(0), SIZE_MAX); /* nothing is known to be KV */
	assert_true(left() < slack_of(&e));
	reveal(&e);
	near(hs_slack(0), slack_of(&e));
	/* The engine sees it, and our reserve is there besides. */
	assert_true(told() >= slack_of(&e) + hs_memory_reserve());
	assert_true(away(&e) > before);
	assert_int_equal(fake.lines, 0);
}

/* What it allocates afterwards was to come out of that. */
static void it_is_there_to_be_used(void **state)
{
	struct engine e;
	CUdeviceptr small[8];
	unsigned before;
	size_t slack, piece;

	(void)state;
	begin(&e, 0.55);
	reveal(&e);
	slack = hs_slack(0);
	piece = slack / 10 / (2 * MIB) * 2 * MIB;
	near(slack, slack_of(&e));
	before = away(&e);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(INSIDE(hs_memory_alloc(&small[i], piece)), CUDA_SUCCESS);
	hs_memory_mark();
	hs_memory_settle(true);
	near(hs_slack(0), slack - 8 * piece);
	assert_int_equal(away(&e), before);
	for (unsigned i = 0; i < 8; i++)
		fake_free(small[i]);
	hs_memory_mark();
	hs_memory_settle(true);
	near(hs_slack(0), slack);
	/* Hot rows take what lies beyond, and not it. */
	assert_true(hs_memory_reserve() <= left() - slack);
}

/* What a trial run needed, of which the allocator hoarded a part, is needed again: all of it. */
static void a_trial_run_is_free_for_the_next_one(void **state)
{
	CUdeviceptr trial[3];
	struct engine e;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		trial[i] = fake_window(20);
		hs_window_find(trial[i])->virgin = false;
	}
	for (unsigned i = 0; i < 3; i++)
		fake_free(trial[i]);
	begin(&e, 0.8);
	reveal(&e);
	assert_true(away(&e) > 0);
	assert_in_range(hs_slack(0), 78 * MIB, 95 * MIB);
	assert_true(left() >= hs_slack(0));
}

/* As long as all of it fits nothing is in anybody's way. */
static void what_fits_stays(void **state)
{
	struct engine e;

	(void)state;
	fake.wants = (struct hs_cache_wants){.bytes = 1024 * MIB, .most = 400 * MIB};
	begin(&e, 0.15);
	reveal(&e);
	assert_int_equal(away(&e), 0);
	assert_int_equal(hs_slack(0), SIZE_MAX);
}

/* Not more of it than these have use for, and what layers have counts. */
static void kv_makes_way_for_hot_rows(void **state)
{
	CUdeviceptr kv[LAYERS];
	unsigned before = 0, after = 0;

	(void)state;
	fake.options.host_bytes = 200 * MIB;
	told();
	for (unsigned i = 0; i < LAYERS; i++)
		kv[i] = fake_window(28);
	for (unsigned i = 0; i < LAYERS; i++) {
		fake_fill(kv[i], 28 * MIB, i);
		hs_window_reveal(hs_window_find(kv[i]), HS_USE_KV, 656);
	}
	hs_memory_settle(true);
	for (unsigned i = 0; i < LAYERS; i++)
		before += hs_window_find(kv[i])->place == HS_PLACE_HOST;
	/* As much as the KV itself: of no use. */
	fake.wants.most = hs_memory_reserve() + 25 * MIB;
	fake.wants.bytes = fake.wants.most + MIB;
	hs_memory_mark();
	hs_memory_settle(true);
	/* Nearly all of it is there already. */
	fake.wants.bytes = 1024 * MIB;
	fake.wants.has = 25 * MIB;
	hs_memory_mark();
	hs_memory_settle(true);
	for (unsigned i = 0; i < LAYERS; i++)
		after += hs_window_find(kv[i])->place == HS_PLACE_HOST;
	assert_int_equal(after, before);
	fake.wants.has = 0;
	hs_memory_mark();
	hs_memory_settle(true);
	for (unsigned i = after = 0; i < LAYERS; i++) {
		after += hs_window_find(kv[i])->place == HS_PLACE_HOST;
		assert_int_equal(fake_wrong(kv[i], 28 * MIB, i), 0);
	}
	assert_int_equal(after, before + 2);
	assert_true(hs_memory_reserve() * 7 / 8 >= fake.wants.most / 4 * 3);
}

/* No KV is left to make way. */
static void all_away(struct engine *e)
{
	begin(e, 0.6);
	fake.wants = (struct hs_cache_wants){.bytes = 4096 * MIB, .most = 1024 * MIB};
	reveal(e);
	assert_int_equal(away(e), LAYERS);
}

/* Where the engine needs more than that, hot rows make way, and come back smaller. */
static void hot_rows_give_way(void **state)
{
	struct engine e;
	CUdeviceptr more, again;
	size_t all, slack, bytes;

	(void)state;
	all_away(&e);
	all = hs_memory_reserve();
	hs_memory_lock();
	assert_true(hs_world_stop(true));
	assert_int_equal(hs_memory_hot(&fake.hot, e.kv[0], 656, all - 8 * MIB), 0);
	hs_world_start();
	hs_memory_unlock();
	/* For what would not fit then either they stay. */
	assert_int_equal(INSIDE(hs_memory_alloc(&more, 512 * MIB)), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(fake.stopped, 0);
	bytes = (left() + 4 * MIB) / (2 * MIB) * 2 * MIB;
	assert_int_equal(INSIDE(hs_memory_alloc(&more, bytes)), CUDA_SUCCESS);
	assert_int_equal(fake.stopped, 1);
	assert_int_equal(fake.hot, 0);
	/* It is to have an eighth more than that. */
	hs_memory_mark();
	hs_memory_settle(true);
	slack = hs_slack(0);
	near(slack, bytes / 8);
	assert_true(hs_memory_reserve() < all);
	assert_int_equal(
		INSIDE(hs_memory_alloc(&again, slack / (4 * MIB) * 4 * MIB)), CUDA_SUCCESS);
	assert_int_equal(fake.stopped, 1);
	fake_free(more);
	fake_free(again);
	hs_memory_mark();
	hs_memory_settle(true);
	near(hs_slack(0), bytes + bytes / 8);
}

/* HISPARSE_SLOTS asks for more than there is: that is granted while memory is free, and once
 * the engine ran out of it no more; but a list finds a place. */
static void rows_that_are_asked_for_leave_the_slack(void **state)
{
	struct engine e;
	CUdeviceptr hot, list;
	size_t all;

	(void)state;
	all_away(&e);
	all = hs_memory_reserve();
	hs_memory_lock();
	assert_true(hs_world_stop(true));
	assert_int_equal(hs_memory_hot(&hot, e.kv[0], 656, all - 4 * MIB), 0);
	assert_int_equal(hs_memory_hot(&list, e.kv[0], 656, 8 * MIB), 0);
	hs_memory_cold(list);
	hs_slack_short(0, hs_budget_used(), 0);
	assert_int_equal(hs_memory_hot(&list, e.kv[0], 656, 8 * MIB), -ENOMEM);
	hs_world_start();
	hs_memory_unlock();
	assert_int_equal(hs_memory_own(&list, 8 * MIB), 0);
	hs_memory_disown(list);
	hs_memory_cold(hot);
}

/* What made way for a while, of a cache that the device can hold, takes nothing along. */
static void a_spike_is_no_reason(void **state)
{
	struct engine e;
	CUdeviceptr spike;
	unsigned gone;

	(void)state;
	begin(&e, 0.2);
	reveal(&e);
	assert_int_equal(away(&e), 0);
	spike = fake_window(90);
	hs_window_find(spike)->virgin = false;
	gone = away(&e);
	assert_in_range(gone, 1, 3);
	hs_memory_mark();
	hs_memory_settle(true);
	assert_int_equal(away(&e), gone);
	assert_int_equal(hs_slack(0), SIZE_MAX);
}

static void nobody_moves_where_the_place_is_given(void **state)
{
	struct engine e;

	(void)state;
	fake.options.place = HS_OPTION_DEVICE;
	fake.wants = (struct hs_cache_wants){.bytes = 1024 * MIB, .most = 400 * MIB};
	begin(&e, 0.5);
	reveal(&e);
	assert_int_equal(away(&e), 0);
	assert_int_equal(hs_slack(0), SIZE_MAX);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_left_free_stays_free),
		cmocka_unit_test(it_is_there_to_be_used),
		cmocka_unit_test(a_trial_run_is_free_for_the_next_one),
		cmocka_unit_test(what_fits_stays),
		cmocka_unit_test(kv_makes_way_for_hot_rows),
		cmocka_unit_test(hot_rows_give_way),
		cmocka_unit_test(rows_that_are_asked_for_leave_the_slack),
		cmocka_unit_test(a_spike_is_no_reason),
		cmocka_unit_test(nobody_moves_where_the_place_is_given),
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
