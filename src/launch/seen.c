/* SPDX-License-Identifier: MIT */
#include "src/launch/seen.h"

#include <pthread.h>
#include <unistd.h>
#include "src/base/log.h"
#include "src/memory/memory.h"

/* What was said last of a window's number. */
static struct {
	CUdeviceptr start;
	int use;
} told[HS_WINDOW_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic pid_t owner; /* the process that reports; a forked child does not */

const char *hs_seen_role(const struct hs_profile *profile)
{
	static const char *const roles[] = {[HS_ROLE_NONE] = "unknown",
		[HS_ROLE_ATTENTION] = "attention",
		[HS_ROLE_WRITER] = "writer",
		[HS_ROLE_READER] = "reader",
		[HS_ROLE_FILL] = "fill",
		[HS_ROLE_OTHER] = "other",
		[HS_ROLE_TRANSFER] = "transfer",
		[HS_ROLE_TABLE] = "table",
		[HS_ROLE_TOPK] = "topk"};

	return roles[profile ? profile->role : HS_ROLE_NONE];
}

static void say_kernel(struct hs_kernel *kernel, void *data)
{
	const struct hs_profile *profile = kernel->profile;

	(void)data;
	if (atomic_load_explicit(&kernel->launches, memory_order_relaxed) &&
		!atomic_exchange(&kernel->seen_said, true))
		hs_debug(HS_SEEN_KERNEL, kernel->name, hs_seen_role(profile),
			profile ? profile->label : "none");
}

static void say_window(struct hs_window *window, void *data)
{
	const int use = atomic_load_explicit(&window->use, memory_order_relaxed);

	(void)data;
	if (use == HS_USE_UNKNOWN ||
		(told[window->id].start == window->start && told[window->id].use == use))
		return;
	told[window->id].start = window->start;
	told[window->id].use = use;
	hs_debug(HS_SEEN_WINDOW, window->id, window->bytes >> 20,
		use == HS_USE_KV ? "KV" : "other data",
		atomic_load_explicit(&window->row, memory_order_relaxed));
}

void hs_seen_report(void)
{
	if (!hs_log_on(HS_LOG_DEBUG) || pthread_mutex_trylock(&lock))
		return;
	atomic_store(&owner, getpid());
	hs_kernel_each(say_kernel, NULL);
	hs_window_each(say_window, NULL);
	pthread_mutex_unlock(&lock);
}

static void say_launches(struct hs_kernel *kernel, void *data)
{
	const unsigned long long launches =
		atomic_load_explicit(&kernel->launches, memory_order_relaxed);

	say_kernel(kernel, data);
	if (launches)
		hs_debug(HS_SEEN_LAUNCHES, kernel->name, launches);
}

/* Takes no lock: other threads may still run. */
__attribute__((destructor)) static void finish(void)
{
	if (atomic_load(&owner) == getpid())
		hs_kernel_each(say_launches, NULL);
}
