/* SPDX-License-Identifier: MIT */
/* Kernels that store rows, or tell of blocks, without naming a window. */
#include "src/launch/look.h"

static bool unit_of(const struct hs_look *look, uint32_t *unit)
{
	*unit = 1;
	return !look->profile->unit || (hs_look_u32(look, look->profile->unit, unit) && *unit);
}

/* Which windows it stores to is not known here, only which slots. */
CUresult hs_arrive_transfer(struct hs_look *look)
{
	CUresult result = look->launch->forward(look->launch);
	struct hs_slots slots = {0};
	struct hs_site site;
	int64_t pointer;
	uint32_t unit;

	if (result != CUDA_SUCCESS)
		return result;
	if (!hs_look_unmet(look) && look->profile->slots[0] && unit_of(look, &unit) &&
		hs_look_eval(look, look->profile->slots[0], &pointer) && pointer &&
		hs_look_u32(look, look->profile->slots[1], &slots.count) &&
		hs_look_u32(look, look->profile->slots[2], &slots.width))
		slots.slots = (CUdeviceptr)pointer;
	else
		unit = 1;
	site = hs_look_site(look->launch);
	hs_cache_arrived(&slots, unit, &site);
	return result;
}

CUresult hs_arrive_table(struct hs_look *look)
{
	const struct hs_profile *profile = look->profile;
	struct hs_blocks blocks;
	int64_t pointer, lengths, ids;
	struct hs_site site;

	if (!hs_look_unmet(look) && unit_of(look, &blocks.unit) &&
		hs_look_eval(look, profile->table[0], &pointer) && pointer &&
		hs_look_u32(look, profile->table[1], &blocks.rows) &&
		hs_look_u32(look, profile->table[2], &blocks.columns) &&
		hs_look_eval(look, profile->table[3], &blocks.stride) &&
		hs_look_eval(look, profile->lengths, &lengths) &&
		hs_look_eval(look, profile->ids, &ids)) {
		blocks.blocks = (CUdeviceptr)pointer;
		blocks.lengths = (CUdeviceptr)lengths;
		blocks.ids = (CUdeviceptr)ids;
		site = hs_look_site(look->launch);
		hs_cache_tabled(&blocks, &site);
	}
	return look->launch->forward(look->launch);
}
