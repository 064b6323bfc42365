/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_PEER_H
#define SRC_MEMORY_PEER_H

/*
 * Several devices in a process. Memory of cuMemAlloc is within reach of every device
 * whose context enabled peer access to its own, and copies reach it from everywhere;
 * mapped memory is within reach of those that it was told to be, and of no others.
 */

#include <stdbool.h>
#include <stdint.h>
#include "hooks/driver.h"

/* The current context got peer access to another: windows of that one's device are
 * given to this one's, those that there are and those to come, wherever they move. It
 * is not taken back with cuCtxDisablePeerAccess. Not from inside the gate. */
void hs_peer_enabled(CUcontext other);

/* Who else reaches memory of a device: a bit for each. */
uint64_t hs_peers(CUdevice device);

/* Whether a copy between these needs to be told whose they are (cuMemcpyPeer), as the
 * current context does not reach one of them, and whose. From inside the gate. Copies
 * of boxes are not told apart: there the program must have enabled access. */
struct hs_peer_ends {
	CUcontext to, from;
};
bool hs_peer_far(CUdeviceptr dst, CUdeviceptr src, struct hs_peer_ends *ends);

/*
 * Contexts whose work may touch windows of others: those that have access, and those
 * that copied or filled. Before a window moves they must be idle, too.
 *
 * note: the current one, which is about to. Costs next to nothing once it is known;
 * beyond HS_PEER_USERS none are. user: NULL where there is none. forget: it is about
 * to be destroyed.
 */
#define HS_PEER_USERS 64
void hs_peer_note(void);
bool hs_peer_any(void);
CUcontext hs_peer_user(unsigned i);
void hs_peer_forget(CUcontext context);

#endif
