/* SPDX-License-Identifier: MIT */
#include "src/trace/session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/cache/journal.h"
#include "src/cache/layer.h"
#include "src/trace/control.h"
#include "src/trace/cupti.h"
#include "src/trace/record.h"
#include "src/trace/timeline.h"

#define LOOK_MS 100	      /* between looks for a request */
#define DRAIN_MS 5	      /* between looks at the rings */
#define FLUSH_MS 1000	      /* between writes to the files */
#define PATIENCE_S 5	      /* for our thread, at exit */
#define SETTLED 2000000000ull /* ns after which CUPTI has told of a kernel */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around all that follows */
static struct {
	bool begun, thread, stopping;
	int locks[2]; /* open files that say that a name is taken: trace, record */
	struct hs_export *export;
	struct hs_timeline *timeline;
	struct hs_record *record;
	char path[PATH_MAX], record_path[PATH_MAX];
	uint64_t flushed;
	bool launched; /* since then */
	bool timed;    /* kernels are waited for */
	bool told;     /* a launch of this trace was */
} session = {.locks = {-1, -1}};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* %p is the process id. A name that another process writes to gets it before
 * its end. *taken stays open as long as the name is ours. */
static int claim(char path[PATH_MAX], const char *name, int *taken)
{
	const char *mark = strstr(name, "%p"), *dot = strrchr(name, '.');
	int fd, n;

	if (!dot || strchr(dot, '/'))
		dot = name + strlen(name);
	if (mark)
		n = snprintf(path, PATH_MAX, "%.*s%d%s", (int)(mark - name), name, (int)getpid(),
			mark + 2);
	else
		n = snprintf(path, PATH_MAX, "%s", name);
	for (int tries = 0; n < PATH_MAX && tries < 2; tries++) {
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
		if (fd < 0)
			return -errno;
		if (!flock(fd, LOCK_EX | LOCK_NB)) {
			*taken = fd;
			return 0;
		}
		close(fd);
		n = snprintf(
			path, PATH_MAX, "%.*s.%d%s", (int)(dot - name), name, (int)getpid(), dot);
	}
	return n < PATH_MAX ? -EBUSY : -ENAMETOOLONG;
}

static void release(int *taken)
{
	if (*taken >= 0)
		close(*taken);
	*taken = -1;
}

static void ask(void)
{
	hs_journal_ask((session.export && !session.stopping ? HS_JOURNAL_LAUNCHES : 0) |
			       (session.record ? HS_JOURNAL_LISTS : 0),
		(uint32_t)hs_options()->record_every);
}

struct row {
	uint32_t id, row;
};

static void find_row(struct hs_layer *layer, void *data)
{
	struct row *row = data;

	if (layer->id == row->id)
		row->row = layer->row;
}

static void take(CUdevice device, const struct hs_journal_head *record, void *data)
{
	struct row row = {record->layer, 0};

	(void)data;
	if (record->what == HS_JOURNAL_LISTS) {
		if (session.record)
			hs_record_add(session.record, record);
	} else if (session.timeline && !session.stopping) {
		session.launched = session.told = true;
		hs_layer_each(find_row, &row);
		hs_timeline_launch(session.timeline, (uint32_t)device,
			(const struct hs_journal_launch *)(const void *)record, row.row,
			hs_journal_base(device, record->layer));
	}
}

static void drain(void)
{
	struct hs_cupti_kernel *kernels;
	size_t count;

	for (CUdevice device = 0; device < HS_DEVICES; device++)
		hs_journal_read(device, take, NULL);
	kernels = hs_cupti_take(&count);
	if (kernels && session.timeline)
		hs_timeline_kernels(session.timeline, kernels, count);
	free(kernels);
}

/* From when on launches were told. At a stop for the last time: then they cease to
 * be, at the next safe moment, which may come before our thread does. */
static void tell_since(void)
{
	if (session.timeline && !session.stopping)
		hs_timeline_since(
			session.timeline, hs_journal_since() + (uint64_t)hs_cupti_ahead());
}

/* What has been told of long enough that nothing earlier comes. */
static void advance(bool all)
{
	uint64_t latest;

	if (!session.timeline)
		return;
	tell_since();
	latest = hs_timeline_latest(session.timeline);
	if (all || latest > SETTLED)
		hs_timeline_run(session.timeline, all ? UINT64_MAX : latest - SETTLED);
	hs_export_flush(session.export);
}

static void untimed(const char *since)
{
	hs_warn("trace: %s: another profiler took CUPTI over: no kernel times%s", session.path,
		since);
	session.timed = false;
}

static void close_trace(void)
{
	struct hs_trace_tail tail;
	int error;

	if (!session.export)
		return;
	/* Somebody may have the records without having subscribed, and a short trace ends
	 * before flushes that bring nothing tell. */
	if (session.timed && session.told && !hs_timeline_latest(session.timeline) &&
		!hs_cupti_lost())
		untimed("");
	advance(true);
	hs_timeline_tail(session.timeline, &tail);
	tail.lost_kernels += hs_cupti_lost();
	error = hs_export_close(session.export, &tail);
	if (error)
		hs_warn("trace: %s is not whole (%s)", session.path, strerror(-error));
	hs_timeline_destroy(session.timeline);
	session.export = NULL;
	session.timeline = NULL;
	session.stopping = false;
	release(&session.locks[0]);
}

static void close_record(void)
{
	int error;

	if (!session.record)
		return;
	error = hs_record_close(session.record, (uint32_t)hs_options()->record_every);
	if (error)
		hs_warn("record: %s is not whole (%s)", session.record_path, strerror(-error));
	session.record = NULL;
	release(&session.locks[1]);
}

/* Without the lock: who waits for the device may be who holds it. */
static bool flush_cupti(bool launched)
{
	bool taken;

	hs_inside++;
	taken = hs_cupti_flush(launched) == -EBUSY;
	hs_inside--;
	return taken;
}

static void flush(bool taken)
{
	if (taken && session.timeline) {
		untimed(" from here on");
		hs_timeline_untimed(session.timeline);
	}
	advance(false);
	if (session.record)
		hs_record_flush(session.record);
}

static void *run(void *unused)
{
	const struct timespec pause = {.tv_nsec = DRAIN_MS * 1000000};
	bool more = true, due = false, launched = false, taken;

	while (more) {
		nanosleep(&pause, NULL);
		taken = due && flush_cupti(launched);
		pthread_mutex_lock(&lock);
		drain();
		if (session.stopping)
			close_trace();
		else if (due)
			flush(taken);
		if (due) {
			session.flushed = now_ns();
			session.launched = false;
		}
		due = now_ns() - session.flushed > FLUSH_MS * 1000000ull;
		launched = session.launched;
		more = session.thread = session.export || session.record;
		pthread_mutex_unlock(&lock);
	}
	return unused;
}

static int start_thread(void)
{
	sigset_t every, before;
	pthread_t thread;
	int error;

	if (session.thread)
		return 0;
	/* The engine's signals are for the engine's threads. */
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	error = pthread_create(&thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return -error;
	session.thread = true;
	pthread_setname_np(thread, "hisparse-trace");
	pthread_detach(thread);
	return 0;
}

/* Before CUPTI and the driver put themselves away. */
static void before_exit(void)
{
	hs_inside++;
	hs_cupti_stop();
	hs_inside--;
}

/* Returns 0 or a negative errno, with a line for who asked. */
static int start_trace(const char *name, char *line, size_t room)
{
	static bool registered;
	struct hs_trace_head head = {.pid = (int)getpid(), .version = HS_VERSION, .clock = "cupti"};
	char why[160];
	int error = -EINVAL;

	if (!hs_export_knows(name)) {
		snprintf(line, room, "%s: a trace is called .jsonl, .json or .pftrace", name);
		return error;
	}
	error = claim(session.path, name, &session.locks[0]);
	if (error)
		goto say;
	drain(); /* of what was told after the last trace */
	if (hs_cupti_start(why)) {
		head.clock = "device";
		head.why = why;
	} else if (!registered) {
		registered = true;
		atexit(before_exit);
	}
	error = hs_export_create(&session.export, session.path, &head);
	if (error)
		goto stop;
	session.timeline = hs_timeline_create(session.export, !head.why);
	session.timed = !head.why;
	session.told = false;
	error = session.timeline ? start_thread() : -ENOMEM;
	if (error)
		goto close;
	ask();
	snprintf(line, room, "%s%s%s%s", session.path, head.why ? " without kernel times: " : "",
		head.why ? head.why : "", head.why ? "" : " with kernel times");
	return 0;

close:
	if (session.timeline)
		hs_timeline_destroy(session.timeline);
	session.timeline = NULL;
	hs_export_close(session.export, &(struct hs_trace_tail){0});
	session.export = NULL;
stop:
	hs_cupti_stop();
	release(&session.locks[0]);
say:
	snprintf(line, room, "%s: %s", name, strerror(-error));
	return error;
}

static void start_record(const char *name)
{
	int error = claim(session.record_path, name, &session.locks[1]);

	if (!error)
		error = hs_record_create(&session.record, session.record_path);
	if (!error) {
		error = start_thread();
		if (error)
			close_record();
	}
	if (error) {
		release(&session.locks[1]);
		hs_warn("HISPARSE_RECORD=%s: nothing is recorded (%s)", name, strerror(-error));
		return;
	}
	hs_info("record: %s", session.record_path);
	ask();
}

/* The device is waited for, once, so that CUPTI knows when its kernels ended. What
 * runs from then on is no part of the trace. */
static void stop_trace(void)
{
	if (hs_cupti_on()) {
		hs_driver.cuCtxSynchronize();
		hs_cupti_stop();
	}
	drain();
	tell_since();
	session.stopping = true;
	ask();
}

/* Between a stop and the next safe moment launches still tell: whoever starts then
 * would not know which of them belong to a kernel that CUPTI saw. */
static bool ending(void)
{
	return !session.export && (hs_journal_on() & HS_JOURNAL_LAUNCHES);
}

static void begin(void)
{
	char line[PATH_MAX + 256];

	session.begun = true;
	if (hs_options()->record)
		start_record(hs_options()->record);
	if (!hs_options()->trace)
		return;
	if (start_trace(hs_options()->trace, line, sizeof(line)))
		hs_warn("HISPARSE_TRACE: nothing is traced: %s", line);
	else if (!hs_cupti_on())
		hs_warn("trace: %s", line);
	else
		hs_info("trace: %s", line);
}

static void obey(const char *request)
{
	char line[PATH_MAX + 256] = "";
	int error = 0;

	if (!strcmp(request, "stop")) {
		if (session.export && !session.stopping)
			stop_trace();
		else
			error = -ENOENT;
		snprintf(line, sizeof(line), "%s", error ? "no trace runs" : session.path);
	} else if (session.export) {
		error = -EBUSY;
		snprintf(line, sizeof(line), "a trace runs already: %s", session.path);
	} else {
		error = start_trace(request + strlen("start "), line, sizeof(line));
	}
	hs_control_answer(!error, line);
}

void hs_session_settle(void)
{
	static _Atomic uint64_t next;
	const uint64_t now = now_ns();
	char request[HS_CONTROL_BYTES];

	if (now < atomic_load_explicit(&next, memory_order_relaxed))
		return;
	if (pthread_mutex_trylock(&lock))
		return;
	atomic_store(&next, now + LOOK_MS * 1000000ull);
	if (!session.begun)
		begin();
	if (!ending() && hs_control_read(request))
		obey(request);
	pthread_mutex_unlock(&lock);
}

/* exit() may come from a signal's handler, in the midst of this: the end of a
 * trace is not worth a process that hangs. */
void hs_session_finish(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	if (pthread_mutex_timedlock(&lock, &until))
		return;
	drain();
	close_trace();
	close_record();
	pthread_mutex_unlock(&lock);
}
