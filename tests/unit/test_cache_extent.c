/* SPDX-License-Identifier: MIT */
/* Where layers end. */
#include "tests/unit/cache_rig.h"

#include "src/cache/layer.h"
#include "src/cache/many.h"

static void attend(const struct hs_list *l)
{
	struct hs_site site = rig_site(0);

	assert_int_equal(rig_attend(l, &site, 0, NULL), 0);
	rig_run();
}

/* What lies behind the rows is not KV once all of them are told of, and stays so. */
static void test_tail(void **s)
{
	int32_t list[2] = {RIG_SLOTS - 30, RIG_SLOTS - 1};
	struct hs_list l = rig_list(list, 1, 2);

	(void)s;
	rig_start(256, HS_POLICY_LRU, 0);
	assert_int_equal(rig.window.tail, 0);
	attend(&l);
	assert_int_equal(rig.hot, 2);
	hs_layer_told(rig.layer, RIG_SLOTS - 16);
	assert_int_equal(rig.window.tail, 0);
	hs_cache_settle();
	assert_int_equal(rig.window.tail, rig.base + (RIG_SLOTS - 16) * RIG_ROW);
	/* More of them are read in place: writers behind the rows were let go. */
	hs_layer_told(rig.layer, RIG_SLOTS);
	hs_cache_settle();
	assert_int_equal(rig.window.tail, rig.base + (RIG_SLOTS - 16) * RIG_ROW);
	assert_int_equal(rig_entry()->slots, RIG_SLOTS - 16);
	attend(&l);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig.hot, 3);
	/* A window of the same record that comes after it. */
	hs_cache_forget(&rig.window);
	rig.window.tail = 0;
	assert_ptr_equal(hs_layer_find(&rig.window, rig.base, RIG_ROW, true), rig.layer);
	hs_cache_settle();
	assert_int_equal(rig_entry()->slots, RIG_SLOTS);
	assert_int_equal(rig.window.tail, 0); /* nobody has told of it */
}

/* Layers that are left to themselves have no more than twice the hot rows of others,
 * whenever they came. */
static void test_shares(void **s)
{
	static struct hs_window other;
	const CUdeviceptr apart = 2 * HS_GRANULE;
	struct hs_layer *second;
	uint32_t alone;

	(void)s;
	hs_many_limits.rows_least = UINT32_MAX; /* no staging area */
	rig_start(256, HS_POLICY_LRU, 0);
	hs_cache_forget(&rig.window);
	rig.window.requested = 2 * HS_GRANULE;
	rig.options.slots = HS_AUTO;
	rig.reserve = 3 << 20;
	rig.shrinks = true;
	rig.used = 0;
	assert_ptr_equal(hs_layer_find(&rig.window, rig.base, RIG_ROW, true), rig.layer);
	hs_cache_settle();
	alone = rig_entry()[0].rows;
	assert_in_range(alone, 39936, 41984); /* seven eighths of the reserve, less the map */
	/* The next has nearly what is left, and that is not much less. */
	other.start = rig.window.start + apart;
	other.requested = other.bytes = apart;
	other.place = HS_PLACE_HOST;
	rig.reserve = 5 << 20;
	second = hs_layer_find(&other, rig.base + apart, RIG_ROW, true);
	assert_int_equal(hs_layer_id(second), 1);
	hs_cache_settle();
	assert_int_equal(rig_entry()[0].rows, alone);
	assert_in_range(rig_entry()[1].rows, alone / 2, alone - 1024);
	/* With less than that there would be less than half as many: both start anew. */
	hs_cache_forget(&other);
	rig.reserve = 4 << 20;
	assert_ptr_equal(hs_layer_find(&other, second->base, RIG_ROW, true), second);
	hs_cache_settle();
	assert_in_range(rig_entry()[0].rows, 20480, 28672);
	assert_in_range(rig_entry()[1].rows, rig_entry()[0].rows, rig_entry()[0].rows * 5 / 4);
	/* Nobody starts: nobody starts anew. */
	alone = rig_entry()[0].rows;
	rig.reserve = 12 << 20;
	hs_cache_settle();
	assert_int_equal(rig_entry()[0].rows, alone);
	/* With so much more for the next one they do. */
	hs_cache_forget(&other);
	assert_ptr_equal(hs_layer_find(&other, second->base, RIG_ROW, true), second);
	hs_cache_settle();
	assert_in_range(rig_entry()[0].rows, 2 * alone, 8 * alone);
	alone = rig_entry()[0].rows;
	/* Who was told how many has so many. */
	hs_cache_forget(&other);
	assert_ptr_equal(hs_layer_find(&other, second->base, RIG_ROW, true), second);
	rig.options.slots = 4096;
	hs_cache_settle();
	assert_int_equal(rig_entry()[0].rows, alone);
	assert_int_equal(rig_entry()[1].rows, 4096);
}

/* What layers with rows on the host have and would take. */
static void test_wants(void **s)
{
	const uint64_t row = RIG_ROW + 28;
	struct hs_cache_wants wants;
	uint64_t map, slots;

	(void)s;
	rig_start(256, HS_POLICY_LRU, 0);
	slots = rig.layer->slots;
	map = slots * sizeof(int32_t);
	rig.options.slots = 1024;
	wants = hs_cache_wants(0);
	assert_int_equal(wants.bytes, slots * RIG_ROW);
	assert_int_equal(wants.has, map + 256 * row);
	assert_int_equal(wants.most, map + 1024 * row);
	assert_int_equal(hs_cache_wants(1).most, 0);
	/* Left to itself: a row for every slot, as few as there are. */
	rig.options.slots = HS_AUTO;
	assert_int_equal(hs_cache_wants(0).most, map + slots * row);
	hs_cache_stop(1);
	assert_int_equal(hs_cache_wants(0).has, map + 256 * row);
	hs_cache_stop(0);
	assert_int_equal(hs_cache_wants(0).has, 0);
	assert_int_equal(rig_entry()->state, HS_ENTRY_OFF);
	hs_cache_settle();
	assert_int_equal(rig_entry()->state, HS_ENTRY_ON);
	rig.window.place = HS_PLACE_DEVICE;
	assert_int_equal(hs_cache_wants(0).most, 0);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tail),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_wants),
	};

	return rig_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
