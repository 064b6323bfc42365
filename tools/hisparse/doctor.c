/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/doctor.h"

#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "tools/hisparse/command.h"

#define GIB 1073741824.

void hs_find(struct hs_findings *findings, enum hs_level level, const char *topic,
	const char *advice, const char *format, ...)
{
	struct hs_finding *finding;
	va_list list;

	if (findings->count == findings->room) {
		findings->room = findings->room ? 2 * findings->room : 16;
		findings->list =
			hs_need(realloc(findings->list, findings->room * sizeof(*findings->list)));
	}
	finding = &findings->list[findings->count++];
	finding->level = level;
	snprintf(finding->topic, sizeof(finding->topic), "%s", topic);
	snprintf(finding->advice, sizeof(finding->advice), "%s", advice ? advice : "");
	va_start(list, format);
	vsnprintf(finding->text, sizeof(finding->text), format, list);
	va_end(list);
}

static FILE *open_below(const char *root, const char *path)
{
	char whole[PATH_MAX];

	snprintf(whole, sizeof(whole), "%s%s", root, path);
	return fopen(whole, "r");
}

long long hs_doctor_number(const char *root, const char *path, const char *key)
{
	FILE *file = open_below(root, path);
	long long value = -1;
	char line[512];

	if (!file)
		return -1;
	while (value < 0 && fgets(line, sizeof(line), file)) {
		const char *at = key ? strstr(line, key) : line;

		if (at && sscanf(at + (key ? strlen(key) : 0), "%lld", &value) != 1)
			value = -1;
	}
	fclose(file);
	return value;
}

/* Free memory of the machine and of its NUMA nodes. */
void hs_doctor_memory(struct hs_findings *findings, const char *root)
{
	long long available = hs_doctor_number(root, "/proc/meminfo", "MemAvailable:");
	long long total = hs_doctor_number(root, "/proc/meminfo", "MemTotal:");
	char line[128] = "", path[64];
	FILE *file;

	if (available < 0) {
		hs_find(findings, HS_NOTE, "host memory", NULL, "/proc/meminfo tells nothing");
		return;
	}
	hs_find(findings, available < 32 << 20 ? HS_ACT : HS_FINE, "host memory",
		available < 32 << 20
			? "the full KV cache lives here: free some, or take a machine with more"
			: NULL,
		"%.0f of %.0f GiB available; about %.0f GiB may be pinned for the pools of all "
		"GPUs together",
		available / 1048576., total / 1048576., available / 1048576. * 0.9);

	for (int node = 0; node < 64; node++) {
		long long free;

		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/meminfo", node);
		free = hs_doctor_number(root, path, "MemFree:");
		if (free < 0)
			break;
		hs_find(findings, HS_FINE, "NUMA", NULL, "node %d has %.0f GiB free", node,
			free / 1048576.);
	}
	file = open_below(root, "/sys/kernel/mm/transparent_hugepage/enabled");
	if (file && fgets(line, sizeof(line), file))
		hs_find(findings, strstr(line, "[never]") ? HS_ACT : HS_FINE, "huge pages",
			strstr(line, "[never]")
				? "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: the "
				  "pool is "
				  "ready several times sooner"
				: NULL,
			"transparent huge pages: %.*s", (int)strcspn(line, "\n"), line);
	if (file)
		fclose(file);
}

/* The smallest memory limit of the control groups that this process is in. */
static long long group_limit(const char *root)
{
	FILE *file = open_below(root, "/proc/self/cgroup");
	char line[PATH_MAX], path[PATH_MAX + 64];
	long long least = -1, limit;

	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		/* Version 2, its folder and those above it. */
		if (strncmp(line, "0::", 3))
			continue;
		for (char *group = line + 3; *group; *strrchr(group, '/') = '\0') {
			snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max",
				strcmp(group, "/") ? group : "");
			limit = hs_doctor_number(root, path, NULL);
			if (limit >= 0 && (least < 0 || limit < least))
				least = limit;
		}
	}
	if (file)
		fclose(file);
	/* In a container the folder is usually the root as seen from inside. */
	limit = hs_doctor_number(root, "/sys/fs/cgroup/memory.max", NULL);
	if (limit >= 0 && (least < 0 || limit < least))
		least = limit;
	limit = hs_doctor_number(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", NULL);
	/* Version 1 writes "no limit" as a number near 2^63. */
	if (limit >= 0 && limit < 1ll << 60 && (least < 0 || limit < least))
		least = limit;
	return least;
}

void hs_doctor_limits(struct hs_findings *findings, const char *root)
{
	long long limit = group_limit(root);
	struct rlimit locked;

	if (limit >= 0)
		hs_find(findings, limit < 32ll << 30 ? HS_ACT : HS_NOTE, "container",
			"pinned memory counts: raise it (docker --memory, Kubernetes "
			"limits.memory) or "
			"set HISPARSE_HOST_GIB below it",
			"the control group may hold %.1f GiB", limit / GIB);
	else
		hs_find(findings, HS_FINE, "container", NULL, "no memory limit of a control group");
	if (getrlimit(RLIMIT_MEMLOCK, &locked))
		return;
	if (locked.rlim_cur == RLIM_INFINITY)
		hs_find(findings, HS_FINE, "locked memory", NULL, "unlimited");
	else
		hs_find(findings, HS_NOTE, "locked memory",
			"if pinning is refused: ulimit -l unlimited, docker --ulimit memlock=-1, "
			"or "
			"LimitMEMLOCK=infinity",
			"at most %.1f MiB (ulimit -l)", (double)locked.rlim_cur / 1048576);
}
