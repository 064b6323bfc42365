/* SPDX-License-Identifier: MIT */
#include "src/launch/regions.h"

/* An output as its profile line tells it: pieces of `bytes`, three deep. */
struct shape {
	int64_t start, bytes;
	int64_t count[3], stride[3];
};

static bool shape_of(struct shape *shape, const struct hs_profile_output *out,
	const struct hs_expr_values *values)
{
	if (!hs_expr_eval(out->pointer, values, &shape->start) ||
		!hs_expr_eval(out->bytes, values, &shape->bytes))
		return false;
	for (unsigned d = 0; d < 3; d++) {
		shape->count[d] = 1;
		shape->stride[d] = 0;
		if (!out->count[d])
			continue;
		if (!hs_expr_eval(out->count[d], values, &shape->count[d]) ||
			!hs_expr_eval(out->stride[d], values, &shape->stride[d]))
			return false;
		if (shape->count[d] < 0 || shape->count[d] > INT32_MAX || shape->stride[d] < 0)
			return false;
	}
	return shape->bytes > 0 && shape->bytes % 4 == 0;
}

static bool add(
	struct hs_regions *regions, int64_t start, int64_t stride, int64_t bytes, int64_t rows)
{
	if (regions->count == HS_REGIONS_MAX)
		return false;
	regions->region[regions->count++] = (struct hs_region){.start = (uint64_t)start,
		.stride = (uint64_t)stride,
		.bytes = (uint64_t)bytes,
		.rows = (uint64_t)rows};
	regions->rows += (uint64_t)rows;
	return true;
}

/* Two dimensions of rows: one region if the outer goes on where the inner ends. */
static bool add_rows(struct hs_regions *regions, const struct shape *s, int64_t start)
{
	if (s->count[0] == 1 || s->stride[0] == s->count[1] * s->stride[1])
		return add(regions, start, s->count[1] == 1 ? s->stride[0] : s->stride[1], s->bytes,
			s->count[0] * s->count[1]);
	if (s->count[1] == 1)
		return add(regions, start, s->stride[0], s->bytes, s->count[0]);
	for (int64_t i = 0; i < s->count[0]; i++) {
		if (!add(regions, start + i * s->stride[0], s->stride[1], s->bytes, s->count[1]))
			return false;
	}
	return true;
}

static bool add_shape(struct hs_regions *regions, struct shape *s)
{
	if (!s->start || !s->count[0] || !s->count[1] || !s->count[2])
		return true;
	if (s->count[2] == 1 || s->stride[2] == s->bytes) {
		s->bytes *= s->count[2];
		return add_rows(regions, s, s->start);
	}
	for (int64_t i = 0; i < s->count[2]; i++) {
		if (!add_rows(regions, s, s->start + i * s->stride[2]))
			return false;
	}
	return true;
}

bool hs_regions_find(struct hs_regions *regions, const struct hs_profile *profile,
	const struct hs_expr_values *values)
{
	struct shape shape;

	regions->count = 0;
	regions->rows = 0;
	for (unsigned i = 0; i < profile->noutputs; i++) {
		if (!shape_of(&shape, &profile->outputs[i], values) || !add_shape(regions, &shape))
			return false;
	}
	return regions->count;
}
