/* SPDX-License-Identifier: MIT */
#include "src/trace/cupti.h"

#include <cupti.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUFFER_BYTES ((size_t)1 << 20)
#define BUFFERS 128u		       /* at CUPTI; every thread that launches has its own */
#define KERNELS_MOST ((size_t)1 << 20) /* not yet taken */
#define NAMES 8192u		       /* a power of two */
#define PATIENCE_S 2		       /* for a flush that runs, at the end */
#define SILENT_MOST 10		       /* flushes that bring nothing although kernels ran */

/* CUPTI's activity records only grow at their end: this one is a beginning of
 * what every 12.x and 13.x delivers. */
typedef CUpti_ActivityKernel9 record_kernel;

static struct {
#define CUPTI_ENTRIES(X)                                                                           \
	X(cuptiSubscribe)                                                                          \
	X(cuptiUnsubscribe)                                                                        \
	X(cuptiActivityRegisterCallbacks)                                                          \
	X(cuptiActivityEnable)                                                                     \
	X(cuptiActivityDisable)                                                                    \
	X(cuptiActivityFlushAll)                                                                   \
	X(cuptiActivityGetNextRecord)                                                              \
	X(cuptiActivityGetNumDroppedRecords)                                                       \
	X(cuptiGetTimestamp)
#define ENTRY(name) __typeof__(name) *name;
	CUPTI_ENTRIES(ENTRY)
#undef ENTRY
} cupti;

static bool loaded;
static atomic_bool on;
static int64_t ahead;
static uint8_t *_Atomic buffers[BUFFERS];
static _Atomic uint64_t delivered; /* buffers */
/* Around calls that flush or end a trace, and this. */
static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER;
static unsigned silent; /* flushes */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around what follows */
static struct hs_cupti_kernel *kernels;
static size_t count, room;
static uint64_t lost;
static char *names[NAMES];

/* One copy of every name. NULL when memory or room is out. */
static const char *intern(const char *name)
{
	uint32_t h = 2166136261u;

	if (!name)
		return NULL;
	for (const char *c = name; *c; c++)
		h = (h ^ (unsigned char)*c) * 16777619u;
	for (unsigned i = 0; i < NAMES; i++) {
		char **at = &names[(h + i) % NAMES];

		if (!*at)
			*at = strdup(name);
		if (!*at || !strcmp(*at, name))
			return *at;
	}
	return NULL;
}

static void add(const record_kernel *record)
{
	struct hs_cupti_kernel *more;

	if (count == room && room < KERNELS_MOST) {
		more = realloc(kernels, (room ? 2 * room : 4096) * sizeof(*kernels));
		if (more) {
			kernels = more;
			room = room ? 2 * room : 4096;
		}
	}
	if (count == room) {
		lost++;
		return;
	}
	kernels[count] = (struct hs_cupti_kernel){record->start, record->end, intern(record->name),
		record->graphNodeId, record->graphId, record->deviceId, record->streamId};
	if (kernels[count].name && record->end)
		count++;
	else
		lost++;
}

/* Which buffers are ours is known: who takes CUPTI over gets those that we gave
 * it, and we may get theirs. */
static bool swap_buffer(uint8_t *old, uint8_t *new)
{
	uint8_t *at;

	for (unsigned i = 0; i < BUFFERS; i++) {
		at = old;
		if (atomic_compare_exchange_strong(&buffers[i], &at, new))
			return true;
	}
	return false;
}

static void CUPTIAPI on_request(uint8_t **buffer, size_t *size, size_t *most)
{
	*buffer = aligned_alloc(64, BUFFER_BYTES);
	if (*buffer && !swap_buffer(NULL, *buffer)) {
		free(*buffer);
		*buffer = NULL;
	}
	*size = *buffer ? BUFFER_BYTES : 0;
	*most = 0;
}

/* On any thread, also after the end of a trace. A record that is not complete
 * ends the walk, in a buffer that was asked for early. */
static void CUPTIAPI on_complete(
	CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
	CUpti_Activity *record = NULL;
	size_t dropped = 0;

	(void)size;
	if (!buffer || !swap_buffer(buffer, NULL))
		return;
	pthread_mutex_lock(&lock);
	while (valid && cupti.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
		if (atomic_load(&on) && (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ||
						record->kind == CUPTI_ACTIVITY_KIND_KERNEL))
			add((const record_kernel *)(const void *)record);
	}
	if (cupti.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
		lost += dropped;
	pthread_mutex_unlock(&lock);
	free(buffer);
	atomic_fetch_add(&delivered, 1);
}

static int find_runtime(struct dl_phdr_info *info, size_t size, void *data)
{
	char *folder = data, *slash;

	(void)size;
	if (!info->dlpi_name || !strstr(info->dlpi_name, "/libcudart.so") ||
		strlen(info->dlpi_name) >= PATH_MAX)
		return 0;
	strcpy(folder, info->dlpi_name);
	slash = strrchr(folder, '/');
	*slash = '\0';
	return 1;
}

/* What is loaded already, else what belongs to the process's CUDA runtime (in a
 * toolkit or in the Python packages), else what the system has. */
static void *open_library(void)
{
	static const char *const beside[] = {
		"%s/%s", "%s/../../cuda_cupti/lib/%s", "%s/../extras/CUPTI/lib64/%s"};
	static const char *const toolkit[] = {
		"%s", "/usr/local/cuda/lib64/%s", "/usr/local/cuda/extras/CUPTI/lib64/%s"};
	static const char *const files[] = {"libcupti.so.13", "libcupti.so.12"};
	char folder[PATH_MAX] = "", path[PATH_MAX + 64];
	void *library = NULL;

	for (unsigned i = 0; !library && i < 2; i++)
		library = dlopen(files[i], RTLD_NOW | RTLD_NOLOAD);
	dl_iterate_phdr(find_runtime, folder);
	for (unsigned i = 0; !library && *folder && i < 6; i++) {
		snprintf(path, sizeof(path), beside[i % 3], folder, files[i / 3]);
		library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	for (unsigned i = 0; !library && i < 6; i++) {
		snprintf(path, sizeof(path), toolkit[i % 3], files[i / 3]);
		library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	return library;
}

static bool load(void)
{
	void *library = loaded ? NULL : open_library();

	if (!library)
		return loaded;
	loaded = true;
#define ENTRY(name)                                                                                \
	*(void **)&cupti.name = dlsym(library, #name);                                             \
	loaded = loaded && cupti.name;
	CUPTI_ENTRIES(ENTRY)
#undef ENTRY
	return loaded;
}

static void read_clock(void)
{
	struct timespec now;
	uint64_t there;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (cupti.cuptiGetTimestamp(&there) == CUPTI_SUCCESS)
		ahead = (int64_t)(there - (uint64_t)now.tv_sec * 1000000000u -
				  (uint64_t)now.tv_nsec);
}

/* Records are asked for, not callbacks. */
static void CUPTIAPI on_call(
	void *data, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *info)
{
	(void)data;
	(void)domain;
	(void)id;
	(void)info;
}

/* Whether nobody holds CUPTI. It is asked by taking it, and not kept: a profiler
 * that finds it taken may never ask again (PyTorch's does not). Records need no
 * subscriber. */
static CUptiResult look_for_others(void)
{
	CUpti_SubscriberHandle subscriber;
	CUptiResult result = cupti.cuptiSubscribe(&subscriber, on_call, NULL);

	if (result == CUPTI_SUCCESS)
		cupti.cuptiUnsubscribe(subscriber);
	return result;
}

int hs_cupti_start(char why[160])
{
	CUptiResult result;

	if (!load()) {
		snprintf(why, 160, "no libcupti.so.13 or .12 was found");
		return -ENOENT;
	}
	result = look_for_others();
	if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
		snprintf(why, 160, "another profiler has CUPTI");
		return -EBUSY;
	}
	if (result != CUPTI_SUCCESS) {
		snprintf(why, 160, "CUPTI does not start (error %d)", (int)result);
		return -EIO;
	}
	read_clock();
	lost = 0;
	silent = 0;
	atomic_store(&on, true);
	result = cupti.cuptiActivityRegisterCallbacks(on_request, on_complete);
	if (result == CUPTI_SUCCESS)
		result = cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
	if (result != CUPTI_SUCCESS) {
		atomic_store(&on, false);
		snprintf(why, 160, "CUPTI tells no kernels (error %d)", (int)result);
		return -EIO;
	}
	return 0;
}

/* Whether records go to somebody else. Who subscribes says so. A profiler that
 * does not has registered for our buffers all the same; but none come either from
 * a thread that always has a kernel in flight, until its buffer is full. So the
 * buffers are asked for with what is not complete in them. */
static bool overtaken(void)
{
	const uint64_t before = atomic_load(&delivered);

	if (look_for_others() == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
		return true;
	if (++silent < SILENT_MOST)
		return false;
	silent = 0;
	cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
	return atomic_load(&delivered) == before;
}

/* By itself CUPTI hands a buffer over when it is full, and a thread that seldom
 * launches fills its own for minutes. */
int hs_cupti_flush(bool expected)
{
	static uint64_t before;
	int error = 0;

	if (pthread_mutex_trylock(&calls))
		return 0;
	if (atomic_load(&on)) {
		cupti.cuptiActivityFlushAll(0);
		if (atomic_load(&delivered) != before) {
			silent = 0;
		} else if (expected && overtaken()) {
			atomic_store(&on, false);
			error = -EBUSY;
		}
		before = atomic_load(&delivered);
	}
	pthread_mutex_unlock(&calls);
	return error;
}

/* What somebody else has by now is left alone. cuptiFinalize is not for
 * processes with graphs (PyTorch pull request 112507). */
void hs_cupti_stop(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	if (!atomic_load(&on) || pthread_mutex_timedlock(&calls, &until))
		return;
	if (atomic_load(&on) &&
		look_for_others() != CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
		cupti.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
		cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
	}
	atomic_store(&on, false);
	pthread_mutex_unlock(&calls);
}

bool hs_cupti_on(void)
{
	return atomic_load(&on);
}

int64_t hs_cupti_ahead(void)
{
	return ahead;
}

struct hs_cupti_kernel *hs_cupti_take(size_t *taken)
{
	struct hs_cupti_kernel *all;

	pthread_mutex_lock(&lock);
	all = kernels;
	*taken = count;
	kernels = NULL;
	count = room = 0;
	pthread_mutex_unlock(&lock);
	return all;
}

uint64_t hs_cupti_lost(void)
{
	uint64_t n;

	pthread_mutex_lock(&lock);
	n = lost;
	pthread_mutex_unlock(&lock);
	return n;
}
