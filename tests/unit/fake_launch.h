/* SPDX-License-Identifier: MIT */
#ifndef TESTS_UNIT_FAKE_LAUNCH_H
#define TESTS_UNIT_FAKE_LAUNCH_H

/*
 * What src/launch stands on, in the test's own process: a driver that knows
 * names and parameter sizes of kernels, windows at addresses that nothing
 * reads, and a cache that writes down what it is asked. What happens is kept
 * as text, one word or two an event, in order.
 */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdint.h>
#include "hooks/driver.h"
#include "src/base/options.h"
#include "src/cache/notes.h"
#include "src/launch/launch.h"

#define FAKE_WINDOW(n) (UINT64_C(0x200000000000) + (UINT64_C(1) << 36) * (n))
#define FAKE_WINDOWS 4
#define FAKE_REMAPPED UINT64_C(0x7e57ab1e)

/* A kernel; its address is its handle. */
struct fake_kernel {
	const char *name;
	uint32_t sizes[20]; /* ended by 0; each parameter is aligned to 8 */
	bool library;	    /* a CUkernel: cuFuncGetName and its like refuse it */
};

struct fake {
	struct hs_options options;
	struct hs_window windows[FAKE_WINDOWS];
	bool any; /* windows exist */
	char events[4096];
	char log[2048]; /* lines at warn and above, or as options.log says */
	int queries;	/* questions about handles */
	int inside;	/* the gate */
	bool capturing;
	CUresult launch_result;
	int resolve_result;
	bool unchanged; /* resolve answers the engine's own list */
	bool no_layer;
	int rows_fail_after;	  /* the n-th verify kernel from now fails */
	CUdeviceptr hashes;	  /* of the last comparison */
	CUstreamCaptureMode mode; /* this thread's */
	struct hs_list list;
	struct hs_slots slots;
	struct hs_blocks blocks;
	CUdeviceptr base;
	uint32_t row;
	uint64_t told;
	struct hs_notes_launch node; /* told of the last launch that was captured */
	/* what the driver got */
	struct hs_launch launched;
	unsigned char params[4096]; /* packed as the driver would */
};
extern struct fake fake;

void fake_reset(void);

/* Resets, and reads `text` as HISPARSE_PROFILES names a file. False: no file. */
bool fake_profiles(const char *text);

void fake_event(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The launch's forward: packs the parameters as the driver does. */
CUresult fake_forward(struct hs_launch *launch);

CUresult fake_launch(const struct fake_kernel *kernel, unsigned grid, void **params);

/* What the driver got at a byte of a parameter. */
uint64_t fake_param(const struct fake_kernel *kernel, unsigned param, size_t at, size_t width);

#endif
