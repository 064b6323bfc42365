/* SPDX-License-Identifier: MIT */
#ifndef SRC_LAUNCH_PROFILE_H
#define SRC_LAUNCH_PROFILE_H

/*
 * What is known of kernels: how one is recognised, where its pointers are and
 * what has to hold before it is touched. Profiles are text; those of the
 * engines that we know are built in (hooks/profiles), HISPARSE_PROFILES names
 * a file with more. A user's profile comes before a built-in one.
 *
 * The format: one directive a line, '#' starts a comment. hooks/profiles/
 * flashmla.profile is written to be read as an example.
 *
 *	profile LABEL           starts a profile; the label is for messages
 *	verified NAME VERSION   anywhere: the kernels of the text were seen in that
 *	                        version of a package, for `hisparse doctor`
 *	role ROLE               attention | writer | reader | fill | other |
 *	                        transfer | table | topk
 *	name PATTERN            the kernel's (mangled) name; '*' any run, '?' any
 *	                        character. May be repeated: one must match
 *	sizes N N … [...]       bytes of every parameter in order, exactly; '...'
 *	                        at the end allows more, '*' is any size
 *	TYPE P+OFFSET NAME …    fields of parameter P, back to back from OFFSET;
 *	                        TYPE is i8, i16, i32, i64 or ptr; '_' skips one
 *	need EXPR               must not be 0, else the launch is left alone
 *
 * EXPR: src/launch/expr.h. Directives that take several want commas.
 *
 *	base EXPR               address of the layer's row 0
 *	row EXPR                bytes of a KV row; rows are row bytes apart
 *	rows EXPR               attention, writer: rows of the layer, where the kernel
 *	                        knows; 0: it does not
 *	list FIELD, OUTER, INNER, K, OUTER_STRIDE, INNER_STRIDE
 *	                        attention: the list of slots, int32, -1 for none,
 *	                        strides in elements. FIELD is what is rewritten
 *	lengths EXPR            attention: address of valid entries per outer row
 *	                        (int32), or 0
 *	set FIELD, EXPR         attention: another field that is rewritten, such as
 *	                        a bound on the indices
 *	slots EXPR, COUNT, WIDTH
 *	                        writer: address of the slots that it stores to,
 *	                        how many, bytes of each (4 or 8)
 *	fill EXPR, BYTES, VALUE fill: address, bytes, 0 if it stores zeros
 *	output EXPR, BYTES, COUNT, STRIDE [, COUNT, STRIDE [, COUNT, STRIDE]]
 *	                        attention: rows of BYTES that it may write, from an
 *	                        address on, strides in bytes; an address of 0 is
 *	                        left out. For HISPARSE_VERIFY
 *	reset EXPR, BYTES       attention: what has to be zero before it runs again
 *
 * attention needs base, row and list; writer base and slots (no row: the row
 * that attention told; none yet: all of the window is dropped); a reader with
 * a base and a row tells that the window holds KV.
 *
 *	unit EXPR               transfer, table: slots of one entry (1 if not given)
 *	table EXPR, ROWS, COLUMNS, STRIDE
 *	                        table: address of int32 blocks, STRIDE entries from
 *	                        row to row; lengths may tell the slots of each row
 *	ids EXPR                table: address of int32 rows, one for each of ROWS
 *	makes WHAT              topk, table: positions | slots
 *
 * transfer: stores rows through addresses in device memory; slots are its list of
 * slots or blocks, which go in every layer (no slots: all of them do). table: a
 * kernel that carries the block table of a step.
 *
 * topk: makes attention's list, for traces only (launches are those of a kernel that
 * no profile knows). positions: chooses them; slots: makes the list that attention
 * gets, out of positions or all by itself. A table may do so, too.
 *
 * other: writes no KV row, whatever it touches, such as the indexer's keys, which
 * may share an allocation with KV (vLLM 0.29 and later).
 *
 * A profile with a mistake is left out; the others stay.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "src/launch/expr.h"

enum hs_role {
	HS_ROLE_NONE,
	HS_ROLE_ATTENTION,
	HS_ROLE_WRITER,
	HS_ROLE_READER,
	HS_ROLE_FILL,
	HS_ROLE_OTHER,
	HS_ROLE_TRANSFER,
	HS_ROLE_TABLE,
	HS_ROLE_TOPK,
};

enum hs_makes { HS_MAKES_NOTHING, HS_MAKES_POSITIONS, HS_MAKES_SLOTS };

#define HS_PROFILE_NAMES 4
#define HS_PROFILE_SIZES 16
#define HS_PROFILE_FIELDS 64
#define HS_PROFILE_NEEDS 16
#define HS_PROFILE_SETS 4
#define HS_PROFILE_OUTPUTS 6
#define HS_PROFILE_RESETS 4
#define HS_PROFILE_ANY UINT32_MAX /* a size that may be anything */

struct hs_profile_field {
	char name[28];
	uint8_t width; /* bytes */
	uint8_t param;
	uint16_t offset;
};

struct hs_profile_set {
	uint8_t field;
	struct hs_expr *value;
};

struct hs_profile_output {
	struct hs_expr *pointer, *bytes;
	struct hs_expr *count[3], *stride[3]; /* NULL: a dimension less */
};

struct hs_profile {
	char label[48];
	const char *file; /* not owned */
	unsigned line;
	enum hs_role role;
	enum hs_makes makes;
	char *names[HS_PROFILE_NAMES];
	uint32_t sizes[HS_PROFILE_SIZES];
	unsigned nsizes, nfields, nneeds, nsets, noutputs, nresets;
	bool more; /* further parameters are allowed */
	struct hs_profile_field fields[HS_PROFILE_FIELDS];
	struct hs_expr *needs[HS_PROFILE_NEEDS];
	char *need_texts[HS_PROFILE_NEEDS];
	struct hs_expr *base, *row, *rows;
	uint8_t list_field;
	struct hs_expr *list[5]; /* outer, inner, k, outer stride, inner stride */
	struct hs_expr *lengths;
	struct hs_profile_set sets[HS_PROFILE_SETS];
	struct hs_expr *slots[3]; /* pointer, count, width */
	struct hs_expr *fill[3];  /* pointer, bytes, value */
	struct hs_expr *unit, *ids;
	struct hs_expr *table[4]; /* pointer, rows, columns, stride */
	struct hs_profile_output outputs[HS_PROFILE_OUTPUTS];
	struct {
		struct hs_expr *pointer, *bytes;
	} resets[HS_PROFILE_RESETS];
	struct hs_profile *next;
};

/* Frees the whole list. */
void hs_profile_destroy(struct hs_profile *list);

/* The first profile of the list that recognises the kernel, or NULL. */
const struct hs_profile *hs_profile_match(
	const struct hs_profile *list, const char *name, const uint32_t *sizes, unsigned count);

/* Reads every field into values[0, nfields). params[i]: the i-th parameter. */
void hs_profile_read(const struct hs_profile *profile, const void *const *params, int64_t *values);

#endif
