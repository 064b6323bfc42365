/* SPDX-License-Identifier: MIT */
#include "src/memory/transient.h"

#include <stdatomic.h>
#include <stdint.h>
#include "src/memory/bytes.h"

#define DEVICES 64

static struct device {
	_Atomic size_t lowest;	     /* that was left for KV */
	_Atomic size_t lowest_small; /* the same if there were no windows */
	_Atomic size_t largest;	     /* window that went */
} devices[DEVICES] = {[0 ... DEVICES - 1] = {.lowest = SIZE_MAX, .lowest_small = SIZE_MAX}};

static struct device *of(CUdevice device)
{
	return &devices[device >= 0 && device < DEVICES ? device : DEVICES - 1];
}

static void least(_Atomic size_t *least, size_t value)
{
	size_t before = atomic_load(least);

	while (value < before && !atomic_compare_exchange_weak(least, &before, value))
		;
}

void hs_transient_seen(CUdevice device, size_t left, size_t small)
{
	least(&of(device)->lowest, left);
	least(&of(device)->lowest_small, small);
}

void hs_transient_window(CUdevice device, size_t bytes)
{
	struct device *d = of(device);
	size_t before = atomic_load(&d->largest);

	while (bytes > before && !atomic_compare_exchange_weak(&d->largest, &before, bytes))
		;
}

size_t hs_transient_most(CUdevice device, size_t left)
{
	return above(left, atomic_load(&of(device)->lowest));
}

size_t hs_transient(CUdevice device, size_t left, size_t small)
{
	struct device *d = of(device);
	const size_t fall = hs_transient_most(device, left);
	const size_t less = above(small, atomic_load(&d->lowest_small));
	const size_t pieces = smaller(fall, less), windows = fall - pieces;

	return pieces + smaller(windows, larger(windows / 2, atomic_load(&d->largest)));
}
