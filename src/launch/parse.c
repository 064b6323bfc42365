/* SPDX-License-Identifier: MIT */
#include "src/launch/parse.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
	struct hs_profile *profile; /* being read, or NULL */
	struct hs_profile **tail;
	bool bad;  /* the profile has a mistake */
	bool lost; /* text before the first profile was complained about */
	const char *file;
	unsigned line, dropped;
	hs_profile_complain complain;
	void *data;
};

/* A piece of a line. */
struct span {
	const char *at;
	size_t length;
};

static void __attribute__((format(printf, 2, 3))) fail(struct parser *p, const char *format, ...)
{
	char message[192];
	int n;
	va_list list;

	if (p->bad)
		return;
	p->bad = true;
	n = snprintf(message, sizeof(message), "%.80s:%u: ", p->file, p->line);
	va_start(list, format);
	vsnprintf(message + n, sizeof(message) - (size_t)n, format, list);
	va_end(list);
	if (p->complain)
		p->complain(message, p->data);
}

static struct span trim(struct span s)
{
	while (s.length && isspace((unsigned char)s.at[0])) {
		s.at++;
		s.length--;
	}
	while (s.length && isspace((unsigned char)s.at[s.length - 1]))
		s.length--;
	return s;
}

/* Cuts up to the next separator (0: any white space) off the front of *rest. */
static struct span cut(struct span *rest, char separator)
{
	struct span s = trim(*rest);
	size_t n = 0;

	while (n < s.length &&
		(separator ? s.at[n] != separator : !isspace((unsigned char)s.at[n])))
		n++;
	rest->at = s.at + n + (n < s.length);
	rest->length = s.length - n - (n < s.length);
	*rest = trim(*rest);
	return trim((struct span){s.at, n});
}

static bool is(struct span s, const char *word)
{
	return strlen(word) == s.length && !memcmp(s.at, word, s.length);
}

static char *copy(struct span s)
{
	return strndup(s.at, s.length);
}

static int lookup(const char *name, size_t length, const void *data)
{
	const struct hs_profile *profile = data;

	for (unsigned i = 0; i < profile->nfields; i++) {
		if (strlen(profile->fields[i].name) == length &&
			!memcmp(profile->fields[i].name, name, length))
			return (int)i;
	}
	return -1;
}

static struct hs_expr *expression(struct parser *p, struct span s)
{
	const char *problem = NULL;
	struct hs_expr *expr =
		hs_expr_compile(s.at, s.length, p->line, lookup, p->profile, &problem);

	if (!expr)
		fail(p, "'%.*s': %s", (int)(s.length < 60 ? s.length : 60), s.at, problem);
	return expr;
}

/* One expression into *out, which must be empty. */
static void single(struct parser *p, struct span rest, struct hs_expr **out)
{
	if (*out)
		fail(p, "given twice");
	else
		*out = expression(p, rest);
}

/* Exactly n expressions, separated by commas. */
static void several(struct parser *p, struct span rest, struct hs_expr **out, unsigned n)
{
	for (unsigned i = 0; i < n && !p->bad; i++) {
		if (!rest.length)
			fail(p, "%u values, %u expected", i, n);
		else
			single(p, cut(&rest, ','), &out[i]);
	}
	if (rest.length)
		fail(p, "more than %u values", n);
}

static int field_of(struct parser *p, struct span name)
{
	int field = lookup(name.at, name.length, p->profile);

	if (field < 0)
		fail(p, "no field '%.*s'", (int)(name.length < 40 ? name.length : 40), name.at);
	return field;
}

static void on_role(struct parser *p, struct span rest)
{
	static const char *const roles[] = {
		"attention", "writer", "reader", "fill", "other", "transfer", "table", "topk"};

	for (unsigned i = 0; i < sizeof(roles) / sizeof(*roles); i++) {
		if (is(rest, roles[i])) {
			p->profile->role = (enum hs_role)(i + 1);
			return;
		}
	}
	fail(p, "unknown role, not attention, writer, reader, fill, other, transfer, table or "
		"topk");
}

static void on_makes(struct parser *p, struct span rest)
{
	if (is(rest, "positions"))
		p->profile->makes = HS_MAKES_POSITIONS;
	else if (is(rest, "slots"))
		p->profile->makes = HS_MAKES_SLOTS;
	else
		fail(p, "positions or slots expected");
}

static void on_name(struct parser *p, struct span rest)
{
	for (unsigned i = 0; i < HS_PROFILE_NAMES && rest.length; i++) {
		if (!p->profile->names[i]) {
			p->profile->names[i] = copy(rest);
			if (!p->profile->names[i])
				fail(p, "out of memory");
			return;
		}
	}
	fail(p, "one to %d names expected", HS_PROFILE_NAMES);
}

static void on_sizes(struct parser *p, struct span rest)
{
	struct hs_profile *profile = p->profile;

	if (profile->nsizes || profile->more)
		fail(p, "given twice");
	while (rest.length && !p->bad) {
		struct span s = cut(&rest, 0);
		char *stop;
		unsigned long size = strtoul(s.at, &stop, 10);

		if (is(s, "...") && !rest.length) {
			profile->more = true;
			return;
		}
		if (is(s, "*"))
			size = HS_PROFILE_ANY;
		else if (stop != s.at + s.length || !size || size > 32764)
			fail(p, "a size is 1 to 32764 bytes, '*' or a last '...'");
		if (profile->nsizes == HS_PROFILE_SIZES)
			fail(p, "more than %d sizes", HS_PROFILE_SIZES);
		else
			profile->sizes[profile->nsizes++] = (uint32_t)size;
	}
	if (!profile->nsizes)
		fail(p, "no sizes");
}

static void add_field(
	struct parser *p, struct span name, unsigned width, unsigned long param, unsigned long at)
{
	struct hs_profile *profile = p->profile;
	struct hs_profile_field *f = &profile->fields[profile->nfields];

	if (param >= profile->nsizes || profile->sizes[param] == HS_PROFILE_ANY)
		fail(p, "parameter %lu has no size above", param);
	else if (at + width > profile->sizes[param])
		fail(p, "'%.*s' ends at byte %lu of parameter %lu, which has %u",
			(int)(name.length < 40 ? name.length : 40), name.at, at + width, param,
			profile->sizes[param]);
	else if (is(name, "_"))
		return;
	else if (lookup(name.at, name.length, profile) >= 0)
		fail(p, "a field of that name stands above");
	else if (name.length >= sizeof(f->name) || profile->nfields == HS_PROFILE_FIELDS)
		fail(p, "name too long, or more than %d fields", HS_PROFILE_FIELDS);
	if (p->bad)
		return;
	memcpy(f->name, name.at, name.length);
	f->width = (uint8_t)width;
	f->param = (uint8_t)param;
	f->offset = (uint16_t)at;
	profile->nfields++;
}

static void on_field(struct parser *p, struct span rest, unsigned width)
{
	struct span place = cut(&rest, 0);
	char *stop;
	unsigned long param = strtoul(place.at, &stop, 10), at = 0;

	if (*stop == '+')
		at = strtoul(stop + 1, &stop, 10);
	if (stop != place.at + place.length || !rest.length || at > 32764) {
		fail(p, "expected PARAMETER+OFFSET NAME …");
		return;
	}
	for (; rest.length && !p->bad; at += width)
		add_field(p, cut(&rest, 0), width, param, at);
}

static void on_need(struct parser *p, struct span rest)
{
	struct hs_profile *profile = p->profile;

	if (profile->nneeds == HS_PROFILE_NEEDS) {
		fail(p, "more than %d needs", HS_PROFILE_NEEDS);
		return;
	}
	single(p, rest, &profile->needs[profile->nneeds]);
	profile->need_texts[profile->nneeds++] = copy(rest);
}

static void on_list(struct parser *p, struct span rest)
{
	int field = field_of(p, cut(&rest, ','));

	if (field < 0)
		return;
	if (p->profile->fields[field].width != 8)
		fail(p, "the list's field must be a ptr");
	p->profile->list_field = (uint8_t)field;
	several(p, rest, p->profile->list, 5);
}

static void on_set(struct parser *p, struct span rest)
{
	struct hs_profile *profile = p->profile;
	int field = field_of(p, cut(&rest, ','));

	if (profile->nsets == HS_PROFILE_SETS)
		fail(p, "more than %d sets", HS_PROFILE_SETS);
	if (p->bad)
		return;
	profile->sets[profile->nsets].field = (uint8_t)field;
	single(p, rest, &profile->sets[profile->nsets++].value);
}

static void on_output(struct parser *p, struct span rest)
{
	struct hs_profile *profile = p->profile;
	struct hs_profile_output *out = &profile->outputs[profile->noutputs];

	if (profile->noutputs == HS_PROFILE_OUTPUTS) {
		fail(p, "more than %d outputs", HS_PROFILE_OUTPUTS);
		return;
	}
	profile->noutputs++;
	single(p, cut(&rest, ','), &out->pointer);
	single(p, cut(&rest, ','), &out->bytes);
	for (unsigned i = 0; i < 3 && !p->bad && (rest.length || !i); i++) {
		single(p, cut(&rest, ','), &out->count[i]);
		single(p, cut(&rest, ','), &out->stride[i]);
	}
	if (rest.length)
		fail(p, "more than three dimensions");
}

static void on_reset(struct parser *p, struct span rest)
{
	struct hs_profile *profile = p->profile;
	struct hs_expr *both[2] = {NULL, NULL};

	if (profile->nresets == HS_PROFILE_RESETS) {
		fail(p, "more than %d resets", HS_PROFILE_RESETS);
		return;
	}
	several(p, rest, both, 2);
	profile->resets[profile->nresets].pointer = both[0];
	profile->resets[profile->nresets++].bytes = both[1];
}

/* The profile so far is complete: into the list, or away with it. */
static void finish(struct parser *p)
{
	struct hs_profile *profile = p->profile;

	if (!profile)
		return;
	p->line = p->bad ? p->line : profile->line;
	if (!profile->names[0] || !profile->nsizes)
		fail(p, "profile '%s' has no name or no sizes", profile->label);
	if (profile->role == HS_ROLE_NONE)
		fail(p, "profile '%s' has no role", profile->label);
	if (profile->role == HS_ROLE_ATTENTION &&
		(!profile->base || !profile->row || !profile->list[0]))
		fail(p, "attention '%s' needs base, row and list", profile->label);
	if (profile->role == HS_ROLE_WRITER && (!profile->base || !profile->slots[0]))
		fail(p, "writer '%s' needs base and slots", profile->label);
	if (profile->role == HS_ROLE_FILL && !profile->fill[0])
		fail(p, "fill '%s' needs fill", profile->label);
	if (profile->role == HS_ROLE_TABLE && !profile->table[0])
		fail(p, "table '%s' needs table", profile->label);
	if ((profile->role == HS_ROLE_TOPK && !profile->makes) ||
		(profile->makes && profile->role != HS_ROLE_TOPK && profile->role != HS_ROLE_TABLE))
		fail(p, "'%s': topk needs makes, and only topk and table may", profile->label);
	if (p->bad) {
		p->dropped++;
		hs_profile_destroy(profile);
	} else {
		*p->tail = profile;
		p->tail = &profile->next;
	}
	p->profile = NULL;
	p->bad = false;
}

static void on_profile(struct parser *p, struct span rest)
{
	p->bad = false;
	p->profile = calloc(1, sizeof(*p->profile));
	if (!p->profile) {
		fail(p, "out of memory");
		return;
	}
	p->profile->file = p->file;
	p->profile->line = p->line;
	if (!rest.length || rest.length >= sizeof(p->profile->label))
		fail(p, "a label of 1 to %zu characters expected", sizeof(p->profile->label) - 1);
	else
		memcpy(p->profile->label, rest.at, rest.length);
}

static void directive(struct parser *p, struct span word, struct span rest)
{
	static const struct {
		const char *word;
		void (*on)(struct parser *p, struct span rest);
	} words[] = {
		{"role", on_role},
		{"name", on_name},
		{"sizes", on_sizes},
		{"need", on_need},
		{"list", on_list},
		{"set", on_set},
		{"output", on_output},
		{"reset", on_reset},
		{"makes", on_makes},
	};
	static const struct {
		const char *word;
		unsigned width;
	} types[] = {{"i8", 1}, {"i16", 2}, {"i32", 4}, {"i64", 8}, {"ptr", 8}};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		if (is(word, words[i].word)) {
			words[i].on(p, rest);
			return;
		}
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		if (is(word, types[i].word)) {
			on_field(p, rest, types[i].width);
			return;
		}
	}
	if (is(word, "base"))
		single(p, rest, &p->profile->base);
	else if (is(word, "row"))
		single(p, rest, &p->profile->row);
	else if (is(word, "rows"))
		single(p, rest, &p->profile->rows);
	else if (is(word, "lengths"))
		single(p, rest, &p->profile->lengths);
	else if (is(word, "slots"))
		several(p, rest, p->profile->slots, 3);
	else if (is(word, "ids"))
		single(p, rest, &p->profile->ids);
	else if (is(word, "unit"))
		single(p, rest, &p->profile->unit);
	else if (is(word, "table"))
		several(p, rest, p->profile->table, 4);
	else if (is(word, "fill"))
		several(p, rest, p->profile->fill, 3);
	else
		fail(p, "unknown directive '%.*s'", (int)(word.length < 40 ? word.length : 40),
			word.at);
}

static void line(struct parser *p, struct span s)
{
	const char *comment = memchr(s.at, '#', s.length);
	struct span rest = comment ? (struct span){s.at, (size_t)(comment - s.at)} : s;
	struct span word = cut(&rest, 0);

	if (!word.length)
		return;
	if (is(word, "profile")) {
		unsigned here = p->line;

		finish(p);
		p->line = here;
		on_profile(p, rest);
	} else if (is(word, "verified")) {
		/* of the whole text; who wants to know it looks there */
		cut(&rest, 0);
		if (!rest.length)
			fail(p, "verified NAME VERSION expected");
		p->bad &= p->profile != NULL;
	} else if (p->profile && !p->bad) {
		directive(p, word, rest);
	} else if (!p->profile && !p->lost) {
		p->lost = true;
		fail(p, "'profile LABEL' expected first");
		p->bad = false;
	}
}

unsigned hs_profile_parse(struct hs_profile **list, const char *file, const char *text,
	hs_profile_complain complain, void *data)
{
	struct parser p = {.tail = list, .file = file, .complain = complain, .data = data};

	while (*p.tail)
		p.tail = &(*p.tail)->next;
	while (*text) {
		size_t length = strcspn(text, "\n");

		p.line++;
		line(&p, (struct span){text, length});
		text += length + (text[length] == '\n');
	}
	finish(&p);
	return p.dropped;
}
