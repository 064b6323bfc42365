/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>
#include "tools/hisparse/doctor.h"
#include "tools/hisparse/dryrun.h"
#include "tools/hisparse/place.h"

static const char *launches_of(char text[32], const struct hs_dry_kernel *kernel)
{
	if (kernel->launches)
		snprintf(text, 32, ", %llu launches", (unsigned long long)kernel->launches);
	else
		*text = '\0';
	return text;
}

/* What was recognised; returns whether attention was. */
static bool report_kernels(struct hs_findings *findings, const struct hs_dry *dry)
{
	bool attention = false;
	char launches[32];

	for (size_t i = 0; i < dry->kernel_count; i++) {
		const struct hs_dry_kernel *kernel = &dry->kernels[i];

		launches_of(launches, kernel);
		attention |= !strcmp(kernel->role, "attention");
		if (strcmp(kernel->profile, "none"))
			hs_find(findings, HS_FINE, "recognised", NULL, "%s %.140s: profile %s%s",
				kernel->role, kernel->name, kernel->profile, launches);
		else if (kernel->kv)
			hs_find(findings, HS_ACT, "unknown kernel",
				"taken for a writer of all rows: right, but the window's hot rows "
				"go after each launch. A profile in HISPARSE_PROFILES says what it "
				"does (libhisparse(7))",
				"%.140s carries a window of KV%s", kernel->name, launches);
		else
			hs_find(findings, HS_NOTE, "unknown kernel",
				"nothing, unless a window that it carries should hold KV",
				"%.140s carries a window without KV%s", kernel->name, launches);
	}
	return attention;
}

static void report_windows(struct hs_findings *findings, const struct hs_dry *dry)
{
	size_t kv = 0, kv_mib = 0, other = 0, other_mib = 0;
	unsigned row = 0;

	for (size_t i = 0; i < dry->window_count; i++) {
		const struct hs_dry_window *window = &dry->windows[i];

		*(window->kv ? &kv : &other) += 1;
		*(window->kv ? &kv_mib : &other_mib) += window->mib;
		row = window->kv && window->row ? window->row : row;
	}
	if (kv)
		hs_find(findings, HS_FINE, "would move", NULL,
			"%zu windows, %.2f GiB, %llu layers, KV rows of %u bytes: to the host when "
			"GPU memory is short",
			kv, (double)kv_mib / 1024, (unsigned long long)dry->layers, row);
	if (other)
		hs_find(findings, HS_FINE, "would stay", NULL,
			"%zu windows, %.2f GiB, hold something else: on the GPU", other,
			(double)other_mib / 1024);
	if (!kv && dry->processes)
		hs_find(findings, HS_ACT, "would move",
			"does the model have sparse attention, and is the engine's version one "
			"that is verified?",
			"nothing: no kernel was recognised that writes or reads KV");
}

void hs_doctor_program(struct hs_findings *findings, char **program, unsigned seconds)
{
	char library[PATH_MAX];
	struct hs_dry dry;

	if (hs_place_library(library))
		return; /* hs_doctor_library has said so */
	if (hs_dry_run(&dry, program, library, seconds)) {
		hs_find(findings, HS_ACT, "program", "set TMPDIR to a folder with room",
			"no folder for its counters");
		return;
	}
	if (dry.stopped)
		hs_find(findings, HS_FINE, "program", NULL, "%s: stopped after %u seconds",
			program[0], seconds);
	else
		hs_find(findings, dry.status ? HS_ACT : HS_FINE, "program",
			dry.status ? "what it said stands above; does it run without the library?"
				   : NULL,
			"%s: status %d", program[0], dry.status);
	if (!dry.processes)
		hs_find(findings, HS_ACT, "windows",
			"does it use CUDA? HISPARSE_WINDOW_MIB says from which size on "
			"allocations are watched",
			"no allocation was large enough to be watched");
	else if (!report_kernels(findings, &dry) && dry.kernel_count)
		hs_find(findings, HS_ACT, "attention",
			"serve a request while it runs; if one was served, its attention kernel "
			"is not known: an engine's version that is verified, or a profile",
			"no attention kernel was recognised");
	report_windows(findings, &dry);
	for (size_t i = 0; i < dry.line_count; i++)
		hs_find(findings, HS_ACT, "library",
			"the launch is safe; it is slow, or nothing is swapped for it", "%s",
			dry.lines[i]);
	hs_dry_finish(&dry);
}
