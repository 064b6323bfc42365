/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>
#include "softgpu/soft.h"
#include "hooks/table.h"

static const struct row {
	const char *proof; /* PFN_<base>_v<version>[_ptsz|_ptds] */
	void *address;
} rows[] = {
#define ROW(name, proof, flags) {#proof, (void *)name},
	HS_DRIVER_TABLE(ROW, ROW)
	/* Not in the table, because the library has no use for it; programs do. */
	ROW(cuGraphCreate, PFN_cuGraphCreate_v10000, 0)
#undef ROW
};

/* Splits a row's proof; false if its base is not the symbol. */
static bool parse(const struct row *row, const char *symbol, int *version, bool *per_thread)
{
	const char *base = row->proof + strlen("PFN_"), *rest = base + strlen(symbol);
	char *end;

	if (strncmp(base, symbol, strlen(symbol)) || strncmp(rest, "_v", 2))
		return false;
	*version = (int)strtol(rest + 2, &end, 10);
	*per_thread = *end == '_';
	return end > rest + 2;
}

/* The newest ABI not newer than asked; with the flag the per-thread form where
 * there is one. */
static CUdriverProcAddressQueryResult find(
	const char *symbol, void **out, int asked, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	bool want = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, best_twin = false, twin;
	int best = -1, version;

	*out = NULL;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (!parse(&rows[i], symbol, &version, &twin) || (twin && !want))
			continue;
		if (status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
			status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
		if (version > asked || (best_twin && !twin) ||
			(best_twin == twin && version < best))
			continue;
		best = version;
		best_twin = twin;
		*out = rows[i].address;
		status = CU_GET_PROC_ADDRESS_SUCCESS;
	}
	return status;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, cuuint64_t flags,
	CUdriverProcAddressQueryResult *status)
{
	CUdriverProcAddressQueryResult found;

	if (!symbol || !out || version > CUDA_VERSION ||
		flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	found = find(symbol, out, version, flags);
	if (status)
		*status = found;
	/* Without a place for the status an absent symbol is an error. */
	return *out || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **out, int version, cuuint64_t flags)
{
	return cuGetProcAddress_v2(symbol, out, version, flags, NULL);
}

CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
#define ERROR(name, text)                                                                          \
	{                                                                                          \
		name, #name, text                                                                  \
	}
	ERROR(CUDA_SUCCESS, "no error"),
	ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
	ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
	ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
	ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
	ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
	ERROR(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported"),
	ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
	ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
	ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
	ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
	ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
	ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
		"part or all of the requested memory range is already mapped"),
	ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
		"pointer does not correspond to a registered memory region"),
	ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"),
	ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
	ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
		"operation not permitted when stream is capturing"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
		"operation failed due to a previous error during capture"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE,
		"operation would result in a merge of separate capture sequences"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
		"dependency created on uncaptured work in another stream"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
		"operation would make the legacy stream depend on a capturing blocking stream"),
	ERROR(CUDA_ERROR_CAPTURED_EVENT,
		"operation not permitted on an event last recorded in a capturing stream"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
		"attempt to terminate a thread-local capture sequence from another thread"),
#undef ERROR
};

static CUresult describe(CUresult error, const char **out, bool name)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		if (errors[i].code == error)
			*out = name ? errors[i].name : errors[i].text;
	}
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
	return describe(error, name, true);
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
	return describe(error, text, false);
}
