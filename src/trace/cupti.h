/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_CUPTI_H
#define SRC_TRACE_CUPTI_H

/*
 * Start and end of every kernel, from CUPTI, which is loaded only when somebody
 * traces. It serves one client a process: where torch.profiler or Nsight holds
 * it, it is left alone, and where one comes later, it gets it.
 * A build without CUPTI's header has the same functions and says so.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hs_cupti_kernel {
	uint64_t start, end; /* ns of CUPTI's clock */
	const char *name;    /* mangled; the same pointer for the same name, for ever */
	uint64_t node;	     /* of its graph, as CUPTI numbers them; 0 outside */
	uint32_t graph, device, stream;
};

/* A safe moment: no capture is open. Returns 0, or a negative errno with the
 * reason in one line (-EBUSY: somebody else has it). */
int hs_cupti_start(char why[160]);

/* Asks for what has ended; from any thread, some times a minute or second.
 * expected: kernels ran since the last call. -EBUSY, once: another profiler came
 * and has CUPTI now; nothing more is told. */
int hs_cupti_flush(bool expected);

/* Waits for no kernel; records of work that has not ended are lost. */
void hs_cupti_stop(void);

bool hs_cupti_on(void);

/* CUPTI's clock less CLOCK_MONOTONIC, in ns, when it was started. */
int64_t hs_cupti_ahead(void);

/* Kernels told since the last call, in no order; free() them. NULL: none. */
struct hs_cupti_kernel *hs_cupti_take(size_t *count);

/* Records that found no room, since the start. */
uint64_t hs_cupti_lost(void);

#endif
