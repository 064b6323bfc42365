/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_LISTEN_H
#define SRC_TRACE_LISTEN_H

/*
 * The metrics of this process over HTTP/1.0 on 127.0.0.1: GET /metrics, one
 * connection at a time, each for at most a second of waiting. The sockets are
 * closed in forked children.
 */

#include <stdint.h>

/* Takes the port; one line and a negative errno when it cannot. */
int hs_listen_open(uint16_t port);

/* Answers one connection that comes within a second. After a failure that does
 * not pass it returns a negative errno, and the port is closed. */
int hs_listen_serve(void);

#endif
