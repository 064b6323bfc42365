/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/run.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/hisparse/model.h"

/* ld.so takes spaces and colons between the libraries. */
#define SEPARATORS " :"

char *hs_run_preload(const char *present, const char *library)
{
	const char *at = present ? present : "";
	char *made;

	while (*(at += strspn(at, SEPARATORS))) {
		size_t length = strcspn(at, SEPARATORS);

		if (length == strlen(library) && !strncmp(at, library, length))
			return strdup(present);
		at += length;
	}
	if (!present || !*present)
		return strdup(library);
	return asprintf(&made, "%s:%s", library, present) < 0 ? NULL : made;
}

/* The value of `--name value` or `--name=value` at this argument, or NULL. */
static const char *value_of(char *const *argument, const char *name)
{
	size_t length = strlen(name);

	if (strncmp(*argument, name, length))
		return NULL;
	if ((*argument)[length] == '=')
		return *argument + length + 1;
	return (*argument)[length] ? NULL : argument[1];
}

unsigned hs_run_row(char *const *program, const char **model, unsigned *layers)
{
	const char *path = NULL, *kv = NULL, *why, *value;
	struct hs_token_bytes bytes;
	struct hs_model read;

	for (char *const *at = program; *at; at++) {
		if (!path && !strcmp(*at, "serve") && at[1] && at[1][0] != '-')
			path = at[1];
		if ((value = value_of(at, "--model")) || (value = value_of(at, "--model-path")))
			path = value;
		if ((value = value_of(at, "--kv-cache-dtype")))
			kv = value;
	}
	if (!path || hs_model_read(&read, path, &why))
		return 0;
	/* Both engines take bf16 for "auto" on the GPUs that we support. */
	hs_model_bytes(
		&bytes, &read, kv && !strncmp(kv, "fp8", 3) ? HS_KV_FP8 : HS_KV_BF16, false, false);
	*model = path;
	*layers = read.layers;
	return (unsigned)bytes.row;
}
