/* SPDX-License-Identifier: MIT */
/* A program that uses the driver in one of the ways that the tests compare with
 * and without the preload: user WAY. It links the driver directly. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cuda.h>

#define BYTES ((size_t)1 << 20)

static void say(const char *what, CUresult result)
{
	printf("%s: %d\n", what, (int)result);
	fflush(stdout);
}

/* Allocates, fills, reads back. */
static CUresult work(void)
{
	static __thread unsigned char back[BYTES];
	CUdevice device;
	CUcontext context;
	CUdeviceptr ptr, start;
	CUresult result;
	size_t bytes;

	if ((result = cuDeviceGet(&device, 0)) ||
		(result = cuDevicePrimaryCtxRetain(&context, device)) ||
		(result = cuCtxSetCurrent(context)) || (result = cuMemAlloc(&ptr, BYTES)))
		return result;
	if ((result = cuMemsetD8(ptr, 0x5a, BYTES)) || (result = cuCtxSynchronize()) ||
		(result = cuMemcpyDtoH(back, ptr, BYTES)) ||
		(result = cuMemGetAddressRange(&start, &bytes, ptr)))
		return result;
	for (size_t i = 0; i < BYTES; i++)
		if (back[i] != 0x5a)
			return CUDA_ERROR_UNKNOWN;
	if (start != ptr || bytes < BYTES)
		return CUDA_ERROR_UNKNOWN;
	return cuMemFree(ptr);
}

static void in_child(int (*body)(void))
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(body());
	waitpid(child, &status, 0);
	printf("child: %#x\n", (unsigned)status);
}

static int child_inits(void)
{
	say("child's cuInit", cuInit(0));
	say("child's work", work());
	return 3;
}

static int child_asks(void)
{
	size_t free, total;

	return cuMemGetInfo(&free, &total) == CUDA_ERROR_NOT_INITIALIZED ? 4 : 5;
}

static int child_execs(void)
{
	execlp("sh", "sh", "-c", "echo executed; exit 6", NULL);
	return 126;
}

static int use_fork(void)
{
	in_child(child_inits);
	say("cuInit", cuInit(0));
	say("work", work());
	in_child(child_asks);
	in_child(child_execs);
	say("work", work());
	return 0;
}

static int use_reopen(void)
{
	for (int i = 0; i < 3; i++) {
		CUresult (*init)(unsigned), (*version)(int *);
		CUresult (*lookup)(
			const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
		CUresult (*info)(size_t *, size_t *) = NULL;
		size_t free = 0, total = 0;
		void *library = dlopen("libcuda.so.1", RTLD_NOW);
		int number = 0;

		if (!library)
			return 1;
		init = (CUresult(*)(unsigned))dlsym(library, "cuInit");
		version = (CUresult(*)(int *))dlsym(library, "cuDriverGetVersion");
		lookup = (__typeof__(lookup))dlsym(library, "cuGetProcAddress_v2");
		say("cuInit", init(0));
		say("version", version(&number));
		say("lookup", lookup("cuMemGetInfo", (void **)&info, 12000, 0, NULL));
		say("info", info(&free, &total));
		say("nothing", dlsym(library, "cuNothingOfTheKind") || !dlerror());
		say("work", work());
		say("dlclose", dlclose(library));
	}
	return 0;
}

static void *thread(void *data)
{
	(void)data;
	for (int i = 0; i < 20; i++) {
		CUresult result = cuInit(0);

		if (result == CUDA_SUCCESS)
			result = work();
		if (result != CUDA_SUCCESS)
			return (void *)(size_t)result;
	}
	return NULL;
}

static int use_threads(void)
{
	pthread_t threads[8];
	void *answer;

	for (int i = 0; i < 8; i++)
		if (pthread_create(&threads[i], NULL, thread, NULL))
			return 1;
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], &answer);
		say("thread", (CUresult)(size_t)answer);
	}
	return 0;
}

static int use_plain(void)
{
	puts("plain");
	say("too early", work());
	say("cuInit", cuInit(0));
	say("work", work());
	return 9;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*use)(void);
	} ways[] = {{"plain", use_plain}, {"fork", use_fork}, {"reopen", use_reopen},
		{"threads", use_threads}};

	for (size_t i = 0; argc == 2 && i < sizeof(ways) / sizeof(ways[0]); i++)
		if (!strcmp(argv[1], ways[i].name))
			return ways[i].use();
	return 2;
}
