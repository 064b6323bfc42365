/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_BACKING_H
#define SRC_MEMORY_BACKING_H

/*
 * What stands behind a run of addresses: memory that can exist without an
 * address, be mapped at one, be taken off again with its bytes kept (but for one
 * kind), and be mapped elsewhere. A backing is mapped at one address at a time. Creating and
 * destroying keeps the books of budget.h. Sizes in bytes, multiples of
 * HS_GRANULE. Nothing here waits for the device.
 */

#include "hooks/driver.h"
#include "src/memory/memory.h"

struct hs_backing;

struct hs_backing_kind {
	enum hs_place place;
	bool apart;	/* its addresses must not be reserved with the driver */
	bool zeroed;	/* reads as zeros until something is written */
	bool keeps;	/* its bytes, while it is not mapped */
	bool any_order; /* the device reads it as fast in any order */
	CUresult (*share)(struct hs_backing *backing, CUdevice with); /* NULL: everybody's */
	CUresult (*create)(struct hs_backing *backing);
	CUresult (*map)(struct hs_backing *backing, CUdeviceptr at);
	CUresult (*unmap)(struct hs_backing *backing);
	void (*destroy)(struct hs_backing *backing);
};

struct hs_backing {
	const struct hs_backing_kind *kind; /* NULL: no memory */
	size_t bytes;
	CUdevice device;
	CUdeviceptr at; /* 0 while not mapped */
	CUmemGenericAllocationHandle handle;
	void *memory; /* where its pages are, of registered memory */
};

/* Memory in `place` that `device` can use, of a kind that is mapped into a
 * reservation. OUT_OF_MEMORY also when the pool or the cap has no room. On
 * failure the backing is empty. */
CUresult hs_backing_create(
	struct hs_backing *backing, enum hs_place place, size_t bytes, CUdevice device);

/* The same, of the best kind, which may have to be mapped apart. */
CUresult hs_backing_create_best(
	struct hs_backing *backing, enum hs_place place, size_t bytes, CUdevice device);

/* Host memory of the best kind that keeps its bytes while it is not mapped. */
CUresult hs_backing_create_kept(struct hs_backing *backing, size_t bytes, CUdevice device);

/* Readable and writable by its device and by that one's peers (peer.h) from here on. On failure not
 * mapped; if that says of a kind that it does not work here, it is not tried again, and
 * hs_backing_refusals goes up: another create makes one of the next kind. */
unsigned hs_backing_refusals(void);
CUresult hs_backing_map(struct hs_backing *backing, CUdeviceptr at);

/* By one more device, if it is mapped. Kernels may be running. */
CUresult hs_backing_share(struct hs_backing *backing, CUdevice with);

/* The caller knows that nothing in flight uses the address. */
CUresult hs_backing_unmap(struct hs_backing *backing);

/* Unmaps if need be. Empty backings are fine. */
void hs_backing_destroy(struct hs_backing *backing);

#endif
