/* SPDX-License-Identifier: MIT */
/*
 * What the hooks add to a launch, in nanoseconds of the launching thread:
 *	hooks LIBRARY [BATCHES]
 * runs itself without and with LIBRARY preloaded, on the driver that there is,
 * and prints for each kind of launch the median of batches of 64. The GPU's
 * time is not in it, except on the stand-in driver, which has no other thread.
 *	none	a kernel without windows, before there is any
 *	beside	the same kernel once there are windows
 *	attend	sparse attention on a window: resolved, its list rewritten
 * HISPARSE_PLACE=host and =device are worth comparing for the last one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "examples/dsa_driver.h"
#include "examples/dsa_kernels.h"
#include "tools/bench/median.h"

enum { KINDS = 3, BATCH = 64, TOPK = 64 };
static const char *const kinds[KINDS] = {"none", "beside", "attend"};

extern const unsigned char dsa_kernels_image[];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Nanoseconds of one launch. The queue is empty before each batch. */
static double measure(
	CUfunction function, unsigned block, void **params, CUstream stream, int batches)
{
	double *times = calloc((size_t)batches, sizeof(*times)), median;

	if (!times)
		exit(1);
	for (int i = -2; i < batches; i++) { /* two to warm up */
		const double start = now();

		for (int j = 0; j < BATCH; j++)
			DSA_CHECK(dsa.cuLaunchKernel(
				function, 1, 1, 1, block, 1, 1, 0, stream, params, NULL));
		if (i >= 0)
			times[i] = (now() - start) / BATCH;
		DSA_CHECK(dsa.cuStreamSynchronize(stream));
	}
	median = hs_bench_median(times, (size_t)batches);
	free(times);
	return median;
}

static int child(int batches)
{
	const size_t window = (size_t)DSA_ROW * DSA_BLOCK * 8192;
	struct dsa_attend_params attend = {.row_stride = DSA_ROW,
		.block_stride = DSA_ROW * DSA_BLOCK,
		.indices_stride = TOPK,
		.batch = 1,
		.topk = TOPK};
	void *attend_params[] = {&attend}, *mix_params[2];
	CUdeviceptr out, hidden, kv, indices, query;
	CUfunction mix_function, attend_function;
	int slots[TOPK];
	CUmodule module;
	CUstream stream;

	dsa_driver_init();
	DSA_CHECK(dsa.cuModuleLoadData(&module, dsa_kernels_image));
	DSA_CHECK(dsa.cuModuleGetFunction(&mix_function, module, "dsa_mix"));
	DSA_CHECK(dsa.cuModuleGetFunction(&attend_function, module, "dsa_attend"));
	DSA_CHECK(dsa.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	out = dsa_alloc(DSA_THREADS * sizeof(unsigned));
	hidden = dsa_alloc(DSA_HIDDEN * sizeof(unsigned));
	query = dsa_alloc(DSA_ROW);
	indices = dsa_alloc(sizeof(slots));
	mix_params[0] = &out;
	mix_params[1] = &hidden;
	printf("%s %.1f\n", kinds[0],
		measure(mix_function, DSA_HIDDEN, mix_params, stream, batches));

	kv = dsa_alloc(window);
	for (int i = 0; i < TOPK; i++)
		slots[i] = 8192 + 97 * i;
	DSA_CHECK(dsa.cuMemsetD8Async(kv, 1, window, stream));
	DSA_CHECK(dsa.cuMemcpyHtoDAsync(indices, slots, sizeof(slots), stream));
	DSA_CHECK(dsa.cuStreamSynchronize(stream));
	printf("%s %.1f\n", kinds[1],
		measure(mix_function, DSA_HIDDEN, mix_params, stream, batches));

	attend.kv = (const unsigned char *)kv;
	attend.indices = (const int *)indices;
	attend.query = (const unsigned *)query;
	attend.out = (unsigned *)out;
	printf("%s %.1f\n", kinds[2],
		measure(attend_function, DSA_THREADS, attend_params, stream, batches));
	return 0;
}

static int run(const char *self, const char *preload, const char *batches, double *ns)
{
	int pipes[2], status;
	char kind[32];
	double value;
	FILE *in;
	pid_t pid;

	fflush(stdout);
	if (pipe(pipes))
		return 1;
	pid = fork();
	if (pid == 0) {
		dup2(pipes[1], STDOUT_FILENO);
		close(pipes[0]);
		close(pipes[1]);
		if (preload)
			setenv("LD_PRELOAD", preload, 1);
		execl(self, self, "--child", batches, NULL);
		_exit(127);
	}
	close(pipes[1]);
	in = fdopen(pipes[0], "r");
	while (in && fscanf(in, "%31s %lf", kind, &value) == 2)
		for (int i = 0; i < KINDS; i++)
			if (!strcmp(kind, kinds[i]))
				ns[i] = value;
	if (in)
		fclose(in);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
	const char *batches = argc > 2 ? argv[2] : "200";
	double plain[KINDS] = {0}, preload[KINDS] = {0};
	int failed;

	if (argc < 2 || argc > 3 || atoi(batches) < 1) {
		fprintf(stderr, "usage: hooks LIBRARY [BATCHES]\n");
		return 2;
	}
	if (!strcmp(argv[1], "--child"))
		return child(atoi(batches));
	failed = run("/proc/self/exe", NULL, batches, plain);
	if (!failed)
		failed = run("/proc/self/exe", argv[1], batches, preload);
	if (failed)
		return failed;
	printf("%-8s %12s %12s %12s\n", "launch", "plain ns", "preload ns", "added ns");
	for (int i = 0; i < KINDS; i++)
		printf("%-8s %12.0f %12.0f %12.0f\n", kinds[i], plain[i], preload[i],
			preload[i] - plain[i]);
	return 0;
}
