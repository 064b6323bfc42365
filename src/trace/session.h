/* SPDX-License-Identifier: MIT */
#ifndef SRC_TRACE_SESSION_H
#define SRC_TRACE_SESSION_H

/*
 * Traces (HISPARSE_TRACE, `hisparse trace`) and recordings (HISPARSE_RECORD) of
 * this process. One thread of ours reads what the device and CUPTI tell and
 * writes it; it is there only while there is something to write, blocks every
 * signal and calls no driver.
 */

/* A safe moment, no capture is open: starts what the options ask for, and looks
 * for requests. A read of the clock most times. */
void hs_session_settle(void);

/* The end of the process: writes what is left and closes the files. */
void hs_session_finish(void);

#endif
