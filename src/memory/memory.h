/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_MEMORY_H
#define SRC_MEMORY_MEMORY_H

/*
 * Where the engine's large allocations live. Everything here answers exactly
 * what the driver would answer; outputs are set only on success. Unless a
 * function says otherwise it may be called from any thread, and not from a
 * launch hook.
 *
 * A window is one allocation of at least HISPARSE_WINDOW_MIB that got an
 * address of ours. Its address never changes; what backs it does.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "hooks/driver.h"

/* Bytes: the driver's allocation granularity on every GPU we support, and the
 * part at the start of a host-backed window that stays on the device. */
#define HS_GRANULE ((size_t)2 << 20)

/* The reserve holds a hot row for so many tokens. Of 10 million 263,000 rows, of
 * which 100 requests with 2,048 rows a step use 205,000. */
#define HS_HOT_ONE_IN 38

/* Windows alive at a time; larger ids do not occur. */
#define HS_WINDOW_MAX 4096

enum hs_place {
	HS_PLACE_DEVICE,
	HS_PLACE_HOST,
};

enum hs_use {
	HS_USE_UNKNOWN, /* nothing but fills seen */
	HS_USE_KV,	/* a writer or an attention profile touched it */
	HS_USE_OTHER,	/* something else touched it: stays on the device */
};

struct hs_window {
	CUdeviceptr start;
	size_t bytes;	  /* as mapped: a multiple of HS_GRANULE */
	size_t requested; /* as the engine asked */
	CUdevice device;
	uint32_t id;		/* below HS_WINDOW_MAX; used again after the window is freed */
	_Atomic int use;	/* enum hs_use, set on the launch path */
	_Atomic int place;	/* enum hs_place, changes at safe moments only; HOST: any of it */
	_Atomic size_t host;	/* bytes on the host of a window that is in parts (range.h) */
	_Atomic bool unseen;	/* graph nodes made by hand write to it: no hot rows */
	_Atomic bool virgin;	/* saw nothing but its zero fill */
	_Atomic bool filled;	/* and has seen that */
	_Atomic uint32_t row;	/* bytes of a KV row, 0 while unknown */
	_Atomic bool any_order; /* its host memory is read as fast in any order (managed.h) */
	/* From here on no KV, for good: what an allocator has left over of a granule it
	 * gives to whoever asks. 0 while not known. Set by the cache, at safe moments. */
	_Atomic CUdeviceptr tail;
};

/* Allocation, as cuMemAlloc_v2, cuMemFree_v2. */
CUresult hs_memory_alloc(CUdeviceptr *out, size_t bytes);
CUresult hs_memory_free(CUdeviceptr ptr);

/* Something failed with OUT_OF_MEMORY that is not ours to let fail. True: a
 * window made way, `bytes` may fit now, try again. Not from inside the gate. */
bool hs_memory_spare(size_t bytes);

/* What is reported. NULL-safe; errors of the driver are passed on. */
CUresult hs_memory_info(size_t *free, size_t *total);
CUresult hs_memory_total(size_t *bytes, CUdevice device);
/* The same for who asks elsewhere (NVML): of a device that has so many free bytes and
 * in all, what to tell instead. False: the truth. */
bool hs_memory_retell(CUdevice of, uint64_t *free, uint64_t *all);
CUresult hs_memory_range(CUdeviceptr *start, size_t *bytes, CUdeviceptr ptr);
CUresult hs_memory_attribute(void *data, CUpointer_attribute which, CUdeviceptr ptr);
CUresult hs_memory_attributes(
	unsigned count, CUpointer_attribute *which, void **data, CUdeviceptr ptr);

/* The window that holds an address, or NULL. Launch path: no lock, no call.
 * The result stays readable for the life of the process (a freed one may come
 * to describe another window). */
struct hs_window *hs_window_find(CUdeviceptr ptr);

/* True once any window has existed. One relaxed load. */
bool hs_window_any(void);

/* Lowest address and span that every window lies in: a word w is a candidate
 * iff w - *low < *span. Launch path. */
void hs_window_span(CUdeviceptr *low, size_t *span);

/* What a kernel revealed (launch path, marks only). row: bytes of a KV row, 0
 * if the kernel did not tell. */
void hs_window_reveal(struct hs_window *window, enum hs_use use, uint32_t row);

/* The lowest address in [start, end) of the window that is host memory, or end.
 * Safe moments only. */
CUdeviceptr hs_window_host_begins(struct hs_window *window, CUdeviceptr start, CUdeviceptr end);

/* Visits every live window. Safe moments and logs only. */
void hs_window_each(void (*visit)(struct hs_window *window, void *data), void *data);

/*
 * A safe moment: called after what the engine waits for, and before its other
 * synchronous calls (allocate, free, instantiate). Does nothing unless something
 * is marked, no capture is open in the process and we are not inside our own
 * call. Then: gate launches, wait for the device (up to a second where the
 * engine's call waits by nature, else for milliseconds), move windows, start and
 * stop layers (hs_cache_settle), open the gate.
 */
void hs_memory_settle(bool waits);

/* Marks that the next safe moment has work to do. Launch path. */
void hs_memory_mark(void);

/* The context is about to be destroyed or reset: its windows are freed, as the
 * driver frees its allocations. */
void hs_memory_context_gone(CUcontext context);

/* Bytes of the reserve that hs_memory_own and hs_memory_hot have not taken, or once KV is
 * on the host what is free beyond the engine's slack (slack.h), if that is more; what the
 * hot buffer is sized from. 0 while windows may not live on the host
 * (HISPARSE_PLACE=device, no pool). Not on the launch path. */
size_t hs_memory_reserve(void);

/* What there is, in bytes but for the number of windows. Atomics and constants
 * only: no lock, no driver call. */
struct hs_memory_counts {
	uint64_t windows[2], window_bytes[2]; /* by enum hs_place */
	uint64_t pool, pool_used;	      /* host memory for windows; 0 if there is none */
	uint64_t reserve, own;		      /* of the device; own may exceed it */
};
void hs_memory_read(struct hs_memory_counts *counts);

/* Device memory of our own (states, remap lists), zeroed, 256-byte aligned, of
 * the current context. Taken from the reserve, and beyond it only while a
 * sixteenth of the device stays free; what is not for hot rows (outside of safe
 * moments) while there is some. Returns 0 or a negative errno. Works
 * under capture (relaxed) and from the launch path (gate entered or not): the
 * zero fill runs on a stream of ours and nothing else is waited for. disown is
 * for safe moments: the driver's free waits for the device. */
int hs_memory_own(CUdeviceptr *out, size_t bytes);
void hs_memory_disown(CUdeviceptr ptr);

/*
 * Backs `bytes` of device memory above `base`, at a 16-byte-aligned address
 * congruent to base modulo row: (address - base) % row == 0, and (address -
 * base) / row + bytes / row < 2^31. That is a layer's hot area; its bytes are
 * undefined. Safe moments only. Returns 0 or a negative errno: -ERANGE when
 * int32 rows do not reach, -EINVAL when base and row cannot be aligned.
 */
int hs_memory_hot(CUdeviceptr *out, CUdeviceptr base, uint32_t row, size_t bytes);
void hs_memory_cold(CUdeviceptr hot);

#endif
