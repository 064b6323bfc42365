/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/hisparse/command.h"
#include "tools/hisparse/place.h"

/* The pictures are made by a Python program that gets the arguments as they are. */
int hs_plot_main(int argc, char **argv)
{
	static char python[] = "python3";
	char path[PATH_MAX];
	char **args = hs_need(calloc((size_t)argc + 2, sizeof(*args)));

	if (hs_place_plot(path)) {
		hs_complain("plot.py is not where this command was built or installed");
		return HS_STATUS_FINDING;
	}
	args[0] = python;
	args[1] = path;
	for (int i = 1; i < argc; i++)
		args[i + 1] = argv[i];
	execvp(args[0], args);
	hs_complain("python3: %s", strerror(errno));
	return HS_STATUS_FINDING;
}
