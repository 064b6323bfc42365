/* SPDX-License-Identifier: MIT */
/* Block tables: which slots lose their hot rows, against a plain reference. */
#include "tests/unit/cache_rig.h"

#include <string.h>
#include "src/cache/lane.h"

enum {
	ROWS = 6,
	COLUMNS = 2 * HS_BLOCKS_TILE + 1027,
	STRIDE = COLUMNS + 2,
	FIRST = RIG_FIRST, /* slots that may have hot rows; others are none of the layer's */
	PROBES = 512,
	BEYOND = HS_BLOCKS_ROWS + 6, /* a row that is not saved */
};

/* The table, as rows lie when it is passed `shift` entries further on. */
static int32_t cells[ROWS * STRIDE + 4] __attribute__((aligned(16)));
static int32_t lengths[ROWS], ids[2 * ROWS];
static uint32_t shift;
static bool tells;
static int32_t before[ROWS][COLUMNS]; /* as the launch before saw them */
static uint32_t seen[ROWS];
static bool dropped[FIRST + PROBES];
static uint32_t state = 815;

static uint32_t pick(uint32_t n)
{
	state = state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(state >> 4) * n >> 28);
}

static int32_t *row_of(uint32_t row)
{
	return cells + shift + row * STRIDE;
}

/* Entries that no slot of the layer has. */
static void start(bool lengths_told, uint32_t at, uint64_t seed)
{
	rig_start(RIG_SLOTS, HS_POLICY_LRU, seed);
	tells = lengths_told;
	shift = at;
	for (int32_t i = 0; i < ROWS * STRIDE + 4; i++)
		cells[i] = RIG_SLOTS + i;
	for (uint32_t i = 0; i < ROWS; i++)
		lengths[i] = COLUMNS - 20;
}

static uint32_t length_of(uint32_t row)
{
	return tells ? (uint32_t)lengths[row] : COLUMNS;
}

/* What the rows must lose; they are then those before. `as`: how row 0 is called. */
static void reference(const uint32_t *rows, uint32_t count, uint32_t as)
{
	static int32_t after[ROWS][COLUMNS];
	uint32_t lens[ROWS] = {0};

	memset(dropped, 0, sizeof(dropped));
	for (uint32_t t = 0; t < count; t++) {
		const uint32_t row = rows[t], length = length_of(row);
		const int32_t *now = row_of(row);
		uint32_t held = 0, best = 0;

		/* Its own row, then all: the first of those with most. */
		for (uint32_t n = 0; n <= ROWS; n++) {
			const uint32_t i = n ? n - 1 : row;
			uint32_t same = 0;

			while (same < length && same < seen[i] && before[i][same] == now[same])
				same++;
			if (same > held) {
				held = same;
				best = i;
			}
		}
		for (uint32_t i = held; i < length; i++) {
			if (!tells && held && i < seen[best] && before[best][i] == now[i])
				continue;
			if (now[i] >= FIRST && now[i] < FIRST + PROBES)
				dropped[now[i]] = true;
		}
		if (as >= HS_BLOCKS_ROWS)
			continue;
		memcpy(after[row], now, sizeof(after[row]));
		lens[row] = length;
	}
	memcpy(before, after, sizeof(before));
	memcpy(seen, lens, sizeof(seen));
}

/* Every probe is hot; the table comes; the right ones are hot no more. Returns how
 * many are not. */
static uint32_t step(const uint32_t *rows, uint32_t count, uint32_t as)
{
	static int32_t list[PROBES];
	struct hs_list l = rig_list(list, 1, PROBES);
	struct hs_site site = rig_site(0);
	struct hs_blocks table = {
		.blocks = (CUdeviceptr)(uintptr_t)row_of(0) - (CUdeviceptr)as * STRIDE * 4,
		.lengths = tells ? (CUdeviceptr)(uintptr_t)lengths - (CUdeviceptr)as * 4 : 0,
		.rows = count,
		.columns = COLUMNS,
		.unit = 1,
		.stride = STRIDE,
	};
	uint32_t lost = 0;

	for (int32_t i = 0; i < PROBES; i++)
		list[i] = FIRST + i;
	/* One launch may find too few rows that can be taken. */
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(rig_attend(&l, &site, 0, NULL), 0);
		rig_settle();
	}
	for (uint32_t slot = FIRST; slot < FIRST + PROBES; slot++)
		assert_true(rig_map(slot) >= 0);
	/* Each row a few times, as the tokens of a request are. */
	if (rows) {
		uint32_t tokens = 0;

		for (uint32_t t = 0; t < count; t++) {
			for (uint32_t n = 0; n <= t % 2; n++)
				ids[tokens++] = (int32_t)(as + rows[t]);
		}
		table.ids = (CUdeviceptr)(uintptr_t)ids;
		table.rows = tokens;
	}
	hs_cache_tabled(&table, &site);
	rig_run();
	reference(rows ? rows : (const uint32_t[]){0, 1, 2, 3, 4, 5}, count, as);
	for (int32_t slot = FIRST; slot < FIRST + PROBES; slot++) {
		assert_int_equal(rig_map((uint32_t)slot) < 0, dropped[slot]);
		lost += dropped[slot];
	}
	return lost;
}

static uint32_t look(void)
{
	return step(NULL, ROWS, 0);
}

static void swap(uint32_t a, uint32_t b)
{
	const int32_t length = lengths[a];

	for (uint32_t i = 0; i < COLUMNS; i++) {
		const int32_t entry = row_of(a)[i];

		row_of(a)[i] = row_of(b)[i];
		row_of(b)[i] = entry;
	}
	lengths[a] = lengths[b];
	lengths[b] = length;
}

/* Places in rows where a thread, a block of threads or a row ends. */
static void test_places(void **s)
{
	static const uint32_t places[] = {0, 1, 3, 4, 1023, 1024, HS_BLOCKS_TILE - 1,
		HS_BLOCKS_TILE, HS_BLOCKS_TILE + 1, 2 * HS_BLOCKS_TILE - 1, 2 * HS_BLOCKS_TILE,
		COLUMNS - 22, COLUMNS - 21};

	(void)s;
	start(true, 0, 0);
	for (uint32_t row = 0; row < ROWS; row++) {
		for (uint32_t i = 0; i < sizeof(places) / sizeof(*places); i++)
			row_of(row)[places[i]] = (int32_t)(FIRST + 16 * row + i);
	}
	assert_int_equal(look(), 13 * ROWS);
	assert_int_equal(look(), 0);
	/* From each of them on, in one row. */
	for (uint32_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		row_of(i % ROWS)[places[i]] = (int32_t)(FIRST + 100 + i);
		assert_int_equal(look(), 13 - i);
		assert_int_equal(look(), 0);
	}
	/* What lies past the length is not read; then it is. */
	row_of(2)[COLUMNS - 20] = FIRST + 200;
	row_of(2)[COLUMNS - 19] = FIRST + 201;
	assert_int_equal(look(), 0);
	lengths[2]++;
	assert_int_equal(look(), 1);
	assert_false(dropped[FIRST + 201]);
	lengths[2] -= 1000;
	assert_int_equal(look(), 0);
	lengths[2] += 1000;
	assert_int_equal(look(), 3); /* two of the places, and the one that was new */
}

static void test_moves(void **s)
{
	(void)s;
	start(true, 1, 0); /* no row begins at 16 bytes */
	for (uint32_t row = 0; row < ROWS; row++) {
		row_of(row)[10] = (int32_t)(FIRST + row);
		row_of(row)[HS_BLOCKS_TILE + 10] = (int32_t)(FIRST + 10 + row);
		row_of(row)[COLUMNS - 20] = (int32_t)(FIRST + 20 + row);
	}
	assert_int_equal(look(), 2 * ROWS);
	swap(0, 5);
	swap(2, 3);
	assert_int_equal(look(), 0);
	swap(0, 3);
	lengths[3]++;
	assert_int_equal(look(), 1);
	/* A row begins as another one did, and goes on as itself. */
	memcpy(row_of(1), row_of(4), 100 * 4);
	assert_int_equal(look(), 1);
	assert_true(dropped[FIRST + 11]);
	/* Where more rows begin alike, the one with most of it counts. */
	memcpy(row_of(2), row_of(1), (HS_BLOCKS_TILE + 5) * 4);
	memcpy(row_of(5), row_of(4), (HS_BLOCKS_TILE + 5) * 4);
	assert_int_equal(look(), 2);
	swap(4, 5);
	swap(1, 5);
	assert_int_equal(look(), 0);
	/* A block in the middle comes back at once, from another request. */
	row_of(0)[HS_BLOCKS_TILE + 9] = 1 << 30;
	assert_int_equal(look(), 1);
	/* Who was away for a launch is new. */
	assert_int_equal(step((const uint32_t[]){0, 3}, 2, 0), 0);
	assert_true(look() > 4);
	/* Rows that are not saved are compared all the same. */
	assert_int_equal(step((const uint32_t[]){0, 3}, 2, BEYOND), 0);
	assert_true(step((const uint32_t[]){0, 3}, 2, BEYOND) > 3);
}

/* What rows hold, how they move and which of them come, at random. */
static void churn(bool lengths_told, uint32_t at)
{
	uint32_t some = 0, none = 0;

	start(lengths_told, at, 29);
	for (uint32_t i = 0; i < 120; i++) {
		const uint32_t row = pick(ROWS), other = pick(ROWS), kind = pick(6);
		uint32_t rows[ROWS], count = 0, lost;

		switch (kind) {
		case 0:
			for (uint32_t n = pick(COLUMNS); n < COLUMNS; n += 1 + pick(400))
				row_of(row)[n] = (int32_t)(FIRST + pick(PROBES));
			break;
		case 1:
			row_of(row)[pick(COLUMNS)] = pick(2) ? -1 : (int32_t)(FIRST + pick(PROBES));
			break;
		case 2:
			memcpy(row_of(row), row_of((row + 1) % ROWS), pick(COLUMNS) * 4);
			break;
		case 3:
			swap(row, other);
			break;
		case 4:
			lengths[row] = (int32_t)pick(COLUMNS + 1);
			break;
		}
		for (uint32_t n = 0; n < ROWS; n++) {
			if (pick(8))
				rows[count++] = n;
		}
		lost = count && pick(2) ? step(rows, count, 0) : look();
		some += lost > 0;
		none += !lost;
	}
	assert_in_range(some, 20, 100);
	assert_in_range(none, 20, 100);
}

static void test_lengths(void **s)
{
	(void)s;
	churn(true, 2);
}

static void test_no_lengths(void **s)
{
	(void)s;
	churn(false, 0);
}

/* Tables of two streams at once, each with rows of its own: what came anew is hot in none,
 * whoever is first. */
static void test_two_lanes(void **s)
{
	static int32_t list[PROBES];
	struct hs_list l = rig_list(list, 1, PROBES);
	uint32_t kept = 0;

	(void)s;
	start(true, 0, 77);
	for (int32_t i = 0; i < PROBES; i++)
		list[i] = FIRST + i;
	for (uint32_t n = 0; n < 160; n++) {
		int32_t fresh[2];

		for (uint32_t i = 0; i < 4; i++) {
			const struct hs_site site = rig_site(0);

			assert_int_equal(rig_attend(&l, &site, 0, NULL), 0);
			rig_settle();
		}
		for (int lane = 0; lane < 2; lane++) {
			const struct hs_site site = rig_site(lane);
			const uint32_t first = lane ? 3 : 0;
			const struct hs_blocks table = {
				.blocks = (CUdeviceptr)(uintptr_t)row_of(first),
				.lengths = (CUdeviceptr)(uintptr_t)(lengths + first),
				.rows = lane ? 3 : 2 + pick(2),
				.columns = COLUMNS,
				.unit = 1,
				.stride = STRIDE};

			fresh[lane] = FIRST + (int32_t)n * 2 + lane;
			row_of(first + pick(2))[pick(COLUMNS - 20)] = fresh[lane];
			hs_cache_tabled(&table, &site);
			hs_lane_find(&site, 0, false)->tabled = 0;
		}
		rig_run();
		for (int lane = 0; lane < 2; lane++)
			assert_true(rig_map((uint32_t)fresh[lane]) < 0);
		for (uint32_t slot = FIRST + 320; slot < FIRST + PROBES; slot++)
			kept += rig_map(slot) >= 0;
	}
	assert_true(kept > 1000);
}

/* A table of other columns lies between two that are alike: it is not known what that
 * one's blocks were used for. */
static void test_other_columns(void **s)
{
	struct hs_site site = rig_site(0);
	struct hs_blocks other = {.blocks = (CUdeviceptr)(uintptr_t)row_of(1),
		.rows = 1,
		.columns = COLUMNS / 2,
		.unit = 1,
		.stride = STRIDE};

	(void)s;
	start(true, 0, 0);
	row_of(0)[5] = FIRST + 7;
	assert_int_equal(look(), 1);
	assert_int_equal(look(), 0);
	hs_lane_find(&site, 0, false)->tabled = 0;
	hs_cache_tabled(&other, &site);
	rig_run();
	hs_lane_find(&site, 0, false)->tabled = 0;
	memset(seen, 0, sizeof(seen));
	assert_int_equal(look(), 1);
}

/* Where one of the two kernels does not run all is dropped. */
static void test_broken(void **s)
{
	struct hs_site site = rig_site(0);
	struct hs_blocks table = {.blocks = (CUdeviceptr)(uintptr_t)row_of(0),
		.lengths = (CUdeviceptr)(uintptr_t)lengths,
		.rows = 1,
		.columns = COLUMNS,
		.unit = 1,
		.stride = STRIDE};

	(void)s;
	start(true, 0, 0);
	for (int n = 1; n <= 3; n++) {
		if (n < 3) {
			memset(seen, 0, sizeof(seen));
			look();
			hs_lane_find(&site, 0, false)->tabled = 0;
		}
		row_of(0)[100 + n] = FIRST + 1;
		rig.fail_launch = n; /* the third: none is trusted after the second */
		hs_cache_tabled(&table, &site);
		rig.fail_launch = 0;
		rig_run();
		assert_int_equal(rig_map(FIRST + 1), HS_NONE);
		hs_lane_find(&site, 0, false)->tabled = 0;
	}
}

/* Blocks of more slots than are told apart: nothing stays hot. */
static void test_unit(void **s)
{
	struct hs_site site = rig_site(0);
	struct hs_blocks table = {.blocks = (CUdeviceptr)(uintptr_t)row_of(1),
		.rows = 1,
		.columns = COLUMNS,
		.unit = HS_BLOCKS_UNIT + 1,
		.stride = STRIDE};

	(void)s;
	start(true, 0, 0);
	assert_int_equal(look(), 0);
	assert_true(rig_map(FIRST) >= 0);
	hs_cache_tabled(&table, &site);
	rig_run();
	assert_int_equal(rig_map(FIRST), HS_NONE);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_no_lengths),
		cmocka_unit_test(test_two_lanes),
		cmocka_unit_test(test_other_columns),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_unit),
	};

	return rig_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
