/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first of the candidates, each relative to the command's folder, that can be read. */
static int find(char path[PATH_MAX], const char *const *candidates)
{
	char self[PATH_MAX], tried[2 * PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (length < 0)
		return -errno;
	self[length] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	for (; *candidates; candidates++) {
		snprintf(tried, sizeof(tried), "%s/%s", self, *candidates);
		if (!access(tried, R_OK) && realpath(tried, path))
			return 0;
	}
	return -ENOENT;
}

int hs_place_library(char path[PATH_MAX])
{
	static const char *const candidates[] = {"libhisparse.so", "../../src/libhisparse.so",
		"../" HS_LIBDIR "/libhisparse.so", NULL};
	const char *given = getenv("HISPARSE_LIBRARY");

	if (given && *given)
		return realpath(given, path) ? 0 : -errno;
	return find(path, candidates);
}

int hs_place_plot(char path[PATH_MAX])
{
	static const char *const candidates[] = {
		"plot.py", "../" HS_DATADIR "/hisparse/plot.py", NULL};

	return find(path, candidates);
}
