/* SPDX-License-Identifier: MIT */
#undef _FILE_OFFSET_BITS /* would give mmap the name of mmap64 */
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "hooks/hook.h"
#include "src/memory/steer.h"

/*
 * Everybody's mmap, in front of the next one: what makes it ours is one question (steer.h).
 * Others stand behind us. UCX 1.22 changes the code of the C library's mmap, calls it by
 * name, and has no memory events if that does not get there. The thread sanitizer has to
 * see every mapping; under it nobody is steered.
 */
#ifndef __SANITIZE_THREAD__
typedef void *map_call(
	void *address, size_t bytes, int protection, int flags, int fd, off_t offset);

static map_call *next;

/* Before that, which is while libraries are loaded, the system call. */
HS_UNSANITIZED __attribute__((constructor)) static void find_next(void)
{
	next = (map_call *)dlsym(RTLD_NEXT, "mmap");
}

HS_UNSANITIZED HS_EXPORT void *mmap(
	void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	address = hs_steer(address, bytes, protection);
	if (!next)
		return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
	return next(address, bytes, protection, flags, fd, offset);
}

HS_EXPORT void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
	__attribute__((alias("mmap")));
#endif
