/* SPDX-License-Identifier: MIT */
#include "tests/unit/fake_metrics.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "src/base/log.h"
#include "src/cache/layer.h"
#include "src/launch/kernel.h"
#include "src/memory/capture.h"
#include "src/trace/session.h"

struct fake_metrics fake;

static struct hs_layer layers[] = {
	{.id = 0, .device = 0, .row = 656, .rows = 4096, .slots = 70000, .on = true},
	{.id = 7, .device = 1, .row = 656, .rows = 4096, .slots = 70000},
};

void fake_reset(void)
{
	fake = (struct fake_metrics){
		.options = {.log = HS_LOG_INFO},
		.memory = {{1, 2}, {3, 4}, 5, 6, 7, 8},
		.launch = {.attention = 9, .remapped = 10, .refused = 11, .unknown = 12},
		.verify = {.launches = 13, .skipped = 14, .rows = 15, .different = 16},
		.cache = {{.launches = 20,
				  .hits = 3000,
				  .misses = 500,
				  .duplicates = 21,
				  .inplace = 500,
				  .evictions = 22,
				  .invalidated = 23,
				  .padding = 24,
				  .bytes = UINT64_C(1) << 40,
				  .staged = 25},
			{.hits = UINT64_MAX - 3000}},
		.log_fd = -1,
	};
}

const struct hs_options *hs_options(void)
{
	return &fake.options;
}

bool hs_log_on(enum hs_log_level level)
{
	return (int)level <= fake.options.log;
}

void hs_log_write(enum hs_log_level level, const char *format, ...)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	size_t used = strlen(fake.log), start = used;
	va_list args;

	used += (size_t)snprintf(fake.log + used, sizeof(fake.log) - used, "%s: ", names[level]);
	va_start(args, format);
	used += (size_t)vsnprintf(fake.log + used, sizeof(fake.log) - used, format, args);
	va_end(args);
	used += (size_t)snprintf(fake.log + used, sizeof(fake.log) - used, "\n");
	if (fake.log_fd >= 0 && write(fake.log_fd, fake.log + start, used - start) < 0)
		_exit(99);
}

void hs_memory_read(struct hs_memory_counts *counts)
{
	*counts = fake.memory;
}

void hs_launch_read(struct hs_launch_counts *counts)
{
	*counts = fake.launch;
}

void hs_verify_read(struct hs_verify_counts *counts)
{
	*counts = fake.verify;
}

void hs_layer_each(void (*visit)(struct hs_layer *layer, void *data), void *data)
{
	for (unsigned i = 0; i < 2; i++)
		visit(&layers[i], data);
}

void hs_cache_read(const struct hs_layer *layer, struct hs_cache_counts *counts)
{
	*counts = fake.cache[layer - layers];
}

void hs_kernel_each(void (*visit)(struct hs_kernel *kernel, void *data), void *data)
{
	static const struct hs_profile profile;
	static struct hs_window window;
	struct hs_kernel kernels[] = {{.touched = &window}, {.touched = &window},
		{.profile = &profile, .touched = &window}, {.profile = NULL}};

	for (unsigned i = 0; i < 4; i++)
		visit(&kernels[i], data);
}

int hs_capture_count(void)
{
	return 0;
}

void hs_session_settle(void)
{
	fake.settled++;
}

void hs_session_finish(void)
{
	fake.finished++;
}
