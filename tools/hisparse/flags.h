/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_FLAGS_H
#define TOOLS_HISPARSE_FLAGS_H

/*
 * The library's options as the command sees them: made from options.def, as
 * the library's own parser is.
 */

enum hs_flag_kind { HS_FLAG_SIZE, HS_FLAG_GIB, HS_FLAG_CHOICE, HS_FLAG_PATH, HS_FLAG_FLAG };

struct hs_flag {
	const char *field;    /* slots */
	const char *variable; /* HISPARSE_SLOTS */
	char name[32];	      /* slots, host-gib: the long option without its dashes */
	enum hs_flag_kind kind;
	const char *help;
	const char *fallback; /* the default as text, "" for auto or none */
};

/* The n-th option, NULL past the last. */
const struct hs_flag *hs_flag_at(unsigned index);

/* By the field's name in options.def; the field must be there. */
const struct hs_flag *hs_flag_field(const char *field);

#endif
