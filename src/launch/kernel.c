/* SPDX-License-Identifier: MIT */
#include "src/launch/kernel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "src/launch/profiles.h"

#define FIRST_BITS 12
#define PARAMS_MAX 4096 /* 32,764 bytes, the most since CUDA 12.1, of 8 each */

/* Open addressing, at most half full. A table that is outgrown and a kernel whose
 * handle means another one by now stay: somebody may be looking at them. */
struct table {
	struct table *outgrown;
	unsigned bits, used;
	struct slot {
		_Atomic(CUfunction) function;
		_Atomic(struct hs_kernel *) kernel;
	} slots[];
};

static _Atomic(struct table *) current;
static atomic_uint generation;

/* Taken to insert, never around a call of the driver. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t first_slot(const struct table *table, CUfunction function)
{
	return (size_t)(((uint64_t)(uintptr_t)function >> 3) * 0x9e3779b97f4a7c15u >>
			(64 - table->bits));
}

static struct slot *probe(struct table *table, CUfunction function)
{
	size_t mask = ((size_t)1 << table->bits) - 1;

	for (size_t i = first_slot(table, function);; i = (i + 1) & mask) {
		struct slot *slot = &table->slots[i];
		CUfunction there = atomic_load_explicit(&slot->function, memory_order_acquire);

		if (there == function || !there)
			return slot;
	}
}

static struct hs_kernel *known(CUfunction function)
{
	struct table *table = atomic_load_explicit(&current, memory_order_acquire);
	struct slot *slot;

	if (!table)
		return NULL;
	slot = probe(table, function);
	if (atomic_load_explicit(&slot->function, memory_order_relaxed) != function)
		return NULL;
	return atomic_load_explicit(&slot->kernel, memory_order_acquire);
}

static void free_kernel(struct hs_kernel *kernel)
{
	if (!kernel)
		return;
	free(kernel->name);
	free(kernel->offsets);
	free(kernel->sizes);
	free(kernel);
}

/* libcudart passes CUkernel handles to the launch calls; cuFuncGetName answers
 * INVALID_HANDLE for those (driver 580). */
static const char *name_of(CUfunction function, bool *is_kernel)
{
	const char *name = NULL;

	*is_kernel = false;
	if (hs_driver.cuFuncGetName && hs_driver.cuFuncGetName(&name, function) == CUDA_SUCCESS &&
		name)
		return name;
	*is_kernel = true;
	if (hs_driver.cuKernelGetName &&
		hs_driver.cuKernelGetName(&name, (CUkernel)function) == CUDA_SUCCESS && name)
		return name;
	return "?";
}

static bool param_info(
	CUfunction function, bool is_kernel, unsigned index, size_t *offset, size_t *size)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	if (!is_kernel && hs_driver.cuFuncGetParamInfo)
		result = hs_driver.cuFuncGetParamInfo(function, index, offset, size);
	if (result != CUDA_SUCCESS && (is_kernel || result == CUDA_ERROR_INVALID_HANDLE) &&
		hs_driver.cuKernelGetParamInfo)
		result = hs_driver.cuKernelGetParamInfo((CUkernel)function, index, offset, size);
	return result == CUDA_SUCCESS;
}

static struct hs_kernel *classify(CUfunction function, unsigned now)
{
	struct hs_kernel *kernel = calloc(1, sizeof(*kernel));
	unsigned room = 0;
	bool is_kernel;

	if (!kernel)
		return NULL;
	kernel->function = function;
	kernel->generation = now;
	kernel->name = strdup(name_of(function, &is_kernel));
	if (!kernel->name)
		goto error;
	for (unsigned i = 0; i < PARAMS_MAX; i++) {
		size_t offset, size;
		uint32_t *grown;

		if (!param_info(function, is_kernel, i, &offset, &size))
			break;
		if (i == room) {
			room = room ? room * 2 : 16;
			grown = realloc(kernel->offsets, room * sizeof(*grown));
			if (!grown)
				goto error;
			kernel->offsets = grown;
			grown = realloc(kernel->sizes, room * sizeof(*grown));
			if (!grown)
				goto error;
			kernel->sizes = grown;
		}
		kernel->offsets[i] = (uint32_t)offset;
		kernel->sizes[i] = (uint32_t)size;
		kernel->count = i + 1;
	}
	kernel->profile =
		hs_profile_match(hs_profiles(), kernel->name, kernel->sizes, kernel->count);
	return kernel;

error:
	free_kernel(kernel);
	return NULL;
}

static struct table *table_create(unsigned bits)
{
	struct table *table = calloc(1, sizeof(*table) + ((size_t)1 << bits) * sizeof(struct slot));

	if (table)
		table->bits = bits;
	return table;
}

static void put(struct table *table, struct hs_kernel *kernel)
{
	struct slot *slot = probe(table, kernel->function);

	if (!atomic_load_explicit(&slot->function, memory_order_relaxed))
		table->used++;
	else if (atomic_load_explicit(&slot->kernel, memory_order_relaxed) != kernel)
		kernel->replaced = atomic_load_explicit(&slot->kernel, memory_order_relaxed);
	atomic_store_explicit(&slot->kernel, kernel, memory_order_release);
	atomic_store_explicit(&slot->function, kernel->function, memory_order_release);
}

/* The table with room for one more. Locked. */
static struct table *roomy(void)
{
	struct table *table = atomic_load_explicit(&current, memory_order_relaxed), *grown;

	if (table && table->used < (size_t)1 << (table->bits - 1))
		return table;
	grown = table_create(table ? table->bits + 1 : FIRST_BITS);
	if (!grown)
		return NULL;
	grown->outgrown = table;
	for (size_t i = 0; table && i < (size_t)1 << table->bits; i++) {
		struct hs_kernel *kernel =
			atomic_load_explicit(&table->slots[i].kernel, memory_order_relaxed);

		if (kernel)
			put(grown, kernel);
	}
	atomic_store_explicit(&current, grown, memory_order_release);
	return grown;
}

static bool same(const struct hs_kernel *a, const struct hs_kernel *b)
{
	return a->count == b->count && !strcmp(a->name, b->name) &&
	       (!a->count ||
		       (!memcmp(a->sizes, b->sizes, a->count * sizeof(*a->sizes)) &&
			       !memcmp(a->offsets, b->offsets, a->count * sizeof(*a->offsets))));
}

static struct hs_kernel *enter(struct hs_kernel *kernel)
{
	struct hs_kernel *old;
	struct table *table;

	pthread_mutex_lock(&lock);
	old = known(kernel->function);
	if (old && (old->generation >= kernel->generation || same(old, kernel))) {
		/* another thread was faster, or the handle still means the same */
		if (old->generation < kernel->generation)
			old->generation = kernel->generation;
		free_kernel(kernel);
		kernel = old;
		goto out;
	}
	table = roomy();
	if (!table) {
		free_kernel(kernel);
		kernel = NULL;
		goto out;
	}
	put(table, kernel);
out:
	pthread_mutex_unlock(&lock);
	return kernel;
}

struct hs_kernel *hs_kernel_find(CUfunction function)
{
	unsigned now = atomic_load_explicit(&generation, memory_order_acquire);
	struct hs_kernel *kernel = known(function);

	if (__builtin_expect(kernel && kernel->generation == now, 1))
		return kernel;
	kernel = classify(function, now);
	return kernel ? enter(kernel) : NULL;
}

void hs_kernel_forget(void)
{
	atomic_fetch_add(&generation, 1);
}

void hs_kernel_each(void (*visit)(struct hs_kernel *kernel, void *data), void *data)
{
	struct table *table = atomic_load_explicit(&current, memory_order_acquire);

	for (size_t i = 0; table && i < (size_t)1 << table->bits; i++) {
		struct hs_kernel *kernel =
			atomic_load_explicit(&table->slots[i].kernel, memory_order_acquire);

		if (kernel)
			visit(kernel, data);
	}
}
