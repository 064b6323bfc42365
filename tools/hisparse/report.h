/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_REPORT_H
#define TOOLS_HISPARSE_REPORT_H

/* What a replay found, for people and for programs (`hisparse plot` reads the latter). */

#include <jansson.h>
#include "tools/hisparse/replay.h"

/* A new reference, NULL without memory. */
json_t *hs_report_json(const char *path, const struct hs_dsat *trace, const struct hs_replay_in *in,
	const struct hs_replay *replay);
void hs_report_text(const char *path, const struct hs_dsat *trace, const struct hs_replay_in *in,
	const struct hs_replay *replay);

#endif
