/* SPDX-License-Identifier: MIT */
/* Where layers end. */
#include "tests/unit/cache_rig.h"

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
	assert_int_equal(rig.window.tail, 0); /* nothing is left */
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tail),
	};

	return rig_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
