/* SPDX-License-Identifier: MIT */
#ifndef SOFTGPU_FIBRE_H
#define SOFTGPU_FIBRE_H

/*
 * Fibres with stacks of their own. One caller at a time in the process (the
 * driver's lock) enters fibres; it may be another OS thread each time, so code
 * on a fibre must not keep the address of a thread-local variable.
 */

#include <stdbool.h>
#include <stddef.h>

/* gcc's names, for clang too. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

#define SOFT_STACK_BYTES ((size_t)64 << 10) /* one page of it is a guard */

struct soft_fibre;

/* NULL when there is no memory for a stack. entry(data) begins at the first
 * soft_fibre_enter. */
struct soft_fibre *soft_fibre_create(void (*entry)(void *data), void *data);
/* May be destroyed before it ended; nothing on its stack is unwound. */
void soft_fibre_destroy(struct soft_fibre *fibre);

/* Runs the fibre until it leaves or ends. True once it has ended. */
bool soft_fibre_enter(struct soft_fibre *fibre);
/* Back to whoever entered. On a fibre only. */
void soft_fibre_leave(void);

#endif
