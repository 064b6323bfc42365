/* SPDX-License-Identifier: MIT */
#ifndef HOOKS_HOOK_H
#define HOOKS_HOOK_H

/*
 * What every hook body is made of:
 *
 *	HS_EXPORT CUresult cuXxx(...)
 *	{
 *		if (!hs_hook_begin())
 *			return HS_REAL(cuXxx)(...);
 *		return hs_hook_end(policy(...));
 *	}
 *
 * hs_hook_begin is false before cuInit, inside one of our own calls, when we
 * stand aside (HISPARSE_DISABLE, a driver that lacks a row, a forked child)
 * and when there is no driver. Between begin and end the thread counts as
 * inside: hooks that it reaches forward. errno is the caller's again at end.
 */

#include <errno.h>
#include <stdatomic.h>
#include "hooks/driver.h"

#define HS_EXPORT __attribute__((visibility("default")))

/* The driver's entry, or one with the same type that refuses: an OPTIONAL row
 * may be bound by name although this driver lacks it. */
#define HS_REAL(name) (hs_driver.name ? hs_driver.name : (__typeof__(name) *)(void *)hs_hook_absent)
CUresult hs_hook_absent(void);

enum hs_hook_state { HS_HOOK_ASLEEP, HS_HOOK_LIVE, HS_HOOK_ASIDE };

extern _Atomic int hs_hook_state;
extern __thread int hs_hook_errno __attribute__((tls_model("initial-exec")));

/* Leaves ASLEEP if the time has come. True when LIVE. */
bool hs_hook_wake(void);

static inline bool hs_hook_begin(void)
{
	if (hs_inside)
		return false;
	if (atomic_load_explicit(&hs_hook_state, memory_order_acquire) != HS_HOOK_LIVE &&
		!hs_hook_wake())
		return false;
	hs_hook_errno = errno;
	hs_inside = 1;
	return true;
}

static inline CUresult hs_hook_end(CUresult result)
{
	hs_inside = 0;
	errno = hs_hook_errno;
	return result;
}

/* A synchronous call of the engine: windows may move, and what the launch path
 * could not say is said. waits: the call waits for the device by nature; it has
 * done so already where it waits for everything or for a stream. */
void hs_hook_settle(bool waits);

/* The call again, once, when it found no memory and a window made way: memory
 * that we hold must not make it fail. Not from inside the gate. */
#define HS_SPARED(bytes, call)                                                                     \
	({                                                                                         \
		CUresult spared_ = call;                                                           \
		if (spared_ == CUDA_ERROR_OUT_OF_MEMORY && hs_memory_spare(bytes))                 \
			spared_ = call;                                                            \
		spared_;                                                                           \
	})

/* The real dlsym, for which ours makes way. */
extern void *(*hs_dlsym_real)(void *handle, const char *name);
bool hs_dlsym_open(void);

/* Fills hs_driver from a libcuda that is in the process already; loads none. */
bool hs_driver_attach(void);

/* Our function in front of the driver's entry at `real`, which was asked for
 * as `name` (an ELF name, or the base name that cuGetProcAddress takes); NULL
 * when that is not one of ours. */
void *hs_door_find(const void *real, const char *name);

#endif
