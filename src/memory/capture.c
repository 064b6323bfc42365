/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdatomic.h>
#include "src/memory/capture.h"
#include "src/memory/gate.h"

#define CAPTURES 64

struct capture {
	cuuint64_t id;
	CUstream stream;
	CUcontext context;
	bool per_thread;
	pthread_t thread;
};

/* count: all of them; those that found room in the list can be asked about. */
static _Atomic int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct capture captures[CAPTURES];
static int listed, unlisted;

static CUresult ask(const struct capture *c, CUstreamCaptureStatus *status, cuuint64_t *id)
{
	return (c->per_thread ? hs_driver.cuStreamGetCaptureInfo_v2_ptsz
			      : hs_driver.cuStreamGetCaptureInfo_v2)(
		c->stream, status, id, NULL, NULL, NULL);
}

/* Under the lock. */
static void forget(int i)
{
	captures[i] = captures[--listed];
	atomic_fetch_sub(&count, 1);
}

void hs_capture_began(void)
{
	hs_gate_enter();
	atomic_fetch_add(&count, 1);
	hs_gate_leave();
}

void hs_capture_failed(void)
{
	atomic_fetch_sub(&count, 1);
}

void hs_capture_opened(CUstream stream, bool per_thread)
{
	struct capture c = {.stream = stream, .per_thread = per_thread, .thread = pthread_self()};
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const bool asked = ask(&c, &status, &c.id) == CUDA_SUCCESS && c.id;

	if ((per_thread ? hs_driver.cuStreamGetCtx_ptsz : hs_driver.cuStreamGetCtx)(
		    stream, &c.context) != CUDA_SUCCESS)
		c.context = NULL;
	pthread_mutex_lock(&lock);
	if (asked && listed < CAPTURES)
		captures[listed++] = c;
	else
		unlisted++;
	pthread_mutex_unlock(&lock);
}

void hs_capture_ended(cuuint64_t id)
{
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < listed && captures[i].id != id; i++)
		;
	if (i < listed) {
		forget(i);
	} else if (unlisted) {
		unlisted--;
		atomic_fetch_sub(&count, 1);
	}
	pthread_mutex_unlock(&lock);
}

/* One handle that is another stream in every thread. */
static bool of_thread(const struct capture *c)
{
	return !c->stream || c->stream == CU_STREAM_PER_THREAD;
}

cuuint64_t hs_capture_of(CUstream stream)
{
	cuuint64_t id = 0;

	if (!hs_capture_count())
		return 0;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < listed && !id; i++)
		if (captures[i].stream == stream && !of_thread(&captures[i]))
			id = captures[i].id;
	pthread_mutex_unlock(&lock);
	return id;
}

void hs_capture_context_gone(CUcontext context)
{
	pthread_mutex_lock(&lock);
	for (int i = listed; i-- > 0;)
		if (captures[i].context == context)
			forget(i);
	pthread_mutex_unlock(&lock);
}

int hs_capture_count(void)
{
	return atomic_load(&count);
}

static bool over(const struct capture *c)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	cuuint64_t id = 0;
	CUresult result;

	if (of_thread(c) && !pthread_equal(c->thread, pthread_self()))
		return false;
	result = ask(c, &status, &id);
	if (result != CUDA_SUCCESS)
		return result == CUDA_ERROR_INVALID_HANDLE;
	return status != CU_STREAM_CAPTURE_STATUS_ACTIVE || id != c->id;
}

bool hs_capture_none(void)
{
	if (!hs_capture_count())
		return true;
	pthread_mutex_lock(&lock);
	for (int i = listed; i-- > 0;)
		if (over(&captures[i]))
			forget(i);
	pthread_mutex_unlock(&lock);
	return !hs_capture_count();
}
