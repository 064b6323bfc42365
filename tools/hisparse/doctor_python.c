/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "src/launch/profiles.h"
#include "tools/hisparse/command.h"
#include "tools/hisparse/doctor.h"

/* Reads metadata only: importing an engine would start CUDA. */
static const char script[] = "import importlib.metadata as m, sys\n"
			     "print('python', sys.version.split()[0])\n"
			     "for d in m.distributions():\n"
			     "    n = (d.metadata['Name'] or '').lower().replace('_', '-')\n"
			     "    if n in sys.argv[1:] or n.startswith('nvidia-cuda-cupti'):\n"
			     "        print(n, d.version)\n";

/* In a profile: the kernels of that package and version were seen. */
#define VERIFIED "\nverified "
enum { MOST_ENGINES = 16 };

struct engine {
	char name[32], version[32];
};

static unsigned verified_engines(struct engine *engines)
{
	unsigned count = 0;

	for (const struct hs_profile_text *text = hs_profile_texts; text->file; text++)
		for (const char *at = text->text;
			(at = strstr(at, VERIFIED)) && count < MOST_ENGINES; at++)
			count += sscanf(at + strlen(VERIFIED), "%31s %31s", engines[count].name,
					 engines[count].version) == 2;
	return count;
}

/* Starts python; its standard output is *out. Returns the process or a negative errno. */
static pid_t start(const char *python, const struct engine *engines, unsigned count, FILE **out)
{
	const char *args[MOST_ENGINES + 4] = {python, "-c", script};
	int ends[2];
	pid_t child;

	for (unsigned i = 0; i < count; i++)
		args[3 + i] = engines[i].name;
	if (pipe(ends))
		return -errno;
	child = fork();
	if (!child) {
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		execvp(python, (char *const *)args);
		_exit(127);
	}
	close(ends[1]);
	*out = child < 0 ? NULL : fdopen(ends[0], "r");
	if (*out)
		return child;
	close(ends[0]);
	return -ENOMEM;
}

static void judge(struct hs_findings *findings, const struct engine *engines, unsigned count,
	const char *name, const char *version)
{
	bool engine = false, known = false;
	char versions[128] = "";

	for (unsigned i = 0; i < count; i++) {
		if (strcmp(engines[i].name, name))
			continue;
		engine = true;
		known |= !strcmp(engines[i].version, version);
		snprintf(versions + strlen(versions), sizeof(versions) - strlen(versions), " %s",
			engines[i].version);
	}
	if (engine && known)
		hs_find(findings, HS_FINE, "engine", NULL, "%s %s: its kernels are known", name,
			version);
	else if (engine)
		hs_find(findings, HS_NOTE, "engine",
			"start it with --log info: kernels that are not known are named; their "
			"launches "
			"stay as they are",
			"%s %s: verified is%s", name, version, versions);
	else
		hs_find(findings, HS_FINE, "CUPTI", NULL, "%s %s", name, version);
}

void hs_doctor_python(struct hs_findings *findings, const char *python)
{
	struct engine engines[MOST_ENGINES];
	unsigned count = verified_engines(engines), found = 0;
	bool cupti = false;
	char name[64], version[64];
	int status = -1;
	FILE *out = NULL;
	pid_t child = start(python, engines, count, &out);

	if (child > 0) {
		while (fscanf(out, "%63s %63s", name, version) == 2) {
			if (!strcmp(name, "python")) {
				hs_find(findings, HS_FINE, "Python", NULL, "%s %s", python,
					version);
				continue;
			}
			judge(findings, engines, count, name, version);
			cupti |= !strncmp(name, "nvidia-", 7);
			found += strncmp(name, "nvidia-", 7) != 0;
		}
		fclose(out);
		waitpid(child, &status, 0);
	}
	if (status) {
		hs_find(findings, HS_ACT, "Python", "tell which: hisparse doctor --python PATH",
			"%s does not run", python);
	} else if (!found) {
		hs_find(findings, HS_NOTE, "engine",
			"tell the Python that the server uses: --python PATH",
			"no engine that a profile knows is installed for %s", python);
	}
	if (cupti)
		return;
	for (int major = 13; major >= 12; major--) {
		snprintf(name, sizeof(name), "libcupti.so.%d", major);
		if (!dlopen(name, RTLD_LAZY | RTLD_LOCAL))
			continue;
		hs_find(findings, HS_FINE, "CUPTI", NULL, "%s", name);
		return;
	}
	hs_find(findings, HS_NOTE, "CUPTI", "only traces with kernel times need it",
		"no libcupti.so and no nvidia-cuda-cupti package");
}
