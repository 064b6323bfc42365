/* SPDX-License-Identifier: MIT */
#include "src/memory/slack.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include "src/base/options.h"
#include "src/memory/bytes.h"
#include "src/memory/story.h"
#include "src/memory/window.h"

#define DEVICES 64

static struct device {
	struct hs_slack_story last;
	_Atomic size_t known; /* the slack, plus 1; 0: SIZE_MAX is the answer */
	_Atomic bool owed;
	/* Under the memory lock: */
	bool begun;
	size_t first; /* the slack when KV was first seen on the host, */
	size_t other; /* and what had been allocated on the device beside KV */
} devices[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf: of `last` */

static struct device *of(CUdevice device)
{
	return &devices[device >= 0 && device < DEVICES ? device : DEVICES - 1];
}

void hs_slack_told(CUdevice device, const struct hs_slack_story *story)
{
	struct device *d = of(device);
	size_t number;

	pthread_mutex_lock(&lock);
	number = d->last.number + 1;
	d->last = *story;
	d->last.number = number;
	pthread_mutex_unlock(&lock);
}

struct hs_slack_story hs_slack_last(CUdevice device)
{
	struct hs_slack_story last;

	pthread_mutex_lock(&lock);
	last = of(device)->last;
	pthread_mutex_unlock(&lock);
	return last;
}

/* What there is of a device's windows. */
struct look {
	bool away;		     /* KV is on the host */
	size_t kv, all;		     /* bytes of KV on the device, and in all */
	size_t host;		     /* of any windows */
	struct hs_slack_story story; /* that the first KV window was sized by */
};

static struct look look(CUdevice device)
{
	struct look l = {.away = false};

	for (struct hs_holding *h = hs_holding_next(NULL); h; h = hs_holding_next(h)) {
		const bool away = atomic_load(&h->window.place) == HS_PLACE_HOST;
		size_t host = atomic_load(&h->window.host);

		if (!h->live || h->window.device != device)
			continue;
		host = host || !away ? host : h->window.bytes - HS_GRANULE;
		l.host += host;
		if (atomic_load(&h->window.use) != HS_USE_KV)
			continue;
		l.away |= away;
		l.kv += h->window.bytes - host;
		l.all += h->window.bytes;
		if (h->story.number && (!l.story.number || h->story.number < l.story.number))
			l.story = h->story;
	}
	return l;
}

/* Of what was told the engine has not taken so much; of that the device's part. */
static size_t left_free(const struct hs_slack_story *story, size_t taken)
{
	const size_t left = above(story->told, above(taken, story->taken));
	const size_t comes = smaller(left, story->transient);
	const double part = (double)above(story->device, story->transient) /
			    (double)(above(story->told, story->transient) + 1);

	return comes + (size_t)((double)(left - comes) * (part < 1 ? part : 1));
}

/* Whether the device could hold all KV and what goes with it. */
static bool fits(const struct look *l)
{
	const double row = (double)hs_options()->row;
	const double needs = (double)l->all * (row + HS_STORY_KEY + HS_STORY_MAP) / row;

	return needs < (double)above(l->story.device, l->story.transient);
}

void hs_slack_settle(CUdevice device, size_t used)
{
	struct device *d = of(device);
	const struct look l = look(device);
	const size_t other = above(used, l.kv);

	if (!l.away || !l.story.number || fits(&l)) {
		d->begun = false;
		atomic_store(&d->known, 0);
		atomic_store(&d->owed, false);
		return;
	}
	if (!d->begun) {
		d->begun = true;
		d->first = left_free(&l.story, used + l.host);
		d->other = other;
	}
	atomic_store(&d->known, above(d->first, above(other, d->other)) + 1);
}

size_t hs_slack(CUdevice device)
{
	return atomic_load_explicit(&of(device)->known, memory_order_relaxed) - 1;
}

/* An eighth more than what it has taken since and what it asks for, so that this does not
 * happen for every allocation. */
void hs_slack_short(CUdevice device, size_t used, size_t bytes)
{
	struct device *d = of(device);
	size_t needs;

	if (!d->begun)
		return;
	needs = above(above(used, look(device).kv), d->other) + bytes;
	needs += needs / 8;
	d->first = larger(d->first, needs);
	atomic_store(&d->owed, true);
	hs_slack_settle(device, used);
}

size_t hs_slack_owed(CUdevice device)
{
	return atomic_load_explicit(&of(device)->owed, memory_order_relaxed) ? hs_slack(device)
									     : SIZE_MAX;
}
