/* SPDX-License-Identifier: MIT */
#ifndef SRC_LAUNCH_EXPR_H
#define SRC_LAUNCH_EXPR_H

/*
 * Small integer expressions over the fields of a launch, compiled once and
 * evaluated on the launch path: no allocation, no recursion, no overflow that
 * C does not define (results wrap at 64 bits). Operators, from weak to strong:
 * ||, &&, == != < <= > >=, + -, * / %, unary -, parentheses. Operands:
 * integers (decimal or 0x…), names of fields, grid.x/y/z, block.x/y/z.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HS_EXPR_OPS 48	 /* steps of one expression */
#define HS_EXPR_DEPTH 12 /* values that it holds at a time */

struct hs_expr_op {
	uint8_t code;
	uint8_t index;
	int64_t value;
};

struct hs_expr {
	uint16_t count; /* 0: no such expression */
	uint16_t line;	/* where it stands, for messages */
	struct hs_expr_op ops[];
};

/* What an expression reads. dims: grid x, y, z, block x, y, z. */
struct hs_expr_values {
	const int64_t *fields;
	unsigned dims[6];
};

/* The index of a field of that name, or -1. */
typedef int (*hs_expr_lookup)(const char *name, size_t length, const void *data);

/* Compiles text[0, length). Returns a block for free(), or NULL with *problem
 * set to a constant string. */
struct hs_expr *hs_expr_compile(const char *text, size_t length, unsigned line,
	hs_expr_lookup lookup, const void *data, const char **problem);

/* False when a divisor is zero; *result is untouched then. */
bool hs_expr_eval(const struct hs_expr *expr, const struct hs_expr_values *values, int64_t *result);

#endif
