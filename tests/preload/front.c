/* SPDX-License-Identifier: MIT */
/* Stands in front of the driver as Nsight Compute does: who opens the driver gets
 * this library. Its entries call the driver's, so that its cuGetProcAddress answers
 * with the driver's own addresses. */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include "hooks/table.h"

#define VERSION "GLIBC_2.2.5"

#define ROW(name, proof, flags)                                                                    \
	__attribute__((visibility("hidden"))) void *front_##name;                                  \
	__asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name                      \
		": jmp *front_" #name "(%rip)\n");
HS_DRIVER_TABLE(ROW, ROW)
#undef ROW

static const struct {
	const char *name;
	void **entry;
} rows[] = {
#define ROW(name, proof, flags) {#name, &front_##name},
	HS_DRIVER_TABLE(ROW, ROW)
#undef ROW
};

void *dlopen(const char *file, int mode)
{
	void *(*open)(const char *, int) =
		(void *(*)(const char *, int))dlvsym(RTLD_NEXT, "dlopen", VERSION);
	void *(*find)(void *, const char *) =
		(void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", VERSION);
	Dl_info self;
	void *driver;

	if (!file || strcmp(file, "libcuda.so.1") || !dladdr((void *)dlopen, &self))
		return open(file, mode);
	driver = open(file, RTLD_NOW);
	for (size_t i = 0; driver && i < sizeof(rows) / sizeof(rows[0]); i++)
		*rows[i].entry = find(driver, rows[i].name);
	return driver ? open(self.dli_fname, RTLD_NOW) : NULL;
}
