/* SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include "tools/hisparse/top.h"

#define TEXT_BYTES ((size_t)1 << 20) /* ten times what 512 layers make */
#define PROCESSES 65536

static const char variable[] = "HISPARSE_METRICS=";

static bool is_number(const char *text)
{
	return *text && strspn(text, "0123456789") == strlen(text) && strlen(text) < 10;
}

/* What a descriptor has, up to its end. The caller frees it. */
static char *read_all(int fd, size_t *length)
{
	char *text = malloc(TEXT_BYTES);
	ssize_t n = 1;

	*length = 0;
	while (text && n > 0 && *length < TEXT_BYTES - 1) {
		n = read(fd, text + *length, TEXT_BYTES - 1 - *length);
		if (n > 0)
			*length += (size_t)n;
	}
	if (text)
		text[*length] = '\0';
	if (n < 0) {
		free(text);
		return NULL;
	}
	return text;
}

static char *read_path(const char *path, size_t *length, struct timespec *written)
{
	FILE *file = fopen(path, "re");
	struct stat status;
	char *text = NULL;

	if (!file)
		return NULL;
	if (fstat(fileno(file), &status) == 0) {
		*written = status.st_mtim;
		text = read_all(fileno(file), length);
	}
	fclose(file);
	return text;
}

static pid_t parent_of(pid_t pid)
{
	char path[64], line[512];
	const char *end;
	FILE *file;
	int parent = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	/* The name in brackets may hold anything. */
	end = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
	if (!end || sscanf(end + 1, " %*c %d", &parent) != 1)
		parent = 0;
	fclose(file);
	return parent;
}

/* The variable in the environment that the process was started with. */
static bool setting_of(char value[PATH_MAX], pid_t pid)
{
	char path[64];
	struct timespec unused;
	size_t length, at = 0;
	char *text;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	text = read_path(path, &length, &unused);
	for (; text && at < length && !found; at += strlen(text + at) + 1) {
		found = !strncmp(text + at, variable, strlen(variable)) &&
			text[at + strlen(variable)];
		if (found)
			snprintf(value, PATH_MAX, "%s", text + at + strlen(variable));
	}
	free(text);
	return found;
}

__attribute__((format(printf, 3, 4))) static size_t add(
	struct hs_top_source *sources, size_t count, const char *format, ...)
{
	struct hs_top_source source = {0};
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(source.path, sizeof(source.path), format, args);
	va_end(args);
	if (length >= PATH_MAX || access(source.path, R_OK) || count == HS_TOP_SOURCES)
		return count;
	sources[count] = source;
	return count + 1;
}

/* The files that a process with this setting may write, as far as they exist. */
static size_t add_files(struct hs_top_source *sources, size_t count, const char *value, pid_t pid)
{
	const char *mark = strstr(value, "%p");
	char base[64] = "";

	if (*value != '/')
		snprintf(base, sizeof(base), "/proc/%d/cwd/", (int)pid);
	if (mark)
		return add(sources, count, "%s%.*s%d%s", base, (int)(mark - value), value, (int)pid,
			mark + 2);
	return add(sources, count, "%s%s.%d", base, value, (int)pid);
}

/* The process and its descendants. */
static size_t family_of(pid_t pids[PROCESSES], pid_t pid)
{
	struct {
		pid_t pid, parent;
	} *all = calloc(PROCESSES, sizeof(*all));
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	size_t n = 0, count = 0;

	while (all && folder && n < PROCESSES && (entry = readdir(folder))) {
		if (!is_number(entry->d_name))
			continue;
		all[n].pid = atoi(entry->d_name);
		all[n].parent = parent_of(all[n].pid);
		n++;
	}
	pids[count++] = pid;
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < n && count < PROCESSES; j++)
			if (all[j].parent == pids[i])
				pids[count++] = all[j].pid;
	if (folder)
		closedir(folder);
	free(all);
	return count;
}

/* -ENOENT: none there yet; -ESRCH: no such process, or no such setting. */
static int find_process(struct hs_top_source *sources, pid_t pid)
{
	static pid_t family[PROCESSES];
	char value[PATH_MAX];
	size_t count = 0, members = family_of(family, pid);
	pid_t at = pid;
	bool found = false;

	/* A program that sets its title may have written over its environment,
	 * and `hisparse run` sets the variable for its child alone. */
	for (; at > 0 && !found; at = parent_of(at))
		found = setting_of(value, at);
	for (size_t i = 1; i < members && !found; i++)
		found = setting_of(value, family[i]);
	if (!found)
		return -ESRCH;
	if (is_number(value)) {
		sources[0] = (struct hs_top_source){.port = (uint16_t)atoi(value)};
		return 1;
	}
	if (!strstr(value, "%p"))
		count = *value == '/' ? add(sources, 0, "%s", value)
				      : add(sources, 0, "/proc/%d/cwd/%s", (int)pid, value);
	for (size_t i = 0; i < members; i++)
		count = add_files(sources, count, value, family[i]);
	return count ? (int)count : -ENOENT;
}

int hs_top_find(struct hs_top_source sources[HS_TOP_SOURCES], const char *what, const char **why)
{
	int count;

	if (!is_number(what)) {
		*why = strerror(ENOENT);
		return add(sources, 0, "%s", what) ? 1 : -ENOENT;
	}
	/* 0 is the parent of a namespace's first process, so of everybody's. */
	count = atoi(what) > 0 ? find_process(sources, atoi(what)) : -ESRCH;
	if (count != -ESRCH) {
		*why = "the process has no metrics yet: they begin with its first window";
		return count;
	}
	if (atoi(what) < 1 || atoi(what) > UINT16_MAX) {
		*why = "no process of that id was started with HISPARSE_METRICS";
		return -ENOENT;
	}
	sources[0] = (struct hs_top_source){.port = (uint16_t)atoi(what)};
	return 1;
}

static int dial(uint16_t port)
{
	const struct sockaddr_in address = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct timeval patience = {.tv_sec = 3};
	static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
	int error, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) ||
		send(fd, request, strlen(request), MSG_NOSIGNAL) != (ssize_t)strlen(request)) {
		error = errno;
		close(fd);
		return -error;
	}
	return fd;
}

static char *read_port(uint16_t port, size_t *length, struct timespec *written)
{
	int fd = dial(port);
	char *text;

	if (fd < 0) {
		errno = -fd;
		return NULL;
	}
	text = read_all(fd, length);
	clock_gettime(CLOCK_REALTIME, written);
	close(fd);
	return text;
}

int hs_top_read(struct hs_top_sample *sample, const struct hs_top_source *source)
{
	struct timespec written;
	size_t length;
	char *text = source->port ? read_port(source->port, &length, &written)
				  : read_path(source->path, &length, &written);
	int error;

	if (!text)
		return errno ? -errno : -EIO;
	error = hs_top_parse(sample, text);
	sample->at = (double)written.tv_sec + (double)written.tv_nsec / 1e9;
	free(text);
	return error;
}
