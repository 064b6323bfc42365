/* SPDX-License-Identifier: MIT */
/*
 * Description: which kind of host memory windows get, which the program is not told:
 * its windows answer as cuMemAlloc's memory. Addresses stay what they were, and
 * bytes, and a hot row is not the host's.
 *
 * usage: managed managed | registered | driver
 */
#include "touch.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES (12 * MIB)

/* The mapping that an address lies in: what it is of, or "". */
static void mapped(CUdeviceptr at, char *of, size_t room)
{
	unsigned long long from, to;
	char line[512], name[256];
	FILE *f = fopen("/proc/self/maps", "re");

	*of = '\0';
	EXPECT(f);
	while (fgets(line, sizeof(line), f)) {
		*name = '\0';
		if (sscanf(line, "%llx-%llx %*s %*s %*s %*s %255s", &from, &to, name) >= 2 &&
			at - from < to - from)
			snprintf(of, room, "%s", name);
	}
	fclose(f);
}

/* The stand-in driver is asked; of a real one the memory is a file's (580.159.04). */
static bool is_managed(CUdeviceptr at, size_t bytes)
{
	bool (*ask)(uintptr_t, size_t) =
		(bool (*)(uintptr_t, size_t))dlsym(RTLD_DEFAULT, "soft_managed");
	char of[256];

	if (ask)
		return ask(at, bytes);
	mapped(at, of, sizeof(of));
	return !strcmp(of, "/dev/nvidia-uvm");
}

/* Whether the kernel makes pages on demand (Linux 5.14). */
static bool populates(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const bool made = !madvise(page, 4096, 23); /* MADV_POPULATE_WRITE */

	munmap(page, 4096);
	return made;
}

static void answers_as_ever(struct touch *window)
{
	unsigned type = 0, managed = 1;
	CUdeviceptr start = 0;
	size_t bytes = 0;

	CHECK(cuPointerGetAttribute(
		&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, window->ptr + 5 * MIB));
	EXPECT(type == CU_MEMORYTYPE_DEVICE);
	CHECK(cuPointerGetAttribute(
		&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, window->ptr + 5 * MIB));
	EXPECT(!managed);
	CHECK(cuMemGetAddressRange_v2(&start, &bytes, window->ptr + 5 * MIB));
	EXPECT(start == window->ptr && bytes == BYTES);
}

int main(int argc, char **argv)
{
	const char *part = argc == 2 ? argv[1] : "";
	const bool want = !strcmp(part, "managed");
	struct touch windows[2];
	CUdeviceptr next;
	char of[256];

#ifdef __SANITIZE_THREAD__
	if (want)
		return 77; /* nobody is steered (map.c) */
#endif
	if (want && !populates())
		return 77;
	if (!want)
		setenv("HISPARSE_HOST_MEMORY", part, 1);
	touch_start();
	for (int i = 0; i < 2; i++) {
		touch_make(&windows[i], TOUCH_WINDOW, BYTES);
		EXPECT(is_managed(windows[i].ptr + SEAM, BYTES - SEAM) == want);
		EXPECT(!is_managed(windows[i].ptr, 1));
		/* Of the other kinds one has no file, one has. */
		mapped(windows[i].ptr + SEAM, of, sizeof(of));
		EXPECT(want || !*of == !strcmp(part, "registered"));
		answers_as_ever(&windows[i]);
		touch_heat(&windows[i], 7 * MIB);
	}
	CHECK(cuMemAlloc_v2(&next, BYTES)); /* begins there */
	EXPECT(is_managed(next + SEAM, BYTES - SEAM) == want);
	CHECK(cuMemFree_v2(next));
	for (int i = 0; i < 2; i++) {
		memset(windows[i].model + SEAM - 100, i, 5 * MIB);
		CHECK(cuMemsetD8_v2(windows[i].ptr + SEAM - 100, (unsigned char)i, 5 * MIB));
		touch_check(&windows[i], SEAM - 100, "a fill across the seam");
	}
	for (int i = 0; i < 2; i++) {
		touch_free(&windows[i]);
		EXPECT(!is_managed(windows[i].ptr + SEAM, 1));
	}
	printf("managed %s: as the model\n", part);
	return 0;
}
