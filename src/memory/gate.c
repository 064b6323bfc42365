/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "src/memory/gate.h"

#define CLOSED (1u << 31)
#define PATIENCE_NS 1000000000ll

/* Threads inside, and CLOSED. The futex that everybody waits on. */
static _Atomic uint32_t gate;
static __thread unsigned depth __attribute__((tls_model("initial-exec")));

static void sleep_while(uint32_t seen, const struct timespec *limit)
{
	const int saved = errno;

	syscall(SYS_futex, &gate, FUTEX_WAIT_PRIVATE, seen, limit, NULL, 0);
	errno = saved;
}

static void wake_all(void)
{
	const int saved = errno;

	syscall(SYS_futex, &gate, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	errno = saved;
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void step_out(void)
{
	if (atomic_fetch_sub(&gate, 1) == (CLOSED | 1))
		wake_all();
}

void hs_gate_enter(void)
{
	uint32_t seen;

	if (depth++)
		return;
	while (atomic_fetch_add(&gate, 1) & CLOSED) {
		step_out();
		while ((seen = atomic_load(&gate)) & CLOSED)
			sleep_while(seen, NULL);
	}
}

void hs_gate_leave(void)
{
	if (!--depth)
		step_out();
}

bool hs_gate_close(void)
{
	const struct timespec nap = {.tv_nsec = 10000000};
	uint32_t seen;
	int64_t until;

	if (depth || atomic_fetch_or(&gate, CLOSED) & CLOSED)
		return false;
	until = now_ns() + PATIENCE_NS;
	while ((seen = atomic_load(&gate)) != CLOSED) {
		if (now_ns() > until) {
			hs_gate_open();
			return false;
		}
		sleep_while(seen, &nap);
	}
	return true;
}

void hs_gate_open(void)
{
	atomic_fetch_and(&gate, ~CLOSED);
	wake_all();
}
