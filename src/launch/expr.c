/* SPDX-License-Identifier: MIT */
#include "src/launch/expr.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum code {
	PUSH,
	FIELD,
	DIM,
	NEGATE,
	OR,
	AND,
	EQ,
	NE,
	LT,
	LE,
	GT,
	GE,
	ADD,
	SUB,
	MUL,
	DIV,
	MOD,
};

static const struct {
	const char *text;
	enum code code;
	int strength;
} operators[] = {
	{"||", OR, 1},
	{"&&", AND, 2},
	{"==", EQ, 3},
	{"!=", NE, 3},
	{"<=", LE, 3},
	{">=", GE, 3},
	{"<", LT, 3},
	{">", GT, 3},
	{"+", ADD, 4},
	{"-", SUB, 4},
	{"*", MUL, 5},
	{"/", DIV, 5},
	{"%", MOD, 5},
};

struct compiler {
	const char *at, *end;
	const char *problem;
	hs_expr_lookup lookup;
	const void *data;
	unsigned count, depth, nesting;
	struct hs_expr_op ops[HS_EXPR_OPS];
};

static void skip_space(struct compiler *c)
{
	while (c->at < c->end && isspace((unsigned char)*c->at))
		c->at++;
}

static void emit(struct compiler *c, enum code code, unsigned index, int64_t value)
{
	if (c->problem)
		return;
	if (code <= DIM)
		c->depth++;
	else if (code != NEGATE)
		c->depth--;
	if (c->count == HS_EXPR_OPS || c->depth > HS_EXPR_DEPTH) {
		c->problem = "expression too long";
		return;
	}
	c->ops[c->count++] =
		(struct hs_expr_op){.code = code, .index = (uint8_t)index, .value = value};
}

static void number(struct compiler *c)
{
	char digits[32], *stop;
	size_t n = 0;
	int64_t value;

	while (c->at < c->end && isalnum((unsigned char)*c->at) && n < sizeof(digits) - 1)
		digits[n++] = *c->at++;
	digits[n] = '\0';
	errno = 0;
	value = strtoll(digits, &stop, 0);
	if (*stop || errno)
		c->problem = "not a number";
	emit(c, PUSH, 0, value);
}

static void name(struct compiler *c)
{
	static const char *const dims[] = {
		"grid.x", "grid.y", "grid.z", "block.x", "block.y", "block.z"};
	const char *start = c->at;
	size_t length;
	int field;

	while (c->at < c->end && (isalnum((unsigned char)*c->at) || *c->at == '_' || *c->at == '.'))
		c->at++;
	length = (size_t)(c->at - start);
	for (unsigned i = 0; i < 6; i++) {
		if (strlen(dims[i]) == length && !memcmp(dims[i], start, length)) {
			emit(c, DIM, i, 0);
			return;
		}
	}
	field = c->lookup(start, length, c->data);
	if (field < 0)
		c->problem = "no field of that name above";
	else
		emit(c, FIELD, (unsigned)field, 0);
}

static void binary(struct compiler *c, int least);

static void operand(struct compiler *c)
{
	skip_space(c);
	if (c->problem)
		return;
	if (++c->nesting > 16) {
		c->problem = "nested too deep";
	} else if (c->at == c->end) {
		c->problem = "expression ends early";
	} else if (*c->at == '(') {
		c->at++;
		binary(c, 1);
		skip_space(c);
		if (c->at < c->end && *c->at == ')')
			c->at++;
		else if (!c->problem)
			c->problem = "')' missing";
	} else if (*c->at == '-') {
		c->at++;
		operand(c);
		emit(c, NEGATE, 0, 0);
	} else if (isdigit((unsigned char)*c->at)) {
		number(c);
	} else if (isalpha((unsigned char)*c->at) || *c->at == '_') {
		name(c);
	} else {
		c->problem = "operand missing";
	}
	c->nesting--;
}

static int next_operator(struct compiler *c)
{
	skip_space(c);
	for (size_t i = 0; i < sizeof(operators) / sizeof(*operators); i++) {
		size_t length = strlen(operators[i].text);

		if ((size_t)(c->end - c->at) >= length && !memcmp(c->at, operators[i].text, length))
			return (int)i;
	}
	return -1;
}

static void binary(struct compiler *c, int least)
{
	int i;

	operand(c);
	while (!c->problem && (i = next_operator(c)) >= 0 && operators[i].strength >= least) {
		c->at += strlen(operators[i].text);
		binary(c, operators[i].strength + 1);
		emit(c, operators[i].code, 0, 0);
	}
}

struct hs_expr *hs_expr_compile(const char *text, size_t length, unsigned line,
	hs_expr_lookup lookup, const void *data, const char **problem)
{
	struct compiler c = {.at = text, .end = text + length, .lookup = lookup, .data = data};
	struct hs_expr *expr;

	binary(&c, 1);
	skip_space(&c);
	if (!c.problem && c.at != c.end)
		c.problem = "operator missing";
	if (c.problem) {
		*problem = c.problem;
		return NULL;
	}
	expr = malloc(sizeof(*expr) + c.count * sizeof(*c.ops));
	if (!expr) {
		*problem = "out of memory";
		return NULL;
	}
	expr->count = (uint16_t)c.count;
	expr->line = (uint16_t)line;
	memcpy(expr->ops, c.ops, c.count * sizeof(*c.ops));
	return expr;
}

/* Unsigned, so that values from a launch that is not what it seems wrap. */
static bool apply(enum code code, int64_t a, int64_t b, int64_t *result)
{
	uint64_t ua = (uint64_t)a, ub = (uint64_t)b;

	switch (code) {
	case OR:
		*result = a || b;
		break;
	case AND:
		*result = a && b;
		break;
	case EQ:
		*result = a == b;
		break;
	case NE:
		*result = a != b;
		break;
	case LT:
		*result = a < b;
		break;
	case LE:
		*result = a <= b;
		break;
	case GT:
		*result = a > b;
		break;
	case GE:
		*result = a >= b;
		break;
	case ADD:
		*result = (int64_t)(ua + ub);
		break;
	case SUB:
		*result = (int64_t)(ua - ub);
		break;
	case MUL:
		*result = (int64_t)(ua * ub);
		break;
	case DIV:
	case MOD:
		if (!b || (a == INT64_MIN && b == -1))
			return false;
		*result = code == DIV ? a / b : a % b;
		break;
	default:
		return false;
	}
	return true;
}

bool hs_expr_eval(const struct hs_expr *expr, const struct hs_expr_values *values, int64_t *result)
{
	int64_t stack[HS_EXPR_DEPTH + 1];
	unsigned depth = 0;

	for (unsigned i = 0; i < expr->count; i++) {
		const struct hs_expr_op *op = &expr->ops[i];

		switch (op->code) {
		case PUSH:
			stack[depth++] = op->value;
			break;
		case FIELD:
			stack[depth++] = values->fields[op->index];
			break;
		case DIM:
			stack[depth++] = values->dims[op->index];
			break;
		case NEGATE:
			stack[depth - 1] = (int64_t) - (uint64_t)stack[depth - 1];
			break;
		default:
			depth--;
			if (!apply(op->code, stack[depth - 1], stack[depth], &stack[depth - 1]))
				return false;
		}
	}
	*result = stack[0];
	return true;
}
