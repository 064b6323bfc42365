/* SPDX-License-Identifier: MIT */
#include "tools/bench/slots.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NOTE 0x45544f4eu /* "NOTE" where a record's layer would be */
#define LAYERS 4096u	 /* beyond what any recording holds */
#define ROW_MOST 65536u

/* The slots of one launch, repeats left out. */
struct launch {
	uint32_t layer, step, count;
	int32_t *slots;
};

struct reader {
	FILE *file;
	struct launch *launches;
	size_t count, room;
	uint32_t *seen; /* per slot: launch + 1 of its last mention */
	uint32_t slots, seen_room;
};

static bool words(struct reader *reader, void *out, size_t count)
{
	return fread(out, sizeof(uint32_t), count, reader->file) == count;
}

static int read_note(struct hs_dsat *trace, struct reader *reader)
{
	size_t bytes = fread(trace->note, 1, sizeof(trace->note), reader->file);

	if (bytes == sizeof(trace->note))
		return -EBADMSG;
	trace->note[bytes] = '\0';
	return 0;
}

static int grow_seen(struct reader *reader, uint32_t slot)
{
	uint32_t room = reader->seen_room ? reader->seen_room : 4096;
	uint32_t *seen;

	while (room <= slot)
		room *= 2;
	seen = realloc(reader->seen, room * sizeof(*seen));
	if (!seen)
		return -ENOMEM;
	memset(seen + reader->seen_room, 0, (room - reader->seen_room) * sizeof(*seen));
	reader->seen = seen;
	reader->seen_room = room;
	return 0;
}

/* Leaves out -1 and what the launch has named before. */
static int distinct(struct reader *reader, struct launch *launch, uint32_t total)
{
	const uint32_t mark = (uint32_t)reader->count + 1;
	int err;

	for (uint32_t i = 0; i < total; i++) {
		const int32_t slot = launch->slots[i];

		if (slot < 0)
			continue;
		if ((uint32_t)slot >= reader->seen_room) {
			err = grow_seen(reader, (uint32_t)slot);
			if (err)
				return err;
		}
		if (reader->seen[slot] == mark)
			continue;
		reader->seen[slot] = mark;
		if ((uint32_t)slot >= reader->slots)
			reader->slots = (uint32_t)slot + 1;
		launch->slots[launch->count++] = slot;
	}
	return 0;
}

/* 1: a launch; 0: the end, or a record that is cut short. */
static int read_launch(struct hs_dsat *trace, struct reader *reader)
{
	uint32_t head[4], total = 0, *lengths = NULL;
	struct launch launch = {0};
	int result = 0;

	if (!words(reader, head, 1))
		return 0;
	if (head[0] == NOTE)
		return read_note(trace, reader);
	if (!words(reader, head + 1, 3))
		return 0;
	if (head[0] >= LAYERS || head[2] > ROW_MOST || head[3] > ROW_MOST)
		return -EBADMSG;
	lengths = malloc((head[2] + 1) * sizeof(*lengths));
	if (!lengths)
		return -ENOMEM;
	if (!words(reader, lengths, head[2]))
		goto out;
	for (uint32_t i = 0; i < head[2]; i++) {
		result = lengths[i] > head[3] || total > INT32_MAX - lengths[i] ? -EBADMSG : 0;
		if (result)
			goto out;
		total += lengths[i];
	}
	launch.layer = head[0];
	launch.step = head[1];
	launch.slots = malloc((total + 1ull) * sizeof(*launch.slots));
	if (!launch.slots) {
		result = -ENOMEM;
		goto out;
	}
	if (!words(reader, launch.slots, total))
		goto out;
	if (reader->count && launch.step < reader->launches[reader->count - 1].step)
		result = -EBADMSG;
	else
		result = distinct(reader, &launch, total);
	if (result)
		goto out;
	reader->launches[reader->count++] = launch;
	launch.slots = NULL;
	result = 1;
out:
	free(launch.slots);
	free(lengths);
	return result;
}

static int read_all(struct hs_dsat *trace, struct reader *reader)
{
	struct launch *launches;
	int result;

	do {
		if (reader->count == reader->room) {
			reader->room = reader->room ? 2 * reader->room : 1024;
			launches = realloc(reader->launches, reader->room * sizeof(*launches));
			if (!launches)
				return -ENOMEM;
			reader->launches = launches;
		}
		result = read_launch(trace, reader);
	} while (result > 0);
	return result < 0 ? result : reader->count ? 0 : -EBADMSG;
}

/* Layers and steps become dense; a list holds what all launches of its step
 * and layer name. The longest decides on k. */
static int shape(struct hs_dsat *trace, struct reader *reader)
{
	uint32_t layer_of[LAYERS] = {0}, count[LAYERS] = {0}, step = 0;

	for (size_t i = 0; i < reader->count; i++)
		layer_of[reader->launches[i].layer] = 1;
	for (uint32_t i = 0; i < LAYERS; i++)
		if (layer_of[i])
			layer_of[i] = trace->layers++;
	trace->batch = trace->k = 1;
	trace->shared = true;
	for (size_t i = 0; i < reader->count; i++) {
		struct launch *launch = &reader->launches[i];

		if (!i || launch->step != step) {
			step = launch->step;
			trace->steps++;
			memset(count, 0, sizeof(count));
		}
		launch->step = trace->steps - 1;
		launch->layer = layer_of[launch->layer];
		count[launch->layer] += launch->count;
		if (count[launch->layer] > trace->k)
			trace->k = count[launch->layer];
	}
	trace->ctx = reader->slots > trace->k ? reader->slots : trace->k;
	return hs_dsat_init(trace);
}

static void fill(struct hs_dsat *trace, struct reader *reader)
{
	const size_t entries = (size_t)trace->steps * trace->layers * trace->k;
	int32_t *list;
	uint32_t at;

	memset(trace->positions, 0xff, entries * sizeof(*trace->positions));
	for (size_t i = 0; i < reader->count; i++) {
		const struct launch *launch = &reader->launches[i];

		list = hs_dsat_list(trace, launch->step, launch->layer, 0);
		for (at = 0; at < trace->k && list[at] >= 0;)
			at++;
		memcpy(list + at, launch->slots, launch->count * sizeof(*list));
	}
}

int hs_slots_read(struct hs_dsat *trace, FILE *file)
{
	struct reader reader = {.file = file};
	int err = read_all(trace, &reader);

	if (!err)
		err = shape(trace, &reader);
	if (!err)
		fill(trace, &reader);
	for (size_t i = 0; i < reader.count; i++)
		free(reader.launches[i].slots);
	free(reader.launches);
	free(reader.seen);
	return err;
}
