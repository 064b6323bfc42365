/* SPDX-License-Identifier: MIT */
#ifndef SRC_MEMORY_POOL_H
#define SRC_MEMORY_POOL_H

/*
 * How much host memory this machine lets us pin: the smaller of what the
 * kernel and the memory cgroups (v2 and v1) say. `root` is put before every
 * path that is read: "" on a real machine, a folder in the tests. Bytes;
 * unreadable files count as no limit, an unreadable /proc/meminfo as 0.
 */

#include <stdint.h>

uint64_t hs_pool_machine(const char *root); /* all there is */
uint64_t hs_pool_free(const char *root);    /* of it, free now */

/* GPUs of this machine, whatever the process may see; 0 if not known. */
unsigned hs_pool_gpus(const char *root);

/* The pool for HISPARSE_HOST_GIB = asked (HS_AUTO: a share of what is free,
 * over `gpus`). More than the machine has is refused with one line, and 0. */
uint64_t hs_pool_size(const char *root, uint64_t asked, unsigned gpus);

#endif
