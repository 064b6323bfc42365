/* SPDX-License-Identifier: MIT */
#include "src/memory/peer.h"
#include "src/base/log.h"
#include "src/memory/range.h"
#include "src/memory/window.h"

#define DEVICES 64

static _Atomic uint64_t peers[DEVICES];
static CUcontext _Atomic users[HS_PEER_USERS];
static _Atomic bool any;

void hs_peer_note(void)
{
	CUcontext context = NULL, none;

	hs_driver.cuCtxGetCurrent(&context);
	for (unsigned i = 0; i < HS_PEER_USERS && context; i++)
		if (hs_peer_user(i) == context)
			return;
	for (unsigned i = 0; i < HS_PEER_USERS && context; i++) {
		none = NULL;
		if (atomic_compare_exchange_strong(&users[i], &none, context))
			context = NULL;
	}
	atomic_store(&any, true);
}

bool hs_peer_any(void)
{
	return atomic_load_explicit(&any, memory_order_relaxed);
}

CUcontext hs_peer_user(unsigned i)
{
	return atomic_load_explicit(&users[i], memory_order_relaxed);
}

void hs_peer_forget(CUcontext context)
{
	for (unsigned i = 0; i < HS_PEER_USERS; i++) {
		CUcontext expected = context;

		atomic_compare_exchange_strong(&users[i], &expected, NULL);
	}
}

uint64_t hs_peers(CUdevice device)
{
	return device >= 0 && device < DEVICES
		       ? atomic_load_explicit(&peers[device], memory_order_relaxed)
		       : 0;
}

static CUresult share(struct hs_holding *h, CUdevice with)
{
	CUresult result = hs_backing_share(&h->head, with);

	if (result == CUDA_SUCCESS)
		result = hs_backing_share(&h->rest, with);
	for (unsigned i = 0; i < h->count && result == CUDA_SUCCESS; i++)
		result = hs_backing_share(&h->ranges[i].backing, with);
	return result;
}

static bool device_of(CUcontext context, CUdevice *device)
{
	CUcontext popped;
	CUresult result = hs_driver.cuCtxPushCurrent_v2(context);

	if (result != CUDA_SUCCESS)
		return false;
	result = hs_driver.cuCtxGetDevice(device);
	hs_driver.cuCtxPopCurrent_v2(&popped);
	return result == CUDA_SUCCESS && *device >= 0 && *device < DEVICES;
}

void hs_peer_enabled(CUcontext other)
{
	CUdevice device, with;
	CUresult result;

	if (hs_driver.cuCtxGetDevice(&with) != CUDA_SUCCESS || with < 0 || with >= DEVICES ||
		!device_of(other, &device))
		return;
	hs_peer_note();
	hs_memory_lock();
	atomic_fetch_or(&peers[device], 1ull << with);
	for (struct hs_holding *h = hs_holding_next(NULL); h; h = hs_holding_next(h)) {
		if (h->window.device != device || h->doomed)
			continue;
		result = share(h, with);
		if (result != CUDA_SUCCESS)
			hs_warn("window %u: device %d gets no access (CUDA error %d)", h->window.id,
				with, result);
	}
	hs_memory_unlock();
}

/* Registered memory is everybody's. */
static bool reached(struct hs_window *window, CUdeviceptr ptr, CUdevice from)
{
	return window->device == from || hs_peers(window->device) & 1ull << (from & 63) ||
	       (hs_holding_of(window)->apart && ptr >= window->start + HS_GRANULE);
}

static bool owner(CUcontext *context, struct hs_window *window, CUdeviceptr ptr)
{
	if (window)
		*context = hs_holding_of(window)->context;
	else if (hs_driver.cuPointerGetAttribute(context, CU_POINTER_ATTRIBUTE_CONTEXT, ptr) !=
		 CUDA_SUCCESS)
		*context = NULL;
	return *context;
}

bool hs_peer_far(CUdeviceptr dst, CUdeviceptr src, struct hs_peer_ends *ends)
{
	struct hs_window *to = hs_window_find(dst), *from = hs_window_find(src);
	CUdevice here;

	if (!dst || !src || hs_driver.cuCtxGetDevice(&here) != CUDA_SUCCESS ||
		((!to || reached(to, dst, here)) && (!from || reached(from, src, here))))
		return false;
	return owner(&ends->to, to, dst) && owner(&ends->from, from, src);
}
