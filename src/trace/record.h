/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_RECORD_H
#define SRC_TRACE_RECORD_H

/*
 * The selected slots of every launch in a file that `hisparse replay` reads:
 * DSAT version 2, little endian.
 *
 *	"DSAT", u32 version 2, u32 zero x 4, u64 zero
 *	then one record a launch, in order:
 *	u32 layer, step, rows, k
 *	u32 count[rows]           entries of each row, without a tail of -1
 *	i32 slots[sum of count]   row after row, -1: no selection
 *	then, where it was closed: "NOTE" and up to 255 bytes of UTF-8.
 *
 * Steps count from 0 and never fall. Slots are those of the engine's cache,
 * the same for all requests. Rows of several records with the same step and
 * layer belong together. A record that is cut short is no record.
 */

#include <stdint.h>
#include "kernels/abi.h"

struct hs_record;

/* Makes the file. Returns 0 or a negative errno. */
int hs_record_create(struct hs_record **out, const char *path);

/* Adds a list as launches tell it. Returns 0 or a negative errno; after one,
 * nothing more is written. */
int hs_record_add(struct hs_record *record, const struct hs_journal_head *list);

void hs_record_flush(struct hs_record *record);

/* Ends the file; every: as asked of the launches. Returns 0 or the first error. */
int hs_record_close(struct hs_record *record, uint32_t every);

#endif
