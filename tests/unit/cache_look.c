/* SPDX-License-Identifier: MIT */
/* The layer of cache_rig.c as the device has it, and whether it hangs together. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "src/cache/device.h"
#include "src/cache/layer.h"
#include "tests/unit/cache_rig.h"

struct hs_entry *rig_entry(void)
{
	return (struct hs_entry *)(uintptr_t)hs_device_entry(
		hs_device_get(0), hs_layer_id(rig.layer));
}

struct hs_lane *rig_lane(uint32_t id)
{
	return &((struct hs_table *)rig_entry())->lanes[id]; /* layer 0 */
}

/* Entries of the ring: of spare rows, or of rows that may be taken from their slots. */
static uint32_t entries_left(bool spare)
{
	const struct hs_entry *entry = rig_entry();
	uint32_t to = (uint32_t)entry->free, at = (uint32_t)(entry->free >> 32), count = 0;

	for (; (int32_t)(to - at) > 0; at++) {
		const uint64_t e = entry->ring[at & entry->mask];

		if (e == HS_RING_HOLE)
			continue;
		if (spare)
			count += (int64_t)e < 0;
		else
			count += (int64_t)e >= 0 && entry->map[e >> 32] == (int32_t)e;
	}
	return count;
}

uint32_t rig_spare(void)
{
	return entries_left(true);
}

uint32_t rig_listed(void)
{
	return entries_left(false);
}

int32_t rig_map(uint32_t slot)
{
	const int32_t v = rig_entry()->map[slot];

	return v >= 0 ? (int32_t)HS_PENDING_ROW(v) : v;
}

void rig_counts(struct hs_cache_counts *counts)
{
	rig_settle();
	hs_cache_read(rig.layer, counts);
	/* The host sees these one launch later. */
	assert_true(counts->evictions <= rig_entry()->totals[HS_COUNT_EVICTIONS]);
	counts->evictions = rig_entry()->totals[HS_COUNT_EVICTIONS];
}

static unsigned lane_faults(const struct hs_lane *lane)
{
	unsigned faults = lane->counted != 0 || lane->listed || lane->told || lane->arrived;

	for (uint32_t i = 0; i < HS_AGES; i++)
		faults += lane->bins[i] != 0;
	return faults;
}

unsigned rig_faults(void)
{
	const struct hs_entry *entry = rig_entry();
	unsigned char *state = calloc(entry->rows, 1);
	unsigned faults = 0;
	uint32_t tail, left;

	rig_settle();
	tail = (uint32_t)entry->free;
	left = tail - (uint32_t)(entry->free >> 32);
	left = (int32_t)left > 0 ? left : 0;
	for (uint32_t at = tail - left; at != tail; at++) {
		const uint64_t e = entry->ring[at & entry->mask];
		uint32_t h = (uint32_t)e;

		if (e == HS_RING_HOLE || (int64_t)e >= 0)
			continue;
		faults += h >= entry->rows || state[h]++ || entry->owner[h] != HS_NONE ||
			  entry->stamp[h] != HS_STAMP_SPARE;
	}
	faults += entry->keeper != 0;
	for (uint32_t slot = 0; slot < entry->slots; slot++) {
		int32_t h = rig_map(slot);

		faults += entry->bits[slot / 32] >> slot % 32 & 1;
		if (h == HS_NONE)
			continue;
		faults += h < 0 || (uint32_t)h >= entry->rows || state[h]++ ||
			  entry->owner[h] != (int32_t)slot || entry->stamp[h] == HS_STAMP_SPARE;
	}
	/* What is not found must be an orphan. */
	for (uint32_t h = 0; h < entry->rows; h++)
		faults += !state[h] &&
			  (entry->owner[h] >= HS_NONE || entry->stamp[h] == HS_STAMP_SPARE);
	for (uint32_t n = 0; n < HS_LANES; n++)
		faults += lane_faults(rig_lane(n));
	free(state);
	return faults;
}

bool rig_shown(void (*run)(uint64_t seed), uint64_t first, unsigned count)
{
	bool shown = false;

	for (uint64_t seed = first; seed < first + count && !shown; seed++) {
		const pid_t child = fork();
		int status;

		if (!child) {
			run(seed);
			_exit(rig.wrong != 0);
		}
		assert_true(child > 0);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status));
		shown = WEXITSTATUS(status);
	}
	return shown;
}
