/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include "hooks/hook.h"
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/launch/launch.h"
#include "src/memory/capture.h"
#include "src/memory/gate.h"
#include "src/memory/memory.h"
#include "src/trace/trace.h"

_Atomic int hs_hook_state;
__thread int hs_hook_errno;

CUresult hs_hook_absent(void)
{
	return hs_driver_whole() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_STUB_LIBRARY;
}

/* CUDA does not work in the child of a process that has called cuInit, and the
 * locks of our modules may have been taken at the fork: nothing but forwarding
 * from here on. A child forked before cuInit is still ASLEEP and may wake. */
static void forked(void)
{
	int live = HS_HOOK_LIVE;

	hs_inside = 0;
	atomic_compare_exchange_strong(&hs_hook_state, &live, HS_HOOK_ASIDE);
}

static bool initialised(void)
{
	CUcontext context;

	return hs_driver.cuCtxGetCurrent(&context) != CUDA_ERROR_NOT_INITIALIZED;
}

/* Threads that race here decide the same; the first says so. */
bool hs_hook_wake(void)
{
	const int saved = errno;
	int state = atomic_load(&hs_hook_state), asleep = HS_HOOK_ASLEEP;

	if (state != HS_HOOK_ASLEEP || !hs_driver_open())
		return state == HS_HOOK_LIVE;
	if (hs_options()->disable || !hs_driver_whole())
		state = HS_HOOK_ASIDE;
	else if (initialised())
		state = HS_HOOK_LIVE;
	if (state == HS_HOOK_LIVE)
		pthread_atfork(NULL, NULL, forked);
	if (state != HS_HOOK_ASLEEP &&
		atomic_compare_exchange_strong(&hs_hook_state, &asleep, state)) {
		if (!hs_driver_whole())
			hs_warn("standing aside: this CUDA driver lacks entries that we need (12.2 "
				"or later has them)");
	}
	errno = saved;
	return atomic_load(&hs_hook_state) == HS_HOOK_LIVE;
}

void hs_hook_settle(bool waits)
{
	if (hs_window_any() && hs_capture_count() == 0) {
		hs_launch_report();
		hs_trace_settle();
	}
	hs_memory_settle(waits);
}
