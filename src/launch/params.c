/* SPDX-License-Identifier: MIT */
#include "src/launch/params.h"

#include <string.h>

/* The packed buffer of `extra`, or NULL. */
static void *packed(void **extra, size_t *bytes)
{
	void *buffer = NULL;

	*bytes = 0;
	for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			*bytes = *(const size_t *)extra[1];
		else
			return NULL; /* nothing else is defined as of CUDA 13.0 */
	}
	return buffer;
}

static bool inside(const struct hs_kernel *kernel, unsigned i, size_t bytes)
{
	return (size_t)kernel->offsets[i] + kernel->sizes[i] <= bytes;
}

bool hs_params_find(const struct hs_launch *launch, const struct hs_kernel *kernel,
	const void **params, unsigned count)
{
	const char *buffer;
	size_t bytes;

	if (count > kernel->count)
		return false;
	if (launch->params) {
		memcpy(params, launch->params, count * sizeof(*params));
		return true;
	}
	buffer = packed(launch->extra, &bytes);
	if (!buffer)
		return false;
	for (unsigned i = 0; i < count; i++) {
		if (!inside(kernel, i, bytes))
			return false;
		params[i] = buffer + kernel->offsets[i];
	}
	return true;
}

/* Cursor: the parameter in the upper half, the byte in the lower. */
struct hs_window *hs_params_touch(
	const struct hs_launch *launch, const struct hs_kernel *kernel, uint64_t *cursor)
{
	unsigned i = (unsigned)(*cursor >> 32);
	uint32_t at = (uint32_t)*cursor;
	const char *buffer = NULL;
	CUdeviceptr low;
	size_t span, bytes = SIZE_MAX;

	hs_window_span(&low, &span);
	if (!launch->params)
		buffer = packed(launch->extra, &bytes);
	if (!launch->params && !buffer)
		return NULL;
	for (; i < kernel->count; i++, at = 0) {
		const char *param = buffer ? buffer + kernel->offsets[i] : launch->params[i];

		if (buffer && !inside(kernel, i, bytes))
			return NULL;
		for (; at + 8 <= kernel->sizes[i]; at += 8) {
			struct hs_window *window;
			CUdeviceptr word, tail;

			memcpy(&word, param + at, sizeof(word));
			if (word - low >= span)
				continue;
			window = hs_window_find(word);
			if (!window)
				continue;
			tail = atomic_load_explicit(&window->tail, memory_order_relaxed);
			if (tail && word >= tail)
				continue;
			*cursor = (uint64_t)i << 32 | (at + 8);
			return window;
		}
	}
	*cursor = (uint64_t)i << 32;
	return NULL;
}

bool hs_params_copy(
	struct hs_params_copy *copy, const struct hs_launch *launch, const struct hs_kernel *kernel)
{
	const void *buffer;

	copy->launch = *launch;
	copy->kernel = kernel;
	copy->bytes = 0;
	if (launch->params) {
		if (kernel->count > HS_COPY_PARAMS)
			return false;
		memcpy(copy->params, launch->params, kernel->count * sizeof(*copy->params));
		copy->launch.params = copy->params;
		return true;
	}
	buffer = packed(launch->extra, &copy->bytes);
	if (!buffer || copy->bytes > HS_COPY_BYTES)
		return false;
	memcpy(copy->buffer, buffer, copy->bytes);
	copy->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	copy->extra[1] = copy->buffer;
	copy->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	copy->extra[3] = &copy->bytes;
	copy->extra[4] = CU_LAUNCH_PARAM_END;
	copy->launch.extra = copy->extra;
	return true;
}

/* Gives the copy its own bytes of a parameter. */
static bool own(struct hs_params_copy *copy, unsigned i)
{
	size_t size = copy->kernel->sizes[i], start = (copy->bytes + 15) & ~(size_t)15;

	if ((unsigned char *)copy->params[i] >= copy->buffer &&
		(unsigned char *)copy->params[i] < copy->buffer + HS_COPY_BYTES)
		return true;
	if (start + size > HS_COPY_BYTES)
		return false;
	memcpy(copy->buffer + start, copy->params[i], size);
	copy->params[i] = copy->buffer + start;
	copy->bytes = start + size;
	return true;
}

bool hs_params_set(struct hs_params_copy *copy, const struct hs_profile_field *field, int64_t value)
{
	unsigned char *param;

	if (copy->launch.params) {
		if (!own(copy, field->param))
			return false;
		param = copy->params[field->param];
	} else {
		if (!inside(copy->kernel, field->param, copy->bytes))
			return false;
		param = copy->buffer + copy->kernel->offsets[field->param];
	}
	memcpy(param + field->offset, &value, field->width); /* little endian */
	return true;
}
