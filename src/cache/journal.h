/* SPDX-License-Identifier: MIT */
#ifndef SRC_CACHE_JOURNAL_H
#define SRC_CACHE_JOURNAL_H

/*
 * What resolve launches tell of themselves (struct hs_journal), for traces and
 * recordings. The rings are mapped host memory, made when somebody first asks.
 */

#include <stdbool.h>
#include <stdint.h>
#include "src/cache/device.h"

/* From the next safe moment on, launches tell this (enum hs_journal_what, 0:
 * nothing); lists those of every n-th launch of a layer. One caller at a time. */
void hs_journal_ask(unsigned what, uint32_t every);

/* What launches tell at present, and what they are to tell. One load. */
unsigned hs_journal_on(void);
unsigned hs_journal_asked(void);

/* When that was last changed, ns of CLOCK_MONOTONIC; the device was idle. */
uint64_t hs_journal_since(void);

/* A layer's totals at that time; NULL: nobody asked yet. */
const uint64_t *hs_journal_base(CUdevice device, uint32_t layer);

/* A safe moment with the device idle and its context current: what was asked
 * for becomes so. */
void hs_journal_settle(struct hs_device *device);

/* Hands every record that is whole to take, in order, and gives its room back;
 * lists lie right behind the head. One caller at a time; no driver call, also
 * after the context is gone. Returns the number of records. */
unsigned hs_journal_read(CUdevice device,
	void (*take)(CUdevice device, const struct hs_journal_head *record, void *data),
	void *data);

#endif
