/* SPDX-License-Identifier: MIT */
/* A libcupti.so.13 that tells what the test asks it to. */
#include "tests/unit/fake_cupti.h"

#include <cupti.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

#define RECORDS 256u

static struct fake_cupti fake;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around these two */
static CUpti_ActivityKernel9 records[RECORDS];
static size_t count;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;

EXPORT struct fake_cupti *fake_cupti(void)
{
	return &fake;
}

/* Another profiler has it, of whom the process knows nothing. */
__attribute__((constructor)) static void hold(void)
{
	fake.held = getenv("FAKE_CUPTI_HELD") != NULL;
}

/* One buffer with so many kernels, as CUPTI's own thread delivers them. */
EXPORT void fake_deliver(unsigned first, unsigned count, const char *name)
{
	CUpti_ActivityKernel9 record;
	uint8_t *buffer;
	size_t size, most;

	request(&buffer, &size, &most);
	if (!size || count * sizeof(record) > size)
		abort();
	for (unsigned i = 0; i < count; i++) {
		memset(&record, 0, sizeof(record));
		record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
		record.start = 1000 + 10 * (first + i);
		record.end = record.start + 5;
		record.deviceId = 1;
		record.streamId = 7;
		record.graphId = 3;
		record.graphNodeId = 100 + i;
		record.name = name;
		memcpy(buffer + i * sizeof(record), &record, sizeof(record));
	}
	complete(NULL, 0, buffer, size, count * sizeof(record));
}

/* A buffer that somebody else gave. */
EXPORT void fake_deliver_foreign(unsigned char *buffer, size_t size)
{
	complete(NULL, 0, buffer, size, sizeof(CUpti_ActivityKernel9));
}

EXPORT void fake_kernel(uint64_t start, uint64_t end, uint64_t node, const char *name)
{
	pthread_mutex_lock(&lock);
	if (fake.enabled && !fake.mute) {
		if (count == RECORDS)
			abort();
		records[count] = (CUpti_ActivityKernel9){
			.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
			.start = start,
			.end = end,
			.streamId = 7,
			.graphId = 3,
			.graphNodeId = node,
			.name = name,
		};
		count++;
	}
	pthread_mutex_unlock(&lock);
}

static void bring(void)
{
	uint8_t *buffer;
	size_t size, most;

	pthread_mutex_lock(&lock);
	if (count) {
		request(&buffer, &size, &most);
		if (count * sizeof(*records) > size)
			abort();
		memcpy(buffer, records, count * sizeof(*records));
		complete(NULL, 0, buffer, size, count * sizeof(*records));
	}
	count = 0;
	pthread_mutex_unlock(&lock);
}

EXPORT CUptiResult CUPTIAPI cuptiSubscribe(
	CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *data)
{
	(void)callback;
	(void)data;
	if (fake.held)
		return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
	fake.held = 1;
	*subscriber = (CUpti_SubscriberHandle)(void *)&fake;
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle subscriber)
{
	fake.held -= subscriber == (CUpti_SubscriberHandle)(void *)&fake;
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(
	CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed)
{
	request = requested;
	complete = completed;
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind)
{
	if (fake.refuse)
		return CUPTI_ERROR_NOT_COMPATIBLE;
	fake.enabled += kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind)
{
	fake.enabled -= kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag)
{
	fake.flushes++;
	fake.forced = flag;
	if (fake.late)
		fake_deliver(500, fake.late, "late");
	if (fake.stuck && flag == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)
		fake_deliver(0, 1, "stuck");
	fake.late = 0;
	bring();
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityGetNextRecord(
	uint8_t *buffer, size_t valid, CUpti_Activity **record)
{
	uint8_t *next = *record ? (uint8_t *)*record + sizeof(CUpti_ActivityKernel9) : buffer;

	if (next >= buffer + valid)
		return CUPTI_ERROR_MAX_LIMIT_REACHED;
	*record = (CUpti_Activity *)(void *)next;
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(
	CUcontext context, uint32_t stream, size_t *dropped)
{
	(void)context;
	(void)stream;
	*dropped = fake.dropped;
	fake.dropped = 0;
	return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiGetTimestamp(uint64_t *time)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	*time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + 123000000000ull;
	return CUPTI_SUCCESS;
}
