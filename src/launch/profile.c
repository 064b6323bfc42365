/* SPDX-License-Identifier: MIT */
#include "src/launch/profile.h"

#include <stdlib.h>
#include <string.h>

static void destroy_one(struct hs_profile *p)
{
	for (unsigned i = 0; i < HS_PROFILE_NAMES; i++)
		free(p->names[i]);
	for (unsigned i = 0; i < HS_PROFILE_NEEDS; i++) {
		free(p->needs[i]);
		free(p->need_texts[i]);
	}
	free(p->base);
	free(p->row);
	free(p->rows);
	for (unsigned i = 0; i < 5; i++)
		free(p->list[i]);
	free(p->lengths);
	free(p->unit);
	free(p->ids);
	for (unsigned i = 0; i < 4; i++)
		free(p->table[i]);
	for (unsigned i = 0; i < HS_PROFILE_SETS; i++)
		free(p->sets[i].value);
	for (unsigned i = 0; i < 3; i++) {
		free(p->slots[i]);
		free(p->fill[i]);
	}
	for (unsigned i = 0; i < HS_PROFILE_OUTPUTS; i++) {
		free(p->outputs[i].pointer);
		free(p->outputs[i].bytes);
		for (unsigned d = 0; d < 3; d++) {
			free(p->outputs[i].count[d]);
			free(p->outputs[i].stride[d]);
		}
	}
	for (unsigned i = 0; i < HS_PROFILE_RESETS; i++) {
		free(p->resets[i].pointer);
		free(p->resets[i].bytes);
	}
	free(p);
}

void hs_profile_destroy(struct hs_profile *list)
{
	while (list) {
		struct hs_profile *next = list->next;

		destroy_one(list);
		list = next;
	}
}

/* '*' any run, '?' any character. On a mismatch the last '*' takes one more. */
static bool glob(const char *pattern, const char *name)
{
	const char *star = NULL, *from = NULL;

	while (*name) {
		if (*pattern == '*') {
			star = ++pattern;
			from = name;
		} else if (*pattern == *name || *pattern == '?') {
			pattern++;
			name++;
		} else if (star) {
			pattern = star;
			name = ++from;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

static bool named(const struct hs_profile *p, const char *name)
{
	for (unsigned i = 0; i < HS_PROFILE_NAMES && p->names[i]; i++) {
		if (glob(p->names[i], name))
			return true;
	}
	return false;
}

static bool sized(const struct hs_profile *p, const uint32_t *sizes, unsigned count)
{
	if (count < p->nsizes || (count > p->nsizes && !p->more))
		return false;
	for (unsigned i = 0; i < p->nsizes; i++) {
		if (p->sizes[i] != HS_PROFILE_ANY && p->sizes[i] != sizes[i])
			return false;
	}
	return true;
}

const struct hs_profile *hs_profile_match(
	const struct hs_profile *list, const char *name, const uint32_t *sizes, unsigned count)
{
	for (; list; list = list->next) {
		if (sized(list, sizes, count) && named(list, name))
			return list;
	}
	return NULL;
}

void hs_profile_read(const struct hs_profile *profile, const void *const *params, int64_t *values)
{
	for (unsigned i = 0; i < profile->nfields; i++) {
		const struct hs_profile_field *f = &profile->fields[i];
		const char *from = (const char *)params[f->param] + f->offset;

		switch (f->width) {
		case 1:
			values[i] = *(const int8_t *)from;
			break;
		case 2: {
			int16_t v;

			memcpy(&v, from, sizeof(v));
			values[i] = v;
			break;
		}
		case 4: {
			int32_t v;

			memcpy(&v, from, sizeof(v));
			values[i] = v;
			break;
		}
		default:
			memcpy(&values[i], from, sizeof(*values));
		}
	}
}
