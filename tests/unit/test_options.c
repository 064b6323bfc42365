/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#include "src/base/log.h"
#include "src/base/options.h"

static char said[8192];

/* Reads with `variable` set and keeps what was written to standard error. */
static unsigned with(const char *variable, const char *value, struct hs_options *options)
{
	const int file = memfd_create("stderr", 0), kept = dup(STDERR_FILENO);
	unsigned complaints;
	ssize_t bytes;

	memset(options, 0x77, sizeof(*options));
	if (variable)
		setenv(variable, value, 1);
	dup2(file, STDERR_FILENO);
	complaints = hs_options_read(options);
	dup2(kept, STDERR_FILENO);
	if (variable)
		unsetenv(variable);
	bytes = pread(file, said, sizeof(said) - 1, 0);
	said[bytes > 0 ? bytes : 0] = '\0';
	close(file);
	close(kept);
	return complaints;
}

static unsigned lines(void)
{
	unsigned n = 0;

	for (const char *c = said; *c; c++)
		n += *c == '\n';
	return n;
}

static void defaults(void **state)
{
	struct hs_options o;
	(void)state;

	assert_int_equal(with(NULL, NULL, &o), 0);
	assert_string_equal(said, "");
	assert_true(o.slots == HS_AUTO && o.host_bytes == HS_AUTO && o.gpu_bytes == HS_AUTO);
	assert_int_equal(o.row, 656);
	assert_true(o.layers == HS_AUTO);
	assert_null(o.profiles);
	assert_null(o.trace);
	assert_null(o.metrics);
	assert_int_equal(o.policy, HS_POLICY_LRU);
	assert_int_equal(o.place, HS_OPTION_AUTO);
	assert_true(o.window_bytes == (uint64_t)256 << 20);
	assert_int_equal(o.verify, 0);
	assert_int_equal(o.log, HS_LOG_WARN);
	assert_false(o.disable);
}

static void good_values(void **state)
{
	struct hs_options o;
	(void)state;

	assert_int_equal(with("HISPARSE_SLOTS", "65536", &o), 0);
	assert_int_equal(o.slots, 65536);
	assert_int_equal(with("HISPARSE_SLOTS", "", &o), 0);
	assert_true(o.slots == HS_AUTO);
	assert_int_equal(with("HISPARSE_HOST_GIB", "1.5", &o), 0);
	assert_true(o.host_bytes == (uint64_t)3 << 29);
	assert_int_equal(with("HISPARSE_HOST_GIB", "0", &o), 0);
	assert_int_equal(o.host_bytes, 0);
	assert_int_equal(with("HISPARSE_WINDOW_MIB", "64", &o), 0);
	assert_true(o.window_bytes == (uint64_t)64 << 20);
	assert_int_equal(with("HISPARSE_POLICY", "vanilla", &o), 0);
	assert_int_equal(o.policy, HS_POLICY_VANILLA);
	assert_int_equal(with("HISPARSE_PLACE", "device", &o), 0);
	assert_int_equal(o.place, HS_OPTION_DEVICE);
	assert_int_equal(with("HISPARSE_LOG", "debug", &o), 0);
	assert_int_equal(o.log, HS_LOG_DEBUG);
	assert_true(hs_log_on(HS_LOG_DEBUG));
	assert_int_equal(with("HISPARSE_DISABLE", "1", &o), 0);
	assert_true(o.disable);
	assert_false(hs_log_on(HS_LOG_INFO));
	assert_int_equal(with("HISPARSE_TRACE", "here.jsonl", &o), 0);
	assert_string_equal(o.trace, "here.jsonl");
	free((char *)o.trace);
}

/* Name, value and limits in one line; the default stays. */
static void bad_values(void **state)
{
	static const struct {
		const char *variable, *value, *limit;
	} bad[] = {
		{"HISPARSE_SLOTS", "2047", "from 2048 to 1073741824"},
		{"HISPARSE_SLOTS", "1073741825", "from 2048 to 1073741824"},
		{"HISPARSE_SLOTS", "-4096", "from 2048"},
		{"HISPARSE_SLOTS", "4096x", "from 2048"},
		{"HISPARSE_SLOTS", " 4096", "from 2048"},
		{"HISPARSE_SLOTS", "99999999999999999999999", "from 2048"},
		{"HISPARSE_SLOTS", "4096.5", "from 2048"},
		{"HISPARSE_HOST_GIB", "16384.1", "from 0 to 16384 GiB"},
		{"HISPARSE_HOST_GIB", "lots", "from 0 to 16384 GiB"},
		{"HISPARSE_HOST_GIB", "nan", "from 0 to 16384 GiB"},
		{"HISPARSE_POLICY", "lr", "lru|fifo|random|vanilla"},
		{"HISPARSE_POLICY", "LRU", "lru|fifo|random|vanilla"},
		{"HISPARSE_LOG", "loud", "error|warn|info|debug"},
		{"HISPARSE_DISABLE", "maybe", "neither 0 nor 1"},
		{"HISPARSE_ROW", "63", "from 64 to 65536"},
		{"HISPARSE_LAYERS", "0", "from 1 to 1024"},
	};
	struct hs_options o, normal;
	(void)state;

	with(NULL, NULL, &normal);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(with(bad[i].variable, bad[i].value, &o), 1);
		assert_int_equal(lines(), 1);
		assert_non_null(strstr(said, bad[i].variable));
		assert_non_null(strstr(said, bad[i].value));
		assert_non_null(strstr(said, bad[i].limit));
		assert_true(o.slots == normal.slots && o.host_bytes == normal.host_bytes &&
			    o.policy == normal.policy && o.log == normal.log &&
			    o.disable == normal.disable && o.row == normal.row);
	}
}

static void unknown_variables(void **state)
{
	struct hs_options o;
	(void)state;

	assert_int_equal(with("HISPARSE_SLOT", "4096", &o), 1);
	assert_int_equal(lines(), 1);
	assert_non_null(strstr(said, "HISPARSE_SLOT is not an option"));
	assert_int_equal(with("HISPARSE_SLOTS_X", "4096", &o), 1);
	assert_non_null(strstr(said, "HISPARSE_SLOTS_X"));
	assert_int_equal(with("XHISPARSE_SLOT", "4096", &o), 0);
}

/* The level holds for the lines about the other options too. */
static void quiet(void **state)
{
	struct hs_options o;
	(void)state;

	setenv("HISPARSE_LOG", "error", 1);
	assert_int_equal(with("HISPARSE_SLOTS", "1", &o), 1);
	assert_string_equal(said, "");
	unsetenv("HISPARSE_LOG");
}

static void long_lines_are_cut(void **state)
{
	struct hs_options o;
	char value[4000];
	(void)state;

	memset(value, 'z', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	assert_int_equal(with("HISPARSE_POLICY", value, &o), 1);
	assert_int_equal(lines(), 1);
	assert_true(strlen(said) < 1100);
	assert_string_equal(said + strlen(said) - 4, "...\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),
		cmocka_unit_test(good_values),
		cmocka_unit_test(bad_values),
		cmocka_unit_test(unknown_variables),
		cmocka_unit_test(quiet),
		cmocka_unit_test(long_lines_are_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
