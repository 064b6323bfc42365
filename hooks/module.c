/* SPDX-License-Identifier: MIT */
#include "hooks/hook.h"
#include "src/memory/memory.h"

/* Code takes device memory too, with lazy loading as late as when a function is
 * asked for. */
#define LOAD(name, params, args)                                                                   \
	HS_EXPORT CUresult name params                                                             \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name) args;                                                 \
		return hs_hook_end(HS_SPARED(0, HS_REAL(name) args));                              \
	}
LOAD(cuModuleLoad, (CUmodule * module, const char *file), (module, file))
LOAD(cuModuleLoadData, (CUmodule * module, const void *image), (module, image))
LOAD(cuModuleLoadDataEx,
	(CUmodule * module, const void *image, unsigned count, CUjit_option *options,
		void **values),
	(module, image, count, options, values))
LOAD(cuModuleLoadFatBinary, (CUmodule * module, const void *image), (module, image))
LOAD(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name),
	(function, module, name))
LOAD(cuFuncLoad, (CUfunction function), (function))
LOAD(cuKernelGetFunction, (CUfunction * function, CUkernel kernel), (function, kernel))
LOAD(cuLibraryLoadData,
	(CUlibrary * library, const void *code, CUjit_option *jit, void **jit_values, unsigned jits,
		CUlibraryOption *options, void **values, unsigned count),
	(library, code, jit, jit_values, jits, options, values, count))
LOAD(cuLibraryLoadFromFile,
	(CUlibrary * library, const char *file, CUjit_option *jit, void **jit_values, unsigned jits,
		CUlibraryOption *options, void **values, unsigned count),
	(library, file, jit, jit_values, jits, options, values, count))
