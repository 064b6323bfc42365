/* SPDX-License-Identifier: MIT */
#include "src/trace/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "src/trace/step.h"

struct hs_record {
	FILE *file;
	struct hs_step steps;
	int error;
	uint64_t lists;
	uint32_t first, next; /* numbers: of the first list, after the last one */
};

int hs_record_create(struct hs_record **out, const char *path)
{
	static const uint32_t head[8] = {0x54415344u /* DSAT */, 2};
	struct hs_record *record = calloc(1, sizeof(*record));
	int error = ENOMEM;

	if (!record)
		return -ENOMEM;
	record->file = fopen(path, "wbe");
	if (!record->file) {
		error = errno;
		goto free_record;
	}
	setvbuf(record->file, NULL, _IOFBF, (size_t)1 << 20);
	if (fwrite(head, sizeof(head), 1, record->file) != 1) {
		error = EIO;
		goto close;
	}
	*out = record;
	return 0;

close:
	fclose(record->file);
free_record:
	free(record);
	return -error;
}

static uint32_t length_of(const int32_t *row, uint32_t k)
{
	while (k && row[k - 1] == HS_NONE)
		k--;
	return k;
}

static void put(struct hs_record *record, const void *words, size_t count)
{
	if (fwrite(words, sizeof(uint32_t), count, record->file) != count && !record->error)
		record->error = -(errno ? errno : EIO);
}

int hs_record_add(struct hs_record *record, const struct hs_journal_head *list)
{
	const int32_t *slots = (const int32_t *)(const void *)(list + 1);
	uint32_t head[4] = {list->layer, 0, list->rows, list->k}, length;

	if (record->error)
		return record->error;
	if (!record->lists++)
		record->first = list->number;
	record->next = list->number + 1;
	head[1] = (uint32_t)hs_step_next(&record->steps, list->lane, list->layer) - 1;
	errno = 0;
	put(record, head, 4);
	for (uint32_t row = 0; row < list->rows; row++) {
		length = length_of(slots + (size_t)row * list->k, list->k);
		put(record, &length, 1);
	}
	for (uint32_t row = 0; row < list->rows; row++)
		put(record, slots + (size_t)row * list->k,
			length_of(slots + (size_t)row * list->k, list->k));
	return record->error;
}

void hs_record_flush(struct hs_record *record)
{
	fflush(record->file);
}

int hs_record_close(struct hs_record *record, uint32_t every)
{
	const uint64_t lost = record->lists ? record->next - record->first - record->lists : 0;
	int error;

	errno = 0;
	if (fprintf(record->file,
		    "NOTErecorded slots: %llu launches, %llu more found the ring full, every "
		    "launch in %u of a layer",
		    (unsigned long long)record->lists, (unsigned long long)lost, every) < 0 &&
		!record->error)
		record->error = -(errno ? errno : EIO);
	error = record->error;
	if (fclose(record->file) && !error)
		error = -(errno ? errno : EIO);
	free(record);
	return error;
}
