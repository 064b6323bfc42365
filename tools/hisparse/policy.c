/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/policy.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

const char *const hs_replay_names[HS_REPLAY_POLICIES] = {
	[HS_REPLAY_VANILLA] = "vanilla",
	[HS_REPLAY_FIFO] = "fifo",
	[HS_REPLAY_RANDOM] = "random",
	[HS_REPLAY_LRU] = "lru",
	[HS_REPLAY_BELADY] = "belady",
};

#define NONE UINT32_MAX

/*
 * A fully associative cache of rows. Slots hang in doubly linked lists; the
 * list heads lie behind the slots in the same arrays. FIFO has one list,
 * oldest first; Belady one for every step of next use, the last for "never".
 */
struct cache {
	uint32_t slots, used, lists;
	uint32_t *owner; /* per slot: row */
	uint32_t *stamp; /* per slot: step of its last use */
	uint32_t *where; /* per row: slot */
	uint32_t *prev, *next;
	uint64_t random;
	uint32_t latest; /* Belady: no list above this one has a slot */
	uint32_t cursor; /* FIFO: everything before it belongs to this step */
};

static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static void link_last(struct cache *cache, uint32_t list, uint32_t slot)
{
	uint32_t head = cache->slots + list, last = cache->prev[head];

	cache->next[last] = slot;
	cache->prev[slot] = last;
	cache->next[slot] = head;
	cache->prev[head] = slot;
}

static void unlink_slot(struct cache *cache, uint32_t slot)
{
	cache->next[cache->prev[slot]] = cache->next[slot];
	cache->prev[cache->next[slot]] = cache->prev[slot];
}

static uint32_t fifo_victim(struct cache *cache, uint32_t step)
{
	while (cache->cursor < cache->slots && cache->stamp[cache->cursor] == step)
		cache->cursor = cache->next[cache->cursor];
	if (cache->cursor >= cache->slots)
		return NONE;
	uint32_t slot = cache->cursor;

	cache->cursor = cache->next[slot];
	return slot;
}

static uint32_t belady_victim(struct cache *cache)
{
	/* The step's own rows are not in any list yet. */
	while (cache->latest > 0 && cache->next[cache->slots + cache->latest] >= cache->slots)
		cache->latest--;
	uint32_t slot = cache->next[cache->slots + cache->latest];

	return slot < cache->slots ? slot : NONE;
}

/* `candidates` has the `*left` slots that the step does not use. */
static uint32_t random_victim(struct cache *cache, uint32_t *candidates, uint32_t *left)
{
	uint32_t at, slot;

	if (!*left)
		return NONE;
	at = (uint32_t)(((draw(&cache->random) >> 32) * *left) >> 32);
	slot = candidates[at];
	candidates[at] = candidates[--*left];
	return slot;
}

static uint32_t idle_slots(const struct cache *cache, uint32_t step, uint32_t *out)
{
	uint32_t count = 0;

	for (uint32_t slot = 0; slot < cache->used; slot++)
		if (cache->stamp[slot] != step)
			out[count++] = slot;
	return count;
}

/* The step in which each selection's row is selected next; `steps` = never. */
static uint32_t *next_uses(const struct hs_stream *stream)
{
	uint64_t count = stream->start[stream->steps];
	uint32_t *uses = malloc((count + 1) * sizeof(*uses));
	uint32_t *soonest = malloc((stream->ids + 1ull) * sizeof(*soonest));

	if (!uses || !soonest) {
		free(uses);
		free(soonest);
		return NULL;
	}
	for (uint32_t id = 0; id < stream->ids; id++)
		soonest[id] = stream->steps;
	for (uint32_t step = stream->steps; step-- > 0;)
		for (uint64_t i = stream->start[step]; i < stream->start[step + 1]; i++) {
			uses[i] = soonest[stream->rows[i]];
			soonest[stream->rows[i]] = step;
		}
	free(soonest);
	return uses;
}

static uint64_t vanilla(const struct hs_stream *stream, uint32_t skip, uint32_t *last)
{
	uint64_t misses = 0;

	for (uint32_t step = 0; step < stream->steps; step++)
		for (uint64_t i = stream->start[step]; i < stream->start[step + 1]; i++) {
			misses += step >= skip && (!step || last[stream->rows[i]] != step);
			last[stream->rows[i]] = step + 1;
		}
	return misses;
}

/* One step; returns its misses. spare has room for the cache's slots. */
static uint32_t run_step(struct cache *cache, const struct hs_stream *stream,
	enum hs_replay_policy policy, uint32_t step, const uint32_t *uses, uint32_t *spare)
{
	uint64_t begin = stream->start[step], end = stream->start[step + 1];
	uint32_t misses = 0, left = 0;
	bool ranked = policy == HS_REPLAY_BELADY;

	for (uint64_t i = begin; i < end; i++) {
		uint32_t slot = cache->where[stream->rows[i]];

		if (slot == NONE) {
			misses++;
			continue;
		}
		cache->stamp[slot] = step;
		if (ranked)
			unlink_slot(cache, slot);
	}
	if (misses && policy == HS_REPLAY_RANDOM)
		left = idle_slots(cache, step, spare);
	cache->cursor = cache->next[cache->slots];

	for (uint64_t i = begin; i < end; i++) {
		uint32_t row = stream->rows[i], slot = cache->where[row];

		if (slot != NONE)
			continue;
		if (cache->used < cache->slots) {
			slot = cache->used++;
		} else {
			slot = policy == HS_REPLAY_RANDOM ? random_victim(cache, spare, &left)
			       : ranked			  ? belady_victim(cache)
							  : fifo_victim(cache, step);
			if (slot == NONE)
				continue; /* read in place */
			cache->where[cache->owner[slot]] = NONE;
			if (policy != HS_REPLAY_RANDOM)
				unlink_slot(cache, slot);
		}
		cache->owner[slot] = row;
		cache->stamp[slot] = step;
		if (policy == HS_REPLAY_FIFO)
			link_last(cache, 0, slot);
		cache->where[row] = slot;
	}
	for (uint64_t i = begin; ranked && i < end; i++) {
		uint32_t slot = cache->where[stream->rows[i]];

		if (slot == NONE)
			continue;
		link_last(cache, uses[i], slot);
		if (uses[i] > cache->latest)
			cache->latest = uses[i];
	}
	return misses;
}

int hs_replay_run(uint64_t *misses, const struct hs_stream *stream, enum hs_replay_policy policy,
	uint64_t slots, uint32_t skip, uint64_t seed)
{
	/* More slots than rows are never used. */
	struct cache cache = {.random = seed,
		.slots = slots < stream->ids ? (uint32_t)slots : stream->ids,
		.lists = policy == HS_REPLAY_BELADY ? stream->steps + 1 : 1};
	size_t links = (size_t)cache.slots + cache.lists + 1;
	uint32_t *uses = NULL, *spare = malloc(links * sizeof(*spare));
	uint64_t count = 0;
	int err = policy == HS_REPLAY_LRU ? -EINVAL : -ENOMEM;

	if (err == -EINVAL)
		goto out;
	cache.owner = malloc(links * sizeof(*cache.owner));
	cache.stamp = malloc(links * sizeof(*cache.stamp));
	cache.prev = malloc(links * sizeof(*cache.prev));
	cache.next = malloc(links * sizeof(*cache.next));
	cache.where = calloc(stream->ids + 1ull, sizeof(*cache.where));
	if (!cache.owner || !cache.stamp || !cache.prev || !cache.next || !cache.where || !spare)
		goto out;
	if (policy == HS_REPLAY_VANILLA) {
		*misses = vanilla(stream, skip, cache.where);
		err = 0;
		goto out;
	}
	if (policy == HS_REPLAY_BELADY && !(uses = next_uses(stream)))
		goto out;
	for (uint32_t list = 0; list < cache.lists; list++)
		cache.prev[cache.slots + list] = cache.next[cache.slots + list] =
			cache.slots + list;
	for (uint32_t id = 0; id < stream->ids; id++)
		cache.where[id] = NONE;
	for (uint32_t step = 0; step < stream->steps; step++) {
		uint32_t missed = run_step(&cache, stream, policy, step, uses, spare);

		if (step >= skip)
			count += missed;
	}
	*misses = count;
	err = 0;
out:
	free(cache.owner);
	free(cache.stamp);
	free(cache.prev);
	free(cache.next);
	free(cache.where);
	free(uses);
	free(spare);
	return err;
}
