/* SPDX-License-Identifier: MIT */
#include "src/cache/foreign.h"

#include <errno.h>

/* The stream's, whichever is current. NULL: there is none. */
static CUcontext context_of(const struct hs_site *site)
{
	CUcontext context = NULL;
	/* The default streams are those of the current context. */
	const bool named = (uintptr_t)site->stream > (uintptr_t)CU_STREAM_PER_THREAD;

	if (!named || hs_driver.cuStreamGetCtx(site->stream, &context) != CUDA_SUCCESS)
		hs_driver.cuCtxGetCurrent(&context);
	return context;
}

static bool elsewhere(CUcontext context, CUdevice id)
{
	CUdevice its = -1;
	CUcontext popped;

	if (hs_driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
		return true;
	hs_driver.cuCtxGetDevice(&its);
	hs_driver.cuCtxPopCurrent_v2(&popped);
	return its != id;
}

/* A green context has a handle of its own, and takes the primary one's kernels. */
bool hs_foreign(const struct hs_device *device, const struct hs_site *site)
{
	const CUcontext context = context_of(site);

	return context && context != device->context && elsewhere(context, device->id);
}

static CUresult record(CUevent event, const struct hs_site *site)
{
	return site->per_thread ? hs_driver.cuEventRecord_ptsz(event, site->stream)
				: hs_driver.cuEventRecord(event, site->stream);
}

static CUresult wait(const struct hs_site *site, CUevent event)
{
	return site->per_thread ? hs_driver.cuStreamWaitEvent_ptsz(site->stream, event, 0)
				: hs_driver.cuStreamWaitEvent(site->stream, event, 0);
}

/* In the device's context. A stream of its own for each: whatever shared one would
 * wait for what the other streams wait for, which may be this one's next launch. */
static CUresult between(const struct hs_device *device, enum hs_device_kernel kernel,
	unsigned blocks, const void *args, size_t bytes, CUevent before, CUevent *after)
{
	struct hs_site site = {.stream = NULL};
	CUresult result = hs_driver.cuStreamCreate(&site.stream, CU_STREAM_NON_BLOCKING);

	if (result != CUDA_SUCCESS)
		return result;
	result = wait(&site, before);
	if (result == CUDA_SUCCESS &&
		hs_device_launch(device, kernel, blocks, 0, args, bytes, &site) != 0)
		result = CUDA_ERROR_LAUNCH_FAILED;
	if (result == CUDA_SUCCESS)
		result = hs_driver.cuEventCreate(after, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS)
		result = record(*after, &site);
	/* It goes when what is on it is done. */
	hs_driver.cuStreamDestroy_v2(site.stream);
	return result;
}

/* In the stream's context: an event is recorded in its own only. */
static CUresult cross(const struct hs_device *device, enum hs_device_kernel kernel, unsigned blocks,
	const void *args, size_t bytes, const struct hs_site *site)
{
	CUevent before = NULL, after = NULL;
	CUcontext popped;
	CUresult result = hs_driver.cuEventCreate(&before, CU_EVENT_DISABLE_TIMING);

	if (result != CUDA_SUCCESS)
		return result;
	result = record(before, site);
	if (result == CUDA_SUCCESS)
		result = hs_driver.cuCtxPushCurrent_v2(device->context);
	if (result == CUDA_SUCCESS) {
		result = between(device, kernel, blocks, args, bytes, before, &after);
		hs_driver.cuCtxPopCurrent_v2(&popped);
	}
	if (result == CUDA_SUCCESS)
		result = wait(site, after);
	if (after)
		hs_driver.cuEventDestroy_v2(after);
	hs_driver.cuEventDestroy_v2(before);
	return result;
}

int hs_foreign_launch(const struct hs_device *device, enum hs_device_kernel kernel, unsigned blocks,
	const void *args, size_t bytes, const struct hs_site *site)
{
	/* Another thread may be capturing in global mode. */
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext popped;
	CUresult result;

	if (site->capturing)
		return -EXDEV;
	result = hs_driver.cuCtxPushCurrent_v2(context_of(site));
	if (result != CUDA_SUCCESS)
		return -EIO;
	hs_driver.cuThreadExchangeStreamCaptureMode(&mode);
	result = cross(device, kernel, blocks, args, bytes, site);
	hs_driver.cuThreadExchangeStreamCaptureMode(&mode);
	hs_driver.cuCtxPopCurrent_v2(&popped);
	return result == CUDA_SUCCESS ? 0 : -EIO;
}
