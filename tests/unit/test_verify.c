/* SPDX-License-Identifier: MIT */
/* HISPARSE_VERIFY: both launches, over the same buffers, compared. */

#include "tests/unit/fake_launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "src/launch/profiles.h"
#include "src/launch/regions.h"
#include "src/launch/verify.h"

static const char profiles[] = "profile attend\nrole attention\nname attend\nsizes 48\n"
			       "ptr 0+0 kv list out accum counter\ni32 0+40 rows parts\n"
			       "base kv\nrow 656\nlist list, rows, 1, 64, 64, 64\n"
			       "output out, 8, rows, 24\n"
			       "output accum, 4, parts, 4\n"
			       "reset counter, 4\n";

static const struct fake_kernel attend = {"attend", {48}, false};

#define ROWS 4
#define PARTS 6

/* The kernel's buffers. Rows of out are 8 bytes in 24; one row and the last
 * parts are never written. */
static uint32_t out[ROWS * 6], accum[PARTS], counter;
static struct {
	uint64_t kv, list, out, accum, counter;
	int32_t rows, parts;
} args;
static int plant_row, plant_part, runs, own_runs;
static CUresult result_of[2];

static CUresult run(struct hs_launch *launch)
{
	bool own;

	fake_forward(launch);
	own = fake_param(&attend, 0, 8, 8) != FAKE_REMAPPED;
	own_runs += own;
	counter++;
	for (int i = 0; i < ROWS - 1; i++) {
		out[i * 6] = 100 + (uint32_t)i;
		out[i * 6 + 1] = counter;
	}
	for (int i = 0; i < PARTS - 2; i++)
		accum[i] = 200 + (uint32_t)i;
	if (!own && plant_row >= 0)
		out[plant_row * 6 + 1] ^= 1u << 31;
	if (!own && plant_part >= 0)
		accum[plant_part]++;
	return result_of[runs++ & 1];
}

static CUresult go(CUstream stream)
{
	void *params[] = {&args};
	struct hs_launch launch = {.function = (CUfunction)&attend,
		.grid = {1, 1, 1},
		.block = {1, 1, 1},
		.stream = stream,
		.params = params,
		.forward = run};

	fake.events[0] = '\0';
	return hs_launch(&launch);
}

static struct hs_verify_counts since(void)
{
	static struct hs_verify_counts last;
	struct hs_verify_counts now, d;

	hs_verify_read(&now);
	d = (struct hs_verify_counts){now.launches - last.launches, now.skipped - last.skipped,
		now.rows - last.rows, now.different - last.different};
	last = now;
	return d;
}

#define WHOLE                                                                                      \
	"resolve 0;poison;poison;launch;hash;hash;poison;poison;reset;launch;hash;hash;compare;"   \
	"attended 0;"

static void outputs_are_the_engines_own(void)
{
	for (int i = 0; i < ROWS - 1; i++) {
		assert_int_equal(out[i * 6], 100 + i);
		assert_int_equal(out[i * 6 + 1], 1);
		assert_int_equal(out[i * 6 + 2], 0x5a5a5a5a); /* between the rows */
	}
	for (int i = 0; i < PARTS - 2; i++)
		assert_int_equal(accum[i], 200 + i);
}

static void equal_lists_are_equal(void **state)
{
	(void)state;
	assert_int_equal(go(NULL), CUDA_SUCCESS);
	assert_string_equal(strstr(fake.events, "resolve"), WHOLE);
	outputs_are_the_engines_own();
	assert_int_equal(out[(ROWS - 1) * 6], 0xffffffff); /* nobody wrote it: poison twice */
	assert_int_equal(own_runs, 1);
	assert_int_equal(runs, 2);
	struct hs_verify_counts c = since();
	assert_int_equal(c.launches, 1);
	assert_int_equal(c.skipped, 0);
	assert_int_equal(c.rows, ROWS + PARTS);
	assert_int_equal(c.different, 0);
}

static void a_planted_difference_is_counted(void **state)
{
	(void)state;
	plant_row = 1;
	assert_int_equal(go(NULL), CUDA_SUCCESS);
	outputs_are_the_engines_own();
	assert_int_equal(since().different, 1);
	plant_part = 3;
	counter = 0;
	assert_int_equal(go(NULL), CUDA_SUCCESS);
	outputs_are_the_engines_own();
	assert_int_equal(since().different, 2);
	for (unsigned i = 0; i < 64; i++)
		hs_launch_report();
	assert_string_equal(
		fake.log, "verify: layer 0: 3 of 30 rows differ from the engine's own list\n");
}

static void a_captured_launch_is_checked_in_the_graph(void **state)
{
	(void)state;
	fake.capturing = true;
	assert_int_equal(go(NULL), CUDA_SUCCESS);
	assert_string_equal(strstr(fake.events, "resolve"), WHOLE);
	assert_int_equal(since().rows, ROWS + PARTS);
}

static void every_nth_and_captures_apart(void **state)
{
	int checked[2] = {0};

	(void)state;
	fake.options.verify = 3;
	for (unsigned i = 0; i < 12; i++) {
		fake.capturing = i % 2;
		assert_int_equal(go(NULL), CUDA_SUCCESS);
		checked[i % 2] += strstr(fake.events, "compare") != NULL;
	}
	assert_int_equal(checked[0], 2);
	assert_int_equal(checked[1], 2);
	since();
}

static void nothing_is_checked_unasked(void **state)
{
	(void)state;
	fake.options.verify = 0;
	assert_int_equal(go(NULL), CUDA_SUCCESS);
	assert_string_equal(strstr(fake.events, "resolve"), "resolve 0;launch;attended 0;");
}

/* Whatever of ours fails, the outputs are real ones and it is told apart. */
static void our_failures_leave_right_outputs(void **state)
{
	(void)state;
	since();
	for (int at = 1; at <= 9; at++) {
		fake.rows_fail_after = at;
		counter = 0;
		memset(accum, 0, sizeof(accum));
		assert_int_equal(go(NULL), CUDA_SUCCESS);
		assert_int_equal(fake.rows_fail_after, 0);
		for (int i = 0; i < ROWS - 1; i++)
			assert_int_equal(out[i * 6], 100 + i);
		for (int i = 0; i < PARTS - 2; i++)
			assert_int_equal(accum[i], 200 + i);
		struct hs_verify_counts c = since();
		assert_int_equal(c.launches, 0);
		assert_int_equal(c.skipped, 1);
		assert_int_equal(c.different, 0);
	}
}

static void the_drivers_errors_are_passed_on(void **state)
{
	(void)state;
	since();
	result_of[0] = CUDA_ERROR_INVALID_VALUE;
	assert_int_equal(go(NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(runs, 1);
	runs = 0;
	result_of[0] = CUDA_SUCCESS;
	result_of[1] = CUDA_ERROR_ILLEGAL_ADDRESS;
	assert_int_equal(go(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(since().launches, 0);
}

static void streams_do_not_share_hashes(void **state)
{
	CUdeviceptr first, second;

	(void)state;
	go((CUstream)(uintptr_t)0x100);
	first = fake.hashes;
	go((CUstream)(uintptr_t)0x200);
	second = fake.hashes;
	assert_int_not_equal(first, second);
	go((CUstream)(uintptr_t)0x100);
	assert_int_equal(fake.hashes, first);
	fake.capturing = true;
	go((CUstream)(uintptr_t)0x100);
	assert_int_not_equal(fake.hashes, first);
}

static void too_many_rows_are_not_checked(void **state)
{
	(void)state;
	since();
	args.rows = 4 << 20; /* never touched */
	assert_int_equal(go(NULL), CUDA_SUCCESS);
	assert_string_equal(strstr(fake.events, "resolve"), "resolve 0;launch;attended 0;");
	assert_int_equal(since().skipped, 1);
}

/* FlashMLA's outputs, from its own profile. */

static void put(unsigned char *p, size_t at, uint64_t value, size_t width)
{
	memcpy(p + at, &value, width);
}

static void find_regions(struct hs_regions *regions, const unsigned char *params)
{
	static const uint32_t sizes[] = {280, 512};
	static const unsigned char tma[512];
	const struct hs_profile *profile = hs_profile_match(hs_profiles(),
		"_ZN4sm906decode10sparse_fp839flash_fwd_splitkv_mla_fp8_sparse_kernel", sizes, 2);
	const void *pointers[] = {params, tma};
	int64_t fields[HS_PROFILE_FIELDS];
	struct hs_expr_values values = {.fields = fields};

	assert_non_null(profile);
	hs_profile_read(profile, pointers, fields);
	assert_true(hs_regions_find(regions, profile, &values));
}

static void is_region(const struct hs_region *r, uint64_t start, uint64_t rows, uint64_t bytes)
{
	assert_int_equal(r->start, start);
	assert_int_equal(r->rows, rows);
	assert_int_equal(r->bytes, bytes);
	if (rows > 1)
		assert_int_equal(r->stride, bytes);
}

static void outputs_of_flashmla(void **state)
{
	enum { B = 2, SQ = 3, H = 128, PARTS_ = 22, DV = 512 };
	unsigned char p[280] = {0};
	struct hs_regions regions;

	(void)state;
	put(p, 0, B, 4);
	put(p, 4, SQ, 4);
	put(p, 8, H, 4);
	put(p, 20, DV, 4);
	put(p, 88, 0x10000, 8); /* lse */
	put(p, 96, 0x20000, 8); /* out */
	put(p, 172, SQ * H, 4);
	put(p, 176, H, 4);
	put(p, 180, SQ * H * DV, 4);
	put(p, 184, H * DV, 4);
	put(p, 188, DV, 4);
	put(p, 216, 0x30000, 8); /* lse_accum */
	put(p, 224, 0x40000, 8); /* o_accum */
	put(p, 232, SQ * H, 4);
	put(p, 236, H, 4);
	put(p, 240, SQ * H * DV, 4);
	put(p, 244, H * DV, 4);
	put(p, 248, DV, 4);
	put(p, 272, PARTS_, 4);
	find_regions(&regions, p);
	assert_int_equal(regions.count, 4);
	is_region(&regions.region[0], 0x20000, B * SQ, H * DV * 2);
	is_region(&regions.region[1], 0x10000, B * SQ, H * 4);
	is_region(&regions.region[2], 0x30000, (B + PARTS_) * SQ, H * 4);
	is_region(&regions.region[3], 0x40000, (B + PARTS_) * SQ, H * DV * 4);
	assert_int_equal(regions.rows, 2 * B * SQ + 2 * (B + PARTS_) * SQ);

	/* out as a slice of something wider: a region per request */
	put(p, 180, 7 * H * DV, 4);
	find_regions(&regions, p);
	assert_int_equal(regions.count, 5);
	is_region(&regions.region[0], 0x20000, SQ, H * DV * 2);
	is_region(&regions.region[1], 0x20000 + 7 * H * DV * 2, SQ, H * DV * 2);

	/* no accumulators */
	put(p, 216, 0, 8);
	put(p, 224, 0, 8);
	find_regions(&regions, p);
	assert_int_equal(regions.count, 3);
}

static int setup(void **state)
{
	(void)state;
	fake_reset();
	fake.options.verify = 1;
	hs_launch_report();
	memset(out, 0x5a, sizeof(out));
	memset(accum, 0, sizeof(accum));
	counter = 0;
	plant_row = plant_part = -1;
	runs = own_runs = 0;
	result_of[0] = result_of[1] = CUDA_SUCCESS;
	args.kv = FAKE_WINDOW(0);
	args.list = 0x1234;
	args.out = (uint64_t)(uintptr_t)out;
	args.accum = (uint64_t)(uintptr_t)accum;
	args.counter = (uint64_t)(uintptr_t)&counter;
	args.rows = ROWS;
	args.parts = PARTS;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(equal_lists_are_equal, setup),
		cmocka_unit_test_setup(a_planted_difference_is_counted, setup),
		cmocka_unit_test_setup(a_captured_launch_is_checked_in_the_graph, setup),
		cmocka_unit_test_setup(every_nth_and_captures_apart, setup),
		cmocka_unit_test_setup(nothing_is_checked_unasked, setup),
		cmocka_unit_test_setup(our_failures_leave_right_outputs, setup),
		cmocka_unit_test_setup(the_drivers_errors_are_passed_on, setup),
		cmocka_unit_test_setup(streams_do_not_share_hashes, setup),
		cmocka_unit_test_setup(too_many_rows_are_not_checked, setup),
		cmocka_unit_test_setup(outputs_of_flashmla, setup),
	};

	if (!fake_profiles(profiles))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
