/* SPDX-License-Identifier: MIT */
#include <stdatomic.h>
#include "src/cache/cache.h"
#include "src/memory/gate.h"
#include "src/memory/place.h"
#include "src/memory/settle.h"
#include "src/memory/window.h"

static _Atomic bool marked;
static bool stopped; /* under the memory lock */

void hs_memory_mark(void)
{
	if (!atomic_load_explicit(&marked, memory_order_relaxed))
		atomic_store_explicit(&marked, true, memory_order_release);
}

static bool context_idle(CUcontext context)
{
	CUcontext popped;
	CUresult result = hs_driver.cuCtxPushCurrent_v2(context);

	if (result != CUDA_SUCCESS)
		return false;
	result = hs_driver.cuCtxSynchronize();
	hs_driver.cuCtxPopCurrent_v2(&popped);
	return result == CUDA_SUCCESS;
}

static bool all_idle(void)
{
	CUcontext last = NULL;

	if (hs_driver.cuCtxGetCurrent(&last) == CUDA_SUCCESS && last && !context_idle(last))
		return false;
	for (struct hs_holding *h = hs_holding_next(NULL); h; h = hs_holding_next(h)) {
		if (!h->context || h->context == last)
			continue;
		last = h->context;
		if (!context_idle(last))
			return false;
	}
	return true;
}

bool hs_world_stop(void)
{
	if (stopped || hs_capture_count() > 0 || !hs_gate_close())
		return false;
	/* Again: one may have begun before the gate was closed. */
	if (hs_capture_count() == 0 && all_idle()) {
		stopped = true;
		return true;
	}
	hs_gate_open();
	return false;
}

void hs_world_start(void)
{
	stopped = false;
	hs_gate_open();
}

void hs_memory_settle(void)
{
	if (!atomic_load_explicit(&marked, memory_order_relaxed) || hs_capture_count() > 0 ||
		!hs_memory_trylock())
		return;
	hs_inside++;
	if (hs_world_stop()) {
		/* First, so that what is marked from now on is not lost. */
		atomic_store(&marked, false);
		hs_place_balance();
		hs_cache_settle();
		hs_world_start();
	}
	hs_inside--;
	hs_memory_unlock();
}
