/* SPDX-License-Identifier: MIT */
/* Preloaded behind the library: an mmap that counts. */
#undef _FILE_OFFSET_BITS
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

unsigned map_behind_calls;

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	map_behind_calls++;
	return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}
