/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>
#include "softgpu/soft.h"
#include "softgpu/softgpu.h"

/* A handle of either kind. They differ, as the real driver's do: to
 * cuFuncGetName a CUkernel is an invalid handle, to a launch it is fine. */
struct function {
	const struct soft_kernel *kernel;
	bool is_kernel;
	struct function *next;
};

/* A module or a library, whatever its image says. */
struct module {
	bool library;
	CUdevice device; /* the one on whose streams a module's kernels run */
	struct function *functions;
	struct module *next;
};

static struct soft_kernel *kernels;
static struct module *modules;

void soft_register(struct soft_kernel *kernel)
{
	kernel->next = kernels;
	kernels = kernel;
}

static const struct soft_kernel *kernel_named(const char *name)
{
	const struct soft_kernel *kernel;

	for (kernel = kernels; kernel && strcmp(kernel->name, name); kernel = kernel->next)
		continue;
	return kernel;
}

static struct module *module_of(void *handle, bool library)
{
	struct module *module;

	for (module = modules; module; module = module->next) {
		if (module == handle && module->library == library)
			break;
	}
	return module;
}

static struct function *function_of(void *handle, struct module **owner)
{
	for (struct module *module = modules; module; module = module->next) {
		for (struct function *f = module->functions; f; f = f->next) {
			if (f == handle) {
				if (owner)
					*owner = module;
				return f;
			}
		}
	}
	return NULL;
}

static struct function *function_get(
	struct module *module, const struct soft_kernel *kernel, bool is_kernel)
{
	struct function *function;

	for (function = module->functions; function; function = function->next) {
		if (function->kernel == kernel && function->is_kernel == is_kernel)
			return function;
	}
	function = calloc(1, sizeof(*function));
	if (function) {
		*function = (struct function){kernel, is_kernel, module->functions};
		module->functions = function;
	}
	return function;
}

static CUresult load(void **out, const void *image, bool library)
{
	struct module *module;

	if (!out || !image)
		return CUDA_ERROR_INVALID_VALUE;
	module = calloc(1, sizeof(*module));
	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->library = library;
	module->device = soft_device(soft_context());
	module->next = modules;
	modules = module;
	*out = module;
	return CUDA_SUCCESS;
}

static CUresult unload(void *handle, bool library)
{
	struct module *module = module_of(handle, library), **link;

	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	for (link = &modules; *link != module; link = &(*link)->next)
		continue;
	*link = module->next;
	for (struct function *function = module->functions, *next; function; function = next) {
		next = function->next;
		free(function);
	}
	free(module);
	return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	return load((void **)module, image, false);
}

CUresult cuModuleLoadDataEx(
	CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values)
{
	(void)count, (void)options, (void)values;
	return cuModuleLoadData(module, image);
}

CUresult cuModuleUnload(CUmodule module)
{
	SOFT_ENTER(SOFT_CONTEXT | SOFT_UNSAFE);
	return unload(module, false);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit,
	void **jit_values, unsigned jit_count, CUlibraryOption *options, void **values,
	unsigned count)
{
	SOFT_ENTER(0);
	(void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
	return load((void **)library, code, true);
}

CUresult cuLibraryUnload(CUlibrary library)
{
	SOFT_ENTER(0);
	return unload(library, true);
}

static CUresult get(void **out, void *handle, const char *name, bool library)
{
	struct module *module = module_of(handle, library);
	const struct soft_kernel *kernel;
	struct function *function;

	if (!out || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	kernel = kernel_named(name);
	if (!kernel)
		return CUDA_ERROR_NOT_FOUND;
	function = function_get(module, kernel, library);
	if (!function)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = function;
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	SOFT_ENTER(SOFT_CONTEXT);
	return get((void **)function, module, name, false);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	SOFT_ENTER(0);
	return get((void **)kernel, library, name, true);
}

CUresult cuKernelGetFunction(CUfunction *out, CUkernel handle)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct module *owner;
	struct function *function = function_of(handle, &owner);

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function || !function->is_kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	function = function_get(owner, function->kernel, false);
	if (!function)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = (CUfunction)function;
	return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *ptr, size_t *bytes, CUmodule module, const char *name)
{
	SOFT_ENTER(SOFT_CONTEXT);
	(void)ptr, (void)bytes, (void)name;
	return module_of(module, false) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult get_name(const char **name, void *handle, bool is_kernel)
{
	struct function *function = function_of(handle, NULL);

	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function || function->is_kernel != is_kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	*name = function->kernel->name;
	return CUDA_SUCCESS;
}

static CUresult get_param(void *handle, size_t index, size_t *offset, size_t *bytes, bool is_kernel)
{
	struct function *function = function_of(handle, NULL);
	size_t offsets[SOFT_PARAMS_MAX];

	if (!function || function->is_kernel != is_kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!offset || index >= function->kernel->count)
		return CUDA_ERROR_INVALID_VALUE;
	soft_kernel_layout(function->kernel, offsets);
	*offset = offsets[index];
	if (bytes)
		*bytes = function->kernel->params[index].size;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
	SOFT_ENTER(SOFT_CONTEXT);
	return get_name(name, function, false);
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
	SOFT_ENTER(0);
	return get_name(name, kernel, true);
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
	SOFT_ENTER(SOFT_CONTEXT);
	return get_param(function, index, offset, bytes, false);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes)
{
	SOFT_ENTER(0);
	return get_param(kernel, index, offset, bytes, true);
}

CUresult cuFuncLoad(CUfunction function)
{
	SOFT_ENTER(SOFT_CONTEXT);
	return function_of(function, NULL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	SOFT_ENTER(SOFT_CONTEXT);
	(void)attribute, (void)value;
	return function_of(function, NULL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
	SOFT_ENTER(SOFT_CONTEXT);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function_of(function, NULL))
		return CUDA_ERROR_INVALID_HANDLE;
	*value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
	return CUDA_SUCCESS;
}

/* The arguments, from the array of pointers or from one packed buffer. */
static CUresult pack(struct soft_launch *launch, void **params, void **extra)
{
	const struct soft_kernel *kernel = launch->kernel;
	size_t offsets[SOFT_PARAMS_MAX], bytes = soft_kernel_layout(kernel, offsets), given = 0;
	const unsigned char *buffer = NULL;

	for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			given = *(size_t *)extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (buffer ? params || given < bytes : !params)
		return CUDA_ERROR_INVALID_VALUE;
	launch->bytes = malloc(bytes);
	if (!launch->bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = 0; i < kernel->count; i++)
		memcpy(launch->bytes + offsets[i], buffer ? buffer + offsets[i] : params[i],
			kernel->params[i].size);
	return CUDA_SUCCESS;
}

CUresult soft_launch_make(struct soft_launch *launch, CUfunction handle, const unsigned grid[3],
	const unsigned block[3], unsigned shared, void **params, void **extra)
{
	struct function *function = function_of(handle, NULL);

	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	for (int i = 0; i < 3; i++) {
		if (!grid[i] || !block[i] || block[i] > 1024 || (i && grid[i] > 65535))
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (block[0] * block[1] * block[2] > 1024 || shared > 227 << 10)
		return CUDA_ERROR_INVALID_VALUE;
	*launch = (struct soft_launch){.kernel = function->kernel,
		.grid = {grid[0], grid[1], grid[2]},
		.block = {block[0], block[1], block[2]},
		.shared = shared,
		.handle = handle,
		.by_kernel = function->is_kernel};
	return pack(launch, params, extra);
}

static bool runs_on(CUfunction handle, const struct soft_stream *stream)
{
	const CUcontext context = stream->context ? stream->context : soft_context();
	struct module *owner;

	return !function_of(handle, &owner) || owner->library ||
	       owner->device == soft_device(context);
}

static CUresult launch(CUfunction function, const unsigned grid[3], const unsigned block[3],
	unsigned shared, CUstream handle, void **params, void **extra, bool cooperative,
	bool per_thread)
{
	SOFT_ENTER(SOFT_CONTEXT);
	struct soft_stream *stream = soft_stream_find(handle, per_thread);
	struct soft_op op = {.kind = SOFT_OP_KERNEL};
	CUresult result;

	if (!stream || !runs_on(function, stream))
		return CUDA_ERROR_INVALID_HANDLE;
	result = soft_launch_make(&op.launch, function, grid, block, shared, params, extra);
	if (result)
		return result;
	if (cooperative && (uint64_t)grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2] >
				   SOFT_SM_COUNT * SOFT_SM_THREADS) {
		soft_op_finish(&op);
		return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	}
	return soft_submit(stream, &op);
}

#define DIMENSIONS                                                                                 \
	CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz
#define GRID ((const unsigned[]){gx, gy, gz})
#define BLOCK ((const unsigned[]){bx, by, bz})

SOFT_BOTH(cuLaunchKernel, _ptsz,
	(DIMENSIONS, unsigned shared, CUstream stream, void **params, void **extra),
	launch(f, GRID, BLOCK, shared, stream, params, extra, false, per_thread))
SOFT_BOTH(cuLaunchCooperativeKernel, _ptsz,
	(DIMENSIONS, unsigned shared, CUstream stream, void **params),
	launch(f, GRID, BLOCK, shared, stream, params, NULL, true, per_thread))

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction function, void **params,
	void **extra, bool per_thread)
{
	bool cooperative = false;

	if (!config || (config->numAttrs && !config->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *attribute = &config->attrs[i];

		if (attribute->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
			cooperative = attribute->value.cooperative;
		if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
			attribute->value.clusterDim.x * attribute->value.clusterDim.y *
					attribute->value.clusterDim.z >
				1)
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	return launch(function,
		(const unsigned[]){config->gridDimX, config->gridDimY, config->gridDimZ},
		(const unsigned[]){config->blockDimX, config->blockDimY, config->blockDimZ},
		config->sharedMemBytes, config->hStream, params, extra, cooperative, per_thread);
}

SOFT_BOTH(cuLaunchKernelEx, _ptsz,
	(const CUlaunchConfig *config, CUfunction function, void **params, void **extra),
	launch_ex(config, function, params, extra, per_thread))
