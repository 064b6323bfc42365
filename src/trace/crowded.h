/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_CROWDED_H
#define SRC_TRACE_CROWDED_H

/* Where more than one of so many selected rows is read in place, hot rows are too
 * few, and those who look are told so: a launch that selects more than there are
 * cannot have them all. */
#define HS_CROWDED 8

#endif
