/* SPDX-License-Identifier: MIT */
#include "src/memory/story.h"

#include <stdint.h>
#include "src/base/options.h"
#include "src/memory/bytes.h"
#include "src/memory/memory.h"

size_t hs_story_promised(size_t room)
{
	const struct hs_options *options = hs_options();

	if (options->slots == HS_AUTO || options->layers == HS_AUTO)
		return 0;
	return smaller(options->slots * options->layers * (options->row + HS_STORY_HOT), room / 2);
}

size_t hs_story_told(size_t device, size_t host, size_t fixed)
{
	const uint64_t row = hs_options()->row;
	const uint64_t told = (row + HS_STORY_KEY) * HS_HOT_ONE_IN;
	const size_t all = above(device, fixed), rows = hs_story_promised(all);
	const uint64_t held =
		(HS_STORY_KEY + HS_STORY_MAP) * HS_HOT_ONE_IN + (rows ? 0 : row + HS_STORY_HOT);
	const uint64_t room = all - rows;

	return smaller(room * told / held, (room + host) * told / (held + row * HS_HOT_ONE_IN));
}
