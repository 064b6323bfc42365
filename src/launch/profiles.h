/* SPDX-License-Identifier: MIT */
#ifndef SRC_LAUNCH_PROFILES_H
#define SRC_LAUNCH_PROFILES_H

/*
 * The profiles of this process: those of HISPARSE_PROFILES, then the built-in
 * ones (hooks/profiles). Any thread.
 */

#include "src/launch/profile.h"

/* Made at the first call, the same list ever after. Never logs. */
const struct hs_profile *hs_profiles(void);

/* Logs what was wrong with them, once. Safe moments only. */
void hs_profiles_report(void);

/* The built-in texts, ended by a NULL file. */
struct hs_profile_text {
	const char *file, *text;
};
extern const struct hs_profile_text hs_profile_texts[];

#endif
