/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_GATE_H
#define SRC_MEMORY_GATE_H

/*
 * The gate that launches and copies pass while windows may move, and the
 * count of open captures. hs_gate_enter costs one atomic add while the gate is
 * open; when it is closed it waits. A thread that enters must leave; it may
 * enter again inside (nested entries cost nothing and never wait).
 */

#include <stdbool.h>
#include "hooks/driver.h"

void hs_gate_enter(void);
void hs_gate_leave(void);

/* Closes the gate and waits until nobody is inside. False, with the gate as it
 * was, if another thread holds it closed, if the caller is inside, or if
 * somebody inside does not leave within a second (a launch may wait for a full
 * queue, and the queue for us). */
bool hs_gate_close(void);
void hs_gate_open(void);

/* Captures open anywhere in the process. began: before the driver's own begin,
 * so that no capture opens while the gate is closed (it waits for that);
 * ended: after the driver's end, or when its begin failed. */
void hs_capture_began(void);
void hs_capture_ended(void);
int hs_capture_count(void);

#endif
