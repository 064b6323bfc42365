/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_PLACE_H
#define TOOLS_HISPARSE_PLACE_H

/*
 * Where the command's companions are, from where the command itself is: beside
 * it (a wheel), in the build folder, or in the prefix it was installed into.
 * Returns 0 or a negative errno; the path is absolute.
 */

#include <limits.h>

/* The preload library; HISPARSE_LIBRARY comes first. */
int hs_place_library(char path[PATH_MAX]);

/* The program behind `hisparse plot`. */
int hs_place_plot(char path[PATH_MAX]);

#endif
