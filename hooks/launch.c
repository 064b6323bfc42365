/* SPDX-License-Identifier: MIT */
#include "hooks/hook.h"
#include "src/launch/launch.h"
#include "src/memory/memory.h"

#define GRID unsigned gx, unsigned gy, unsigned gz
#define BLOCK unsigned bx, unsigned by, unsigned bz
#define SHAPE(l)                                                                                   \
	(l)->grid[0], (l)->grid[1], (l)->grid[2], (l)->block[0], (l)->block[1], (l)->block[2]

#define LAUNCH(name, ptsz)                                                                         \
	static CUresult forward_##name(struct hs_launch *l)                                        \
	{                                                                                          \
		return hs_driver.name(                                                             \
			l->function, SHAPE(l), l->shared, l->stream, l->params, l->extra);         \
	}                                                                                          \
	HS_EXPORT CUresult name(CUfunction function, GRID, BLOCK, unsigned shared,                 \
		CUstream stream, void **params, void **extra)                                      \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(                                                      \
				function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);  \
		struct hs_launch launch = {.function = function,                                   \
			.grid = {gx, gy, gz},                                                      \
			.block = {bx, by, bz},                                                     \
			.shared = shared,                                                          \
			.stream = stream,                                                          \
			.per_thread = ptsz,                                                        \
			.params = params,                                                          \
			.extra = extra,                                                            \
			.forward = forward_##name};                                                \
		return hs_hook_end(HS_SPARED(0, hs_launch(&launch)));                              \
	}
LAUNCH(cuLaunchKernel, false)
LAUNCH(cuLaunchKernel_ptsz, true)
#undef LAUNCH

#define COOPERATIVE(name, ptsz)                                                                    \
	static CUresult forward_##name(struct hs_launch *l)                                        \
	{                                                                                          \
		return hs_driver.name(l->function, SHAPE(l), l->shared, l->stream, l->params);     \
	}                                                                                          \
	HS_EXPORT CUresult name(                                                                   \
		CUfunction function, GRID, BLOCK, unsigned shared, CUstream stream, void **params) \
	{                                                                                          \
		if (!hs_hook_begin())                                                              \
			return HS_REAL(name)(                                                      \
				function, gx, gy, gz, bx, by, bz, shared, stream, params);         \
		struct hs_launch launch = {.function = function,                                   \
			.grid = {gx, gy, gz},                                                      \
			.block = {bx, by, bz},                                                     \
			.shared = shared,                                                          \
			.stream = stream,                                                          \
			.per_thread = ptsz,                                                        \
			.params = params,                                                          \
			.forward = forward_##name};                                                \
		return hs_hook_end(HS_SPARED(0, hs_launch(&launch)));                              \
	}
COOPERATIVE(cuLaunchCooperativeKernel, false)
COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)
#undef COOPERATIVE

/* The configuration carries clusters, PDL and more: it is passed on as it is. */
#define LAUNCH_EX(name, ptsz)                                                                      \
	static CUresult forward_##name(struct hs_launch *l)                                        \
	{                                                                                          \
		return hs_driver.name(l->config, l->function, l->params, l->extra);                \
	}                                                                                          \
	HS_EXPORT CUresult name(                                                                   \
		const CUlaunchConfig *config, CUfunction function, void **params, void **extra)    \
	{                                                                                          \
		if (!config || !hs_hook_begin())                                                   \
			return HS_REAL(name)(config, function, params, extra);                     \
		struct hs_launch launch = {.function = function,                                   \
			.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},            \
			.block = {config->blockDimX, config->blockDimY, config->blockDimZ},        \
			.shared = config->sharedMemBytes,                                          \
			.stream = config->hStream,                                                 \
			.per_thread = ptsz,                                                        \
			.params = params,                                                          \
			.extra = extra,                                                            \
			.config = config,                                                          \
			.forward = forward_##name};                                                \
		return hs_hook_end(HS_SPARED(0, hs_launch(&launch)));                              \
	}
LAUNCH_EX(cuLaunchKernelEx, false)
LAUNCH_EX(cuLaunchKernelEx_ptsz, true)
#undef LAUNCH_EX

/* The handles of its kernels may be given out again as soon as it is gone; what
 * was looked up in between is forgotten too. */

HS_EXPORT CUresult cuModuleUnload(CUmodule module)
{
	if (!hs_hook_begin())
		return HS_REAL(cuModuleUnload)(module);
	hs_launch_forget();
	const CUresult result = hs_driver.cuModuleUnload(module);
	hs_launch_forget();
	return hs_hook_end(result);
}

HS_EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
	if (!hs_hook_begin())
		return HS_REAL(cuLibraryUnload)(library);
	hs_launch_forget();
	const CUresult result = hs_driver.cuLibraryUnload(library);
	hs_launch_forget();
	return hs_hook_end(result);
}
