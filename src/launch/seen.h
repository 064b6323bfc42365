/* SPDX-License-Identifier: MIT */
#ifndef SRC_LAUNCH_SEEN_H
#define SRC_LAUNCH_SEEN_H

/*
 * What launches told of kernels and windows, as debug lines, each once, for
 * people and for `hisparse doctor -- program`. Where HISPARSE_LOG is below debug
 * this does nothing.
 */

#include "src/launch/kernel.h"

/* As they are written: the kernel's name, role and profile; a window's number,
 * its MiB and what it holds; at the end a kernel's launches. */
#define HS_SEEN_KERNEL "seen kernel %.511s: %s, profile %s"
#define HS_SEEN_WINDOW "seen window %u: %zu MiB of %s, rows of %u bytes"
#define HS_SEEN_LAUNCHES "launches of kernel %.511s: %llu"

/* What a profile's role is called; "unknown" without a profile. */
const char *hs_seen_role(const struct hs_profile *profile);

/* Safe moments only. The launches are told by themselves at the process's end. */
void hs_seen_report(void);

#endif
