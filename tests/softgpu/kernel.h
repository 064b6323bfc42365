/* SPDX-License-Identifier: MIT */
#ifndef SOFTGPU_KERNEL_H
#define SOFTGPU_KERNEL_H

/*
 * The kernels that the stand-in driver knows. A row registers itself when the
 * object that holds it is loaded, be it the driver, another library or a test
 * program:
 *
 *	static void fill(int *out, int value, int count) { ... }
 *	SOFT_KERNEL(fill, int *, int, int)
 *	SOFT_KERNEL_NAMED(other, "_ZN5other4fillEv", int *, int, int)
 *
 * One to twelve arguments. cuModuleGetFunction and cuLibraryGetKernel find the
 * name in any image. The newest row of a name wins.
 */

#include <stddef.h>

#define SOFT_PARAMS_MAX 12

struct soft_param {
	size_t size, align;
};

struct soft_kernel {
	const char *name;
	void (*run)(void **params); /* one thread; params point to the arguments */
	unsigned count;
	struct soft_param params[SOFT_PARAMS_MAX];
	struct soft_kernel *next; /* the registry's */
};

/* `kernel` stays the caller's and must live as long as the process. */
__attribute__((visibility("default"))) void soft_register(struct soft_kernel *kernel);

#define SOFT_COUNT_(a, b, c, d, e, f, g, h, i, j, k, l, n, ...) n
#define SOFT_COUNT(...) SOFT_COUNT_(__VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define SOFT_CAT_(a, b) a##b
#define SOFT_CAT(a, b) SOFT_CAT_(a, b)

/* SOFT_EACH(M, types...): M(0, type) , M(1, type) , ... */
#define SOFT_E1(M, i, t) M(i, t)
#define SOFT_E2(M, i, t, ...) M(i, t), SOFT_E1(M, i + 1, __VA_ARGS__)
#define SOFT_E3(M, i, t, ...) M(i, t), SOFT_E2(M, i + 1, __VA_ARGS__)
#define SOFT_E4(M, i, t, ...) M(i, t), SOFT_E3(M, i + 1, __VA_ARGS__)
#define SOFT_E5(M, i, t, ...) M(i, t), SOFT_E4(M, i + 1, __VA_ARGS__)
#define SOFT_E6(M, i, t, ...) M(i, t), SOFT_E5(M, i + 1, __VA_ARGS__)
#define SOFT_E7(M, i, t, ...) M(i, t), SOFT_E6(M, i + 1, __VA_ARGS__)
#define SOFT_E8(M, i, t, ...) M(i, t), SOFT_E7(M, i + 1, __VA_ARGS__)
#define SOFT_E9(M, i, t, ...) M(i, t), SOFT_E8(M, i + 1, __VA_ARGS__)
#define SOFT_E10(M, i, t, ...) M(i, t), SOFT_E9(M, i + 1, __VA_ARGS__)
#define SOFT_E11(M, i, t, ...) M(i, t), SOFT_E10(M, i + 1, __VA_ARGS__)
#define SOFT_E12(M, i, t, ...) M(i, t), SOFT_E11(M, i + 1, __VA_ARGS__)
#define SOFT_EACH(M, ...) SOFT_CAT(SOFT_E, SOFT_COUNT(__VA_ARGS__))(M, 0, __VA_ARGS__)

#define SOFT_ARGUMENT(i, type) *(__typeof__(type) *)params[i]
#define SOFT_LAYOUT(i, type)                                                                       \
	{                                                                                          \
		sizeof(type), __alignof__(type)                                                    \
	}

#define SOFT_KERNEL_NAMED(function, text, ...)                                                     \
	static void SOFT_CAT(soft_run_, function)(void **params)                                   \
	{                                                                                          \
		function(SOFT_EACH(SOFT_ARGUMENT, __VA_ARGS__));                                   \
	}                                                                                          \
	__attribute__((constructor)) static void SOFT_CAT(soft_add_, function)(void)               \
	{                                                                                          \
		static struct soft_kernel kernel = {text, SOFT_CAT(soft_run_, function),           \
			SOFT_COUNT(__VA_ARGS__), {SOFT_EACH(SOFT_LAYOUT, __VA_ARGS__)}, NULL};     \
		soft_register(&kernel);                                                            \
	}
#define SOFT_KERNEL(function, ...) SOFT_KERNEL_NAMED(function, #function, __VA_ARGS__)

#endif
