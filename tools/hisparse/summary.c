/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/summary.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tools/hisparse/command.h"
#include "tools/hisparse/flags.h"
#include "tools/hisparse/size.h"

#define GIB 1073741824.
#define SETTLED 12 /* looks without a change: the first steps of a server are slow */

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_REALTIME, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int hs_summary_folder(char folder[PATH_MAX])
{
	const char *above = getenv("TMPDIR"), *variable = hs_flag_field("metrics")->variable;
	char made[PATH_MAX - 8], value[PATH_MAX];

	if (snprintf(made, sizeof(made), "%s/hisparse-XXXXXX",
		    above && *above ? above : P_tmpdir) >= (int)sizeof(made))
		return -ENAMETOOLONG;
	if (!mkdtemp(made))
		return -errno;
	strcpy(folder, made);
	snprintf(value, sizeof(value), "%s/%%p", folder);
	return setenv(variable, value, 1) ? -errno : 0;
}

size_t hs_summary_sources(struct hs_top_source sources[HS_TOP_SOURCES], const char *folder)
{
	DIR *list = opendir(folder);
	struct dirent *entry;
	size_t count = 0;

	/* Names are process ids; those of half-written files have a dot. */
	while (list && count < HS_TOP_SOURCES && (entry = readdir(list))) {
		if (strchr(entry->d_name, '.'))
			continue;
		sources[count].port = 0;
		if (snprintf(sources[count].path, PATH_MAX, "%s/%s", folder, entry->d_name) <
			PATH_MAX)
			count++;
	}
	if (list)
		closedir(list);
	return count;
}

void hs_summary_remove(const char *folder)
{
	char path[PATH_MAX + 256];
	DIR *list = opendir(folder);
	struct dirent *entry;

	while (list && (entry = readdir(list))) {
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			unlink(path);
	}
	if (list)
		closedir(list);
	rmdir(folder);
}

int hs_summary_begin(struct hs_summary *summary)
{
	const char *set = getenv(hs_flag_field("metrics")->variable);

	/* Times of files are those of the clock's last tick. */
	*summary = (struct hs_summary){.began = now() - 0.1};
	return set && *set ? 0 : hs_summary_folder(summary->folder);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

void hs_summary_add(struct hs_summary_facts *facts, const struct hs_top_sample *sample)
{
	facts->processes++;
	facts->windows += sample->windows[0] + sample->windows[1];
	facts->device_bytes += sample->window_bytes[0];
	facts->host_bytes += sample->window_bytes[1];
	facts->pool += sample->pool;
	facts->refused += sample->refused;
	facts->unknown_kernels += sample->unknown_kernels;
	facts->layers += sample->layers;
	for (unsigned i = 0; i < sample->layers; i++) {
		facts->swapping += sample->layer[i].hot_rows != 0;
		facts->hot_rows = least(facts->hot_rows, sample->layer[i].hot_rows);
		facts->slots = least(facts->slots, sample->layer[i].slots);
	}
}

static const char *policy(void)
{
	const struct hs_flag *flag = hs_flag_field("policy");
	const char *set = getenv(flag->variable);

	return set && *set ? set : flag->fallback;
}

int hs_summary_print(char *line, size_t room, const struct hs_summary_facts *facts)
{
	char hot[32], slots[32], processes[32] = "", rest[160] = "";
	int n;

	if (!facts->windows)
		return -ENODATA;
	if (facts->processes > 1)
		snprintf(processes, sizeof(processes), " of %u processes", facts->processes);
	if (facts->refused)
		snprintf(rest, sizeof(rest), "; some attention launches read in place");
	if (facts->unknown_kernels)
		snprintf(rest + strlen(rest), sizeof(rest) - strlen(rest),
			"; kernels that no profile knows: %llu (hisparse doctor -- … names them)",
			(unsigned long long)facts->unknown_kernels);
	n = snprintf(line, room,
		"KV cache%s: %llu windows, %.2f GiB on the device, %.2f GiB on the host (pool "
		"%.2f GiB); ",
		processes, (unsigned long long)facts->windows, (double)facts->device_bytes / GIB,
		(double)facts->host_bytes / GIB, (double)facts->pool / GIB);
	if (n < 0 || (size_t)n >= room)
		return 0;
	line += n;
	room -= (size_t)n;
	if (facts->swapping)
		snprintf(line, room,
			"%llu of %llu layers swap, %s hot rows for %s tokens each, policy %s%s",
			(unsigned long long)facts->swapping, (unsigned long long)facts->layers,
			hs_size_text(hot, facts->hot_rows), hs_size_text(slots, facts->slots),
			policy(), rest);
	else if (facts->layers)
		snprintf(line, room, "%llu layers, %s: nothing is swapped%s",
			(unsigned long long)facts->layers,
			facts->host_bytes ? "not started yet" : "all on the device", rest);
	else
		snprintf(line, room,
			"no attention on them is known: nothing is swapped (hisparse doctor -- … "
			"tells more)");
	return 0;
}

static void say(struct hs_summary *summary)
{
	char line[512];

	summary->said = true;
	if (!hs_summary_print(line, sizeof(line), &summary->facts))
		hs_complain("%s", line);
}

void hs_summary_look(struct hs_summary *summary, pid_t program, bool ended)
{
	struct hs_summary_facts facts = {0};
	struct hs_top_sample *sample;
	const char *why;
	char name[16];
	int count;

	if (summary->said)
		return;
	if (*summary->folder) {
		summary->count = hs_summary_sources(summary->sources, summary->folder);
	} else if (!ended) {
		/* What was found last stays for a look at the end. */
		snprintf(name, sizeof(name), "%d", (int)program);
		count = hs_top_find(summary->sources, name, &why);
		summary->count = count > 0 ? (size_t)count : 0;
	}
	sample = hs_need(malloc(sizeof(*sample)));
	for (size_t i = 0; i < summary->count; i++)
		/* A file may be left from an earlier program. */
		if (!hs_top_read(sample, &summary->sources[i]) && sample->at >= summary->began)
			hs_summary_add(&facts, sample);
	free(sample);
	/* A program frees its memory before it ends: the last that it had counts. */
	if (facts.windows) {
		bool same = !memcmp(&facts, &summary->facts, sizeof(facts));

		summary->same = same ? summary->same + 1 : 0;
		summary->facts = facts;
		if (summary->same == SETTLED && facts.layers)
			say(summary);
	}
	if (ended && !summary->said)
		say(summary);
}

void hs_summary_end(struct hs_summary *summary)
{
	struct hs_top_sample *sample = hs_need(malloc(sizeof(*sample)));
	bool alive = false;

	if (*summary->folder) {
		summary->count = hs_summary_sources(summary->sources, summary->folder);
		for (size_t i = 0; i < summary->count; i++)
			alive |= !hs_top_read(sample, &summary->sources[i]) &&
				 (!kill(sample->pid, 0) || errno == EPERM);
		if (!alive)
			hs_summary_remove(summary->folder);
	}
	free(sample);
}
