/* SPDX-License-Identifier: MIT */
#include <string.h>
#include "src/launch/kernel.h"
#include "src/trace/timeline.h"

static const struct {
	const char *name;
	enum hs_trace_kind kind;
} ours[] = {
	{"hs_resolve", HS_TRACE_SWAP_IN},
	{"hs_many_mark", HS_TRACE_STAGE},
	{"hs_many_rank", HS_TRACE_STAGE},
	{"hs_many_hot", HS_TRACE_STAGE},
	{"hs_many_gather", HS_TRACE_STAGE},
	{"hs_many_remap", HS_TRACE_SWAP_IN}, /* tells the launch */
	{"hs_invalidate", HS_TRACE_INVALIDATE},
	{"hs_drop", HS_TRACE_DROP},
	{"hs_keep", HS_TRACE_RELEASE},
	{"hs_poison", HS_TRACE_VERIFY},
	{"hs_hash_rows", HS_TRACE_VERIFY},
	{"hs_compare_hashes", HS_TRACE_VERIFY},
};

struct search {
	const char *name;
	enum hs_trace_kind kind;
};

/* Readers of no KV, known by the end of the profile's label. */
static bool is_combine(const struct hs_profile *profile)
{
	const char *end = strrchr(profile->label, '-');

	return end && !strcmp(end, "-combine");
}

static void look(struct hs_kernel *kernel, void *data)
{
	struct search *search = data;

	if (!kernel->profile || strcmp(kernel->name, search->name))
		return;
	switch (kernel->profile->role) {
	case HS_ROLE_ATTENTION:
		search->kind = HS_TRACE_ATTENTION;
		break;
	case HS_ROLE_WRITER:
		search->kind = HS_TRACE_WRITER;
		break;
	case HS_ROLE_READER:
		search->kind = is_combine(kernel->profile) ? HS_TRACE_COMBINE : HS_TRACE_READER;
		break;
	case HS_ROLE_TOPK:
	case HS_ROLE_TABLE:
		if (kernel->profile->makes == HS_MAKES_POSITIONS)
			search->kind = HS_TRACE_TOPK;
		else if (kernel->profile->makes == HS_MAKES_SLOTS)
			search->kind = HS_TRACE_LIST;
		break;
	default:
		break;
	}
}

enum hs_trace_kind hs_timeline_kind(const char *name)
{
	struct search search = {name, HS_TRACE_OTHER};

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (!strcmp(name, ours[i].name))
			return ours[i].kind;
	hs_kernel_each(look, &search);
	return search.kind;
}
