/* SPDX-License-Identifier: MIT */
#include "src/launch/profiles.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/launch/parse.h"

#define FILE_BYTES (1 << 20)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct hs_profile *profiles;
static atomic_bool reported;

/* Kept for a safe moment: the first call may come from a launch. */
static char complaints[16][192];
static unsigned ncomplaints;

static void keep(const char *message, void *data)
{
	(void)data;
	if (ncomplaints < 16)
		snprintf(complaints[ncomplaints++], sizeof(*complaints), "%s", message);
}

static char *read_file(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t length;

	if (!file)
		return NULL;
	text = malloc(FILE_BYTES);
	if (!text)
		goto out;
	length = fread(text, 1, FILE_BYTES, file);
	if (length == FILE_BYTES || ferror(file)) {
		errno = length == FILE_BYTES ? EFBIG : EIO;
		free(text);
		text = NULL;
		goto out;
	}
	text[length] = '\0';
out:
	fclose(file);
	return text;
}

static void make(void)
{
	const char *path = hs_options()->profiles;
	char message[192], *text;

	if (path && *path) {
		text = read_file(path);
		if (text) {
			hs_profile_parse(&profiles, path, text, keep, NULL);
			free(text);
		} else {
			snprintf(message, sizeof(message),
				"HISPARSE_PROFILES: cannot read '%.100s': %s", path,
				strerror(errno));
			keep(message, NULL);
		}
	}
	for (const struct hs_profile_text *t = hs_profile_texts; t->file; t++)
		hs_profile_parse(&profiles, t->file, t->text, keep, NULL);
}

const struct hs_profile *hs_profiles(void)
{
	pthread_once(&once, make);
	return profiles;
}

void hs_profiles_report(void)
{
	hs_profiles();
	if (!ncomplaints || atomic_exchange(&reported, true))
		return;
	for (unsigned i = 0; i < ncomplaints; i++)
		hs_warn("%s", complaints[i]);
}
