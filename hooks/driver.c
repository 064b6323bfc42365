/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <stddef.h>
#include "hooks/driver.h"
#include "hooks/hook.h"
#include <cudaTypedefs.h>

/* Every row has the type that NVIDIA gives its ABI version. */
#define ROW(name, proof, flags)                                                                    \
	_Static_assert(                                                                            \
		__builtin_types_compatible_p(__typeof__(&name), proof), #name " is not " #proof);
HS_DRIVER_TABLE(ROW, ROW)
#undef ROW

struct hs_driver hs_driver;
__thread int hs_inside;
void *(*hs_dlsym_real)(void *handle, const char *name);

/* glibc moved dlsym and dlvsym from libdl to libc in 2.34 and kept the first
 * version as an alias. Pinned to that one, the library loads on both sides. */
#if defined(__x86_64__)
#define DLSYM_VERSION "GLIBC_2.2.5"
#else /* aarch64, ppc64le */
#define DLSYM_VERSION "GLIBC_2.17"
#endif
__asm__(".symver dlvsym,dlvsym@" DLSYM_VERSION);

static const struct {
	const char *name;
	size_t at;
	int flags;
} rows[] = {
#define ROW(name, proof, flags) {#name, offsetof(struct hs_driver, name), flags},
	HS_DRIVER_TABLE(ROW, ROW)
#undef ROW
};

static _Atomic bool filled, complete;

static void *missing(void *handle, const char *name)
{
	(void)handle;
	(void)name;
	return NULL;
}

/*
 * What comes after our dlsym is glibc's, or that of an interposer behind us,
 * which dlvsym does not see: its name has no version. Threads that race here
 * all store the same value.
 */
HS_UNSANITIZED bool hs_dlsym_open(void)
{
	void *real = __atomic_load_n((void **)&hs_dlsym_real, __ATOMIC_ACQUIRE);
	void *(*first)(void *, const char *);

	if (!real) {
		first = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", DLSYM_VERSION);
		real = first ? first(RTLD_NEXT, "dlsym") : NULL;
		if (!real)
			real = first ? (void *)first : (void *)missing;
		__atomic_store_n((void **)&hs_dlsym_real, real, __ATOMIC_RELEASE);
	}
	return real != (void *)missing;
}

/* Our own reference keeps the driver in place when the program closes its. */
static void fill(void *library)
{
	bool whole = true;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *entry = hs_dlsym_real(library, rows[i].name);

		if (!entry && !(rows[i].flags & HS_ROW_OPTIONAL))
			whole = false;
		__atomic_store_n(
			(void **)((char *)&hs_driver + rows[i].at), entry, __ATOMIC_RELAXED);
	}
	atomic_store(&complete, whole);
	atomic_store(&filled, true);
}

static bool open_with(int mode)
{
	void *library;

	if (atomic_load(&filled))
		return true;
	if (!hs_dlsym_open())
		return false;
	library = dlopen("libcuda.so.1", mode);
	if (!library)
		return false;
	fill(library);
	return true;
}

bool hs_driver_attach(void)
{
	return open_with(RTLD_NOW | RTLD_NOLOAD);
}

bool hs_driver_open(void)
{
	return hs_driver_attach() || open_with(RTLD_NOW);
}

bool hs_driver_whole(void)
{
	return atomic_load(&complete);
}
