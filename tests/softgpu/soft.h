/* SPDX-License-Identifier: MIT */
#ifndef SOFTGPU_SOFT_H
#define SOFTGPU_SOFT_H

/*
 * What the stand-in driver's files share: one process-wide lock, one state.
 * Every driver entry begins with SOFT_ENTER and holds the lock to its end;
 * everything else here is called with it held. Devices differ in what they hold
 * and reach; work of all of them has one legacy stream and is waited for together.
 */

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "softgpu/random.h"
#include "softgpu/softgpu.h"
#include "softgpu/task.h"

#define SOFT_DEVICES 8
#define SOFT_PINNED (-1) /* in place of a device: the host's */

struct soft_state {
	bool initialised;
	CUresult error;	     /* a kernel failed: every call answers this from then on */
	int devices;	     /* SOFTGPU_DEVICES */
	size_t device_bytes; /* SOFTGPU_MEMORY_MIB, of each */
	size_t device_used[SOFT_DEVICES];
	size_t host_bytes, host_used; /* SOFTGPU_HOST_MIB: pinned memory */
	uint64_t launches;
	unsigned flags; /* of every context */
};
extern struct soft_state soft;

enum soft_need {
	SOFT_CONTEXT = 1,
	SOFT_UNSAFE = 2, /* not while a capture forbids it */
};

/* Checks what an entry needs; in fuzz mode lets queued work advance a bit. */
CUresult soft_enter(unsigned need);
void soft_leave(CUresult *entered);
#define SOFT_ENTER(need)                                                                           \
	__attribute__((cleanup(soft_leave))) CUresult soft_entered = soft_enter(need);             \
	if (soft_entered)                                                                          \
	return soft_entered

/* An entry and its _ptsz or _ptds twin; `per_thread` tells them apart. */
#define SOFT_BOTH(name, suffix, arguments, expression)                                             \
	CUresult name arguments                                                                    \
	{                                                                                          \
		const bool per_thread = false;                                                     \
		return expression;                                                                 \
	}                                                                                          \
	CUresult name##suffix arguments                                                            \
	{                                                                                          \
		const bool per_thread = true;                                                      \
		return expression;                                                                 \
	}

CUcontext soft_context(void); /* this thread's, or NULL */
CUdevice soft_device(CUcontext context);
bool soft_is_device(CUdevice device);

/* memory.c: one table of address ranges, one of what is mapped where. */
#define SOFT_GRANULE ((size_t)2 << 20)
enum soft_kind {
	SOFT_ALLOC,
	SOFT_RESERVED,
	SOFT_HOST,
	SOFT_REGISTERED,
	SOFT_OPENED,
	SOFT_MANAGED, /* device: SOFT_PINNED while it stays on the host */
};
struct soft_range {
	uintptr_t start;
	size_t bytes;
	enum soft_kind kind;
	CUdevice device; /* whose memory an allocation is */
	unsigned flags;
	int fd;	       /* not 0: it lies in this file (ipc.c) */
	size_t pinned; /* of managed memory, what is to stay on the host */
	unsigned long long id;
	struct soft_range *next;
};
struct soft_range *soft_range_find(uintptr_t address);
struct soft_range *soft_range_add(uintptr_t start, size_t bytes, enum soft_kind kind);
void soft_range_remove(struct soft_range *range);
/* Adds to or takes from a device's memory or SOFT_PINNED; false when it does not fit. */
bool soft_account(int device, size_t bytes);
void soft_unaccount(int device, size_t bytes);
void soft_poison(void *start, size_t bytes);
void soft_memory_reset(CUdevice device);

enum soft_place { SOFT_NOWHERE, SOFT_ON_DEVICE, SOFT_ON_HOST };
/* Where an address lives, and how many bytes from it on live in the same kind
 * of place. SOFT_NOWHERE: pageable or nothing at all. */
enum soft_place soft_place(uintptr_t address, size_t *run);
/* As soft_place for a reserved range: what is mapped there (vmm.c). */
enum soft_place soft_mapped(uintptr_t address, size_t *run);
/* The device that an address is memory of; of host memory the first. */
CUdevice soft_owner(uintptr_t address);
/* Not where memory is mapped that the device was not given access to. Copies are
 * held to it; kernels cannot be. */
bool soft_reaches(CUdevice device, uintptr_t address, size_t bytes);
/* All of it is device or pinned memory. */
bool soft_known(uintptr_t address, size_t bytes);

/* stream.c. The lists only hold what lives. */
struct soft_capture;
struct soft_stream {
	unsigned flags;
	int priority;
	CUcontext context;
	struct soft_task *last;
	struct soft_capture *capture;
	struct soft_nodes *frontier; /* while capturing */
	struct soft_stream *next;
};
/* NULL: no such stream. */
struct soft_stream *soft_stream_find(CUstream handle, bool per_thread);
bool soft_stream_legacy(const struct soft_stream *stream);
void soft_stream_each(void (*visit)(struct soft_stream *stream, void *data), void *data);
/* Enqueues, or captures. Takes the op over, also when it fails. */
CUresult soft_submit(struct soft_stream *stream, struct soft_op *op);
/* As soft_submit on a stream that does not capture; the task (if asked for)
 * belongs to the caller as well. `deps` are waited for on top. */
CUresult soft_enqueue(struct soft_stream *stream, struct soft_op *op, struct soft_task *const *deps,
	unsigned count, struct soft_task **task);
/* Before a synchronous call: an error where a capture forbids it. */
CUresult soft_stream_wait(struct soft_stream *stream);
CUresult soft_device_wait(void);

/* copy.c: what a node holds. */
CUresult soft_copy_op(struct soft_op *op, const CUDA_MEMCPY3D *copy);
CUresult soft_fill_op(struct soft_op *op, const CUDA_MEMSET_NODE_PARAMS *fill);

/* module.c */
const struct soft_kernel *soft_kernel_of(CUfunction handle);
/* Fills launch from what a launch call carries; INVALID_VALUE and the like. */
CUresult soft_launch_make(struct soft_launch *launch, CUfunction function, const unsigned grid[3],
	const unsigned block[3], unsigned shared, void **params, void **extra);

#endif
