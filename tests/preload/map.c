/* SPDX-License-Identifier: MIT */
/* Everybody's mmap, by both of its names, is what it was: map [LIBRARY], the one that
 * it comes from. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <dlfcn.h>

#define PAGE ((size_t)4096)
#define BOTH (PROT_READ | PROT_WRITE)
#define ALONE (MAP_PRIVATE | MAP_ANONYMOUS)

typedef void *map_function(void *, size_t, int, int, int, off_t);

/* One signature: off_t has 64 bits here. */
_Static_assert(sizeof(off_t) == sizeof(off64_t), "mmap64 takes an off64_t");
static map_function *const maps[] = {mmap, mmap64};
static const char *library;

static void it_is_whose_it_should_be(void **state)
{
	Dl_info info;

	(void)state;
	if (!library)
		skip();
	for (int i = 0; i < 2; i++) {
		assert_true(dladdr((void *)maps[i], &info));
		assert_string_equal(info.dli_fname, library);
	}
}

static void files_are_mapped(void **state)
{
	const int fd = memfd_create("map", MFD_CLOEXEC);
	char *got, *shared;

	(void)state;
	assert_int_equal(pwrite(fd, "first", 5, 0), 5);
	assert_int_equal(pwrite(fd, "second", 6, (off_t)PAGE), 6);
	for (int i = 0; i < 2; i++) {
		errno = EXDEV;
		got = maps[i](NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, (off_t)PAGE);
		assert_ptr_not_equal(got, MAP_FAILED);
		assert_int_equal(errno, EXDEV);
		assert_memory_equal(got, "second", 6);
		shared = maps[i](NULL, PAGE, BOTH, MAP_SHARED, fd, 0);
		assert_ptr_not_equal(shared, MAP_FAILED);
		memcpy(shared, "firsT", 5);
		assert_int_equal(munmap(shared, PAGE), 0);
		assert_int_equal(pread(fd, got = (char[5]){0}, 5, 0), 5);
		assert_memory_equal(got, "firsT", 5);
	}
	/* An offset that needs more than 32 bits, and pages of nothing before it. */
	assert_int_equal(pwrite(fd, "far", 3, (off_t)5 << 30), 3);
	for (int i = 0; i < 2; i++) {
		got = maps[i](NULL, PAGE, PROT_READ, MAP_SHARED, fd, (off_t)5 << 30);
		assert_ptr_not_equal(got, MAP_FAILED);
		assert_memory_equal(got, "far", 4);
		munmap(got, PAGE);
	}
	close(fd);
}

static void memory_is_mapped(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		char *got = maps[i](NULL, 3 * PAGE, BOTH, ALONE, -1, 0), *at = got + PAGE;

		assert_ptr_not_equal(got, MAP_FAILED);
		memset(got, 1, 3 * PAGE);
		/* In its place, and nothing else's. */
		assert_ptr_equal(maps[i](at, PAGE, BOTH, ALONE | MAP_FIXED, -1, 0), at);
		assert_int_equal(at[-1], 1);
		assert_int_equal(at[0] + at[PAGE - 1], 0);
		assert_int_equal(at[PAGE], 1);
		/* As a hint, it is in the way. */
		assert_ptr_not_equal(maps[i](at, PAGE, PROT_NONE, ALONE, -1, 0), at);
		/* Free, it is taken. */
		assert_int_equal(munmap(at, PAGE), 0);
		assert_ptr_equal(maps[i](at, PAGE, PROT_NONE, ALONE, -1, 0), at);
	}
}

static void refused(
	map_function *map, void *at, size_t bytes, int flags, int fd, off_t offset, int expected)
{
	errno = 0;
	assert_ptr_equal(map(at, bytes, PROT_READ, flags, fd, offset), MAP_FAILED);
	assert_int_equal(errno, expected);
}

static void bad_calls_are_told(void **state)
{
	char *got = mmap(NULL, PAGE, BOTH, ALONE, -1, 0);

	(void)state;
	for (int i = 0; i < 2; i++) {
		refused(maps[i], NULL, 0, ALONE, -1, 0, EINVAL);
		refused(maps[i], NULL, PAGE, MAP_PRIVATE, -1, 0, EBADF);
		refused(maps[i], NULL, PAGE, MAP_PRIVATE, 0, 100, EINVAL);
		refused(maps[i], got + 1, PAGE, ALONE | MAP_FIXED, -1, 0, EINVAL);
		refused(maps[i], got, PAGE, ALONE | MAP_FIXED_NOREPLACE, -1, 0, EEXIST);
		refused(maps[i], NULL, SIZE_MAX / 2, ALONE, -1, 0, ENOMEM);
	}
}

/* Another library that stands in front of the C library's, and behind ours. */
static void who_stands_behind_is_asked(void **state)
{
	const unsigned *calls = dlsym(RTLD_DEFAULT, "map_behind_calls");
	unsigned before;

	(void)state;
	if (!calls)
		skip();
	for (int i = 0; i < 2; i++) {
		before = *calls;
		munmap(maps[i](NULL, PAGE, BOTH, ALONE, -1, 0), PAGE);
		assert_int_equal(*calls, before + 1);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_whose_it_should_be),
		cmocka_unit_test(files_are_mapped),
		cmocka_unit_test(memory_is_mapped),
		cmocka_unit_test(bad_calls_are_told),
		cmocka_unit_test(who_stands_behind_is_asked),
	};

	library = argc > 1 ? argv[1] : NULL;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
