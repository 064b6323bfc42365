/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/replay.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "tools/bench/workers.h"

struct work {
	const struct hs_dsat *trace;
	const struct hs_replay_in *in;
	struct hs_replay *out;
	struct hs_replay_sum *sums; /* [layers][batch] and [layers] */
	uint32_t request_jobs;
	_Atomic int error;
};

/* 1 to 2 times k in eighths, from there on eight sizes for each doubling. */
static void choose_points(struct hs_replay *replay, const struct hs_dsat *trace)
{
	uint64_t size = trace->k, stride = trace->k / 8 ? trace->k / 8 : 1;

	while (replay->count < HS_REPLAY_POINTS) {
		replay->points[replay->count++] = size;
		if (size >= trace->ctx)
			break;
		size += stride;
		if (replay->count % 8 == 0)
			stride *= 2;
	}
}

static int reuse_part(const struct work *work, struct hs_replay_sum *sum,
	const struct hs_stream *stream, uint32_t layer, uint32_t caches, bool heat)
{
	const struct hs_replay_in *in = work->in;
	struct hs_replay *out = work->out;
	uint32_t *misses = NULL;
	struct hs_reuse reuse;
	int err = hs_reuse_init(&reuse, stream->ids);

	if (err)
		return err;
	if (heat && !(misses = calloc(stream->steps, sizeof(*misses))))
		err = -ENOMEM;
	if (!err)
		err = hs_reuse_add(&reuse, stream, in->skip, out->heat_slots * caches, misses);
	if (!err) {
		sum->selections = reuse.total;
		sum->first = reuse.first;
		sum->fresh = reuse.fresh;
		for (size_t i = 0; i < out->count; i++)
			sum->curve[i] = hs_reuse_misses(&reuse, out->points[i] * caches);
		for (size_t i = 0; i < in->sizes; i++)
			sum->misses[HS_REPLAY_LRU][i] =
				hs_reuse_misses(&reuse, in->slots[i] * caches);
		for (uint32_t step = 0; misses && step < stream->steps; step++)
			__atomic_fetch_add(&out->heat[(size_t)layer * stream->steps + step],
				misses[step], __ATOMIC_RELAXED);
	}
	free(misses);
	hs_reuse_finish(&reuse);
	return err;
}

static void job(void *data, uint32_t index)
{
	struct work *work = data;
	const struct hs_replay_in *in = work->in;
	bool shared = index >= work->request_jobs;
	uint32_t layer = shared ? index - work->request_jobs : index / work->trace->batch;
	uint32_t caches = shared ? work->trace->batch : 1;
	struct hs_replay_sum *sum = &work->sums[index];
	struct hs_stream stream;
	int err;

	err = hs_stream_init(&stream, work->trace, layer,
		shared ? HS_ALL_REQUESTS : (int)(index % work->trace->batch));
	if (err) {
		work->error = err;
		return;
	}
	err = reuse_part(work, sum, &stream, layer, caches, !shared || !in->requests);
	for (int policy = 0; !err && policy < HS_REPLAY_POLICIES; policy++)
		for (size_t i = 0; !err && in->policies[policy] && i < in->sizes; i++)
			if (policy != HS_REPLAY_LRU)
				err = hs_replay_run(&sum->misses[policy][i], &stream, policy,
					in->slots[i] * caches, in->skip, in->seed + index);
	hs_stream_finish(&stream);
	if (err)
		work->error = err;
}

static void add(struct hs_replay_sum *to, const struct hs_replay_sum *from)
{
	to->selections += from->selections;
	to->first += from->first;
	to->fresh += from->fresh;
	for (int policy = 0; policy < HS_REPLAY_POLICIES; policy++)
		for (int i = 0; i < HS_REPLAY_SIZES; i++)
			to->misses[policy][i] += from->misses[policy][i];
	for (int i = 0; i < HS_REPLAY_POINTS; i++)
		to->curve[i] += from->curve[i];
}

int hs_replay_make(
	struct hs_replay *out, const struct hs_dsat *trace, const struct hs_replay_in *in)
{
	struct hs_replay made = {0};
	struct work work = {.trace = trace,
		.in = in,
		.out = &made,
		.request_jobs = in->requests ? trace->layers * trace->batch : 0};
	uint32_t jobs = work.request_jobs + (in->shared ? trace->layers : 0);
	int err = -ENOMEM;

	for (size_t i = 0; i < in->sizes; i++)
		if (in->slots[i] < trace->k)
			return -EINVAL;
	choose_points(&made, trace);
	made.heat_slots = in->sizes ? in->slots[0] : trace->k;
	for (size_t i = 0; i < in->sizes && made.heat_slots == trace->k; i++)
		made.heat_slots = in->slots[i];
	work.sums = calloc(jobs + 1ull, sizeof(*work.sums));
	made.request_layers = calloc(trace->layers, sizeof(*made.request_layers));
	made.shared_layers = calloc(trace->layers, sizeof(*made.shared_layers));
	made.heat = calloc((size_t)trace->layers * trace->steps, sizeof(*made.heat));
	if (!work.sums || !made.request_layers || !made.shared_layers || !made.heat)
		goto fail;
	hs_workers_run(jobs, job, &work);
	err = work.error;
	if (err)
		goto fail;
	for (uint32_t i = 0; i < work.request_jobs; i++) {
		add(&made.request_layers[i / trace->batch], &work.sums[i]);
		add(&made.request, &work.sums[i]);
	}
	for (uint32_t i = work.request_jobs; i < jobs; i++) {
		add(&made.shared_layers[i - work.request_jobs], &work.sums[i]);
		add(&made.shared, &work.sums[i]);
	}
	free(work.sums);
	*out = made;
	return 0;
fail:
	free(work.sums);
	hs_replay_finish(&made);
	return err;
}

void hs_replay_finish(struct hs_replay *replay)
{
	free(replay->request_layers);
	free(replay->shared_layers);
	free(replay->heat);
	memset(replay, 0, sizeof(*replay));
}
