/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_SLACK_H
#define SRC_MEMORY_SLACK_H

/*
 * The slack: device memory that an engine left free when it sized its cache, and counts
 * on afterwards. It sizes scratch by what is free: SGLang's indexer (0.5.17) cuts its
 * logits into pieces of half of that, 22 times as many launches where windows had left some
 * 15 MiB. It was told of a larger device, so of what it left free as large a part
 * is the slack as of what it was told was the device's. What it allocates later comes out
 * of it. Of interest while some KV is on the host because the device cannot hold all of it:
 * what had to make way for a while comes home instead. Bytes.
 */

#include "hooks/driver.h"

/* What an engine was told to be free. */
struct hs_slack_story {
	size_t told, device; /* of which so much is the device's */
	size_t transient;    /* of both, what comes and goes: of that nothing is ours */
	size_t taken;	     /* had been allocated by then, on the device or the host */
	size_t number;	     /* counts up; 0: nothing was told yet */
};

/* That was told of a device; number does not matter. Any thread. */
void hs_slack_told(CUdevice device, const struct hs_slack_story *story);

/* What was last told of it: a window that is made now was sized by that. Any thread. */
struct hs_slack_story hs_slack_last(CUdevice device);

/* Looks at the device's windows again; `used` bytes of it are in use but for our own.
 * Memory lock. */
void hs_slack_settle(CUdevice device, size_t used);

/* As of the last look. SIZE_MAX: all KV could be on the device, or nothing was told. Any
 * thread. */
size_t hs_slack(CUdevice device);

/* The engine has none of it left and needs so much more: then it needs more than was
 * thought, and there is to be more of it. Memory lock. */
void hs_slack_short(CUdevice device, size_t used, size_t bytes);

/* The slack once that was so: nobody has it back then, whatever was asked for. SIZE_MAX
 * before. Any thread. */
size_t hs_slack_owed(CUdevice device);

#endif
