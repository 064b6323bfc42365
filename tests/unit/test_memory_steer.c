/* SPDX-License-Identifier: MIT */
/* Where one mapping goes, and pages that are there before they are needed. */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include "fake_driver.h"
#include "src/memory/prefault.h"
#include "src/memory/steer.h"

#define AT ((uint64_t)0x200002000000)
#define WANT (64 * MIB) /* a multiple of the slack */
#define PAGE ((size_t)4096)
#define ROOM (36 * MIB) /* a chunk of what threads share, and some of another */

static uint64_t steered(void *address, size_t bytes, int protection)
{
	return (uint64_t)hs_steer(address, bytes, protection);
}

static void one_mapping_is_steered(void **state)
{
	(void)state;
	assert_int_equal(steered(NULL, WANT, PROT_NONE), 0); /* nobody asked for it */
	hs_steer_begin(AT, WANT);
	assert_int_equal(steered(NULL, WANT + HS_STEER_SLACK - PAGE, PROT_NONE), AT);
	assert_int_equal(steered(NULL, WANT + HS_STEER_SLACK - PAGE, PROT_NONE), 0);
	assert_true(hs_steer_end());
	hs_steer_begin(AT, WANT);
	assert_int_equal(steered(NULL, WANT, PROT_NONE), AT);
	assert_true(hs_steer_end());
	hs_steer_begin(AT, WANT);
	assert_int_equal(steered(NULL, WANT + HS_STEER_SLACK, PROT_NONE), AT);
	assert_true(hs_steer_end());
	hs_steer_begin(AT, WANT + PAGE); /* which the driver rounds up */
	assert_int_equal(steered(NULL, WANT + 2 * HS_STEER_SLACK - PAGE, PROT_NONE), AT);
	assert_true(hs_steer_end());
}

/* Nor do they use it up. */
static void other_mappings_are_not(void **state)
{
	void *const place = (void *)0x300000000000;

	(void)state;
	hs_steer_begin(AT, WANT);
	assert_int_equal(steered(place, WANT, PROT_NONE), place);
	assert_int_equal(steered(NULL, WANT, PROT_READ), 0);
	assert_int_equal(steered(NULL, WANT, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(steered(NULL, WANT - PAGE, PROT_NONE), 0);
	assert_int_equal(steered(NULL, WANT + HS_STEER_SLACK + PAGE, PROT_NONE), 0);
	assert_int_equal(steered(NULL, WANT, PROT_NONE), AT);
	hs_steer_end();
}

static void after_the_end_none_is(void **state)
{
	(void)state;
	hs_steer_begin(AT, WANT);
	assert_false(hs_steer_end()); /* nobody asked */
	assert_int_equal(steered(NULL, WANT, PROT_NONE), 0);
	hs_steer_begin(0, WANT); /* anywhere */
	assert_int_equal(steered(NULL, WANT, PROT_NONE), 0);
	hs_steer_end();
}

static void *elsewhere(void *out)
{
	*(uint64_t *)out = steered(NULL, WANT, PROT_NONE);
	return NULL;
}

static void other_threads_are_not(void **state)
{
	uint64_t got = 1;
	pthread_t thread;

	(void)state;
	hs_steer_begin(AT, WANT);
	assert_int_equal(pthread_create(&thread, NULL, elsewhere, &got), 0);
	pthread_join(thread, NULL);
	assert_int_equal(got, 0);
	assert_int_equal(steered(NULL, WANT, PROT_NONE), AT);
	hs_steer_end();
}

/* At a multiple of HS_GRANULE, of small pages. */
static char *room(int protection)
{
	char *got = mmap(NULL, ROOM + HS_GRANULE, protection,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(got, MAP_FAILED);
	got += -(uintptr_t)got & (HS_GRANULE - 1);
	madvise(got, ROOM, MADV_NOHUGEPAGE);
	return got;
}

/* Pages that are there; *granules: those that a granule begins with. */
static size_t present(char *start, size_t *granules)
{
	static unsigned char pages[ROOM / PAGE];
	size_t sum = 0;

	assert_int_equal(mincore(start, ROOM, pages), 0);
	*granules = 0;
	for (size_t i = 0; i < ROOM / PAGE; i++) {
		sum += pages[i] & 1;
		*granules += (pages[i] & 1) && i % (HS_GRANULE / PAGE) == 0;
	}
	return sum;
}

static void a_page_of_each_granule_is_made(void **state)
{
	char *start;
	size_t first;

	(void)state;
	for (int node = -1; node < 2; node++) { /* of the last there may be none */
		start = room(PROT_READ | PROT_WRITE);
		assert_int_equal(present(start, &first), 0);
		errno = EXDEV;
		assert_int_equal(hs_prefault(start, ROOM, HS_PREFAULT_GRANULE, node), 0);
		assert_int_equal(errno, EXDEV);
		assert_int_equal(present(start, &first), ROOM / HS_GRANULE);
		assert_int_equal(first, ROOM / HS_GRANULE);
	}
}

static void all_pages_are_made(void **state)
{
	char *start = room(PROT_READ | PROT_WRITE);
	size_t first;

	(void)state;
	assert_int_equal(hs_prefault(start, ROOM, HS_PREFAULT_ALL, 0), 0);
	assert_int_equal(present(start, &first), ROOM / PAGE);
}

/* And no signal. */
static void what_cannot_be_made_is_told(void **state)
{
	char *start = room(PROT_NONE);
	size_t first;

	(void)state;
	errno = 0;
	assert_int_equal(hs_prefault(start, ROOM, HS_PREFAULT_GRANULE, 0), -EINVAL);
	assert_int_equal(errno, 0);
	assert_int_equal(present(start, &first), 0);
	/* One of them, the last. */
	start = room(PROT_READ | PROT_WRITE);
	assert_int_equal(mprotect(start + ROOM - HS_GRANULE, HS_GRANULE, PROT_READ), 0);
	assert_int_equal(hs_prefault(start, ROOM, HS_PREFAULT_GRANULE, -1), -EINVAL);
	/* None there at all, which is what it says where there is no memory, too. */
	assert_int_equal(munmap(start, ROOM), 0);
	assert_int_equal(hs_prefault(start, ROOM, HS_PREFAULT_GRANULE, -1), -ENOMEM);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_mapping_is_steered),
		cmocka_unit_test(other_mappings_are_not),
		cmocka_unit_test(after_the_end_none_is),
		cmocka_unit_test(other_threads_are_not),
		cmocka_unit_test(a_page_of_each_granule_is_made),
		cmocka_unit_test(all_pages_are_made),
		cmocka_unit_test(what_cannot_be_made_is_told),
	};

	if (!fake_populates())
		return 77;
	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
