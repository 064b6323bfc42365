/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_DEVICE_H
#define SRC_CACHE_DEVICE_H

/*
 * Our kernels and the layer table on each device. hs_device_ready makes them,
 * at safe moments; everything else may be called on the launch path.
 */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include "hooks/driver.h"
#include "kernels/abi.h"
#include "src/cache/cache.h"

#define HS_DEVICES 64

enum hs_device_kernel {
	HS_DEVICE_PREPARE,
	HS_DEVICE_RESOLVE,
	HS_DEVICE_MANY_MARK,
	HS_DEVICE_MANY_RANK,
	HS_DEVICE_MANY_HOT,
	HS_DEVICE_MANY_GATHER,
	HS_DEVICE_MANY_REMAP,
	HS_DEVICE_KEEP,
	HS_DEVICE_INVALIDATE,
	HS_DEVICE_DROP,
	HS_DEVICE_FORGET,
	HS_DEVICE_BLOCKS,
	HS_DEVICE_BLOCKS_DONE,
	HS_DEVICE_POISON,
	HS_DEVICE_HASH,
	HS_DEVICE_COMPARE,
	HS_DEVICE_KERNELS,
};

struct hs_device {
	CUdevice id;
	CUcontext context;
	CUmodule module;
	CUfunction kernels[HS_DEVICE_KERNELS];
	unsigned processors;
	CUdeviceptr table; /* struct hs_table */
	/* struct hs_blocks_head and its copies, for tables of so many columns; 0:
	 * none yet. highest: the last layer of a step. */
	_Atomic CUdeviceptr blocks;
	_Atomic uint32_t columns, highest;
	uint64_t (*counts)[HS_COUNTS]; /* [HS_LAYERS], mapped host memory */
	CUdeviceptr counts_device;
	struct hs_device *next; /* made earlier */
	unsigned told;		/* enum hs_journal_what: what launches tell */
	struct hs_journal_ring *_Atomic ring;
};

/* Loads the kernels and makes the table on the current context's device, if
 * that was not done. Returns 0 or a negative errno; failures are logged once. */
int hs_device_ready(void);

/* The context goes, and the device is not ready any more. Returns its id, or -1
 * if nothing was made in this context. */
CUdevice hs_device_gone(CUcontext context);

/* The device if it is ready, else NULL. */
struct hs_device *hs_device_get(CUdevice id);
struct hs_device *hs_device_current(void);

/* The newest of all that were ever made. Those whose context is gone are among
 * them: their counters stay readable, and count. */
struct hs_device *hs_device_newest(void);

/* Where an entry, or the word of a lane, lies. */
CUdeviceptr hs_device_entry(const struct hs_device *device, uint32_t layer);
CUdeviceptr hs_device_word(const struct hs_device *device, uint32_t lane);

/* Launches blocks x HS_THREADS (`threads` when not 0) of a kernel with its
 * argument struct of `bytes` bytes. Returns 0 or a negative errno. */
int hs_device_launch(const struct hs_device *device, enum hs_device_kernel kernel, unsigned blocks,
	unsigned threads, const void *args, size_t bytes, const struct hs_site *site);

/* On the current device, with a warp for each row as far as that is useful. */
int hs_device_rows(enum hs_device_kernel kernel, uint64_t rows, const void *args, size_t bytes,
	const struct hs_site *site);

#endif
