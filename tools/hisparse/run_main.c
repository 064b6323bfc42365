/* SPDX-License-Identifier: MIT */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "src/base/options.h"
#include "tools/hisparse/command.h"
#include "tools/hisparse/flags.h"
#include "tools/hisparse/place.h"
#include "tools/hisparse/run.h"
#include "tools/hisparse/summary.h"

enum { KEY_FLAG = 0x1000, KEY_LIBRARY = 256, KEY_SHOW = 'n', KEY_QUIET = 'q', MOST_FLAGS = 64 };

struct ask {
	const char *library;
	char **program; /* NULL-terminated, a part of argv */
	bool show, quiet, off;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct ask *ask = state->input;
	const struct hs_flag *flag = key >= KEY_FLAG ? hs_flag_at((unsigned)key - KEY_FLAG) : NULL;

	if (flag && key < KEY_FLAG + MOST_FLAGS) {
		setenv(flag->variable, arg ? arg : "1", 1);
		return 0;
	}
	switch (key) {
	case KEY_LIBRARY:
		ask->library = arg;
		return 0;
	case KEY_SHOW:
		ask->show = true;
		return 0;
	case KEY_QUIET:
		ask->quiet = true;
		return 0;
	case ARGP_KEY_ARG:
		/* The rest is the program's. */
		ask->program = state->argv + state->next - 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which program? hisparse run [options] -- vllm serve MODEL …");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Flags for the library's options, behind them the command's own. */
static void make_options(struct argp_option *options)
{
	const struct hs_flag *flag;
	unsigned n = 0;

	for (; n < MOST_FLAGS && (flag = hs_flag_at(n)); n++)
		options[n] = (struct argp_option){flag->name, (int)(KEY_FLAG + n),
			flag->kind == HS_FLAG_FLAG   ? NULL
			: flag->kind == HS_FLAG_PATH ? "PATH"
			: flag->kind == HS_FLAG_GIB  ? "GIB"
			: flag->kind == HS_FLAG_SIZE ? "N"
						     : "NAME",
			0, flag->help, 1};
	options[n++] = (struct argp_option){"library", KEY_LIBRARY, "PATH", 0,
		"libhisparse.so to preload; default: HISPARSE_LIBRARY, or the one that came along",
		2};
	options[n++] = (struct argp_option){"dry-run", KEY_SHOW, NULL, 0,
		"print what would be set and started, as a shell takes it", 2};
	options[n++] = (struct argp_option){
		"quiet", KEY_QUIET, NULL, 0, "say nothing when the KV cache stands", 2};
}

/* Sets an option that is not set. */
static void suggest(const char *field, unsigned value)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	setenv(hs_flag_field(field)->variable, text, 0);
}

/* Sets LD_PRELOAD and, from the model's config, row and layers. Returns a status. */
static int prepare(struct ask *ask)
{
	char library[PATH_MAX], *preload;
	const char *model;
	struct hs_options checked;
	unsigned row, layers;
	int err = 0;

	if (ask->library)
		setenv("HISPARSE_LIBRARY", ask->library, 1);
	err = hs_place_library(library);
	if (err) {
		hs_complain("libhisparse.so: %s; tell where it is: --library or HISPARSE_LIBRARY",
			strerror(-err));
		return HS_STATUS_FINDING;
	}
	if (strpbrk(library, " :")) {
		hs_complain("%s: the dynamic linker takes no path with a blank or colon", library);
		return HS_STATUS_FINDING;
	}
	/* Not an option of the library, which warns of what it does not know. */
	unsetenv("HISPARSE_LIBRARY");
	row = hs_run_row(ask->program, &model, &layers);
	if (row) {
		suggest("row", row);
		suggest("layers", layers);
	}
	/* The library's own parser: what it would only warn of ends the command here. */
	if (hs_options_read(&checked)) {
		hs_complain("an option is wrong; nothing was started");
		return HS_STATUS_USAGE;
	}
	ask->off = checked.disable;
	preload = hs_need(hs_run_preload(getenv("LD_PRELOAD"), library));
	setenv("LD_PRELOAD", preload, 1);
	free(preload);
	return HS_STATUS_OK;
}

static void quote(const char *text)
{
	if (*text && !text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					"0123456789_-+=./:,@%")]) {
		fputs(text, stdout);
		return;
	}
	putchar('\'');
	for (; *text; text++)
		fputs(*text == '\'' ? "'\\''" : (const char[]){*text, '\0'}, stdout);
	putchar('\'');
}

static void show(const struct ask *ask)
{
	const struct hs_flag *flag;
	const char *value;

	printf("LD_PRELOAD=");
	quote(getenv("LD_PRELOAD"));
	for (unsigned i = 0; (flag = hs_flag_at(i)); i++) {
		value = getenv(flag->variable);
		if (!value)
			continue;
		printf(" %s=", flag->variable);
		quote(value);
	}
	for (char **argument = ask->program; *argument; argument++) {
		putchar(' ');
		quote(*argument);
	}
	putchar('\n');
}

/* Waits for the child and passes on what others send us. A terminal's signals
 * reach the child by themselves. */
static int wait_for(pid_t child, const sigset_t *signals, struct hs_summary *summary)
{
	static const struct timespec look = {.tv_nsec = HS_SUMMARY_MS * 1000000};
	siginfo_t info;
	int status;

	for (;;) {
		int signal = summary->said ? sigwaitinfo(signals, &info)
					   : sigtimedwait(signals, &info, &look);

		if (signal < 0) {
			hs_summary_look(summary, child, false);
			continue;
		}
		if (signal != SIGCHLD) {
			if (info.si_code != SI_KERNEL)
				kill(child, signal);
			continue;
		}
		if (waitpid(child, &status, WNOHANG) != child)
			continue;
		if (WIFEXITED(status))
			return WEXITSTATUS(status);
		if (WIFSIGNALED(status))
			return 128 + WTERMSIG(status);
	}
}

static int start(char **program, struct hs_summary *summary)
{
	static const int passed[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
	sigset_t signals, before;
	pid_t parent = getpid(), child;

	sigemptyset(&signals);
	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++)
		sigaddset(&signals, passed[i]);
	sigprocmask(SIG_BLOCK, &signals, &before);
	child = fork();
	if (child < 0) {
		hs_complain("fork: %s", strerror(errno));
		return HS_STATUS_FINDING;
	}
	if (!child) {
		/* A server must not outlive a command that was killed. */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		sigprocmask(SIG_SETMASK, &before, NULL);
		if (getppid() != parent)
			_exit(HS_STATUS_FINDING);
		execvp(program[0], program);
		hs_complain("%s: %s", program[0], strerror(errno));
		_exit(errno == ENOENT ? 127 : 126);
	}
	return wait_for(child, &signals, summary);
}

int hs_run_main(int argc, char **argv)
{
	struct argp_option options[MOST_FLAGS + 4] = {0};
	const struct argp argp = {options, parse, "[--] PROGRAM [ARGUMENT…]",
		"Starts a server with the library in front of it, waits, and returns its exit "
		"status. "
		"The options are the library's; each is an environment variable too.\v"
		"The status is that of the program, 128 + n if signal n ended it, 127 or 126 if it "
		"could not be started, 2 if an option is wrong.",
		NULL, NULL, NULL};
	struct hs_summary summary = {.said = true};
	struct ask ask = {0};
	int status, err;

	make_options(options);
	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &ask))
		return HS_STATUS_USAGE;
	status = prepare(&ask);
	if (status)
		return status;
	if (ask.show) {
		show(&ask);
		return HS_STATUS_OK;
	}
	if (!ask.quiet && !ask.off) {
		err = hs_summary_begin(&summary);
		if (err) {
			hs_complain("no folder for counters, so no summary: %s", strerror(-err));
			summary.said = true;
		}
	}
	status = start(ask.program, &summary);
	hs_summary_look(&summary, 0, true);
	hs_summary_end(&summary);
	return status;
}
