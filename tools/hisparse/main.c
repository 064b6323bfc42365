/* SPDX-License-Identifier: MIT */
#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include "tools/hisparse/command.h"

static const struct {
	const char *name;
	int (*main)(int argc, char **argv);
	const char *help;
} commands[] = {
	{"run", hs_run_main, "start a server with the library and its options"},
	{"doctor", hs_doctor_main, "look at this machine and say what to do"},
	{"top", hs_top_main, "watch hits and misses of a running server, layer by layer"},
	{"trace", hs_trace_main, "time swap-in and attention of a program or a running server"},
	{"record", hs_record_main, "record which slots attention selects"},
	{"plan", hs_plan_main, "size a server from a model's config.json"},
	{"replay", hs_replay_main, "miss rates of policies and sizes from a recorded stream"},
	{"synth", hs_synth_main,
		"write a synthetic stream, or say how far it is from published ones"},
	{"plot", hs_plot_main, "draw replays as SVG and one HTML page"},
};

static void usage(FILE *file)
{
	fputs("Usage: hisparse COMMAND [options]\n\n", file);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		fprintf(file, "  %-8s  %s\n", commands[i].name, commands[i].help);
	fputs("\n`hisparse COMMAND --help` explains a command. Exit status: 0 fine, 1 something\n"
	      "failed or needs attention, 2 wrong usage.\n",
		file);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	static char help[] = "--help";
	char *title;

	argp_err_exit_status = HS_STATUS_USAGE;
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		if (argc == 2) {
			usage(stdout);
			return HS_STATUS_OK;
		}
		/* help COMMAND is COMMAND --help. */
		name = argv[2];
		argv[2] = help;
	} else if (!strcmp(name, "--version")) {
		puts("hisparse " HS_VERSION);
		return HS_STATUS_OK;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(name, commands[i].name))
			continue;
		if (asprintf(&title, "hisparse %s", name) < 0)
			return HS_STATUS_FINDING;
		argv[1] = title;
		return commands[i].main(argc - 1, argv + 1);
	}
	if (*name)
		hs_complain("no command is called %s", name);
	usage(stderr);
	return HS_STATUS_USAGE;
}
