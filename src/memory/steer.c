/* SPDX-License-Identifier: MIT */
#include "src/memory/steer.h"

#include <sys/mman.h>

static __thread struct {
	uint64_t at;	    /* 0: none, or it was granted */
	size_t least, most; /* that the driver asks for */
} wish __attribute__((tls_model("initial-exec")));

void hs_steer_begin(uint64_t at, size_t bytes)
{
	wish.at = at;
	wish.least = bytes;
	wish.most = (bytes + HS_STEER_SLACK - 1) / HS_STEER_SLACK * HS_STEER_SLACK + HS_STEER_SLACK;
}

bool hs_steer_end(void)
{
	const bool asked = !wish.at;

	wish.at = 0;
	return asked;
}

/* Early in a sanitizer's start, too. */
__attribute__((no_sanitize("address", "undefined"))) void *hs_steer(
	void *address, size_t bytes, int protection)
{
	if (!wish.at || address || protection != PROT_NONE || bytes < wish.least ||
		bytes > wish.most)
		return address;
	address = (void *)(uintptr_t)wish.at;
	wish.at = 0;
	return address;
}
