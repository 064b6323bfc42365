/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_GATE_H
#define SRC_MEMORY_GATE_H

/*
 * The gate that launches and copies pass while windows may move. hs_gate_enter
 * costs one atomic add while the gate is open; when it is closed it waits. A
 * thread that enters must leave; it may enter again inside (nested entries cost
 * nothing and never wait).
 */

#include <stdbool.h>
#include "src/memory/capture.h"

void hs_gate_enter(void);
void hs_gate_leave(void);

/* Closes the gate and waits until nobody is inside. False, with the gate as it
 * was, if another thread holds it closed, if the caller is inside, or if
 * somebody inside does not leave within a second (a launch may wait for a full
 * queue, and the queue for us). */
bool hs_gate_close(void);
void hs_gate_open(void);

#endif
