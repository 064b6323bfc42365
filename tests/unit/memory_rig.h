/* SPDX-License-Identifier: MIT */
#ifndef UNIT_MEMORY_RIG_H
#define UNIT_MEMORY_RIG_H

/* What the tests of windows that go to the host have in common: windows of BYTES, of
 * which REST moves. */

#include "fake_driver.h"

#define BYTES (8 * MIB)
#define REST (BYTES - HS_GRANULE)

static inline enum hs_place tail(CUdeviceptr ptr)
{
	return fake_place(ptr + HS_GRANULE);
}

static inline bool is_managed(CUdeviceptr ptr)
{
	return fake_managed(ptr + HS_GRANULE);
}

/* A window of the device, filled, that is to go. */
static inline CUdeviceptr ready(unsigned seed)
{
	CUdeviceptr ptr = fake_window(8);

	fake_fill(ptr, BYTES, seed);
	hs_window_find(ptr)->use = HS_USE_KV;
	fake.options.place = HS_OPTION_HOST;
	hs_memory_mark();
	return ptr;
}

static inline CUdeviceptr moved(unsigned seed)
{
	CUdeviceptr ptr = ready(seed);

	hs_memory_settle(true);
	return ptr;
}

/* Without its size being learnt, so that the next one begins on the device. */
static inline void drop(CUdeviceptr ptr)
{
	hs_window_find(ptr)->use = HS_USE_OTHER;
	fake_free(ptr);
}

static inline void none_is_left(void)
{
	assert_int_equal(fake.reservations + fake.handles + fake.mappings, 0);
	assert_int_equal(fake.registered + fake.managed_count, 0);
	assert_int_equal(fake.host_used + fake.device_used, 0);
	assert_int_equal(fake.outside + fake.unmapped_while_busy, 0);
}

#endif
