/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_ATTACH_H
#define TOOLS_HISPARSE_ATTACH_H

/* Requests to a running process (src/trace/control.h). */

#include "src/trace/control.h"

/*
 * Hands "start FILE" or "stop" to a process, which may live in a container, and
 * waits for so many milliseconds. Returns 0 with the answer's text; -ESRCH: no
 * such process; -ENXIO: it runs without the library; -EBUSY: another request
 * waits; -ETIMEDOUT: no answer, the request is taken back; -EREMOTEIO: it was
 * not done, the text says why; or another negative errno.
 */
int hs_attach(int pid, const char *request, unsigned patience, char answer[HS_CONTROL_BYTES]);

#endif
