/* SPDX-License-Identifier: MIT */
#include "src/launch/look.h"

#include <string.h>
#include "src/launch/params.h"

struct hs_site hs_look_site(const struct hs_launch *launch)
{
	struct hs_site site = {.stream = launch->stream, .per_thread = launch->per_thread};
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	cuuint64_t id = 0;
	CUresult result;

	/* An error: the legacy stream while another captures. It does not. */
	if (launch->per_thread)
		result = hs_driver.cuStreamGetCaptureInfo_v2_ptsz(
			launch->stream, &status, &id, NULL, NULL, NULL);
	else
		result = hs_driver.cuStreamGetCaptureInfo_v2(
			launch->stream, &status, &id, NULL, NULL, NULL);
	if (result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		site.capturing = true;
		site.capture_id = id;
	}
	return site;
}

bool hs_look_at(struct hs_look *look, struct hs_launch *launch, struct hs_kernel *kernel)
{
	const void *params[HS_PROFILE_SIZES];

	look->launch = launch;
	look->kernel = kernel;
	look->profile = kernel->profile;
	if (!hs_params_find(launch, kernel, params, kernel->profile->nsizes))
		return false;
	hs_profile_read(kernel->profile, params, look->fields);
	look->values.fields = look->fields;
	memcpy(look->values.dims, launch->grid, sizeof(launch->grid));
	memcpy(look->values.dims + 3, launch->block, sizeof(launch->block));
	return true;
}

/* An expression that is not there is 0. */
bool hs_look_eval(const struct hs_look *look, const struct hs_expr *expr, int64_t *result)
{
	*result = 0;
	return !expr || hs_expr_eval(expr, &look->values, result);
}

bool hs_look_u32(const struct hs_look *look, const struct hs_expr *expr, uint32_t *result)
{
	int64_t value;

	if (!hs_look_eval(look, expr, &value) || value < 0 || value > INT32_MAX)
		return false;
	*result = (uint32_t)value;
	return true;
}

struct hs_window *hs_look_window(const struct hs_look *look, CUdeviceptr *base)
{
	int64_t value;

	if (!look->profile->base || !hs_look_eval(look, look->profile->base, &value))
		return NULL;
	*base = (CUdeviceptr)value;
	return hs_window_find(*base);
}

const char *hs_look_unmet(const struct hs_look *look)
{
	const struct hs_profile *profile = look->profile;
	int64_t value;

	for (unsigned i = 0; i < profile->nneeds; i++) {
		if (!hs_look_eval(look, profile->needs[i], &value) || !value)
			return profile->need_texts[i];
	}
	return NULL;
}
