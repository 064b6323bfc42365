/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_GATE_H
#define SRC_MEMORY_GATE_H

/*
 * The gate that launches pass while windows may move, and the count of open
 * captures. hs_gate_enter costs one atomic add while the gate is open; when
 * it is closed it waits. A thread that enters must leave.
 */

#include <stdbool.h>
#include "hooks/driver.h"

void hs_gate_enter(void);
void hs_gate_leave(void);

/* Closes the gate and waits until nobody is inside. The caller must not be
 * inside. False if another thread holds it closed. */
bool hs_gate_close(void);
void hs_gate_open(void);

/* Captures open anywhere in the process. */
void hs_capture_began(void);
void hs_capture_ended(void);
int hs_capture_count(void);

#endif
