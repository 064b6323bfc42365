/* SPDX-License-Identifier: MIT */
/* The expressions and the parser of kernel profiles. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "src/launch/parse.h"

static int find_abc(const char *name, size_t length, const void *data)
{
	(void)data;
	return length == 1 && *name >= 'a' && *name <= 'c' ? *name - 'a' : -1;
}

/* a = 7, b = -3, c = 0; grid (4, 5, 6), block (32, 2, 1) */
static int64_t value_of(const char *text)
{
	static const int64_t fields[] = {7, -3, 0};
	struct hs_expr_values values = {fields, {4, 5, 6, 32, 2, 1}};
	const char *problem = NULL;
	struct hs_expr *expr = hs_expr_compile(text, strlen(text), 1, find_abc, NULL, &problem);
	int64_t result = INT64_MIN;

	if (!expr)
		fail_msg("'%s': %s", text, problem);
	if (!hs_expr_eval(expr, &values, &result))
		result = INT64_MAX;
	free(expr);
	return result;
}

static void expressions(void **state)
{
	(void)state;
	assert_int_equal(value_of("1 + 2 * 3"), 7);
	assert_int_equal(value_of("(1 + 2) * 3"), 9);
	assert_int_equal(value_of("10 - 2 - 3"), 5);
	assert_int_equal(value_of("100 / 10 / 5"), 2);
	assert_int_equal(value_of("0x10 % 6"), 4);
	assert_int_equal(value_of("-a - -b"), -10);
	assert_int_equal(value_of("a*b"), -21);
	assert_int_equal(value_of("a == 7 && b < 0"), 1);
	assert_int_equal(value_of("a != 7 || b >= 0"), 0);
	assert_int_equal(value_of("a == 7 == 1"), 1);
	assert_int_equal(value_of("1 || 0 && 0"), 1);
	assert_int_equal(value_of("a <= 7 && a > 6"), 1);
	assert_int_equal(value_of("grid.x * grid.y + grid.z + block.x / block.y - block.z"), 41);
	assert_int_equal(value_of("9223372036854775807 + 1"), INT64_MIN);
}

static void division_by_zero_has_no_value(void **state)
{
	(void)state;
	assert_int_equal(value_of("a / c"), INT64_MAX);
	assert_int_equal(value_of("a % c"), INT64_MAX);
	assert_int_equal(value_of("(-9223372036854775807 - 1) / -1"), INT64_MAX);
}

static void bad_expressions(void **state)
{
	static const char *const bad[] = {"", "1 +", "(1", "1)", "d", "1 2", "* 1", "grid.w", "12q",
		"a = 1", "99999999999999999999", "1 & 2", "((((((((((((((((((1))))))))))))))))))",
		"1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1"};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		const char *problem = NULL;
		struct hs_expr *expr =
			hs_expr_compile(bad[i], strlen(bad[i]), 1, find_abc, NULL, &problem);

		if (expr)
			fail_msg("'%s' was taken", bad[i]);
		assert_non_null(problem);
	}
}

static char said[16][200];
static unsigned nsaid;

static void hear(const char *message, void *data)
{
	assert_ptr_equal(data, said);
	assert_true(nsaid < 16);
	snprintf(said[nsaid++], sizeof(*said), "%s", message);
}

static struct hs_profile *parse(const char *text, unsigned dropped)
{
	struct hs_profile *list = NULL;

	nsaid = 0;
	assert_int_equal(hs_profile_parse(&list, "t", text, hear, said), dropped);
	return list;
}

#define ATTENTION                                                                                  \
	"profile att\n"                                                                            \
	"role attention\n"                                                                         \
	"name k_*_sparse\n"                                                                        \
	"name other\n"                                                                             \
	"sizes 32 8   # two\n"                                                                     \
	"\n"                                                                                       \
	"i32 0+0 b k _ bound\n"                                                                    \
	"ptr 0+16 kv list\n"                                                                       \
	"i16 1+0 half\n"                                                                           \
	"i8 1+2 tiny\n"                                                                            \
	"need b > 0 && k % 64 == 0\n"                                                              \
	"base kv - 1024\n"                                                                         \
	"row 656\n"                                                                                \
	"list list, b, 1, k, k, k\n"                                                               \
	"set bound, 0x7fffffff\n"                                                                  \
	"output kv, 4, b, 8\n"                                                                     \
	"reset list, 4\n"

static void a_good_profile(void **state)
{
	struct hs_profile *p = parse(ATTENTION, 0);
	struct {
		int32_t b, k, skipped, bound;
		uint64_t kv, list;
	} first = {-2, 64, 9, 5, 0x2000000000000000u, 77};
	char second[8] = {0x34, (char)0xff, (char)0xfe};
	const void *params[] = {&first, second};
	int64_t values[8];

	(void)state;
	assert_int_equal(nsaid, 0);
	assert_non_null(p);
	assert_null(p->next);
	assert_string_equal(p->label, "att");
	assert_int_equal(p->role, HS_ROLE_ATTENTION);
	assert_int_equal(p->nsizes, 2);
	assert_false(p->more);
	assert_int_equal(p->nfields, 7);
	assert_int_equal(p->nneeds, 1);
	assert_string_equal(p->need_texts[0], "b > 0 && k % 64 == 0");
	assert_int_equal(p->nsets, 1);
	assert_int_equal(p->noutputs, 1);
	assert_int_equal(p->nresets, 1);
	assert_string_equal(p->fields[p->list_field].name, "list");
	assert_int_equal(p->fields[p->list_field].offset, 24);
	hs_profile_read(p, params, values);
	assert_int_equal(values[0], -2);
	assert_int_equal(values[1], 64);
	assert_int_equal(values[2], 5);
	assert_int_equal(values[3], 0x2000000000000000);
	assert_int_equal(values[4], 77);
	assert_int_equal(values[5], (int16_t)0xff34);
	assert_int_equal(values[6], -2);
	hs_profile_destroy(p);
}

static void matching(void **state)
{
	struct hs_profile *list =
		parse(ATTENTION "profile open\nrole reader\nname *\nsizes 8 * ...\n", 0);
	uint32_t exact[] = {32, 8}, other[] = {8, 3, 5};

	(void)state;
	assert_ptr_equal(hs_profile_match(list, "k_1_sparse", exact, 2), list);
	assert_ptr_equal(hs_profile_match(list, "k_a_sparse_sparse", exact, 2), list);
	assert_ptr_equal(hs_profile_match(list, "other", exact, 2), list);
	assert_null(hs_profile_match(list, "other2", exact, 2));
	assert_null(hs_profile_match(list, "k_sparse", exact, 2));
	assert_null(hs_profile_match(list, "other", exact, 1));
	assert_ptr_equal(hs_profile_match(list, "other", other, 3), list->next);
	assert_ptr_equal(hs_profile_match(list, "other", other, 2), list->next);
	assert_null(hs_profile_match(list, "other", other, 1));
	hs_profile_destroy(list);
}

/* Every mistake: one line that names file and line, the neighbours stay. */
static void mistakes(void **state)
{
	static const struct {
		const char *text;
		unsigned line;
		const char *word;
	} bad[] = {
		{"nonsense 1", 5, "unknown directive 'nonsense'"},
		{"role cook", 5, "unknown role"},
		{"makes rows", 5, "positions or slots"},
		{"sizes 8", 5, "given twice"},
		{"i32 1+0 x", 5, "parameter 1 has no size"},
		{"i32 0+4 a b", 5, "'b' ends at byte 12 of parameter 0, which has 8"},
		{"i32 0-4 a", 5, "PARAMETER+OFFSET"},
		{"i32 0+0", 5, "PARAMETER+OFFSET"},
		{"ptr 0+0 kv", 5, "stands above"},
		{"i32 0+0 a_name_that_is_longer_than_any", 5, "name too long"},
		{"need kv +", 5, "ends early"},
		{"need nothing", 5, "no field of that name"},
		{"list nothing, 1", 5, "no field 'nothing'"},
		{"list kv, 1, 2", 5, "2 values, 5 expected"},
		{"list kv, 1, 2, 3, 4, 5, 6", 5, "more than 5 values"},
		{"base kv\nbase kv", 6, "given twice"},
		{"slots kv, 1", 5, "2 values, 3 expected"},
		{"set kv,", 5, "ends early"},
		{"output kv, 4", 5, "ends early"},
		{"output kv, 4, 1, 1, 1, 1, 1, 1, 1", 5, "three dimensions"},
		{"reset kv", 5, "1 values, 2 expected"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct hs_profile *list;
		char text[512], where[32];

		snprintf(text, sizeof(text),
			"profile p\nname p\nsizes 8\nptr 0+0 kv\n%s\nrole reader\n"
			"profile q\nrole reader\nname q\nsizes 8\n",
			bad[i].text);
		list = parse(text, 1);
		snprintf(where, sizeof(where), "t:%u: ", bad[i].line);
		if (nsaid != 1 || strncmp(said[0], where, strlen(where)) ||
			!strstr(said[0], bad[i].word))
			fail_msg("'%s' made %u lines: '%s'", bad[i].text, nsaid,
				nsaid ? said[0] : "");
		assert_non_null(list);
		assert_string_equal(list->label, "q");
		hs_profile_destroy(list);
	}
}

static void incomplete(void **state)
{
	static const struct {
		const char *text, *word;
	} bad[] = {
		{"role reader\nsizes 8", "no name or no sizes"},
		{"role reader\nname x", "no name or no sizes"},
		{"name x\nsizes 8", "no role"},
		{"role attention\nname x\nsizes 8\nptr 0+0 kv\nbase kv\nrow 1",
			"base, row and list"},
		{"role writer\nname x\nsizes 8\nptr 0+0 kv\nbase kv", "base and slots"},
		{"role fill\nname x\nsizes 8", "needs fill"},
		{"role topk\nname x\nsizes 8", "topk needs makes"},
		{"role reader\nname x\nsizes 8\nmakes slots", "only topk and table"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		char text[256];

		snprintf(text, sizeof(text), "\nprofile p\n%s\n", bad[i].text);
		assert_null(parse(text, 1));
		assert_int_equal(nsaid, 1);
		assert_non_null(strstr(said[0], bad[i].word));
		assert_int_equal(strncmp(said[0], "t:2: ", 5), 0);
	}
}

static void text_before_the_first_profile(void **state)
{
	struct hs_profile *list = parse("rubbish\nmore\n" ATTENTION, 0);

	(void)state;
	assert_int_equal(nsaid, 1);
	assert_string_equal(said[0], "t:1: 'profile LABEL' expected first");
	assert_non_null(list);
	hs_profile_destroy(list);
}

static void verified_versions(void **state)
{
	struct hs_profile *list;

	(void)state;
	list = parse("verified vllm 0.26.0\n" ATTENTION "verified vllm 0.27.0\n", 0);
	assert_int_equal(nsaid, 0);
	assert_non_null(list);
	hs_profile_destroy(list);
	list = parse("verified vllm # 1\n" ATTENTION, 0);
	assert_int_equal(nsaid, 1);
	assert_string_equal(said[0], "t:1: verified NAME VERSION expected");
	assert_non_null(list);
	hs_profile_destroy(list);
	assert_null(parse(ATTENTION "verified\n", 1));
}

static void lists_are_made(void **state)
{
	struct hs_profile *list = parse("profile p\nrole topk\nname x\nsizes 8\nmakes positions\n"
					"profile q\nrole topk\nname y\nsizes 8\nmakes slots\n",
		0);

	(void)state;
	assert_int_equal(list->role, HS_ROLE_TOPK);
	assert_int_equal(list->makes, HS_MAKES_POSITIONS);
	assert_int_equal(list->next->makes, HS_MAKES_SLOTS);
	hs_profile_destroy(list);
}

/* No text may make the parser read or write where it must not (sanitizers). */
static void any_text(void **state)
{
	static const char *const words[] = {"profile", "role", "attention", "name", "*", "sizes",
		"8", "...", "ptr", "0+0", "kv", "list", ",", "need", "(", ")", "==", "1", "-", "\n",
		"output", "set", "reset", "slots", "fill", "base", "#", "i8", "0+7", "99999999999"};
	unsigned seed = 12345;

	(void)state;
	for (unsigned round = 0; round < 3000; round++) {
		struct hs_profile *list = NULL;
		char text[1024] = "profile p\nname p\nsizes 8\n";

		for (unsigned i = 0; i < 60; i++) {
			seed = seed * 1664525 + 1013904223;
			strcat(text, words[seed / 65536 % (sizeof(words) / sizeof(*words))]);
			strcat(text, seed & 1024 ? " " : "\n");
		}
		hs_profile_parse(&list, "t", text, NULL, NULL);
		hs_profile_destroy(list);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(expressions),
		cmocka_unit_test(division_by_zero_has_no_value),
		cmocka_unit_test(bad_expressions),
		cmocka_unit_test(a_good_profile),
		cmocka_unit_test(matching),
		cmocka_unit_test(mistakes),
		cmocka_unit_test(incomplete),
		cmocka_unit_test(text_before_the_first_profile),
		cmocka_unit_test(verified_versions),
		cmocka_unit_test(lists_are_made),
		cmocka_unit_test(any_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
