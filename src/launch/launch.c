/* SPDX-License-Identifier: MIT */
#include "src/launch/launch.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include "src/base/log.h"
#include "src/cache/cache.h"
#include "src/cache/notes.h"
#include "src/launch/kernel.h"
#include "src/launch/look.h"
#include "src/launch/params.h"
#include "src/launch/profiles.h"
#include "src/launch/seen.h"
#include "src/launch/verify.h"
#include "src/memory/gate.h"
#include "src/memory/memory.h"

/* Something for hs_launch_report to say. */
static atomic_bool pending;

static struct {
	atomic_uint_fast64_t attention, remapped, refused, written, filled, unknown, nodes;
} counts;

static void count(atomic_uint_fast64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* Remembers the first reason and leaves the launch as it is. */
static CUresult refuse(struct hs_look *look, const char *reason)
{
	const char *none = NULL;

	count(&counts.refused);
	if (atomic_compare_exchange_strong(&look->kernel->refused, &none, reason))
		atomic_store_explicit(&pending, true, memory_order_relaxed);
	return look->launch->forward(look->launch);
}

static bool list_of(const struct hs_look *look, struct hs_list *list)
{
	const struct hs_profile *profile = look->profile;
	int64_t lengths;

	list->indices = (CUdeviceptr)look->fields[profile->list_field];
	if (!list->indices || !hs_look_u32(look, profile->list[0], &list->outer) ||
		!hs_look_u32(look, profile->list[1], &list->inner) ||
		!hs_look_u32(look, profile->list[2], &list->k) ||
		!hs_look_eval(look, profile->list[3], &list->outer_stride) ||
		!hs_look_eval(look, profile->list[4], &list->inner_stride) ||
		!hs_look_eval(look, profile->lengths, &lengths))
		return false;
	list->lengths = (CUdeviceptr)lengths;
	return list->outer && list->inner && list->k;
}

static bool rewrite(const struct hs_look *look, struct hs_params_copy *copy, CUdeviceptr remapped)
{
	const struct hs_profile *profile = look->profile;
	int64_t value;

	if (!hs_params_set(copy, &profile->fields[profile->list_field], (int64_t)remapped))
		return false;
	for (unsigned i = 0; i < profile->nsets; i++) {
		if (!hs_look_eval(look, profile->sets[i].value, &value) ||
			!hs_params_set(copy, &profile->fields[profile->sets[i].field], value))
			return false;
	}
	return true;
}

static void tell_field(const struct hs_look *look, const struct hs_params_copy *copy, unsigned i,
	struct hs_notes_launch *out)
{
	const struct hs_profile_field *field = &look->profile->fields[i];

	out->fields[out->count].param = field->param;
	out->fields[out->count].offset = field->offset;
	out->fields[out->count].width = field->width;
	out->fields[out->count].size = copy->kernel->sizes[field->param];
	out->fields[out->count++].value = look->fields[i];
}

/* A rewritten launch was captured: what the engine's own had where rewrite() wrote. */
static void captured(
	const struct hs_look *look, const struct hs_params_copy *copy, const struct hs_site *site)
{
	struct hs_notes_launch launch = {0};

	_Static_assert(1 + HS_PROFILE_SETS <= HS_NOTES_FIELDS, "room for every field");
	/* A packed buffer is not what the node tells later. */
	if (copy->launch.params)
		launch.params = copy->kernel->count;
	tell_field(look, copy, look->profile->list_field, &launch);
	for (unsigned i = 0; i < look->profile->nsets; i++)
		tell_field(look, copy, look->profile->sets[i].field, &launch);
	hs_notes_add(site, &launch);
}

static const char *why(int error)
{
	switch (error) {
	case -EAGAIN:
		return "it was captured before a layer was ready";
	case -ENOSPC:
	case -ENOMEM:
		return "no room for another list";
	case -EINVAL:
		return "its list makes no sense";
	default:
		return "its list cannot be resolved";
	}
}

static struct hs_layer *layer_of(
	const struct hs_look *look, struct hs_window *window, CUdeviceptr base, uint32_t row)
{
	struct hs_layer *layer = hs_layer_find(window, base, row, true);
	int64_t rows;

	if (layer && look->profile->rows && hs_look_eval(look, look->profile->rows, &rows) &&
		rows > 0)
		hs_layer_told(layer, (uint64_t)rows);
	return layer;
}

static CUresult attention(struct hs_look *look)
{
	const char *reason = hs_look_unmet(look);
	struct hs_params_copy copy;
	struct hs_window *window;
	struct hs_layer *layer;
	struct hs_site site;
	struct hs_list list;
	CUdeviceptr base, remapped;
	CUresult result;
	uint32_t row;
	int error;

	window = hs_look_window(look, &base);
	if (!window)
		return look->launch->forward(look->launch);
	count(&counts.attention);
	count(&look->kernel->launches);
	if (reason) {
		hs_window_reveal(window, HS_USE_OTHER, 0);
		return refuse(look, reason);
	}
	if (!hs_look_u32(look, look->profile->row, &row) || !row || !list_of(look, &list))
		return refuse(look, "its list or row makes no sense");
	hs_window_reveal(window, HS_USE_KV, row);
	layer = layer_of(look, window, base, row);
	if (!layer)
		return refuse(look, "its layer cannot be entered");
	if (!hs_params_copy(&copy, look->launch, look->kernel))
		return refuse(look, "too many parameters");
	site = hs_look_site(look->launch);
	error = hs_cache_resolve(layer, &list, &site, &remapped);
	if (error == -EAGAIN && !site.capturing) /* the first launches of all */
		return look->launch->forward(look->launch);
	if (error < 0)
		return refuse(look, why(error));
	if (!rewrite(look, &copy, remapped)) {
		/* what was resolved is released all the same */
		result = refuse(look, "its parameters cannot be rewritten");
	} else if (remapped == list.indices) {
		result = look->launch->forward(look->launch);
	} else {
		count(&counts.remapped);
		result = hs_verify_due(&site) ? hs_verify_launch(look->profile, &look->values,
							look->launch, &copy.launch, layer, &site)
					      : copy.launch.forward(&copy.launch);
		if (site.capturing && result == CUDA_SUCCESS)
			captured(look, &copy, &site);
	}
	hs_cache_attended(layer, &site);
	return result;
}

static CUresult writer(struct hs_look *look)
{
	CUresult result = look->launch->forward(look->launch);
	const char *reason = hs_look_unmet(look);
	struct hs_layer *layer = NULL;
	struct hs_slots slots = {0};
	struct hs_window *window;
	struct hs_site site;
	CUdeviceptr base;
	int64_t pointer;
	uint32_t row = 0;

	window = hs_look_window(look, &base);
	if (!window || result != CUDA_SUCCESS)
		return result;
	count(&counts.written);
	count(&look->kernel->launches);
	site = hs_look_site(look->launch);
	if (!reason && hs_look_u32(look, look->profile->row, &row)) {
		if (!row)
			row = atomic_load_explicit(&window->row, memory_order_relaxed);
		hs_window_reveal(window, HS_USE_KV, row);
		if (row)
			layer = layer_of(look, window, base, row);
	}
	if (layer && hs_look_eval(look, look->profile->slots[0], &pointer) && pointer &&
		hs_look_u32(look, look->profile->slots[1], &slots.count) &&
		hs_look_u32(look, look->profile->slots[2], &slots.width)) {
		slots.slots = (CUdeviceptr)pointer;
		if (slots.count)
			hs_cache_written(layer, &slots, &site);
	} else {
		/* which rows it stored is not known: all of them */
		if (reason)
			hs_window_reveal(window, HS_USE_OTHER, 0);
		hs_cache_wrote(window, window->start, 0, &site);
	}
	return result;
}

static CUresult reader(struct hs_look *look)
{
	struct hs_window *window;
	CUdeviceptr base;
	uint32_t row;

	window = hs_look_window(look, &base);
	if (window)
		count(&look->kernel->launches);
	if (window && !hs_look_unmet(look) && hs_look_u32(look, look->profile->row, &row))
		hs_window_reveal(window, HS_USE_KV, row);
	return look->launch->forward(look->launch);
}

static CUresult fill(struct hs_look *look)
{
	CUresult result = look->launch->forward(look->launch);
	int64_t pointer, bytes, value;
	struct hs_window *window;
	struct hs_site site;

	if (result != CUDA_SUCCESS || !hs_look_eval(look, look->profile->fill[0], &pointer) ||
		!hs_look_eval(look, look->profile->fill[1], &bytes) ||
		!hs_look_eval(look, look->profile->fill[2], &value) || bytes <= 0)
		return result;
	window = hs_window_find((CUdeviceptr)pointer);
	if (!window)
		return result;
	count(&counts.filled);
	count(&look->kernel->launches);
	if (value)
		atomic_store_explicit(&window->virgin, false, memory_order_relaxed);
	else
		atomic_store_explicit(&window->filled, true, memory_order_relaxed);
	site = hs_look_site(look->launch);
	hs_cache_wrote(window, (CUdeviceptr)pointer, (size_t)bytes, &site);
	return result;
}

/* Marks the windows that an unknown kernel carries. True if there are any. */
static bool mark(struct hs_launch *launch, struct hs_kernel *kernel)
{
	struct hs_window *window, *last = NULL;
	uint64_t cursor = 0;

	while ((window = hs_params_touch(launch, kernel, &cursor))) {
		bool kv = atomic_load_explicit(&window->use, memory_order_relaxed) == HS_USE_KV;

		if (window == last)
			continue;
		last = window;
		if (!kv)
			hs_window_reveal(window, HS_USE_OTHER, 0);
		if (!kv && atomic_load_explicit(&kernel->touched, memory_order_relaxed))
			continue;
		atomic_store_explicit(&kernel->touched, window, memory_order_relaxed);
		if (!atomic_load_explicit(&kernel->touch_said, memory_order_relaxed))
			atomic_store_explicit(&pending, true, memory_order_relaxed);
	}
	return last;
}

/* Keeps a window on the device, but not one that holds KV, too. */
static CUresult other(struct hs_look *look)
{
	struct hs_window *window;
	uint64_t cursor = 0;

	while ((window = hs_params_touch(look->launch, look->kernel, &cursor)))
		hs_window_reveal(window, HS_USE_OTHER, 0);
	return look->launch->forward(look->launch);
}

static CUresult unknown(struct hs_launch *launch, struct hs_kernel *kernel)
{
	struct hs_window *window, *last = NULL;
	uint64_t cursor = 0;
	struct hs_site site;
	CUresult result;

	if (!mark(launch, kernel))
		return launch->forward(launch);
	count(&counts.unknown);
	count(&kernel->launches);
	result = launch->forward(launch);
	if (result != CUDA_SUCCESS)
		return result;
	site = hs_look_site(launch);
	while ((window = hs_params_touch(launch, kernel, &cursor))) {
		if (window != last)
			hs_cache_wrote(window, window->start, 0, &site);
		last = window;
	}
	return result;
}

static CUresult dispatch(struct hs_launch *launch, struct hs_kernel *kernel)
{
	struct hs_look look;

	if (!kernel)
		return launch->forward(launch);
	if (!kernel->profile || !hs_look_at(&look, launch, kernel))
		return unknown(launch, kernel);
	switch (kernel->profile->role) {
	case HS_ROLE_ATTENTION:
		return attention(&look);
	case HS_ROLE_WRITER:
		return writer(&look);
	case HS_ROLE_READER:
		return reader(&look);
	case HS_ROLE_FILL:
		return fill(&look);
	case HS_ROLE_OTHER:
		return other(&look);
	case HS_ROLE_TRANSFER:
		count(&counts.written);
		return hs_arrive_transfer(&look);
	case HS_ROLE_TABLE:
		return hs_arrive_table(&look);
	default:
		return unknown(launch, kernel);
	}
}

CUresult hs_launch(struct hs_launch *launch)
{
	struct hs_kernel *kernel;
	CUresult result;

	if (!hs_window_any())
		return launch->forward(launch);
	kernel = hs_kernel_find(launch->function);
	hs_gate_enter();
	result = dispatch(launch, kernel);
	hs_gate_leave();
	return result;
}

void hs_launch_forget(void)
{
	hs_kernel_forget();
}

void hs_launch_capture_began(CUstream stream, bool per_thread)
{
	(void)stream;
	(void)per_thread;
	hs_verify_prepare();
}

void hs_launch_capture_ending(CUstream stream, bool per_thread)
{
	struct hs_launch launch = {.stream = stream, .per_thread = per_thread};
	struct hs_site site;

	if (!hs_window_any())
		return;
	site = hs_look_site(&launch);
	if (site.capturing)
		hs_cache_capture_end(&site);
}

/* Nodes that are made by hand read in place, which is right. After one that may
 * write nothing could be dropped: its windows have no hot rows from the next
 * safe moment on, which instantiating the graph is. */
void hs_launch_node(CUfunction function, void **params)
{
	struct hs_launch launch = {.function = function, .params = params};
	struct hs_window *window;
	struct hs_kernel *kernel;
	uint64_t cursor = 0;

	if (!hs_window_any() || !params)
		return;
	kernel = hs_kernel_find(function);
	if (!kernel || (kernel->profile && kernel->profile->role != HS_ROLE_WRITER &&
			       kernel->profile->role != HS_ROLE_FILL))
		return;
	if (!mark(&launch, kernel))
		return;
	count(&counts.nodes);
	while ((window = hs_params_touch(&launch, kernel, &cursor))) {
		if (atomic_exchange_explicit(&window->unseen, true, memory_order_relaxed))
			continue;
		hs_memory_mark();
	}
}

static void say(struct hs_kernel *kernel, void *data)
{
	struct hs_window *window = atomic_load_explicit(&kernel->touched, memory_order_relaxed);
	const char *refused = atomic_load_explicit(&kernel->refused, memory_order_relaxed);
	const struct hs_profile *profile = kernel->profile;

	(void)data;
	if (refused && !atomic_exchange(&kernel->refusal_said, true))
		hs_warn("launches of attention kernel %.100s are left alone and read in place: %s "
			"(%s:%u)",
			kernel->name, refused, profile->file, profile->line);
	if (!window || atomic_load(&kernel->touch_said))
		return;
	if (atomic_load_explicit(&window->use, memory_order_relaxed) == HS_USE_KV) {
		/* Costs hot rows only where there may be some. */
		const bool host = atomic_load_explicit(&window->place, memory_order_relaxed) ==
				  HS_PLACE_HOST;

		atomic_store(&kernel->touch_said, true);
		hs_log(host ? HS_LOG_WARN : HS_LOG_INFO,
			"kernel %.100s is not known and touches KV window %u: taken for a writer"
			" (HISPARSE_PROFILES can tell more)",
			kernel->name, window->id);
	} else if (hs_log_on(HS_LOG_DEBUG)) {
		hs_debug("kernel %.100s is not known and touches window %u", kernel->name,
			window->id);
	}
}

void hs_launch_report(void)
{
	static atomic_bool said;

	hs_profiles_report();
	if (!hs_driver.cuFuncGetParamInfo && !atomic_exchange(&said, true))
		hs_warn("this CUDA driver does not tell the parameters of kernels (12.4 and later "
			"do): every row is read in place");
	hs_verify_prepare();
	hs_verify_report();
	hs_seen_report();
	if (!atomic_load_explicit(&pending, memory_order_relaxed))
		return;
	atomic_store_explicit(&pending, false, memory_order_relaxed);
	hs_kernel_each(say, NULL);
}

void hs_launch_read(struct hs_launch_counts *out)
{
	*out = (struct hs_launch_counts){
		.attention = counts.attention,
		.remapped = counts.remapped,
		.refused = counts.refused,
		.written = counts.written,
		.filled = counts.filled,
		.unknown = counts.unknown,
		.nodes = counts.nodes,
	};
}
