/* SPDX-License-Identifier: MIT */
/* A program on the CUDA runtime; built with the shared and with the static one. */
#include <stdio.h>
#include <cuda_runtime_api.h>

int main(void)
{
	size_t free = 0, total = 0;
	int version = 0;
	void *ptr = NULL;

	printf("runtime: %d\n", cudaRuntimeGetVersion(&version));
	printf("version: %d\n", version);
	printf("malloc: %s\n", cudaGetErrorName(cudaMalloc(&ptr, 4096)));
	printf("info: %s\n", cudaGetErrorName(cudaMemGetInfo(&free, &total)));
	return 0;
}
