/* SPDX-License-Identifier: MIT */
/*
 * What an engine makes of the story: both engines' own arithmetic, at an eighth of
 * the size, under a cap at which they hold a given number of tokens without us.
 * Everything that they then allocate must be there, on the right side.
 */
#include <sys/resource.h>
#include "fake_driver.h"
#include "src/memory/copy.h"
#include "src/memory/pool.h"

#define LAYERS 6
#define KEY 132u
#define PAGE 64u
#define SCALE 8
#define FULL ((double)SCALE / (1 << 30)) /* bytes here as GiB there */
#define DEVICE (140ull * 1024 / SCALE * MIB)
#define OTHERS (82 * MIB / SCALE)
#define CONTEXT (512 / SCALE * MIB) /* the cap does not count it */

struct engine {
	uint32_t row;
	double fraction; /* gpu_memory_utilization, mem_fraction_static */
	size_t plain;	 /* tokens without us */
	size_t weights, graphs;
	size_t activations, segment; /* segment: of them in one piece, hoarded twice */
	bool tells;		     /* HISPARSE_LAYERS */
	uint32_t hot;
	size_t host; /* HISPARSE_HOST_GIB */
};

struct cache {
	CUdeviceptr latent[LAYERS], keys[LAYERS];
	size_t tokens;
};

static size_t allocated; /* by the engine, as its allocator counts */
static struct {
	CUdeviceptr ptr;
	size_t bytes;
} hoard[64]; /* by its allocator: freed, but not given back */
static size_t hoarded;

static void query(size_t *left, size_t *total)
{
	assert_int_equal(INSIDE(hs_memory_info(left, total)), CUDA_SUCCESS);
	assert_true(*left <= *total);
}

static void drop(CUdeviceptr ptr, size_t bytes)
{
	fake_free(ptr);
	allocated -= (bytes + 2 * MIB - 1) & ~(2 * MIB - 1);
}

static void keep(CUdeviceptr ptr, size_t bytes)
{
	hoard[hoarded].ptr = ptr;
	hoard[hoarded++].bytes = bytes;
}

static void empty_cache(void)
{
	while (hoarded) {
		hoarded--;
		drop(hoard[hoarded].ptr, hoard[hoarded].bytes);
	}
}

/* torch: what it hoards is freed and the driver asked again, once. */
static CUdeviceptr take(size_t bytes, bool may_refuse)
{
	CUdeviceptr ptr = 0;

	bytes = (bytes + 2 * MIB - 1) & ~(2 * MIB - 1);
	hs_memory_settle(false);
	if (INSIDE(hs_memory_alloc(&ptr, bytes)) != CUDA_SUCCESS) {
		assert_true(may_refuse || hoarded);
		empty_cache();
		assert_int_equal(INSIDE(hs_memory_alloc(&ptr, bytes)), CUDA_SUCCESS);
	}
	allocated += bytes;
	assert_true(fake.device_used - CONTEXT <= fake.options.gpu_bytes);
	return ptr;
}

/* Tensors of some size that kernels write; returned: how many. */
static size_t tensors(CUdeviceptr *out, size_t bytes, size_t each)
{
	size_t count = 0;

	for (size_t done = 0; done < bytes; done += each, count++) {
		struct hs_window *window;

		out[count] = take(each, false);
		window = hs_window_find(out[count]);
		if (window)
			hs_window_reveal(window, HS_USE_OTHER, 0);
	}
	return count;
}

/* A forward pass: of two large pieces, one after the other, the second does not fit
 * into the first; all is hoarded, and is on the device. Returns the most at a time. */
static size_t forward(const struct engine *engine)
{
	CUdeviceptr scratch[64];
	const size_t before = allocated;
	size_t count, most;

	for (int i = 0; i < 2 && engine->segment; i++) {
		const CUdeviceptr ptr = take(engine->segment, false);

		hs_window_reveal(hs_window_find(ptr), HS_USE_OTHER, 0);
		hs_memory_settle(true);
		assert_int_equal(fake_place(ptr + HS_GRANULE), HS_PLACE_DEVICE);
		keep(ptr, engine->segment);
	}
	count = tensors(scratch, engine->activations - engine->segment, 22 * MIB);
	hs_memory_settle(true);
	most = allocated - before - (hoarded == 2 ? engine->segment : 0);
	for (size_t i = 0; i < count; i++)
		keep(scratch[i], 22 * MIB);
	return most;
}

static CUdeviceptr zeros(size_t bytes)
{
	const CUdeviceptr ptr = take(bytes, true);

	hs_copy_filled(ptr, bytes, NULL, false);
	return ptr;
}

static size_t cell(const struct engine *engine)
{
	return LAYERS * (size_t)(engine->row + KEY);
}

/* Bytes are not what is looked at here, and these would be gigabytes. */
static CUresult copy_none(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	(void)to, (void)from, (void)bytes, (void)stream;
	return CUDA_SUCCESS;
}

static void begin(const struct engine *engine, size_t cap)
{
	struct rlimit files;
	CUdeviceptr first;

	/* The fake's device memory is a file a handle. */
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	hs_driver.cuMemcpyDtoDAsync_v2 = copy_none;
	setrlimit(RLIMIT_NOFILE, &files);
	fake.device_bytes = DEVICE;
	fake.device_used = CONTEXT;
	fake.options.row = engine->row;
	fake.options.host_bytes = engine->host;
	fake.options.gpu_bytes = cap;
	fake.options.window_bytes = 256 / SCALE * MIB;
	fake.options.slots = engine->hot;
	fake.options.layers = engine->tells ? LAYERS : HS_AUTO;
	/* The fake's own host memory is not made before it is used. */
	fake.register_refused = true;
	first = zeros(fake.options.window_bytes);
	assert_true(INSIDE(hs_memory_spare(0)));
	assert_int_equal(fake_place(first + HS_GRANULE), HS_PLACE_HOST);
	drop(first, fake.options.window_bytes);
	fake.lines = 0;
}

/* Decode begins: kernels tell what is what, and the layers on the host get rows. */
static void serve(const struct engine *engine, const struct cache *cache)
{
	const size_t cap = fake.options.gpu_bytes;
	CUdeviceptr scratch[64], hot[LAYERS], state[LAYERS];

	empty_cache();

	for (int i = 0; i < LAYERS; i++) {
		hs_window_reveal(hs_window_find(cache->keys[i]), HS_USE_OTHER, 0);
		hs_window_reveal(hs_window_find(cache->latent[i]), HS_USE_KV, engine->row);
	}
	hs_memory_settle(true);
	for (int i = 0; i < LAYERS; i++) {
		if (hs_window_find(cache->latent[i])->place == HS_PLACE_DEVICE)
			continue;
		assert_int_equal(
			INSIDE(hs_memory_own(&state[i], cache->tokens * 4 + engine->hot * 28ull)),
			0);
		assert_int_equal(hs_memory_hot(&hot[i], cache->latent[i], engine->row,
					 (size_t)engine->hot * engine->row),
			0);
	}
	tensors(scratch, engine->graphs, 8 * MIB);
	for (int round = 0; round < 3; round++) {
		forward(engine);
		if (round < 2)
			empty_cache();
	}
	for (int i = 0; i < LAYERS; i++) {
		const size_t bytes = cache->tokens * engine->row, keys = cache->tokens * KEY;

		for (size_t at = 0; at < keys; at += HS_GRANULE)
			assert_int_equal(fake_place(cache->keys[i] + at), HS_PLACE_DEVICE);
		for (size_t at = 0; at < bytes; at += HS_GRANULE)
			fake_place(cache->latent[i] + at); /* asserts that there is some */
	}
	assert_true(fake.device_used - CONTEXT <= cap);
	assert_true(fake.host_used <= engine->host);
	assert_int_equal(fake.lines, 0);
}

/* vLLM 0.26.0: what it asks for is a share of the total; what it has used by then
 * it tells from what is free before and after a trial run. */
static size_t vllm_plain(const struct engine *engine, size_t device)
{
	const double left = (double)device * engine->fraction - (double)engine->weights -
			    (double)(engine->activations + engine->graphs + OTHERS);

	return (size_t)left / cell(engine) / PAGE * PAGE;
}

static void vllm(const struct engine *engine, struct cache *cache)
{
	CUdeviceptr weights[128], scratch[128], other;
	size_t first, total, left, before, count, asked, outside, had, peak, graphs;

	query(&first, &total);
	asked = (size_t)((double)total * engine->fraction) + 1;
	assert_true(first >= asked);
	had = allocated;
	tensors(weights, engine->weights / 2, 40 * MIB);
	tensors(weights, engine->weights / 2, 6 * MIB);
	/* Not torch's: a communicator, a library's workspace. */
	assert_int_equal(INSIDE(hs_memory_alloc(&other, OTHERS)), CUDA_SUCCESS);
	peak = forward(engine);
	empty_cache();
	/* A small cache, captures; what they take is looked at, and given back. */
	query(&before, &total);
	count = tensors(scratch, engine->graphs, 8 * MIB);
	query(&left, &total);
	graphs = before - left;
	for (size_t i = 0; i < count; i++)
		drop(scratch[i], 8 * MIB);
	query(&left, &total);
	assert_true(left <= first);
	outside = (total - left - allocated) - (total - first - had);
	asked -= outside + peak + allocated - had + graphs;
	cache->tokens = asked / (cell(engine) * PAGE) * PAGE;
	for (int i = 0; i < LAYERS; i++) {
		cache->keys[i] = zeros(cache->tokens * KEY);
		cache->latent[i] = zeros(cache->tokens * engine->row);
	}
	query(&left, &total); /* it says how much its captures took */
}

/* SGLang 0.5.17: what is free after the weights, without a share of what was. */
static size_t sglang_plain(const struct engine *engine, size_t device)
{
	const double left = (double)device * engine->fraction - (double)engine->weights;

	return (size_t)left / cell(engine) / PAGE * PAGE;
}

static void sglang(const struct engine *engine, struct cache *cache)
{
	CUdeviceptr weights[128];
	size_t first, total, left;

	query(&first, &total);
	tensors(weights, engine->weights / 2, 40 * MIB);
	tensors(weights, engine->weights / 2, 6 * MIB);
	query(&left, &total);
	left -= (size_t)((double)first * (1 - engine->fraction));
	cache->tokens = left / cell(engine) / PAGE * PAGE;
	for (int i = 0; i < LAYERS; i++)
		cache->latent[i] = zeros((cache->tokens + PAGE) * engine->row);
	for (int i = 0; i < LAYERS; i++)
		cache->keys[i] = zeros((cache->tokens + PAGE) * KEY);
	query(&left, &total);
}

#define GIGA ((size_t)1000000000)
static const struct engine fp8 = {
	.row = 656,
	.plain = 2000000 / SCALE,
	.weights = 1669 * MIB / SCALE, /* these four as vLLM 0.26.0 tells them */
	.activations = 2621 * MIB / SCALE,
	.segment = 2048 * MIB / SCALE,
	.graphs = 82 * MIB / SCALE,
	.hot = 262144 / SCALE,
};
static const struct engine bf16 = {
	.row = 1152,
	.plain = 1000000 / SCALE,
	.weights = 1669 * MIB / SCALE, /* these four as vLLM 0.26.0 tells them */
	.activations = 2621 * MIB / SCALE,
	.segment = 2048 * MIB / SCALE,
	.graphs = 82 * MIB / SCALE,
	.hot = 190464 / SCALE,
	.tells = true,
};

typedef size_t plain_fn(const struct engine *engine, size_t device);
typedef void load_fn(const struct engine *engine, struct cache *cache);

/* The least at which the engine holds that many. */
static size_t cap_of(const struct engine *engine, plain_fn *plain)
{
	size_t cap =
		(size_t)((double)(engine->weights + engine->activations + engine->graphs + OTHERS) /
			 engine->fraction) +
		MIB;

	while (plain(engine, cap) < engine->plain)
		cap += 8 * MIB / SCALE;
	return cap;
}

static size_t least_host(size_t giga)
{
	if (hs_pool_machine("") < (giga + 1) * GIGA / SCALE)
		skip();
	return giga * GIGA / SCALE;
}

static void serves(struct engine engine, bool is_vllm, double fraction, size_t host, double least)
{
	size_t cap;
	struct cache cache;
	double got;

	engine.fraction = fraction;
	if (!is_vllm) {
		engine.activations = 3 * GIGA / 2 / SCALE;
		engine.segment = 0;
	}
	engine.host = least_host(host);
	cap = cap_of(&engine, is_vllm ? vllm_plain : sglang_plain);
	begin(&engine, cap);
	(is_vllm ? vllm : sglang)(&engine, &cache);
	serve(&engine, &cache);
	got = (double)cache.tokens / (double)engine.plain;
	print_message(
		"%s %.2f, row %u, cap %.2f GiB, pool %.1f GiB: plain %zu tokens, %zu told and "
		"held: %.2f; device %.2f GiB, host %.2f GiB (times %d)\n",
		is_vllm ? "vllm" : "sglang", fraction, engine.row, cap * FULL, engine.host * FULL,
		engine.plain * SCALE, cache.tokens * SCALE, got,
		(fake.device_used - CONTEXT) * FULL, fake.host_used * FULL, SCALE);
	assert_true(got >= least);
}

static void vllm_fp8(void **state)
{
	(void)state;
	serves(fp8, true, 0.92, 45, 5.0);
}

static void vllm_bf16(void **state)
{
	(void)state;
	serves(bf16, true, 0.92, 58, 7.5);
}

static void vllm_with_little_of_the_device(void **state)
{
	(void)state;
	serves(fp8, true, 0.6, 68, 5.0);
}

/* The device is what limits it: no token more than it has room for. */
static void vllm_with_a_large_pool(void **state)
{
	(void)state;
	serves(fp8, true, 0.92, 90, 4.8);
}

static void vllm_with_all_of_a_device(void **state)
{
	(void)state;
	serves(bf16, true, 0.95, 90, 7.3);
}

static void sglang_fp8(void **state)
{
	(void)state;
	serves(fp8, false, 0.8, 50, 5.0);
}

static void sglang_bf16(void **state)
{
	(void)state;
	serves(bf16, false, 0.8, 65, 7.5);
}

static void sglang_with_a_large_pool(void **state)
{
	(void)state;
	serves(bf16, false, 0.8, 120, 7.4);
}

/* Device and pool together, and the keys on the device with room to spare. */
static void all_of_both(void **state)
{
	struct engine engine = fp8;
	struct cache cache;
	double plain, got;

	(void)state;
	engine.fraction = 0.6;
	engine.host = least_host(107);
	begin(&engine, HS_AUTO);
	plain = (double)vllm_plain(&engine, DEVICE);
	vllm(&engine, &cache);
	serve(&engine, &cache);
	got = (double)cache.tokens / plain;
	print_message("the whole device and %.1f GiB: %.3f times, of %.3f\n", engine.host * FULL,
		got, (double)(DEVICE + engine.host) / (double)DEVICE);
	assert_true(got >= 0.95 * (double)(DEVICE + engine.host) / (double)DEVICE);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(vllm_fp8),
		cmocka_unit_test(vllm_bf16),
		cmocka_unit_test(vllm_with_little_of_the_device),
		cmocka_unit_test(vllm_with_a_large_pool),
		cmocka_unit_test(vllm_with_all_of_a_device),
		cmocka_unit_test(sglang_fp8),
		cmocka_unit_test(sglang_bf16),
		cmocka_unit_test(sglang_with_a_large_pool),
		cmocka_unit_test(all_of_both),
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
