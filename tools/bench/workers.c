/* SPDX-License-Identifier: MIT */
#include "tools/bench/workers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MOST_THREADS = 64 };

struct crew {
	_Atomic uint32_t next;
	uint32_t count;
	void (*job)(void *data, uint32_t index);
	void *data;
};

static void *work(void *data)
{
	struct crew *crew = data;
	uint32_t index;

	while ((index = atomic_fetch_add(&crew->next, 1)) < crew->count)
		crew->job(crew->data, index);
	return NULL;
}

void hs_workers_run(uint32_t count, void (*job)(void *data, uint32_t index), void *data)
{
	struct crew crew = {.count = count, .job = job, .data = data};
	pthread_t threads[MOST_THREADS];
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t started = 0;

	while (started + 1 < (uint32_t)(processors < MOST_THREADS ? processors : MOST_THREADS) &&
		started + 1 < count) {
		if (pthread_create(&threads[started], NULL, work, &crew) != 0)
			break;
		started++;
	}
	work(&crew);
	while (started > 0)
		pthread_join(threads[--started], NULL);
}
