/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 20

/* The process's id where it lives, and its effective user. */
static int identify(int pid, int *inner, uid_t *user)
{
	char path[64], line[1024], *last;
	unsigned real, effective;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	if (!file)
		return -ESRCH;
	*inner = pid;
	*user = geteuid();
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Uid: %u %u", &real, &effective) == 2)
			*user = effective;
		if (!strncmp(line, "NSpid:", 6) && (last = strrchr(line, '\t')))
			*inner = atoi(last);
	}
	fclose(file);
	return 0;
}

static int has_library(int pid)
{
	char path[64], line[4096];
	int error = -ENXIO;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	while (error && fgets(line, sizeof(line), file))
		error = strstr(line, "/libhisparse.so") ? 0 : error;
	fclose(file);
	return error;
}

/* 0: an answer; -EAGAIN: not yet. */
static int read_answer(const char *path, char answer[HS_CONTROL_BYTES])
{
	int error = -EAGAIN, fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, answer, HS_CONTROL_BYTES - 1);
	close(fd);
	if (n <= 0 || answer[n - 1] != '\n')
		return -EAGAIN;
	answer[n - 1] = '\0';
	if (!strncmp(answer, "done ", 5))
		error = 0;
	else if (!strncmp(answer, "failed ", 7))
		error = -EREMOTEIO;
	if (error != -EAGAIN)
		memmove(answer, strchr(answer, ' ') + 1, strlen(strchr(answer, ' ')));
	return error;
}

int hs_attach(int pid, const char *request, unsigned patience, char answer[HS_CONTROL_BYTES])
{
	const struct timespec look = {.tv_nsec = LOOK_MS * 1000000};
	char path[128], name[64];
	int inner, fd, error;
	uid_t user;

	error = identify(pid, &inner, &user);
	if (!error)
		error = has_library(pid);
	if (error)
		return error;
	snprintf(name, sizeof(name), HS_CONTROL, inner);
	snprintf(path, sizeof(path), "/proc/%d/root%s", pid, name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno == EEXIST ? -EBUSY : -errno;
	error = 0;
	if ((user != geteuid() && fchown(fd, user, (gid_t)-1)) || dprintf(fd, "%s\n", request) < 0)
		error = -errno;
	close(fd);
	if (!error)
		error = -EAGAIN;
	for (unsigned waited = 0; error == -EAGAIN && waited < patience; waited += LOOK_MS) {
		nanosleep(&look, NULL);
		error = read_answer(path, answer);
	}
	unlink(path);
	return error == -EAGAIN ? -ETIMEDOUT : error;
}
