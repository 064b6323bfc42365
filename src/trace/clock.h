/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_CLOCK_H
#define SRC_TRACE_CLOCK_H

/*
 * What CUPTI's clock is ahead of the device's: learnt from launches, which tell
 * their time by the one while their kernels run from start to end by the other.
 * Both in ns. They part by some microseconds a second, and CUPTI sets its own
 * anew now and then.
 */

#include <stdbool.h>
#include <stdint.h>

struct hs_clock {
	bool met;	   /* a launch and its kernel */
	uint64_t met_at;   /* by the device's clock, the last time */
	int64_t low, high; /* it is ahead by as much as lies between */
};

struct hs_clock_span {
	int64_t low, high;
};

/* The first launch that is met is taken for the kernel it is compared with. */
struct hs_clock_span hs_clock_between(
	struct hs_clock *clock, uint64_t stamp, uint64_t start, uint64_t end);

/* By how much CUPTI's clock would have to have jumped: above 0 forward. */
int64_t hs_clock_jump(const struct hs_clock *clock, struct hs_clock_span span);

/* Whether they may have parted by so much since the last launch was met. */
bool hs_clock_may(const struct hs_clock *clock, uint64_t stamp, int64_t jump);

void hs_clock_follow(struct hs_clock *clock, uint64_t stamp, struct hs_clock_span span);

#endif
