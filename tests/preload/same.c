/* SPDX-License-Identifier: MIT */
/* A program behaves the same under every list of preloads:
 *	same LIST LIST... -- PROGRAM ARGUMENT...
 * Output, errors and exit status under each further LIST are those under the
 * first ("" preloads nothing). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT 65536

struct result {
	int status;
	char text[2][LIMIT]; /* output, errors */
};

static void run(struct result *result, const char *list, char **command)
{
	int files[2];
	pid_t child;

	for (int i = 0; i < 2; i++)
		files[i] = memfd_create("same", 0);
	child = fork();
	if (child == 0) {
		dup2(files[0], STDOUT_FILENO);
		dup2(files[1], STDERR_FILENO);
		alarm(60);
		if (*list)
			setenv("LD_PRELOAD", list, 1);
		execvp(command[0], command);
		_exit(126);
	}
	waitpid(child, &result->status, 0);
	for (int i = 0; i < 2; i++) {
		const ssize_t bytes = pread(files[i], result->text[i], LIMIT - 1, 0);

		result->text[i][bytes > 0 ? bytes : 0] = '\0';
		close(files[i]);
	}
}

int main(int argc, char **argv)
{
	static struct result first, other;
	int split = 1, failed = 0;

	while (split < argc && strcmp(argv[split], "--"))
		split++;
	if (split < 3 || split + 1 >= argc) {
		fprintf(stderr, "usage: same LIST LIST... -- PROGRAM ARGUMENT...\n");
		return 2;
	}
	run(&first, argv[1], argv + split + 1);
	if (WIFEXITED(first.status) && WEXITSTATUS(first.status) == 126) {
		printf("%s cannot be run here\n", argv[split + 1]);
		return 77;
	}
	if (!WIFEXITED(first.status) || WEXITSTATUS(first.status) == 127) {
		printf("it does not run: status %#x\n%s", (unsigned)first.status, first.text[1]);
		return 1;
	}
	for (int i = 2; i < split; i++) {
		run(&other, argv[i], argv + split + 1);
		if (first.status == other.status && !strcmp(first.text[0], other.text[0]) &&
			!strcmp(first.text[1], other.text[1]))
			continue;
		failed = 1;
		printf("under '%s': status %#x, not %#x\n", argv[i], (unsigned)other.status,
			(unsigned)first.status);
		printf("output:\n%s---- not:\n%s", other.text[0], first.text[0]);
		printf("errors:\n%s---- not:\n%s", other.text[1], first.text[1]);
	}
	return failed;
}
