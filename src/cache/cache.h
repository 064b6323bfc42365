/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_CACHE_H
#define SRC_CACHE_CACHE_H

/*
 * The hot buffer of every layer: which slots have a hot row, what the next
 * launch reads, what is dropped when rows are written. Knows addresses, rows
 * and lists; knows no kernel and no engine.
 *
 * Launch path: hs_layer_find, hs_cache_resolve, hs_cache_written,
 * hs_cache_drop. They allocate nothing on the heap, never synchronise, never
 * log, and may be called on a capturing stream: what they enqueue is captured
 * right along.
 */

#include <stdbool.h>
#include <stdint.h>
#include "hooks/driver.h"
#include "src/memory/memory.h"

struct hs_layer;

/* Where a launch goes. per_thread: the _ptsz form of the call. */
struct hs_site {
	CUstream stream;
	bool per_thread;
	bool capturing;
	unsigned long long capture_id; /* 0 unless capturing */
};

/* The selected slots of a launch: rows x k int32, -1 for none; row (i, j) of
 * outer x inner begins at indices + i * outer_stride + j * inner_stride
 * (strides in elements). lengths: NULL, or one int32 per outer row: entries
 * past it are garbage and treated as -1 (V4 kernels). */
struct hs_list {
	CUdeviceptr indices;
	uint32_t outer, inner, k;
	int64_t outer_stride, inner_stride;
	CUdeviceptr lengths;
};

/* Slots that a writer stores to: count entries of width 4 or 8 bytes, a
 * negative entry is skipped. */
struct hs_slots {
	CUdeviceptr slots;
	uint32_t count;
	uint32_t width;
};

/* The layer whose rows of `row` bytes begin at base, or NULL. With create a
 * layer that is not known yet is entered (host side only: it starts to swap
 * at the next safe moment; until then its lists are copied unchanged). NULL
 * also when the table is full or base and row do not fit the window. */
struct hs_layer *hs_layer_find(
	struct hs_window *window, CUdeviceptr base, uint32_t row, bool create);

/*
 * Enqueues resolve and swap-in for the list; *remapped is the address of a
 * list with the same strides for the launch to read instead. Returns 0, or a
 * negative errno: then nothing was enqueued and the launch goes on with the
 * engine's own list (always right).
 */
int hs_cache_resolve(struct hs_layer *layer, const struct hs_list *list, const struct hs_site *site,
	CUdeviceptr *remapped);

/* The launch that reads the remapped list has been enqueued. Only needed for
 * eager launches once a second stream has been seen; a no-op else. */
void hs_cache_attended(struct hs_layer *layer, const struct hs_site *site);

/* Rows were, or by work already enqueued will be, written: their hot rows are
 * dropped on this stream before anything that follows on it. */
void hs_cache_written(
	struct hs_layer *layer, const struct hs_slots *slots, const struct hs_site *site);

/* Bytes of a window were written: the hot rows of every slot they touch, in
 * every layer of the window, are dropped (bytes 0: all of the window). */
void hs_cache_wrote(
	struct hs_window *window, CUdeviceptr start, size_t bytes, const struct hs_site *site);

/* Rows arrive through addresses that no launch carries: in every layer on the
 * current device the slots [e * unit, (e + 1) * unit) of each list entry are
 * dropped (list 0: every slot of every layer). */
void hs_cache_arrived(const struct hs_slots *list, uint32_t unit, const struct hs_site *site);

/* A block table as a launch carries it: `rows` rows of int32 blocks of `unit`
 * slots, stride entries apart. lengths: NULL, or slots in use in each row. ids:
 * NULL, or which row each of `rows` is. */
struct hs_blocks {
	CUdeviceptr blocks, lengths, ids;
	uint32_t rows, columns, unit;
	int64_t stride;
};

/* Drops the blocks that a table row holds now and no row held at the launch
 * before: they may have been filled by what we do not see. Once a step is
 * enough; one that has been looked at in this step is not again. */
void hs_cache_tabled(const struct hs_blocks *table, const struct hs_site *site);

/* An open capture is about to end on its origin stream (before the driver's
 * cuStreamEndCapture): releases the rows that the graph's last launch holds. */
void hs_cache_capture_end(const struct hs_site *site);

/* Loads our kernels and takes the layer table on the current context's device,
 * if that was not done. To be called when the first window is made (not on the
 * launch path: a capture could not load them); until then launches read in
 * place. With HISPARSE_PLACE=device only when launches are to tell something.
 * Returns 0 or a negative errno; a failure is logged once. */
int hs_cache_ready(void);

/*
 * Safe moment, launches gated, device idle: starts the layers of windows that
 * have moved to the host, makes the layers of device-backed windows resident,
 * forgets those of freed windows. Called by hs_memory_settle and
 * hs_memory_free only.
 */
void hs_cache_settle(void);

/* The layers with rows on the host: their bytes, those of the hot rows that they have, and
 * of HISPARSE_SLOTS hot rows each, or as many as they would take. Safe moments. */
struct hs_cache_wants {
	uint64_t bytes, has, most;
};
struct hs_cache_wants hs_cache_wants(CUdevice device);

/* Safe moment, as for hs_cache_settle, which follows: no layer of the device has hot rows. */
void hs_cache_stop(CUdevice device);

void hs_cache_forget(struct hs_window *window);

/* The context is about to be destroyed or reset, and with it all that we made
 * in it; its windows were forgotten. Not on the launch path. */
void hs_cache_context_gone(CUcontext context);

/* A layer as its window holds it: rows of `row` bytes in [base, end). It ends
 * where the next one begins, or as far from its base as others of that row are
 * apart, or where a kernel told that it does. */
struct hs_extent {
	CUdeviceptr base, end;
	uint32_t row;
};

/* The layers seen in a window so far, in address order. Returns how many there
 * are; of these the first `most` are stored. Not on the launch path. */
unsigned hs_cache_extents(const struct hs_window *window, struct hs_extent *out, unsigned most);

/* A kernel told how many slots the layer has. Launch path. */
void hs_layer_told(struct hs_layer *layer, uint64_t slots);

/* Totals of one layer or of all (NULL) since start, read from mapped host
 * memory without any driver call. */
struct hs_cache_counts {
	uint64_t launches, hits, misses, duplicates, inplace, evictions, invalidated, padding,
		bytes, staged;
};
void hs_cache_read(const struct hs_layer *layer, struct hs_cache_counts *counts);

/* Every layer that was ever entered, those of freed windows included. */
void hs_layer_each(void (*visit)(struct hs_layer *layer, void *data), void *data);
uint32_t hs_layer_id(const struct hs_layer *layer);

#endif
