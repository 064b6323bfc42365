/* SPDX-License-Identifier: MIT */
#include "src/trace/clock.h"

/* ns that the two may part between launches: so many, and a share of what passes
 * (200 us a second). */
#define DRIFT 10000
#define DRIFT_SHARE 5000

struct hs_clock_span hs_clock_between(
	struct hs_clock *clock, uint64_t stamp, uint64_t start, uint64_t end)
{
	const struct hs_clock_span span = {(int64_t)(start - stamp), (int64_t)(end - stamp)};

	if (!clock->met)
		*clock = (struct hs_clock){true, stamp, span.low, span.high};
	return span;
}

int64_t hs_clock_jump(const struct hs_clock *clock, struct hs_clock_span span)
{
	return span.low > clock->high	? span.low - clock->high
	       : span.high < clock->low ? span.high - clock->low
					: 0;
}

bool hs_clock_may(const struct hs_clock *clock, uint64_t stamp, int64_t jump)
{
	const uint64_t passed = stamp > clock->met_at ? stamp - clock->met_at : 0;

	return (jump < 0 ? -jump : jump) <= DRIFT + (int64_t)(passed / DRIFT_SHARE);
}

void hs_clock_follow(struct hs_clock *clock, uint64_t stamp, struct hs_clock_span span)
{
	if (hs_clock_jump(clock, span)) {
		clock->low = clock->high = span.low > clock->high ? span.low : span.high;
	} else {
		clock->low = span.low > clock->low ? span.low : clock->low;
		clock->high = span.high < clock->high ? span.high : clock->high;
	}
	clock->met_at = stamp;
}
