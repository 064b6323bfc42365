/* SPDX-License-Identifier: MIT */
#ifndef SRC_LAUNCH_VERIFY_H
#define SRC_LAUNCH_VERIFY_H

/*
 * HISPARSE_VERIFY=n: every n-th attention launch (eager and captured ones are
 * counted apart) runs twice on its stream, with the remapped list and with the
 * engine's own, over outputs that were poisoned before, and the hashes of
 * their rows are compared on the device. A captured launch is checked at every
 * replay. The outputs keep the values of the engine's own list.
 */

#include <stdbool.h>
#include <stdint.h>
#include "src/cache/cache.h"
#include "src/launch/launch.h"
#include "src/launch/profile.h"

/* Takes memory for it, once. Safe moments; does nothing unless asked for. */
void hs_verify_prepare(void);

/* Whether this attention launch is one of those to check. Launch path. */
bool hs_verify_due(const struct hs_site *site);

/* Issues both launches and the comparison. Returns what the driver returned
 * for the kernel; a launch that cannot be checked is only issued, remapped. */
CUresult hs_verify_launch(const struct hs_profile *profile, const struct hs_expr_values *values,
	struct hs_launch *engine, struct hs_launch *remapped, const struct hs_layer *layer,
	const struct hs_site *site);

struct hs_verify_counts {
	uint64_t launches;	  /* issued or captured to be checked */
	uint64_t skipped;	  /* due, but not checked */
	uint64_t rows, different; /* compared so far on the device */
};
void hs_verify_read(struct hs_verify_counts *counts);

/* Logs layers that differ and have not been logged yet. Safe moments. */
void hs_verify_report(void);

#endif
