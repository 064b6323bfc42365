/* SPDX-License-Identifier: MIT */
#ifndef SRC_LAUNCH_PARSE_H
#define SRC_LAUNCH_PARSE_H

/*
 * From text to profiles (the format: profile.h). A mistake costs the profile
 * that it stands in and makes one line; what is right is kept.
 */

#include "src/launch/profile.h"

/* "FILE:LINE: what is wrong", no newline. */
typedef void (*hs_profile_complain)(const char *message, void *data);

/* Appends the profiles of text to *list. file must stay valid as long as they
 * do. Returns how many profiles were left out. */
unsigned hs_profile_parse(struct hs_profile **list, const char *file, const char *text,
	hs_profile_complain complain, void *data);

#endif
