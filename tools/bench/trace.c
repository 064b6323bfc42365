/* SPDX-License-Identifier: MIT */
#include "tools/bench/trace.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/bench/slots.h"
#include "tools/bench/workers.h"

#define CACHED (1u << 31)

struct header {
	char magic[4];
	uint32_t version, layers, steps, batch, k;
	uint64_t ctx;
};
_Static_assert(sizeof(struct header) == 32, "the file's header has 32 bytes");

/* splitmix64: any two seeds give unrelated streams, so each request has its own. */
static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static uint32_t below(uint64_t *state, uint32_t limit)
{
	return (uint32_t)(((draw(state) >> 32) * limit) >> 32);
}

static size_t lists(const struct hs_dsat *trace)
{
	return (size_t)trace->steps * trace->layers * trace->batch;
}

int hs_dsat_init(struct hs_dsat *trace)
{
	size_t bytes;

	if (!trace->layers || !trace->steps || !trace->batch || !trace->k ||
		trace->ctx < trace->k || trace->ctx > INT32_MAX ||
		(uint64_t)trace->steps * trace->layers >= UINT64_C(1) << 31 ||
		__builtin_mul_overflow(lists(trace), (size_t)trace->k * sizeof(int32_t), &bytes))
		return -EINVAL;
	trace->positions = malloc(bytes);
	return trace->positions ? 0 : -ENOMEM;
}

void hs_dsat_finish(struct hs_dsat *trace)
{
	free(trace->positions);
	trace->positions = NULL;
}

uint32_t hs_dsat_warm(const struct hs_dsat *trace, uint32_t hot)
{
	return (hot + trace->k - 1) / trace->k + 2;
}

/* One request in one layer while it is generated. */
struct stream {
	uint64_t random;
	uint32_t size;
	int32_t *order;	 /* cached positions, oldest first; the last k are the step before */
	int32_t *fresh;	 /* order after this step */
	uint32_t *index; /* scratch: cached entries to draw from */
	uint8_t *picked; /* per entry of order: hit in this step */
	uint8_t *cached; /* per position */
};

/* Draws `count` of the entries [first, first + length) as hits. */
static void draw_hits(struct stream *stream, uint32_t first, uint32_t length, uint32_t count)
{
	for (uint32_t i = 0; i < length; i++)
		stream->index[i] = first + i;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t j = i + below(&stream->random, length - i);
		uint32_t hit = stream->index[j];

		stream->index[j] = stream->index[i];
		stream->picked[hit] = 1;
	}
}

static void generate_step(struct stream *stream, const struct hs_dsat *trace,
	const struct hs_dsat_plan *plan, bool sweep, int32_t *list)
{
	uint32_t k = trace->k, size = stream->size, room = plan->hot - size, kept = 0, count = 0;
	uint32_t misses = sweep ? 0 : room ? (room < k ? room : k) : plan->misses;
	uint32_t hits = k - misses;
	uint32_t recent = size < k ? size : k, old = size - recent;
	uint32_t stale = (uint32_t)((uint64_t)hits * plan->churn / 1000);
	uint32_t leave = misses > room ? misses - room : 0;

	if (stale > old)
		stale = old;
	if (hits - stale > recent)
		stale = hits - recent;
	memset(stream->picked, 0, size);
	if (sweep) {
		memset(stream->picked, 1, k);
	} else {
		draw_hits(stream, old, recent, hits - stale);
		draw_hits(stream, 0, old, stale);
	}

	for (uint32_t i = 0; i < size; i++)
		if (stream->picked[i])
			list[count++] = stream->order[i];
	for (uint32_t i = 0; i < misses; i++) {
		uint32_t position;

		do
			position = below(&stream->random, (uint32_t)trace->ctx);
		while (stream->cached[position]);
		stream->cached[position] = 2;
		list[count++] = (int32_t)position;
	}
	for (uint32_t i = k - 1; i > 0; i--) {
		uint32_t j = below(&stream->random, i + 1);
		int32_t other = list[j];

		list[j] = list[i];
		list[i] = other;
	}

	for (uint32_t i = 0; i < size; i++) {
		if (stream->picked[i])
			continue;
		if (leave > 0) {
			stream->cached[stream->order[i]] = 0;
			leave--;
		} else {
			stream->fresh[kept++] = stream->order[i];
		}
	}
	for (uint32_t i = 0; i < k; i++) {
		if (stream->cached[list[i]] == 2) {
			stream->cached[list[i]] = 1;
			stream->fresh[kept++] = list[i];
		}
	}
	for (uint32_t i = 0; i < size; i++)
		if (stream->picked[i])
			stream->fresh[kept++] = stream->order[i];
	stream->size = kept;
	memcpy(stream->order, stream->fresh, kept * sizeof(*stream->order));
}

struct generation {
	const struct hs_dsat *trace;
	const struct hs_dsat_plan *plan;
	_Atomic int error;
};

static void generate_stream(void *data, uint32_t which)
{
	struct generation *work = data;
	const struct hs_dsat *trace = work->trace;
	uint32_t hot = work->plan->hot;
	uint32_t layer = which / trace->batch, request = which % trace->batch;
	/* A request selects the same in a batch of any size. */
	struct stream stream = {
		.random = work->plan->seed ^ ((uint64_t)layer << 52 | (uint64_t)request << 32)};

	draw(&stream.random);
	stream.order = malloc(hot * sizeof(*stream.order));
	stream.fresh = malloc(hot * sizeof(*stream.fresh));
	stream.index = malloc(hot * sizeof(*stream.index));
	stream.picked = malloc(hot);
	stream.cached = calloc(trace->ctx, 1);
	if (stream.order && stream.fresh && stream.index && stream.picked && stream.cached)
		for (uint32_t step = 0; step < trace->steps; step++)
			generate_step(&stream, trace, work->plan,
				step >= trace->steps - work->plan->sweep,
				hs_dsat_list(trace, step, layer, request));
	else
		work->error = -ENOMEM;
	free(stream.order);
	free(stream.fresh);
	free(stream.index);
	free(stream.picked);
	free(stream.cached);
}

int hs_dsat_generate(struct hs_dsat *trace, const struct hs_dsat_plan *plan)
{
	struct generation work = {.trace = trace, .plan = plan};

	/* A miss is drawn from the positions that are not cached: leave it some. */
	if (plan->hot < trace->k || plan->misses > trace->k || plan->churn > 1000 ||
		(plan->sweep &&
			trace->steps < plan->sweep + (uint64_t)hs_dsat_warm(trace, plan->hot)) ||
		(uint64_t)plan->hot + trace->k > trace->ctx)
		return -EINVAL;
	hs_workers_run(trace->layers * trace->batch, generate_stream, &work);
	return work.error;
}

int hs_dsat_lru_init(struct hs_dsat_lru *lru, uint32_t hot, uint64_t ctx)
{
	*lru = (struct hs_dsat_lru){.hot = hot, .ctx = ctx};
	lru->order = malloc(hot * sizeof(*lru->order));
	lru->spare = malloc(hot * sizeof(*lru->spare));
	lru->seen = calloc(ctx, sizeof(*lru->seen));
	if (lru->order && lru->spare && lru->seen)
		return 0;
	hs_dsat_lru_finish(lru);
	return -ENOMEM;
}

void hs_dsat_lru_finish(struct hs_dsat_lru *lru)
{
	free(lru->order);
	free(lru->spare);
	free(lru->seen);
	*lru = (struct hs_dsat_lru){0};
}

int hs_dsat_lru_step(
	struct hs_dsat_lru *lru, const int32_t *list, uint32_t k, int32_t *missed, uint32_t *count)
{
	uint32_t step = ++lru->step, misses = 0, kept = 0, hits = 0;
	int32_t *order;

	for (uint32_t i = 0; i < k; i++) {
		int32_t position = list[i];

		if (position < 0 || (uint64_t)position >= lru->ctx ||
			(lru->seen[position] & ~CACHED) == step)
			return -EBADMSG;
		if (!(lru->seen[position] & CACHED))
			missed[misses++] = position;
		lru->seen[position] = (lru->seen[position] & CACHED) | step;
	}
	if (k > lru->hot)
		return -EINVAL;

	/* Hits wait at the end of spare, in reverse, until the misses are in. */
	order = lru->spare;
	for (uint32_t i = 0,
		      leave = lru->size + misses > lru->hot ? lru->size + misses - lru->hot : 0;
		i < lru->size; i++) {
		int32_t position = lru->order[i];

		if ((lru->seen[position] & ~CACHED) == step) {
			order[lru->hot - 1 - hits++] = position;
		} else if (leave > 0) {
			lru->seen[position] &= ~CACHED;
			leave--;
		} else {
			order[kept++] = position;
		}
	}
	for (uint32_t i = 0; i < misses; i++)
		lru->seen[missed[i]] |= CACHED;
	for (uint32_t i = 0; i < misses; i++)
		order[kept++] = missed[i];
	/* The hits follow in their old order; while the cache fills there is a gap. */
	for (uint32_t low = lru->hot - hits, high = lru->hot; low + 1 < high; low++) {
		int32_t other = order[low];

		order[low] = order[--high];
		order[high] = other;
	}
	memmove(order + kept, order + lru->hot - hits, hits * sizeof(*order));
	lru->size = kept + hits;
	lru->spare = lru->order;
	lru->order = order;
	*count = misses;
	return 0;
}

struct check {
	const struct hs_dsat *trace;
	uint32_t hot;
	uint32_t *misses;
	int32_t *missed;
	_Atomic int error;
};

static void check_stream(void *data, uint32_t which)
{
	struct check *check = data;
	const struct hs_dsat *trace = check->trace;
	uint32_t streams = trace->layers * trace->batch;
	struct hs_dsat_lru lru;
	int32_t *scratch = malloc(trace->k * sizeof(*scratch));
	int error = scratch ? hs_dsat_lru_init(&lru, check->hot, trace->ctx) : -ENOMEM;

	if (error)
		goto out;
	for (uint32_t step = 0; step < trace->steps && !error; step++) {
		size_t list = (size_t)step * streams + which;

		error = hs_dsat_lru_step(&lru, trace->positions + list * trace->k, trace->k,
			check->missed ? check->missed + list * trace->k : scratch,
			&check->misses[list]);
	}
	hs_dsat_lru_finish(&lru);
out:
	free(scratch);
	if (error)
		check->error = error;
}

int hs_dsat_check(const struct hs_dsat *trace, uint32_t hot, uint32_t *misses, int32_t *missed)
{
	struct check check = {.trace = trace, .hot = hot, .misses = misses, .missed = missed};

	hs_workers_run(trace->layers * trace->batch, check_stream, &check);
	return check.error;
}

int hs_dsat_write(const struct hs_dsat *trace, const char *path)
{
	struct header header = {{'D', 'S', 'A', 'T'}, 1, trace->layers, trace->steps, trace->batch,
		trace->k, trace->ctx};
	size_t count = lists(trace) * trace->k;
	FILE *file = fopen(path, "wb");
	int error = 0;

	if (!file)
		return -errno;
	if (fwrite(&header, sizeof(header), 1, file) != 1 ||
		fwrite(trace->positions, sizeof(int32_t), count, file) != count ||
		(trace->note[0] && fprintf(file, "NOTE%s", trace->note) < 0))
		error = -EIO;
	if (fclose(file) != 0)
		error = -EIO;
	return error;
}

static int read_note(char note[256], FILE *file)
{
	char tail[4 + 255 + 1];
	size_t bytes = fread(tail, 1, sizeof(tail), file);

	if (bytes == 0)
		return 0;
	if (bytes < 4 || bytes == sizeof(tail) || memcmp(tail, "NOTE", 4) != 0)
		return -EBADMSG;
	memcpy(note, tail + 4, bytes - 4);
	note[bytes - 4] = '\0';
	return 0;
}

int hs_dsat_read(struct hs_dsat *trace, const char *path)
{
	struct hs_dsat read = {0};
	struct header header;
	FILE *file = fopen(path, "rb");
	size_t count;
	int error = -EBADMSG;

	if (!file)
		return -errno;
	if (fread(&header, sizeof(header), 1, file) != 1 || memcmp(header.magic, "DSAT", 4) != 0 ||
		header.version < 1 || header.version > 2)
		goto close;
	if (header.version == 2) {
		error = hs_slots_read(&read, file);
		if (!error)
			*trace = read;
		goto close;
	}
	read.layers = header.layers;
	read.steps = header.steps;
	read.batch = header.batch;
	read.k = header.k;
	read.ctx = header.ctx;
	error = hs_dsat_init(&read);
	if (error)
		goto close;
	count = lists(&read) * read.k;
	error = -EBADMSG;
	if (fread(read.positions, sizeof(int32_t), count, file) != count ||
		read_note(read.note, file) != 0) {
		hs_dsat_finish(&read);
		goto close;
	}
	*trace = read;
	error = 0;
close:
	fclose(file);
	return error;
}
