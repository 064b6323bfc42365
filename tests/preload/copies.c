/* SPDX-License-Identifier: MIT */
/*
 * Description: every copy and every fill of the driver, over the seam between
 * the parts of a window: the bytes are those of a plain model, and no hot row of
 * what was written stays.
 *
 * usage: copies lines|boxes|batches|fills|captured
 */
#include "touch.h"

#include <string.h>

/* One copy. Rows of `width` bytes, of pitches and heights that are its own on
 * each side; lines have one row. */
struct job {
	CUdeviceptr dst, src;
	size_t dst_pitch, src_pitch, dst_rows, src_rows;
	size_t width, height, depth;
	CUmemorytype dst_type, src_type;
};

enum {
	NOISE = 24000, /* bytes from where a copy begins: more than any takes */
	HOSTS = 1 << TOUCH_PAGEABLE | 1 << TOUCH_PINNED,
	DEVICES = 1 << TOUCH_DEVICE | 1 << TOUCH_WINDOW,
	ALL = HOSTS | DEVICES,
};

struct copy {
	const char *name;
	CUresult (*run)(const struct job *j);
	int to, from; /* what a window may be copied to, and from; bits of enum touch_kind */
};

#define S touch_stream
#define C touch_context
#define P(p) ((void *)(p))

#define LINES(ROW)                                                                                 \
	ROW(cuMemcpy, ALL, ALL, (j->dst, j->src, j->width))                                        \
	ROW(cuMemcpy_ptds, ALL, ALL, (j->dst, j->src, j->width))                                   \
	ROW(cuMemcpyAsync, ALL, ALL, (j->dst, j->src, j->width, S))                                \
	ROW(cuMemcpyAsync_ptsz, ALL, ALL, (j->dst, j->src, j->width, S))                           \
	ROW(cuMemcpyHtoD_v2, 0, HOSTS, (j->dst, P(j->src), j->width))                              \
	ROW(cuMemcpyHtoD_v2_ptds, 0, HOSTS, (j->dst, P(j->src), j->width))                         \
	ROW(cuMemcpyHtoDAsync_v2, 0, HOSTS, (j->dst, P(j->src), j->width, S))                      \
	ROW(cuMemcpyHtoDAsync_v2_ptsz, 0, HOSTS, (j->dst, P(j->src), j->width, S))                 \
	ROW(cuMemcpyDtoH_v2, HOSTS, 0, (P(j->dst), j->src, j->width))                              \
	ROW(cuMemcpyDtoH_v2_ptds, HOSTS, 0, (P(j->dst), j->src, j->width))                         \
	ROW(cuMemcpyDtoHAsync_v2, HOSTS, 0, (P(j->dst), j->src, j->width, S))                      \
	ROW(cuMemcpyDtoHAsync_v2_ptsz, HOSTS, 0, (P(j->dst), j->src, j->width, S))                 \
	ROW(cuMemcpyDtoD_v2, DEVICES, DEVICES, (j->dst, j->src, j->width))                         \
	ROW(cuMemcpyDtoD_v2_ptds, DEVICES, DEVICES, (j->dst, j->src, j->width))                    \
	ROW(cuMemcpyDtoDAsync_v2, DEVICES, DEVICES, (j->dst, j->src, j->width, S))                 \
	ROW(cuMemcpyDtoDAsync_v2_ptsz, DEVICES, DEVICES, (j->dst, j->src, j->width, S))            \
	ROW(cuMemcpyPeer, DEVICES, DEVICES, (j->dst, C, j->src, C, j->width))                      \
	ROW(cuMemcpyPeer_ptds, DEVICES, DEVICES, (j->dst, C, j->src, C, j->width))                 \
	ROW(cuMemcpyPeerAsync, DEVICES, DEVICES, (j->dst, C, j->src, C, j->width, S))              \
	ROW(cuMemcpyPeerAsync_ptsz, DEVICES, DEVICES, (j->dst, C, j->src, C, j->width, S))

static CUDA_MEMCPY2D flat(const struct job *j)
{
	return (CUDA_MEMCPY2D){
		.srcXInBytes = 3,
		.srcY = 1,
		.srcMemoryType = j->src_type,
		.srcHost = P(j->src - 3 - j->src_pitch),
		.srcDevice = j->src - 3 - j->src_pitch,
		.srcPitch = j->src_pitch,
		.dstXInBytes = 5,
		.dstY = 2,
		.dstMemoryType = j->dst_type,
		.dstHost = P(j->dst - 5 - 2 * j->dst_pitch),
		.dstDevice = j->dst - 5 - 2 * j->dst_pitch,
		.dstPitch = j->dst_pitch,
		.WidthInBytes = j->width,
		.Height = j->height,
	};
}

#define SOLID(type)                                                                                \
	(type)                                                                                     \
	{                                                                                          \
		.srcXInBytes = 1, .srcZ = 1, .srcMemoryType = j->src_type,                         \
		.srcHost = P(j->src - 1 - j->src_rows * j->src_pitch),                             \
		.srcDevice = j->src - 1 - j->src_rows * j->src_pitch, .srcPitch = j->src_pitch,    \
		.srcHeight = j->src_rows, .dstXInBytes = 2, .dstY = 1,                             \
		.dstMemoryType = j->dst_type, .dstHost = P(j->dst - 2 - j->dst_pitch),             \
		.dstDevice = j->dst - 2 - j->dst_pitch, .dstPitch = j->dst_pitch,                  \
		.dstHeight = j->dst_rows, .WidthInBytes = j->width, .Height = j->height,           \
		.Depth = j->depth,                                                                 \
	}

static CUDA_MEMCPY3D solid(const struct job *j)
{
	return SOLID(CUDA_MEMCPY3D);
}

static CUDA_MEMCPY3D_PEER peer(const struct job *j)
{
	CUDA_MEMCPY3D_PEER copy = SOLID(CUDA_MEMCPY3D_PEER);

	copy.srcContext = copy.dstContext = C;
	return copy;
}

#define BOXES2(ROW)                                                                                \
	ROW(cuMemcpy2D_v2, ALL, ALL, ((CUDA_MEMCPY2D[]){flat(j)}))                                 \
	ROW(cuMemcpy2D_v2_ptds, ALL, ALL, ((CUDA_MEMCPY2D[]){flat(j)}))                            \
	ROW(cuMemcpy2DUnaligned_v2, ALL, ALL, ((CUDA_MEMCPY2D[]){flat(j)}))                        \
	ROW(cuMemcpy2DUnaligned_v2_ptds, ALL, ALL, ((CUDA_MEMCPY2D[]){flat(j)}))                   \
	ROW(cuMemcpy2DAsync_v2, ALL, ALL, ((CUDA_MEMCPY2D[]){flat(j)}, S))                         \
	ROW(cuMemcpy2DAsync_v2_ptsz, ALL, ALL, ((CUDA_MEMCPY2D[]){flat(j)}, S))
#define BOXES3(ROW)                                                                                \
	ROW(cuMemcpy3D_v2, ALL, ALL, ((CUDA_MEMCPY3D[]){solid(j)}))                                \
	ROW(cuMemcpy3D_v2_ptds, ALL, ALL, ((CUDA_MEMCPY3D[]){solid(j)}))                           \
	ROW(cuMemcpy3DAsync_v2, ALL, ALL, ((CUDA_MEMCPY3D[]){solid(j)}, S))                        \
	ROW(cuMemcpy3DAsync_v2_ptsz, ALL, ALL, ((CUDA_MEMCPY3D[]){solid(j)}, S))                   \
	ROW(cuMemcpy3DPeer, DEVICES, DEVICES, ((CUDA_MEMCPY3D_PEER[]){peer(j)}))                   \
	ROW(cuMemcpy3DPeer_ptds, DEVICES, DEVICES, ((CUDA_MEMCPY3D_PEER[]){peer(j)}))              \
	ROW(cuMemcpy3DPeerAsync, DEVICES, DEVICES, ((CUDA_MEMCPY3D_PEER[]){peer(j)}, S))           \
	ROW(cuMemcpy3DPeerAsync_ptsz, DEVICES, DEVICES, ((CUDA_MEMCPY3D_PEER[]){peer(j)}, S))

/* Batches: a line as three items of two kinds of attributes, the second across
 * the seam; a box as two, cut between its planes. */
#define ITEMS                                                                                      \
	(CUdeviceptr[]){j->dst, j->dst + 100, j->dst + j->width - 50},                             \
		(CUdeviceptr[]){j->src, j->src + 100, j->src + j->width - 50},                     \
		(size_t[]){100, j->width - 150, 50}, 3,                                            \
		(CUmemcpyAttributes[]){{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},      \
			{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}},                    \
		(size_t[]){0, 2}, 2
#define BATCHES(ROW)                                                                               \
	ROW(cuMemcpyBatchAsync, ALL, ALL, (ITEMS, &(size_t){0}, S))                                \
	ROW(cuMemcpyBatchAsync_ptsz, ALL, ALL, (ITEMS, &(size_t){0}, S))                           \
	ROW(cuMemcpyBatchAsync_v2, ALL, ALL, (ITEMS, S))                                           \
	ROW(cuMemcpyBatchAsync_v2_ptsz, ALL, ALL, (ITEMS, S))

static CUDA_MEMCPY3D_BATCH_OP slab(const struct job *j, size_t from, size_t to)
{
	CUDA_MEMCPY3D_BATCH_OP op = {
		.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
		.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
		.extent = {j->width, j->height, to - from},
		.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
	};

	op.src.op.ptr.ptr = j->src + from * j->src_rows * j->src_pitch;
	op.src.op.ptr.rowLength = j->src_pitch;
	op.src.op.ptr.layerHeight = j->src_rows;
	op.dst.op.ptr.ptr = j->dst + from * j->dst_rows * j->dst_pitch;
	op.dst.op.ptr.rowLength = j->dst_pitch;
	op.dst.op.ptr.layerHeight = j->dst_rows;
	return op;
}

#define SLABS                                                                                      \
	2, (CUDA_MEMCPY3D_BATCH_OP[])                                                              \
	{                                                                                          \
		slab(j, 0, 1), slab(j, 1, j->depth)                                                \
	}
#define BATCHES3(ROW)                                                                              \
	ROW(cuMemcpy3DBatchAsync, ALL, ALL, (SLABS, &(size_t){0}, 0, S))                           \
	ROW(cuMemcpy3DBatchAsync_ptsz, ALL, ALL, (SLABS, &(size_t){0}, 0, S))                      \
	ROW(cuMemcpy3DBatchAsync_v2, ALL, ALL, (SLABS, 0, S))                                      \
	ROW(cuMemcpy3DBatchAsync_v2_ptsz, ALL, ALL, (SLABS, 0, S))

#define RUN(name, to, from, args)                                                                  \
	static CUresult run_##name(const struct job *j)                                            \
	{                                                                                          \
		return name args;                                                                  \
	}
LINES(RUN)
BOXES2(RUN)
BOXES3(RUN)
BATCHES(RUN)
BATCHES3(RUN)
#define ENTRY(name, to, from, args) {#name, run_##name, to, from},
static const struct copy lines[] = {LINES(ENTRY)}, flats[] = {BOXES2(ENTRY)},
			 solids[] = {BOXES3(ENTRY)}, batches[] = {BATCHES(ENTRY)},
			 slabs[] = {BATCHES3(ENTRY)};

static struct touch window, others[4]; /* by enum touch_kind */
static unsigned failures;	       /* calls that the driver refused: nothing was done */

static CUmemorytype type_of(const struct touch *t)
{
	return t->kind == TOUCH_PINNED || t->kind == TOUCH_PAGEABLE ? CU_MEMORYTYPE_HOST
								    : CU_MEMORYTYPE_DEVICE;
}

/* The same with the models. */
static void imitate(const struct job *j, uint8_t *dst, const uint8_t *src)
{
	for (size_t z = 0; z < j->depth; z++)
		for (size_t y = 0; y < j->height; y++)
			memmove(dst + (z * j->dst_rows + y) * j->dst_pitch,
				src + (z * j->src_rows + y) * j->src_pitch, j->width);
}

struct shape {
	size_t at, pitch, rows, width, height, depth;
};

static void copy_once(
	const struct copy *copy, const struct shape *s, struct touch *other, bool to, bool unified)
{
	/* Seams and pitches of the two sides are apart. */
	const size_t there = other->kind == TOUCH_WINDOW ? SEAM - 1501 : 20003;
	struct touch *dst = to ? other : &window, *src = to ? &window : other;
	struct job j = {
		.dst = dst->ptr + (to ? there : s->at),
		.src = src->ptr + (to ? s->at : there),
		.dst_pitch = s->pitch + (to ? 11 : 0),
		.src_pitch = s->pitch + (to ? 0 : 11),
		.dst_rows = s->rows + (to ? 1 : 0),
		.src_rows = s->rows + (to ? 0 : 1),
		.width = s->width,
		.height = s->height,
		.depth = s->depth,
		.dst_type = unified ? CU_MEMORYTYPE_UNIFIED : type_of(dst),
		.src_type = unified ? CU_MEMORYTYPE_UNIFIED : type_of(src),
	};
	char what[100];
	CUresult result;

	snprintf(what, sizeof(what), "%s %s kind %d at %zu", copy->name, to ? "to" : "from",
		other->kind, s->at);
	touch_noise(src->model + (j.src - src->ptr), NOISE);
	if (type_of(src) == CU_MEMORYTYPE_DEVICE)
		CHECK(cuMemcpyHtoD_v2(j.src, src->model + (j.src - src->ptr), NOISE));
	else
		memcpy(P(j.src), src->model + (j.src - src->ptr), NOISE);
	touch_heat(&window, s->at);
	if (other->kind == TOUCH_WINDOW)
		touch_heat(other, there);
	result = copy->run(&j);
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "%s: error %d\n", what, result);
		failures++;
		return;
	}
	imitate(&j, dst->model + (j.dst - dst->ptr), src->model + (j.src - src->ptr));
	touch_check(&window, s->at, what);
	touch_check(other, there, what);
}

static unsigned copy_all(const struct copy *copies, size_t count, const struct shape *shapes,
	size_t nshapes, bool typed)
{
	unsigned done = 0;

	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < nshapes; j++)
			for (int k = 0; k < 16; k++) {
				const bool to = k & 1, unified = k & 2;
				struct touch *other = &others[k >> 2];

				if ((unified && !typed) ||
					!((to ? copies[i].to : copies[i].from) >> other->kind & 1))
					continue;
				copy_once(&copies[i], &shapes[j], other, to, unified);
				done++;
			}
	return done;
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static unsigned do_lines(void)
{
	static const struct shape shapes[] = {
		{SEAM - 5001, 0, 0, 12005, 1, 1}, {SEAM + 70001, 0, 0, 3001, 1, 1}};

	return copy_all(lines, COUNT(lines), shapes, COUNT(shapes), false);
}

/* Of several rows the sixth lies across the seam, or the second of the third plane;
 * or the seam lies in the gap between two. */
static unsigned do_boxes(void)
{
	static const struct shape two[] = {{SEAM - 5300, 1000, 12, 701, 12, 1},
		{SEAM - 800, 1000, 1, 701, 1, 1}, {SEAM - 701, 1500, 1, 1401, 1, 1},
		{SEAM - 5800, 1000, 12, 701, 12, 1}, {SEAM + 70001, 1000, 12, 701, 12, 1}};
	static const struct shape three[] = {{SEAM - 13 * 500 - 100, 500, 6, 301, 4, 5},
		{SEAM - 5 * 500, 500, 6, 301, 4, 5}, {SEAM - 200, 500, 2, 301, 1, 1}};

	return copy_all(flats, COUNT(flats), two, COUNT(two), true) +
	       copy_all(solids, COUNT(solids), three, COUNT(three), true);
}

static unsigned do_batches(void)
{
	static const struct shape line[] = {{SEAM - 5001, 0, 0, 12005, 1, 1}};
	static const struct shape three[] = {{SEAM - 13 * 500 - 100, 500, 6, 301, 4, 5},
		{SEAM - 100, 500, 6, 301, 4, 5}, {SEAM - 5 * 500, 500, 6, 301, 4, 5}};

	return copy_all(batches, COUNT(batches), line, COUNT(line), false) +
	       copy_all(slabs, COUNT(slabs), three, COUNT(three), false);
}

/* Of what no node can hold the driver says so, and so must we. */
static CUresult captured_once(const struct copy *copy, const struct job *j, unsigned char mark)
{
	struct touch *source = &others[TOUCH_DEVICE];
	CUgraphExec exec;
	CUgraph graph = NULL;
	CUresult result, ended;

	CHECK(cuStreamBeginCapture_v2(S, CU_STREAM_CAPTURE_MODE_GLOBAL));
	result = copy->run(j);
	if (result == CUDA_SUCCESS)
		CHECK(cuMemsetD8Async(window.ptr + SEAM - 77, mark, 155, S));
	ended = cuStreamEndCapture(S, &graph);
	if (result != CUDA_SUCCESS) {
		if (graph)
			CHECK(cuGraphDestroy(graph));
		return result;
	}
	CHECK(ended);
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int turn = 0; turn < 3; turn++) {
		touch_noise(source->model, source->bytes);
		CHECK(cuMemcpyHtoD_v2(source->ptr, source->model, source->bytes));
		touch_heat(&window, SEAM - 5300);
		CHECK(cuGraphLaunch(exec, S));
		imitate(j, window.model + SEAM - 5300, source->model + 20003);
		memset(window.model + SEAM - 77, mark, 155);
		touch_check(&window, SEAM - 5300, copy->name);
	}
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuGraphDestroy(graph));
	return CUDA_SUCCESS;
}

/* What is captured is cut where it must be, whatever its place is then. */
static unsigned do_captured(void)
{
#define OF(name, height, depth, perhaps)                                                           \
	{                                                                                          \
		{#name, run_##name, 0, 0}, height, depth, perhaps                                  \
	}
	static const struct {
		struct copy copy;
		size_t height, depth;
		bool perhaps; /* no node can hold it */
	} copies[] = {
		OF(cuMemcpyDtoDAsync_v2, 1, 1, false),
		OF(cuMemcpyAsync_ptsz, 1, 1, false),
		OF(cuMemcpy2DAsync_v2, 7, 1, false),
		OF(cuMemcpy3DAsync_v2, 5, 3, false),
		OF(cuMemcpyPeerAsync, 1, 1, true),
		OF(cuMemcpy3DPeerAsync, 5, 3, true),
		OF(cuMemcpyBatchAsync_v2, 1, 1, true),
		OF(cuMemcpy3DBatchAsync_v2, 5, 3, true),
	};
	struct job j = {.dst = window.ptr + SEAM - 5300,
		.src = others[TOUCH_DEVICE].ptr + 20003,
		.dst_pitch = 1000,
		.src_pitch = 800,
		.dst_rows = 6,
		.src_rows = 5,
		.dst_type = CU_MEMORYTYPE_DEVICE,
		.src_type = CU_MEMORYTYPE_DEVICE};
	CUresult result;
	unsigned done = 0;

	for (size_t i = 0; i < COUNT(copies); i++) {
		j.height = copies[i].height;
		j.depth = copies[i].depth;
		j.width = j.height > 1 ? 701 : 12005;
		result = captured_once(&copies[i].copy, &j, (unsigned char)i);
		if (result == CUDA_SUCCESS) {
			done++;
		} else if (copies[i].perhaps && result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
			printf("%s cannot be captured\n", copies[i].copy.name);
		} else {
			fprintf(stderr, "%s, captured: error %d\n", copies[i].copy.name, result);
			failures++;
		}
	}
	return done;
}

/* Fills: `pitch` and `height` count for rectangles. */
#define FILLS(ROW, bits)                                                                           \
	ROW(cuMemsetD##bits##_v2, bits, (dst, value, count))                                       \
	ROW(cuMemsetD##bits##_v2_ptds, bits, (dst, value, count))                                  \
	ROW(cuMemsetD##bits##Async, bits, (dst, value, count, S))                                  \
	ROW(cuMemsetD##bits##Async_ptsz, bits, (dst, value, count, S))
#define RECTS(ROW, bits)                                                                           \
	ROW(cuMemsetD2D##bits##_v2, bits, (dst, pitch, value, count, height))                      \
	ROW(cuMemsetD2D##bits##_v2_ptds, bits, (dst, pitch, value, count, height))                 \
	ROW(cuMemsetD2D##bits##Async, bits, (dst, pitch, value, count, height, S))                 \
	ROW(cuMemsetD2D##bits##Async_ptsz, bits, (dst, pitch, value, count, height, S))
#define EVERY(MACRO, ROW) MACRO(ROW, 8) MACRO(ROW, 16) MACRO(ROW, 32)

typedef uint8_t fill8;
typedef uint16_t fill16;
typedef uint32_t fill32;
#define FILL(name, bits, args)                                                                     \
	static CUresult run_##name(                                                                \
		CUdeviceptr dst, size_t pitch, uint32_t v, size_t count, size_t height)            \
	{                                                                                          \
		const fill##bits value = (fill##bits)v;                                            \
		(void)pitch, (void)height;                                                         \
		return name args;                                                                  \
	}
EVERY(FILLS, FILL)
EVERY(RECTS, FILL)

struct fill {
	const char *name;
	unsigned width;
	CUresult (*run)(CUdeviceptr dst, size_t pitch, uint32_t value, size_t count, size_t height);
};
#define FILL_ENTRY(name, bits, args) {#name, bits / 8, run_##name},
static const struct fill fills[] = {EVERY(FILLS, FILL_ENTRY)}, rects[] = {EVERY(RECTS, FILL_ENTRY)};

static void fill_once(const struct fill *fill, size_t at, size_t pitch, size_t count, size_t height,
	uint32_t value)
{
	CUresult result;

	touch_heat(&window, at);
	result = fill->run(window.ptr + at, pitch, value, count, height);
	if (result != CUDA_SUCCESS)
		touch_fail("%s at %zu: error %d", fill->name, at, result);
	for (size_t y = 0; y < height; y++)
		for (size_t x = 0; x < count; x++)
			memcpy(window.model + at + y * pitch + x * fill->width, &value,
				fill->width);
	touch_check(&window, at, fill->name);
	CHECK(cuMemcpyHtoD_v2(window.ptr + at,
		(touch_noise(window.model + at, 40000), window.model + at), 40000));
}

static unsigned do_fills(void)
{
	static const uint32_t values[] = {0, 0x89abcdef};

	for (int v = 0; v < 2; v++) {
		for (size_t i = 0; i < COUNT(fills); i++) {
			fill_once(&fills[i], SEAM - 5000, 0, 12000 / fills[i].width, 1, values[v]);
			fill_once(&fills[i], SEAM + 80000, 0, 700, 1, values[v]);
		}
		for (size_t i = 0; i < COUNT(rects); i++) {
			/* one row across, none, all in one go, a single one */
			fill_once(
				&rects[i], SEAM - 5300, 1000, 700 / rects[i].width, 12, values[v]);
			fill_once(
				&rects[i], SEAM - 5800, 1000, 700 / rects[i].width, 12, values[v]);
			fill_once(
				&rects[i], SEAM - 5300, 1000, 1000 / rects[i].width, 12, values[v]);
			fill_once(&rects[i], SEAM - 300, 1000, 700 / rects[i].width, 1, values[v]);
		}
	}
	return 2 * (unsigned)(2 * COUNT(fills) + 4 * COUNT(rects));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		unsigned (*run)(void);
	} parts[] = {{"lines", do_lines}, {"boxes", do_boxes}, {"batches", do_batches},
		{"fills", do_fills}, {"captured", do_captured}};

	touch_start();
	touch_make(&window, TOUCH_WINDOW, 12 * MIB);
	for (int kind = 0; kind < 4; kind++)
		touch_make(&others[kind], (enum touch_kind)kind,
			kind == TOUCH_WINDOW ? 12 * MIB : MIB / 8);
	for (size_t i = 0; i < COUNT(parts); i++)
		if (argc < 2 || !strcmp(argv[1], parts[i].name))
			printf("%s: %u as the model\n", parts[i].name, parts[i].run());
	if (failures)
		touch_fail("%u calls refused", failures);
	for (int kind = 0; kind < 4; kind++)
		touch_free(&others[kind]);
	touch_free(&window);
	return 0;
}
