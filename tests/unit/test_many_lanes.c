/* SPDX-License-Identifier: MIT */
/* Lists of many entries: whose the staging area is, what goes wrong, and other
 * lanes that take hot rows meanwhile. */
#include "tests/unit/cache_rig.h"

#include "src/cache/device.h"
#include "src/cache/many.h"

enum { OUTER = 32, K = 96, HOT = 256, OTHERS = 192 };

static int32_t entries[OUTER * K];
static uint32_t state = 4711;

static uint32_t pick(uint32_t n)
{
	state = state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(state >> 4) * n >> 28);
}

static void start_with(uint32_t rows, uint64_t seed)
{
	hs_many_limits = (struct hs_many_limits){1000, 1, rows};
	rig.reserve = (size_t)32 << 20;
	rig_start(HOT, HS_POLICY_LRU, seed);
}

static void start(uint64_t seed)
{
	start_with(RIG_SLOTS, seed);
}

/* Entries from [low, high), all of which are there. */
static struct hs_list list_of(uint32_t low, uint32_t high)
{
	for (uint32_t i = 0; i < OUTER * K; i++)
		entries[i] = (int32_t)(low + (i < high - low ? i : pick(high - low)));
	return rig_list(entries, OUTER, K);
}

static uint64_t staged(void)
{
	return rig_entry()->totals[HS_COUNT_STAGED];
}

/* Launches the list on the site; how many rows that staged. */
static uint64_t staged_by(const struct hs_list *list, const struct hs_site *site)
{
	const uint64_t before = staged();

	assert_int_equal(rig_attend(list, site, 0, NULL), 0);
	rig_run();
	assert_int_equal(rig.wrong, 0);
	return staged() - before;
}

static void test_one_lane(void **s)
{
	struct hs_site first, second;
	struct hs_list list;
	int marked;

	(void)s;
	start(0);
	first = rig_site(0);
	second = rig_site(1);
	list = list_of(300, 400);
	assert_int_equal(staged_by(&list, &first), 100);
	marked = rig.marked;
	assert_int_equal(staged_by(&list, &second), 0);
	assert_true(rig.marked > marked);
	list = list_of(600, 700);
	assert_int_equal(staged_by(&list, &first), 100);
	/* After a safe moment it is whoever's comes first. */
	hs_cache_settle();
	list = list_of(800, 900);
	assert_int_equal(staged_by(&list, &second), 100);
	assert_int_equal(staged_by(&list, &first), 0);
}

/* Once its gather is over, a launch keeps no hot row from being taken. */
static void test_lets_go(void **s)
{
	struct hs_site first, second;
	struct hs_list list, small;
	struct hs_cache_counts c;
	int32_t slots[K];

	(void)s;
	start(0);
	first = rig_site(0);
	second = rig_site(1);
	list = list_of(300, 400);
	assert_int_equal(staged_by(&list, &first), 100);
	for (int n = 0; n < 8; n++) {
		for (int i = 0; i < K; i++)
			slots[i] = RIG_FIRST + n * K + i;
		small = rig_list(slots, 1, K);
		assert_int_equal(rig_attend(&small, &second, 0, NULL), 0);
		rig_run();
	}
	rig_counts(&c);
	assert_true(c.evictions > 4 * K);
	assert_int_equal(rig.wrong, 0);
}

/* One lane prefills, its unions made hot, while another one decodes all over the layer and
 * a third writes: each read what was there. */
static void come_and_go(uint64_t seed)
{
	struct hs_site prefill, decode, writer;
	struct hs_list list, small[5];
	int32_t slots[5][K];
	int64_t written[8];

	hs_many_limits = (struct hs_many_limits){1000, 1, RIG_SLOTS};
	rig.reserve = (size_t)32 << 20;
	rig_start(HOT, HS_POLICY_LRU, seed);
	state = (uint32_t)seed * 7919;
	prefill = rig_site(0);
	decode = rig_site(1);
	writer = rig_site(2);
	for (uint32_t n = 0; n < 60; n++) {
		const uint32_t low = RIG_FIRST + pick(RIG_SLOTS - RIG_FIRST - 130);

		list = list_of(low, low + 20 + pick(44));
		for (int j = 0; j < 5; j++) {
			for (int i = 0; i < K; i++)
				slots[j][i] = (int32_t)(RIG_FIRST + pick(RIG_SLOTS - RIG_FIRST));
			small[j] = rig_list(slots[j], 1, K);
		}
		assert_int_equal(rig_attend(&list, &prefill, pick(20000), NULL), 0);
		for (int j = 0; j < 5; j++)
			assert_int_equal(rig_attend(&small[j], &decode, pick(20), NULL), 0);
		rig_run();
		for (int i = 0; i < 8; i++)
			written[i] = (int64_t)(low + (uint32_t)i);
		if (n % 4 == 0)
			rig_write(written, 8, n + 500, &writer);
		rig_run();
	}
}

static void test_in_flight(void **s)
{
	const uint64_t *totals;

	(void)s;
	come_and_go(8);
	totals = rig_entry()->totals;
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig_faults(), 0);
	assert_true(totals[HS_COUNT_EVICTIONS] > 4000);
	assert_true(totals[HS_COUNT_HITS] > 2000);
}

/* The same with eviction that does not look at the lanes: some seeds show it. */
static void test_in_flight_planted(void **s)
{
	(void)s;
	hs_plant = HS_PLANT_FLIGHT;
	assert_true(rig_shown(come_and_go, 8, 16));
}

static void test_captured(void **s)
{
	struct hs_site site;
	struct hs_list list;

	(void)s;
	start(0);
	site = rig_capture(0, 0);
	list = list_of(300, 400);
	assert_int_equal(rig_attend(&list, &site, 0, NULL), 0);
	rig_capture_end(&site);
	rig_replay(0, 2);
	rig_run();
	assert_int_equal(rig.wrong, 0);
	assert_true(rig.hot > 1000);
	assert_int_equal(staged(), 0);
	assert_int_equal(rig_faults(), 0);
}

static void test_short(void **s)
{
	struct hs_site site;
	struct hs_list list;

	(void)s;
	start(0);
	site = rig_site(0);
	list = list_of(300, 400);
	list.outer = 10; /* 960 entries */
	assert_int_equal(staged_by(&list, &site), 0);
}

/* Unions that do not fit, while the hot buffer is larger: the ordinary way, but
 * for a try now and then; and back when they fit. */
static void test_overflow(void **s)
{
	struct hs_site site;
	struct hs_list list;
	int tries = 0;

	(void)s;
	start_with(100, 0);
	site = rig_site(0);
	list = list_of(300, 450);
	assert_int_equal(staged_by(&list, &site), 100);
	assert_int_equal(rig_entry()->totals[HS_COUNT_UNSTAGED], 50);
	for (int n = 0; n < 64; n++)
		tries += staged_by(&list, &site) > 0 ||
			 rig_entry()->totals[HS_COUNT_UNSTAGED] > 50 + 50 * (uint64_t)tries;
	assert_int_equal(tries, 2);
	list = list_of(800, 900);
	for (int n = 0; n < 32 && !staged_by(&list, &site); n++)
		hs_cache_wrote(&rig.window, 0, 0, &site);
	hs_cache_wrote(&rig.window, 0, 0, &site);
	assert_int_equal(staged_by(&list, &site), 100);
	assert_int_equal(staged_by(&list, &site), 100);
}

/* Each of the five kernels fails once. */
static void test_broken(void **s)
{
	struct hs_site site;
	struct hs_list list;
	CUdeviceptr out;

	(void)s;
	start(0);
	site = rig_site(0);
	for (int n = 1; n <= 5; n++) {
		list = list_of(500, 600);
		hs_cache_settle(); /* nothing is owed that would be launched first */
		rig.fail_launch = n;
		/* The launch goes on with the engine's own list. */
		assert_int_not_equal(rig_attend(&list, &site, 0, &out), 0);
		assert_int_equal(out, list.indices);
		rig_run();
		assert_int_equal(rig.wrong, 0);
		/* The ordinary way for now, and from a safe moment on as if nothing had
		 * been: what was marked is not. */
		assert_int_equal(staged_by(&list, &site), 0);
		hs_cache_settle();
		hs_cache_wrote(&rig.window, 0, 0, &site);
		rig_run();
		list = list_of(100 * (uint32_t)n, 100 * (uint32_t)n + 70);
		assert_int_equal(staged_by(&list, &site), 70);
	}
	assert_int_equal(rig_faults(), 0);
}

static CUresult no_event(CUevent *event, unsigned flags)
{
	(void)event, (void)flags;
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Where a list of stored rows cannot be dropped all rows are. Where those cannot there
 * are no hot rows from the next safe moment on, instead of stale ones. */
static void test_broken_drops(void **s)
{
	const struct hs_slots written = {.slots = (CUdeviceptr)1, .count = 1, .width = 8};
	struct hs_site site;
	struct hs_list list;
	int marked;

	(void)s;
	start(0);
	site = rig_site(0);
	list = list_of(500, 550);
	list.outer = 1; /* a short one */
	list.k = 50;
	hs_driver.cuEventCreate = no_event;
	for (int listed = 0; listed < 2; listed++) {
		assert_int_equal(rig_attend(&list, &site, 0, NULL), 0);
		rig_run();
		for (uint32_t i = 500; i < 550; i++)
			rig_fill(i, 5 + (unsigned)listed);
		marked = rig.marked;
		rig.fail_launch = 1;
		if (listed) {
			hs_cache_written(rig.layer, &written, &site);
		} else {
			hs_cache_wrote(&rig.window, rig.window.start, 0, &site);
			assert_true(rig.marked > marked);
			hs_cache_settle();
		}
		assert_int_equal(rig.fail_launch, 0);
		assert_int_equal(rig_attend(&list, &site, 0, NULL), 0);
		rig_run();
		assert_int_equal(rig.wrong, 0);
		rig.window.unseen = false;
		hs_cache_settle();
	}
}

static CUcontext current;
static CUdevice other_device;

static CUresult other_context(CUstream stream, CUcontext *context)
{
	(void)stream;
	*context = (CUcontext)(uintptr_t)2;
	return CUDA_SUCCESS;
}

static CUresult push_current(CUcontext context)
{
	current = context;
	return CUDA_SUCCESS;
}

static CUresult pop_current(CUcontext *context)
{
	*context = current;
	current = NULL;
	return CUDA_SUCCESS;
}

static CUresult current_device(CUdevice *device)
{
	*device = current == (CUcontext)(uintptr_t)2 ? other_device : 0;
	return CUDA_SUCCESS;
}

/* A stream of a green context is the device's all the same, one of another device's
 * context is not. */
static void test_other_context(void **s)
{
	struct hs_site site;
	struct hs_list list;
	CUdeviceptr out;

	(void)s;
	start(0);
	site = rig_site(3);
	list = list_of(500, 600);
	hs_driver.cuStreamGetCtx = other_context;
	hs_driver.cuCtxPushCurrent_v2 = push_current;
	hs_driver.cuCtxPopCurrent_v2 = pop_current;
	hs_driver.cuCtxGetDevice = current_device;
	assert_int_equal(rig_attend(&list, &site, 0, &out), 0);
	assert_int_not_equal(out, list.indices);
	rig_run();
	assert_int_equal(rig.wrong, 0);
	other_device = 1;
	assert_int_not_equal(rig_attend(&list, &site, 0, &out), 0);
	assert_int_equal(out, list.indices);
	assert_null(current);
}

/* No memory for the area, for its marks, or no room below the limits. */
static void without(int own, int hot, size_t reserve)
{
	struct hs_site site;
	struct hs_list list;
	int32_t index;

	hs_many_limits = (struct hs_many_limits){1000, 64, RIG_SLOTS};
	rig.reserve = reserve;
	rig.fail_own = own;
	rig.fail_hot = hot;
	rig_start(HOT, HS_POLICY_LRU, 0);
	assert_int_equal(hs_many_room(rig.layer, &index), 0);
	site = rig_site(0);
	list = list_of(300, 400);
	assert_int_equal(staged_by(&list, &site), 0);
	assert_true(rig.hot > 1000);
	assert_int_equal(rig_faults(), 0);
}

static void test_no_slots(void **s)
{
	(void)s;
	without(3, 0, 0); /* behind the layer table and a pool of lists */
}

static void test_no_marks(void **s)
{
	(void)s;
	without(4, 0, 0);
}

static void test_no_area(void **s)
{
	(void)s;
	without(0, 1, 0);
}

static void test_small_reserve(void **s)
{
	(void)s;
	without(0, 0, 63 * RIG_ROW * 16);
}

/* Many rows on one stream; on another, short launches that want more hot rows
 * than there are, one right after the other: they would take rows that a gather
 * is copying. */
static void race(uint64_t seed)
{
	static int32_t other[OTHERS][K];
	struct hs_list list, small;
	struct hs_site first, second;

	state = (uint32_t)seed * 77;
	start(seed * 0x9e3779b97f4a7c15u);
	first = rig_site(0);
	second = rig_site(1);
	list = list_of(0, RIG_SLOTS);
	for (int n = 0; n < OTHERS; n++) {
		if (n % 4 == 3)
			assert_int_equal(rig_attend(&list, &first, 0, NULL), 0);
		for (int k = 0; k < K; k++)
			other[n][k] = RIG_FIRST + (int32_t)pick(RIG_SLOTS - RIG_FIRST);
		small = rig_list(other[n], 1, K);
		assert_int_equal(rig_attend(&small, &second, 0, NULL), 0);
	}
	rig_run();
}

static void test_race(void **s)
{
	struct hs_cache_counts c;

	race((uint64_t)(uintptr_t)*s);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(rig_faults(), 0);
	rig_counts(&c);
	assert_true(c.evictions > 100);
	assert_true(c.staged > 1000);
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_lane),
		cmocka_unit_test(test_lets_go),
		cmocka_unit_test(test_in_flight),
		cmocka_unit_test(test_in_flight_planted),
		cmocka_unit_test(test_captured),
		cmocka_unit_test(test_short),
		cmocka_unit_test(test_overflow),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_broken_drops),
		cmocka_unit_test(test_other_context),
		cmocka_unit_test(test_no_slots),
		cmocka_unit_test(test_no_marks),
		cmocka_unit_test(test_no_area),
		cmocka_unit_test(test_small_reserve),
		cmocka_unit_test_prestate(test_race, (void *)1),
		cmocka_unit_test_prestate(test_race, (void *)2),
		cmocka_unit_test_prestate(test_race, (void *)3),
		cmocka_unit_test_prestate(test_race, (void *)4),
		cmocka_unit_test_prestate(test_race, (void *)5),
		cmocka_unit_test_prestate(test_race, (void *)6),
	};

	return rig_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
