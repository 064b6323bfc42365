/* SPDX-License-Identifier: MIT */
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include "src/cache/cache.h"
#include "src/memory/capture.h"
#include "src/memory/gate.h"
#include "src/memory/peer.h"
#include "src/memory/place.h"
#include "src/memory/settle.h"
#include "src/memory/window.h"

/* How long the device may take to finish what it has, with nothing new coming:
 * inside a call that waits by nature, and inside one that does not. */
#define PATIENCE_NS 1000000000ll
#define GLANCE_NS 5000000ll
#define REST 8
static const struct timespec nap = {.tv_nsec = 20000};

static _Atomic bool marked;
static bool stopped; /* these two under the memory lock */
static int64_t not_before;
static _Thread_local bool stopped_here;

void hs_memory_mark(void)
{
	if (!atomic_load_explicit(&marked, memory_order_relaxed))
		atomic_store_explicit(&marked, true, memory_order_release);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* The driver may be too old for cuCtxRecordEvent (12.5 has it). Then there is
 * no wait with an end, and only who waits anyway may try. */
static bool drained(CUcontext context, int64_t until, bool waits)
{
	CUevent event;
	CUresult result;

	if (!hs_driver.cuCtxRecordEvent)
		return waits && hs_driver.cuCtxSynchronize() == CUDA_SUCCESS;
	if (hs_driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
		return false;
	result = hs_driver.cuCtxRecordEvent(context, event);
	while (result == CUDA_SUCCESS) {
		result = hs_driver.cuEventQuery(event);
		if (result != CUDA_ERROR_NOT_READY || now_ns() > until)
			break;
		nanosleep(&nap, NULL);
		result = CUDA_SUCCESS;
	}
	hs_driver.cuEventDestroy_v2(event);
	return result == CUDA_SUCCESS;
}

static bool context_idle(CUcontext context, int64_t until, bool waits)
{
	const CUresult result = hs_driver.cuCtxPushCurrent_v2(context);
	CUcontext popped;
	bool idle;

	/* A green context may have gone without a word. */
	if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
		hs_peer_forget(context);
		return true;
	}
	if (result != CUDA_SUCCESS)
		return false;
	idle = drained(context, until, waits);
	hs_driver.cuCtxPopCurrent_v2(&popped);
	return idle;
}

static bool all_idle(bool waits)
{
	const int64_t until = now_ns() + (waits ? PATIENCE_NS : GLANCE_NS);
	CUcontext first = NULL, last;

	if (hs_driver.cuCtxGetCurrent(&first) == CUDA_SUCCESS && first &&
		!context_idle(first, until, waits))
		return false;
	for (unsigned i = 0; i < HS_PEER_USERS; i++) {
		last = hs_peer_user(i);
		if (last && last != first && !context_idle(last, until, waits))
			return false;
	}
	last = first;
	for (struct hs_holding *h = hs_holding_next(NULL); h; h = hs_holding_next(h)) {
		if (!h->context || h->context == last)
			continue;
		last = h->context;
		if (!context_idle(last, until, waits))
			return false;
	}
	return true;
}

bool hs_world_stop(bool waits)
{
	if (stopped || !hs_capture_none() || !hs_gate_close())
		return false;
	/* Again: one may have begun before the gate was closed. */
	if (hs_capture_count() == 0 && all_idle(waits)) {
		stopped = stopped_here = true;
		return true;
	}
	hs_gate_open();
	return false;
}

void hs_world_start(void)
{
	stopped = stopped_here = false;
	hs_gate_open();
}

bool hs_world_stopped(void)
{
	return stopped_here;
}

/* After a try in vain we are in nobody's way for several times as long. */
void hs_memory_settle(bool waits)
{
	const bool due = atomic_load_explicit(&marked, memory_order_relaxed);
	int64_t begin;

	if (!due || !hs_capture_none() || !hs_memory_trylock())
		return;
	hs_inside++;
	begin = now_ns();
	if (begin >= not_before) {
		if (hs_world_stop(waits)) {
			/* First, so that what is marked from now on is not lost. */
			atomic_store(&marked, false);
			hs_place_balance();
			hs_cache_settle();
			hs_world_start();
		} else {
			const int64_t end = now_ns();

			if (end - begin > GLANCE_NS / 5)
				not_before = end + REST * (end - begin);
		}
	}
	hs_inside--;
	hs_memory_unlock();
}
