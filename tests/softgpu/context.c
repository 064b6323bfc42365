/* SPDX-License-Identifier: MIT */
#include "softgpu/soft.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "softgpu/capture.h"
#include "softgpu/softgpu.h"

#define STACK_MAX 16
#define CONTEXTS_MAX (SOFT_DEVICES + 16)

struct soft_state soft;
uint64_t soft_random_state;

struct context {
	unsigned refs; /* 0: free */
	CUdevice device;
	unsigned peers; /* contexts whose memory it may use, a bit each */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread bool inside;		      /* a host function may not call the driver */
static struct context contexts[CONTEXTS_MAX]; /* the first are the devices' primary ones */
static __thread CUcontext stack[STACK_MAX];
static __thread int depth;
static unsigned pace, calls; /* advance() */

static size_t number(const char *variable, size_t otherwise)
{
	const char *text = getenv(variable);

	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void configure(void)
{
	soft.devices = (int)number("SOFTGPU_DEVICES", 1);
	soft.devices = soft.devices < 1		     ? 1
		       : soft.devices > SOFT_DEVICES ? SOFT_DEVICES
						     : soft.devices;
	for (int i = 0; i < SOFT_DEVICES; i++)
		contexts[i].device = i;
	soft.device_bytes = number("SOFTGPU_MEMORY_MIB", 256) << 20;
	soft.host_bytes = number("SOFTGPU_HOST_MIB", 1024) << 20;
	soft_random_state = soft_random_start(number("SOFTGPU_SEED", 0));
}

static struct context *context_of(CUcontext handle)
{
	struct context *context = (struct context *)handle;

	if (context < contexts || context >= contexts + CONTEXTS_MAX || !context->refs)
		return NULL;
	return context;
}

CUcontext soft_context(void)
{
	return depth && context_of(stack[depth - 1]) ? stack[depth - 1] : NULL;
}

bool soft_is_device(CUdevice device)
{
	return device >= 0 && device < soft.devices;
}

CUdevice soft_device(CUcontext handle)
{
	const struct context *context = context_of(handle);

	return context ? context->device : 0;
}

/* How far the device gets while the host calls: for a while not at all, for a
 * while a little, for a while it keeps up. */
static void advance(void)
{
	if (!calls--) {
		pace = soft_random(3);
		calls = soft_random(64);
	}
	if (pace && !soft_random(3))
		soft_run_some(soft_random(pace == 1 ? 8 : 2048));
}

CUresult soft_enter(unsigned need)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (inside)
		return CUDA_ERROR_NOT_PERMITTED;
	pthread_once(&once, configure);
	pthread_mutex_lock(&lock);
	inside = true;
	if (!soft.initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (need & SOFT_CONTEXT && !soft_context())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (soft_fuzzing())
		advance();
	if (need & SOFT_CONTEXT && soft.error)
		return soft.error;
	return need & SOFT_UNSAFE ? soft_capture_unsafe() : CUDA_SUCCESS;
}

void soft_leave(CUresult *entered)
{
	if (*entered == CUDA_ERROR_NOT_PERMITTED)
		return;
	inside = false;
	pthread_mutex_unlock(&lock);
}

void soft_seed(uint64_t seed)
{
	__attribute__((cleanup(soft_leave))) CUresult entered = soft_enter(0);

	if (entered != CUDA_ERROR_NOT_PERMITTED) {
		soft_run_all();
		soft_random_state = soft_random_start(seed);
		calls = 0;
	}
}

void soft_usage(size_t *device, size_t *host)
{
	CUresult entered = soft_enter(0);

	for (int i = 0; device && i < SOFT_DEVICES; i++)
		*device = (i ? *device : 0) + soft.device_used[i];
	if (host)
		*host = soft.host_used;
	soft_leave(&entered);
}

uint64_t soft_launches(void)
{
	CUresult entered = soft_enter(0);
	uint64_t launches = soft.launches;

	soft_leave(&entered);
	return launches;
}

CUresult cuInit(unsigned flags)
{
	__attribute__((cleanup(soft_leave))) CUresult entered = soft_enter(0);

	if (entered == CUDA_ERROR_NOT_PERMITTED)
		return entered;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	soft.initialised = true;
	return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
	SOFT_ENTER(0);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = soft.devices;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	SOFT_ENTER(0);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_is_device(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
	const char *text = getenv("SOFTGPU_NAME");

	SOFT_ENTER(0);
	if (!name || bytes <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	strncpy(name, text ? text : "stand-in GPU", (size_t)bytes);
	name[bytes - 1] = '\0';
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int bytes, CUdevice device)
{
	char text[] = "0000:00:00.0";

	SOFT_ENTER(0);
	if (!id || bytes < (int)sizeof(text))
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	text[6] = (char)('0' + device);
	memcpy(id, text, sizeof(text));
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	SOFT_ENTER(0);
	if (!value || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	switch ((int)attribute) {
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = SOFT_SM_COUNT;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
		*value = SOFT_SM_THREADS;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = 1024;
		break;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
		*value = 32;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 9;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
		*value = 48 << 10;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		*value = 227 << 10;
		break;
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
	case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
		*value = 1;
		break;
	default: /* no such ability, count 0, NUMA node 0 */
		*value = 0;
	}
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	SOFT_ENTER(0);
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = soft.device_bytes;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	SOFT_ENTER(0);
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	contexts[device].refs++;
	*context = (CUcontext)&contexts[device];
	return CUDA_SUCCESS;
}

/* All memory belongs to the device, so it goes with the primary context. */
static void reset(CUdevice device)
{
	soft_run_all();
	soft_memory_reset(device);
	contexts[device].peers = 0;
	soft.error = CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	SOFT_ENTER(0);
	if (!soft_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!contexts[device].refs)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!--contexts[device].refs)
		reset(device);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
	SOFT_ENTER(0);
	if (!soft_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = 0;
	*active = contexts[device].refs != 0;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	SOFT_ENTER(0);
	if (!soft_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	reset(device);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
	return cuDevicePrimaryCtxReset_v2(device);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
	SOFT_ENTER(0);
	(void)flags;
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	for (int i = SOFT_DEVICES; i < CONTEXTS_MAX && depth < STACK_MAX; i++) {
		if (!contexts[i].refs) {
			contexts[i] = (struct context){.refs = 1, .device = device};
			*context = stack[depth++] = (CUcontext)&contexts[i];
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxDestroy_v2(CUcontext handle)
{
	SOFT_ENTER(0);
	struct context *context = context_of(handle);

	if (!context || context < contexts + SOFT_DEVICES)
		return CUDA_ERROR_INVALID_CONTEXT;
	soft_run_all();
	if (soft_context() == handle)
		depth--;
	context->refs = 0;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	SOFT_ENTER(0);
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = soft_context();
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	SOFT_ENTER(0);
	if (context && !context_of(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth)
		depth--;
	if (context)
		stack[depth++] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	SOFT_ENTER(0);
	if (!context_of(context) || depth == STACK_MAX)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack[depth++] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	SOFT_ENTER(0);
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (context)
		*context = stack[depth];
	return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned *flags)
{
	SOFT_ENTER(SOFT_CONTEXT);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = soft.flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned flags)
{
	SOFT_ENTER(SOFT_CONTEXT);
	if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
		return CUDA_ERROR_INVALID_VALUE;
	soft.flags = flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	SOFT_ENTER(SOFT_CONTEXT);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = soft_device(soft_context());
	return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	SOFT_ENTER(0);
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_is_device(device) || !soft_is_device(peer))
		return CUDA_ERROR_INVALID_DEVICE;
	*can = device != peer;
	return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct context *mine = context_of(soft_context()), *peer = context_of(handle);
	const unsigned bit = peer ? 1u << (peer - contexts) : 0;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!peer)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (peer->device == mine->device)
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (mine->peers & bit)
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	mine->peers |= bit;
	return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext handle)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct context *mine = context_of(soft_context()), *peer = context_of(handle);
	const unsigned bit = peer ? 1u << (peer - contexts) : 0;

	if (!peer)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!(mine->peers & bit))
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	mine->peers &= ~bit;
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	SOFT_ENTER(SOFT_CONTEXT);
	return soft_device_wait();
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
	SOFT_ENTER(0);
	if (context && !context_of(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	return soft_device_wait();
}
