/* SPDX-License-Identifier: MIT */
/* Every driver lookup of a CUDA runtime, and which are answered by us:
 *	golden GOLDEN LOOKUPS LIBRARY PROGRAM
 * PROGRAM runs under LOOKUPS and LIBRARY; what LOOKUPS saw must be the lines of
 * GOLDEN. Runtimes of another version than the file's are skipped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE 256

static int version_of(const char *program)
{
	char line[LINE];
	int version = 0;
	FILE *pipe = popen(program, "r");

	while (pipe && fgets(line, sizeof(line), pipe))
		sscanf(line, "version: %d", &version);
	if (pipe)
		pclose(pipe);
	return version;
}

static int compare(FILE *golden, FILE *seen)
{
	char want[LINE], have[LINE];
	int line = 0, wrong = 0;

	for (;;) {
		const char *a = fgets(want, sizeof(want), golden);
		const char *b = fgets(have, sizeof(have), seen);

		line++;
		if (!a && !b)
			return wrong;
		if (a && b && !strcmp(a, b))
			continue;
		if (++wrong > 10)
			return wrong;
		printf("line %d: %s   not: %s", line, b ? b : "(end)\n", a ? a : "(end)\n");
	}
}

int main(int argc, char **argv)
{
	char path[] = "lookups-XXXXXX", preload[4096];
	int major, minor, version, file, wrong;
	FILE *golden, *seen;

	if (argc != 5 || sscanf(strrchr(argv[1], '-') + 1, "%d.%d", &major, &minor) != 2)
		return 2;
	version = version_of(argv[4]);
	if (version != major * 1000 + minor * 10) {
		printf("the list is that of runtime %d.%d; this one says %d\n", major, minor,
			version);
		return 77;
	}
	file = mkstemp(path);
	golden = fopen(argv[1], "r");
	if (file < 0 || !golden)
		return 2;
	snprintf(preload, sizeof(preload), "%s %s", argv[2], argv[3]);
	setenv("LOOKUPS_FILE", path, 1);
	setenv("LD_PRELOAD", preload, 1);
	version_of(argv[4]);
	unsetenv("LD_PRELOAD");
	seen = fdopen(file, "r");
	wrong = compare(golden, seen);
	unlink(path);
	return wrong != 0;
}
