/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/memory/pool.h"

#define GIB ((double)(1ull << 30))

static FILE *open_under(const char *root, const char *folder, const char *file)
{
	char path[4096];

	if ((size_t)snprintf(path, sizeof(path), "%s%s%s", root, folder, file) >= sizeof(path))
		return NULL;
	return fopen(path, "re");
}

/* "max" and absurdly large numbers (v1's no limit) are no limit. */
static uint64_t number(const char *root, const char *folder, const char *file, uint64_t none)
{
	FILE *f = open_under(root, folder, file);
	uint64_t value = none;

	if (!f)
		return none;
	if (fscanf(f, "%" SCNu64, &value) != 1)
		value = none;
	fclose(f);
	return value;
}

static uint64_t meminfo(const char *root, const char *key)
{
	FILE *f = open_under(root, "/proc/meminfo", "");
	char line[256];
	uint64_t kib = 0;

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)) && line[strlen(key)] == ':') {
			kib = strtoull(line + strlen(key) + 1, NULL, 10);
			break;
		}
	fclose(f);
	return kib << 10;
}

/* The page cache of files counts as used, but makes way. v1 tells a group's own
 * and its children's apart. */
static uint64_t cached(const char *root, const char *folder)
{
	static const char *const keys[] = {
		"inactive_file ", "active_file ", "total_inactive_file ", "total_active_file "};
	FILE *f = open_under(root, folder, "/memory.stat");
	uint64_t found[4] = {0};
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		for (size_t i = 0; i < 4; i++)
			if (!strncmp(line, keys[i], strlen(keys[i])))
				found[i] = strtoull(line + strlen(keys[i]), NULL, 10);
	if (f)
		fclose(f);
	return found[2] || found[3] ? found[2] + found[3] : found[0] + found[1];
}

/* Our cgroup and every one above it, down to the mount: each may limit. */
static void walk(const char *root, char *folder, size_t mount, const char *limit_file,
	const char *used_file, uint64_t *limit, uint64_t *left)
{
	for (;;) {
		const uint64_t most = number(root, folder, limit_file, UINT64_MAX);
		uint64_t used = number(root, folder, used_file, 0);
		const uint64_t cache = cached(root, folder);
		char *slash;

		used = used > cache ? used - cache : 0;
		if (most < *limit)
			*limit = most;
		if (most != UINT64_MAX && (most > used ? most - used : 0) < *left)
			*left = most > used ? most - used : 0;
		slash = strrchr(folder, '/');
		if (strlen(folder) <= mount || !slash)
			return;
		*slash = '\0';
	}
}

static void limits(const char *root, uint64_t *limit, uint64_t *left)
{
	static const char v2[] = "/sys/fs/cgroup", v1[] = "/sys/fs/cgroup/memory";
	FILE *f = open_under(root, "/proc/self/cgroup", "");
	char line[2048], folder[4096];

	*limit = *left = UINT64_MAX;
	while (f && fgets(line, sizeof(line), f)) {
		char *where = strchr(line, ':');

		where = where ? strchr(where + 1, ':') : NULL;
		if (!where)
			continue;
		line[strcspn(line, "\n")] = '\0';
		where += 1 + !strcmp(where, ":/"); /* "/" is the mount itself */
		if (!strncmp(line, "0::", 3)) {
			snprintf(folder, sizeof(folder), "%s%s", v2, where);
			walk(root, folder, strlen(v2), "/memory.max", "/memory.current", limit,
				left);
		} else if (strstr(line, ":memory:")) {
			snprintf(folder, sizeof(folder), "%s%s", v1, where);
			walk(root, folder, strlen(v1), "/memory.limit_in_bytes",
				"/memory.usage_in_bytes", limit, left);
		}
	}
	if (f)
		fclose(f);
}

uint64_t hs_pool_machine(const char *root)
{
	const uint64_t total = meminfo(root, "MemTotal");
	uint64_t limit, left;

	limits(root, &limit, &left);
	return total < limit ? total : limit;
}

uint64_t hs_pool_free(const char *root)
{
	const uint64_t available = meminfo(root, "MemAvailable");
	uint64_t limit, left;

	limits(root, &limit, &left);
	return available < left ? available : left;
}

unsigned hs_pool_gpus(const char *root)
{
	char path[4096];
	unsigned gpus = 0;
	struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus", root);
	folder = opendir(path);
	if (!folder)
		return 0;
	while ((entry = readdir(folder)))
		gpus += entry->d_name[0] != '.';
	closedir(folder);
	return gpus;
}

uint64_t hs_pool_size(const char *root, uint64_t asked, unsigned gpus)
{
	const uint64_t machine = hs_pool_machine(root), left = hs_pool_free(root);
	/* For the engine itself, its page cache and everybody else. */
	const uint64_t margin = machine / 10;
	const uint64_t most = left > margin ? left - margin : 0;

	if (asked == HS_AUTO)
		return most / (gpus ? gpus : 1);
	if (asked <= machine)
		return asked;
	hs_warn("host pool of %.1f GiB refused: this machine has %.1f GiB of host memory, "
		"HISPARSE_HOST_GIB=%.1f would work now; going on without a pool",
		asked / GIB, machine / GIB, most / GIB);
	return 0;
}
