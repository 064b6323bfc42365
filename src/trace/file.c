/* SPDX-License-Identifier: MIT */
#include "src/trace/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "src/base/log.h"
#include "src/trace/metrics.h"

#define HEAD "# HELP hisparse_build_info"
#define FRESH 5 /* seconds: who writes a file does so every second */

static bool apart;  /* the name is another's: ours has the process id */
static bool failed; /* and said so */

static int expand(char path[PATH_MAX], const char *name)
{
	const char *mark = strstr(name, "%p");
	int length;

	if (mark)
		length = snprintf(path, PATH_MAX, "%.*s%d%s", (int)(mark - name), name,
			(int)getpid(), mark + 2);
	else if (apart)
		length = snprintf(path, PATH_MAX, "%s.%d", name, (int)getpid());
	else
		length = snprintf(path, PATH_MAX, "%s", name);
	return length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* The process that wrote a file; 0 when it is empty or not there, -1 when it is
 * not one of ours. */
static pid_t writer_of(const char *path)
{
	char head[512];
	const char *mark;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n;

	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	n = read(fd, head, sizeof(head) - 1);
	close(fd);
	if (n <= 0)
		return n ? -1 : 0;
	head[n] = '\0';
	mark = strstr(head, HS_METRICS_PID);
	if (strncmp(head, HEAD, strlen(HEAD)) || !mark)
		return -1;
	return (pid_t)strtol(mark + strlen(HS_METRICS_PID), NULL, 10);
}

/* Whether the path is ours to replace: 0; -EEXIST: no metrics of ours are there;
 * -EBUSY: those of another process that is still at it. */
static int claim(const char *path)
{
	struct stat status;
	pid_t writer;

	if (lstat(path, &status))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISREG(status.st_mode))
		return -EEXIST;
	writer = writer_of(path);
	if (writer < 0)
		return -EEXIST;
	if (!writer || writer == getpid() || status.st_mtime + FRESH < time(NULL))
		return 0;
	return kill(writer, 0) && errno == ESRCH ? 0 : -EBUSY;
}

static int write_all(int fd, const char *text, size_t length)
{
	while (length) {
		ssize_t n = write(fd, text, length);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			text += n;
			length -= (size_t)n;
		}
	}
	return 0;
}

static int replace(const char *path, const char *text, size_t length)
{
	char beside[PATH_MAX + 32];
	int fd, error;

	snprintf(beside, sizeof(beside), "%s.%d.tmp", path, (int)getpid());
	unlink(beside); /* of a crashed process with this id */
	fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	error = write_all(fd, text, length);
	if (close(fd) && !error)
		error = -errno;
	if (!error && rename(beside, path))
		error = -errno;
	if (error)
		unlink(beside);
	return error;
}

static int write_now(char path[PATH_MAX], const char *name)
{
	char *text;
	size_t length;
	int error = expand(path, name);

	if (error)
		return error;
	error = claim(path);
	if (error == -EBUSY && !apart && !strstr(name, "%p")) {
		apart = true;
		expand(path, name);
		error = claim(path);
		hs_info("HISPARSE_METRICS=%s is another process's: this one's go to %s", name,
			path);
	}
	if (!error)
		error = hs_metrics_text(&text, &length);
	if (error)
		return error;
	error = replace(path, text, length);
	free(text);
	return error;
}

int hs_file_write(const char *name)
{
	char path[PATH_MAX];
	int error = write_now(path, name);

	if (error && !failed)
		hs_warn("HISPARSE_METRICS: no metrics in %s (%s)",
			error == -ENAMETOOLONG ? name : path,
			error == -EEXIST ? "it holds something else" : strerror(-error));
	failed |= error != 0;
	return error;
}
