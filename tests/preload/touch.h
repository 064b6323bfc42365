/* SPDX-License-Identifier: MIT */
#ifndef TESTS_PRELOAD_TOUCH_H
#define TESTS_PRELOAD_TOUCH_H

/*
 * What programs that touch windows share: memory with a plain model of its
 * bytes beside it, and attention that tells whether the hot rows of a window
 * are those bytes too. They link the driver as an engine does, with our library
 * in front of it, and run on the stand-in driver or on a GPU.
 */

/* Declares every ABI variant under its ELF name, with no renaming macros. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)
#define SEAM (2 * MIB) /* between the part of a window that stays on the device and the rest */

#define CHECK(call)                                                                                \
	do {                                                                                       \
		const CUresult result_ = (call);                                                   \
		if (result_ != CUDA_SUCCESS)                                                       \
			touch_fail("%s:%d: %s: error %d", __FILE__, __LINE__, #call, result_);     \
	} while (0)
#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition))                                                                  \
			touch_fail("%s:%d: %s", __FILE__, __LINE__, #condition);                   \
	} while (0)
void touch_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

enum touch_kind { TOUCH_WINDOW, TOUCH_DEVICE, TOUCH_PINNED, TOUCH_PAGEABLE };

struct touch {
	enum touch_kind kind;
	CUdeviceptr ptr;
	size_t bytes;
	uint8_t *model;
};

extern CUstream touch_stream;
extern CUcontext touch_context;

/* cuInit and all that; exits with 77 where there is no GPU. Options that are not
 * set get values for small windows on the host. */
void touch_start(void);

/* From here on everything is on the device with this number; false: there is none. */
bool touch_on(int ordinal);

/* One of the kernels of the coherence test. */
CUfunction touch_function(const char *name);

/* Random bytes, known. A window is on the host but for its first granule, is
 * known to be KV, and has hot rows. */
void touch_make(struct touch *t, enum touch_kind kind, size_t bytes);
void touch_free(struct touch *t);

/* Makes the rows near `at` hot, and shows that attention reads hot rows, unless
 * the library was told to do nothing (HISPARSE_DISABLE). */
void touch_heat(struct touch *window, size_t at);

/* After whatever it says was done: the bytes around `at` are the model's, and of
 * a window also what attention reads. Waits for everything first. All of the
 * bytes are compared when it is freed. */
void touch_check(struct touch *t, size_t at, const char *what);

/* Attention over the rows near `at`; how many are not the model's. */
size_t touch_stale(struct touch *window, size_t at);
/* The kernel, its list (of rows near `at`) and its parameters, for graphs made
 * by hand: enqueues nothing. What it read counts for the next touch_read. */
void touch_aim(struct touch *window, size_t at);
void touch_attend(struct touch *window, CUstream stream);
size_t touch_read(struct touch *window);

uint32_t touch_random(void);
void touch_noise(uint8_t *bytes, size_t count);

#endif
