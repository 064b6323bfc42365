/* SPDX-License-Identifier: MIT */
#include "src/trace/lead.h"

/* A list belongs to the positions since the list before it; without any, one
 * kernel made both. */
void hs_lead_ran(struct hs_lead *lead, enum hs_trace_kind kind, uint64_t end)
{
	const struct hs_lead_mark mark = {true, end, ++lead->kernels};

	if (kind == HS_TRACE_TOPK) {
		lead->positions = mark;
		lead->open = true;
	} else if (kind == HS_TRACE_LIST) {
		lead->list = mark;
		lead->chosen = lead->open ? lead->positions : mark;
		lead->open = false;
	}
}

static struct hs_trace_lead until(const struct hs_lead *lead, const struct hs_lead_mark *mark,
	uint64_t start, uint64_t kernels)
{
	if (!mark->known || mark->end < lead->since)
		return (struct hs_trace_lead){0};
	return (struct hs_trace_lead){.known = true,
		.kernels = kernels > mark->kernels ? (uint32_t)(kernels - mark->kernels) : 0,
		.time = start > mark->end ? start - mark->end : 0};
}

void hs_lead_tell(
	const struct hs_lead *lead, uint64_t start, uint64_t kernels, struct hs_trace_event *event)
{
	if (lead->open) {
		event->topk = until(lead, &lead->positions, start, kernels);
		return;
	}
	event->topk = until(lead, &lead->chosen, start, kernels);
	event->list = until(lead, &lead->list, start, kernels);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

void hs_lead_sum(struct hs_trace_step *step, const struct hs_trace_event *event, uint64_t took)
{
	step->list_lead += event->list.time;
	step->list_hides += least(event->list.time, took);
	step->topk_lead += event->topk.time;
	step->topk_hides += least(event->topk.time, took);
}
