/* SPDX-License-Identifier: MIT */
/* Preloaded before us: writes every driver lookup that passes through it to
 * LOOKUPS_FILE, with the name of our function where one of ours was answered,
 * and answers what the stand-in driver lacks, so that cudart asks on. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cuda.h>

#ifdef __aarch64__
#define FIRST_VERSION "GLIBC_2.17"
#else
#define FIRST_VERSION "GLIBC_2.2.5"
#endif

typedef CUresult lookup(const char *symbol, void **pfn, int version, cuuint64_t flags,
	CUdriverProcAddressQueryResult *status);

static void *(*next_dlsym)(void *handle, const char *name);
static lookup *next_lookup;

void *dlsym(void *restrict handle, const char *restrict name);

static CUresult lacking(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

static lookup logged;
static CUresult logged(const char *symbol, void **pfn, int version, cuuint64_t flags,
	CUdriverProcAddressQueryResult *status)
{
	const char *path = getenv("LOOKUPS_FILE");
	CUresult result = next_lookup(symbol, pfn, version, flags, status);
	const char *ours = "-";
	FILE *file = path ? fopen(path, "a") : NULL;
	Dl_info info;

	if (result == CUDA_SUCCESS && *pfn && dladdr(*pfn, &info) && info.dli_sname &&
		strstr(info.dli_fname, "libhisparse"))
		ours = info.dli_sname;
	if (file) {
		fprintf(file, "%s %d %llu %s%s\n", *symbol ? symbol : "(empty)", version,
			(unsigned long long)flags, ours, status ? " status" : "");
		fclose(file);
	}
	if (result == CUDA_SUCCESS && *pfn && !strcmp(symbol, "cuGetProcAddress") &&
		version >= 12000)
		*pfn = (void *)logged;
	if (*symbol && (result != CUDA_SUCCESS || !*pfn)) {
		*pfn = (void *)lacking;
		result = CUDA_SUCCESS;
	}
	return result;
}

void *dlsym(void *restrict handle, const char *restrict name)
{
	void *answer;

	if (!next_dlsym) {
		void *(*first)(void *, const char *) =
			(void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", FIRST_VERSION);

		next_dlsym = (void *(*)(void *, const char *))first(RTLD_NEXT, "dlsym");
	}
	answer = next_dlsym(handle, name);
	if (answer && !strcmp(name, "cuGetProcAddress_v2")) {
		next_lookup = (lookup *)answer;
		return (void *)logged;
	}
	return answer;
}
