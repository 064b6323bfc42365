/* SPDX-License-Identifier: MIT */
#undef _FILE_OFFSET_BITS /* would give mmap the name of mmap64 */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "hooks/hook.h"
#include "src/memory/steer.h"

/*
 * Everybody's mmap, as the C library has it: the system call. What makes it ours is one
 * question (steer.h). The thread sanitizer has to see every mapping; under it nobody is
 * steered.
 */
#ifndef __SANITIZE_THREAD__
HS_UNSANITIZED HS_EXPORT void *mmap(
	void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return (void *)syscall(SYS_mmap, hs_steer(address, bytes, protection), bytes, protection,
		flags, fd, offset);
}

HS_EXPORT void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
	__attribute__((alias("mmap")));
#endif
