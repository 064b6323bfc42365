#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Touch windows in the ways that torch and the CUDA runtime have, on a GPU.

usage: memory.py BUILD [PART...]

PART is one of windows, expandable, async (all of them if none is named). Each runs plain and under
the preload of the build folder; every byte is compared with the same work on the CPU, and the rows
of a window with what attention reads of it, after each step. All run at once. What the driver answers about a
window must be what it answers about ordinary memory. Status 77: no GPU or no torch.
"""
import concurrent.futures
import ctypes
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MIB = 1 << 20
ROW, SEAM, BYTES, HOT = 656, 2 * MIB, 48 * MIB, 4096
PARTS = {
    "windows": {},
    "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
                   "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    "async": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync",
              "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"},
}
# What a window cannot give, and the driver says so.
REFUSED = {"ipc handle", "attribute ipc capable", "register"}
# Told, and not compared.
TOLD = {"attribute handle types", "attribute mempool"}


class Driver:
    """The driver as a program finds it, which under the preload is ours."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")

    def ask(self, name, *args):
        return getattr(self.lib, name)(*args)

    def call(self, name, *args):
        result = self.ask(name, *args)
        if result:
            raise RuntimeError(f"{name}: error {result}")


class Attend(ctypes.Structure):
    _fields_ = [("kv", ctypes.c_uint64), ("list", ctypes.c_uint64), ("out", ctypes.c_uint64),
                ("rows", ctypes.c_int32), ("k", ctypes.c_int32), ("stride", ctypes.c_int32),
                ("row_bytes", ctypes.c_int32), ("block_stride", ctypes.c_int64)]


class Copy2D(ctypes.Structure):
    _fields_ = [(f"{side}{field}", kind) for side in ("src", "dst") for field, kind in (
        ("X", ctypes.c_size_t), ("Y", ctypes.c_size_t), ("Type", ctypes.c_uint),
        ("Host", ctypes.c_void_p), ("Device", ctypes.c_uint64), ("Array", ctypes.c_void_p),
        ("Pitch", ctypes.c_size_t))] + [("width", ctypes.c_size_t), ("height", ctypes.c_size_t)]


def runtime():
    """The CUDA runtime that torch has brought into the process."""
    for line in open("/proc/self/maps"):
        if "libcudart.so" in line:
            return ctypes.CDLL(line.split()[-1])
    return None


class Pair:
    """The same bytes on the GPU and on the CPU, and attention over them."""

    def __init__(self, torch, numpy, driver, fatbin):
        self.torch, self.numpy, self.driver = torch, numpy, driver
        self.gpu = torch.empty(BYTES, dtype=torch.uint8, device="cuda")
        self.cpu = torch.zeros(BYTES, dtype=torch.uint8)
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        driver.call("cuModuleLoadData", ctypes.byref(module), fatbin)
        driver.call("cuModuleGetFunction", ctypes.byref(self.function), module, b"coherence_attend")
        rng = numpy.random.default_rng(1)
        near = numpy.arange(SEAM // ROW - 64, SEAM // ROW + 448)
        far = rng.integers(0, BYTES // ROW, 510)
        self.slots = numpy.concatenate([near, far, [-1, BYTES // ROW - 1]]).astype(numpy.int32)
        self.list = torch.from_numpy(self.slots).cuda()
        self.out = torch.empty(len(self.slots), dtype=torch.int64, device="cuda")

    def attend(self):
        args = Attend(self.gpu.data_ptr(), self.list.data_ptr(), self.out.data_ptr(), 1,
                      len(self.slots), len(self.slots), ROW, 64 * ROW)
        params = (ctypes.c_void_p * 1)(ctypes.addressof(args))
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        self.driver.call("cuLaunchKernel", self.function, 4, 1, 1, 64, 1, 1, 0, stream, params, None)
        return self.out.cpu().numpy().view(self.numpy.uint64)

    def expected(self):
        np = self.numpy
        rows = self.cpu.numpy()[:BYTES // ROW * ROW].view(np.uint64).reshape(-1, ROW // 8)
        rows = rows[np.maximum(self.slots, 0)]
        value = np.ones(len(rows), dtype=np.uint64)
        for word in range(ROW // 8):
            value = (value ^ rows[:, word]) * np.uint64(0x9e3779b97f4a7c15)
            value ^= value >> np.uint64(29)
        return np.where(self.slots < 0, np.uint64(0), value)

    def check(self, what):
        self.torch.cuda.synchronize()
        wrong = (self.attend() != self.expected()).nonzero()[0]
        assert not len(wrong), f"{what}: attention read {len(wrong)} rows of other bytes, " \
            f"the first is slot {self.slots[wrong[0]]}"
        back = self.gpu.cpu()
        if not self.torch.equal(back, self.cpu):
            at = (back != self.cpu).nonzero().flatten()
            raise AssertionError(f"{what}: {len(at)} bytes differ, the first at {int(at[0])}")
        print("ok", what, flush=True)

    def both(self, what, work):
        """The same work on either; what it returns is compared."""
        on_gpu, on_cpu = work(self.gpu), work(self.cpu)
        if on_gpu.numel() < BYTES // 2:
            assert self.torch.equal(on_gpu.cpu(), on_cpu), f"{what}: other results"
        self.check(what)


def steps(torch, pair, cudart, driver):
    gen = torch.Generator().manual_seed(2)
    # From before the first seam to after it, far inside, and the end.
    spans = [(SEAM - 5001, SEAM + 7003), (0, 3 * SEAM + 1), (BYTES // 2 + 13, BYTES // 2 + 4 * MIB),
             (BYTES - 70001, BYTES)]

    def noise(n):
        return torch.randint(0, 256, (n,), dtype=torch.uint8, generator=gen)

    pair.both("zeros", lambda t: t.zero_())
    full = noise(BYTES)
    pair.both("from pageable memory", lambda t: t.copy_(full))
    for a, b in spans:
        pair.both(f"fill [{a}, {b})", lambda t: t[a:b].fill_(a % 251))
        x = noise(b - a)
        pair.both(f"from pageable memory [{a}, {b})", lambda t: t[a:b].copy_(x))
        x = noise(b - a).pin_memory()
        pair.both(f"from pinned memory [{a}, {b})",
                  lambda t: t[a:b].copy_(x, non_blocking=True))
        y = torch.empty(b - a, dtype=torch.uint8, pin_memory=True)
        y.copy_(pair.gpu[a:b], non_blocking=True)
        torch.cuda.synchronize()
        assert torch.equal(y, pair.cpu[a:b]), "to pinned memory"
        assert torch.equal(pair.gpu[a:b].cpu(), pair.cpu[a:b]), "to pageable memory"
        x = noise(b - a)
        device = x.cuda()
        pair.gpu[a:b].copy_(device)
        pair.cpu[a:b].copy_(x)
        pair.check(f"from device memory [{a}, {b})")
        device.copy_(pair.gpu[a:b])
        assert torch.equal(device.cpu(), pair.cpu[a:b]), "to device memory"
    for kind in (torch.int16, torch.int32, torch.int64):
        size = torch.empty((), dtype=kind).element_size()
        a, b = (SEAM - 4096) // size, (SEAM + 8192) // size
        pair.both(f"fill of {kind}", lambda t: t.view(kind)[a:b].fill_(0x1234))
    other = noise(BYTES)
    second = other.cuda()  # another window
    pair.gpu[SEAM - 100:4 * SEAM].copy_(second[2 * SEAM:5 * SEAM + 100])
    pair.cpu[SEAM - 100:4 * SEAM].copy_(other[2 * SEAM:5 * SEAM + 100])
    pair.check("from another window, seams apart")
    pair.gpu[3 * SEAM:5 * SEAM].copy_(pair.gpu[SEAM - 777:3 * SEAM - 777])
    pair.cpu[3 * SEAM:5 * SEAM].copy_(pair.cpu[SEAM - 777:3 * SEAM - 777].clone())
    pair.check("within the window")
    index = torch.cat([torch.arange(SEAM - 300, SEAM + 300),
                       torch.randint(0, BYTES, (5000,), generator=gen)]).unique()
    values = noise(len(index))
    pair.both("index_put", lambda t: t.index_put_((index.to(t.device),), values.to(t.device)))
    pair.both("gather", lambda t: t[index.to(t.device)])
    pair.both("mask", lambda t: t[SEAM - 99:SEAM + 99].masked_fill_(
        t[SEAM - 99:SEAM + 99] > 100, 3))
    pair.both("strided", lambda t: t.view(-1, 1024)[:, 100:300].copy_(
        t.view(-1, 1024)[:, 500:700]))
    pair.both("sum", lambda t: t.view(torch.int32).sum(dtype=torch.int64).reshape(1))

    # Rectangles through the runtime: a row of it lies across the seam.
    if cudart:
        pitch, width, height = 1000, 701, 12
        at = SEAM - 5 * pitch - 300
        x = noise(height * width)
        rows = pair.cpu.as_strided((height, width), (pitch, 1), at)

        def address(t, offset=0):
            return ctypes.c_void_p(t.data_ptr() + offset)

        def size(n):
            return ctypes.c_size_t(n)

        for name, stream in (("cudaMemcpy2D", []), ("cudaMemcpy2DAsync", [None])):
            x = noise(height * width)
            result = getattr(cudart, name)(address(pair.gpu, at), size(pitch), address(x), size(width),
                                           size(width), size(height), 1, *stream)
            assert result == 0, f"{name}: error {result}"
            rows.copy_(x.view(height, width))
            pair.check(f"{name} to the window")
            back = torch.zeros(height * width, dtype=torch.uint8)
            result = getattr(cudart, name)(address(back), size(width), address(pair.gpu, at), size(pitch),
                                           size(width), size(height), 2, *stream)
            assert result == 0, f"{name}: error {result}"
            torch.cuda.synchronize()
            assert torch.equal(back.view(height, width), rows), f"{name} from the window"
            device = noise(height * width)
            on_gpu = device.cuda()
            result = getattr(cudart, name)(address(pair.gpu, at), size(pitch), address(on_gpu),
                                           size(width), size(width), size(height), 3, *stream)
            assert result == 0, f"{name}: error {result}"
            rows.copy_(device.view(height, width))
            pair.check(f"{name} between device addresses")
        result = cudart.cudaMemset2D(address(pair.gpu, at), size(pitch), 0x5a, size(width), size(height))
        assert result == 0, f"cudaMemset2D: error {result}"
        rows.fill_(0x5a)
        pair.check("cudaMemset2D")
    # And through the driver.
    copy = Copy2D(srcType=2, srcDevice=second.data_ptr() + SEAM - 12345, srcPitch=4096, dstType=2,
                  dstDevice=pair.gpu.data_ptr() + SEAM - 54321, dstPitch=5000, dstX=7, dstY=2, width=3001,
                  height=40)
    driver.call("cuMemcpy2D_v2", ctypes.byref(copy))
    pair.cpu.as_strided((40, 3001), (5000, 1), SEAM - 54321 + 2 * 5000 + 7).copy_(
        other.as_strided((40, 3001), (4096, 1), SEAM - 12345))
    pair.check("cuMemcpy2D between windows")

    # A graph with copies and fills.
    source, sink = noise(2 * MIB).cuda(), torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        pair.gpu[SEAM - MIB:SEAM + MIB].copy_(source)
        pair.gpu[SEAM - 1000:SEAM + 1000].zero_()
        sink.copy_(pair.gpu[SEAM - MIB + 7:SEAM + MIB + 7])
        pair.gpu[9 * SEAM:9 * SEAM + 999].fill_(9)
    for turn in range(3):
        x = noise(2 * MIB)
        source.copy_(x)
        graph.replay()
        pair.cpu[SEAM - MIB:SEAM + MIB].copy_(x)
        pair.cpu[SEAM - 1000:SEAM + 1000].zero_()
        pair.cpu[9 * SEAM:9 * SEAM + 999].fill_(9)
        pair.check(f"graph, replay {turn}")
        assert torch.equal(sink.cpu(), pair.cpu[SEAM - MIB + 7:SEAM + MIB + 7]), "graph: what it read"
    del second

    # Memory of the driver's own, beside windows.
    if cudart:
        pointer = ctypes.c_void_p()
        assert cudart.cudaMallocManaged(ctypes.byref(pointer), ctypes.c_size_t(BYTES), 1) == 0
        ctypes.memset(pointer, 7, BYTES)
        window, whole = ctypes.c_void_p(pair.gpu.data_ptr()), ctypes.c_size_t(BYTES)
        assert cudart.cudaMemcpy(window, pointer, whole, 4) == 0
        pair.cpu.fill_(7)
        pair.check("from managed memory")
        assert cudart.cudaFree(pointer) == 0
        assert cudart.cudaMallocAsync(ctypes.byref(pointer), ctypes.c_size_t(BYTES), None) == 0
        assert cudart.cudaMemsetAsync(pointer, 9, ctypes.c_size_t(BYTES), None) == 0
        assert cudart.cudaMemcpyAsync(window, pointer, whole, 3, None) == 0
        assert cudart.cudaFreeAsync(pointer, None) == 0
        pair.cpu.fill_(9)
        pair.check("from a pool")


def answers(pair, driver):
    """What the driver says about the allocation, in words that do not depend on addresses."""
    ptr, told = pair.gpu.data_ptr(), {}
    pointer = ctypes.c_uint64(ptr + 3 * SEAM + 5)
    for name, which, base in (("memory type", 2, 0), ("device pointer", 3, ptr), ("host pointer", 4, 0),
                              ("managed", 8, 0), ("ordinal", 9, 0), ("ipc capable", 10, 0),
                              ("start", 11, ptr), ("size", 12, 0), ("mapped", 13, 0), ("handle types", 14, 0),
                              ("rdma", 15, 0), ("access", 16, 0), ("mempool", 17, 0)):
        value = ctypes.c_uint64(0)
        result = driver.ask("cuPointerGetAttribute", ctypes.byref(value), which, pointer)
        told[f"attribute {name}"] = [result, value.value - base if not result else None]
    start, size = ctypes.c_uint64(), ctypes.c_size_t()
    result = driver.ask("cuMemGetAddressRange_v2", ctypes.byref(start), ctypes.byref(size), pointer)
    told["address range"] = [result, start.value - ptr, size.value]
    device, handle = ctypes.c_uint64(), (ctypes.c_char * 64)()
    told["device pointer of a host one"] = driver.ask("cuMemHostGetDevicePointer_v2", ctypes.byref(device),
                                                      pointer, 0)
    told["ipc handle"] = driver.ask("cuIpcGetMemHandle", handle, ctypes.c_uint64(ptr))
    value = ctypes.c_uint64()
    told["allocation handle"] = driver.ask("cuMemRetainAllocationHandle", ctypes.byref(value), pointer)
    # cuMemLocation by value: {device, 0}, in one register
    bytes_, device = ctypes.c_size_t(4096), ctypes.c_uint64(1)
    told["prefetch"] = driver.ask("cuMemPrefetchAsync_v2", pointer, bytes_, device, 0, None)
    told["advise"] = driver.ask("cuMemAdvise_v2", pointer, bytes_, 1, device)
    told["sync memops"] = driver.ask("cuPointerSetAttribute", ctypes.byref(ctypes.c_uint(1)), 6, pointer)
    told["register"] = driver.ask("cuMemHostRegister_v2", pointer, bytes_, 0)
    return told


def child(fatbin, report):
    import numpy
    import torch

    if not torch.cuda.is_available():
        return 77
    torch.empty(1, device="cuda")
    driver = Driver()
    pair = Pair(torch, numpy, driver, pathlib.Path(fatbin).read_bytes())
    pair.both("zeros, before anything is known of it", lambda t: t.zero_())
    for _ in range(3):  # attention makes it KV, and its rows hot
        pair.attend()
        torch.cuda.synchronize()
    steps(torch, pair, runtime(), driver)
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    pathlib.Path(report).write_text(json.dumps(answers(pair, driver)))
    pair.check("in the end")
    return 0


def run(build, part, preload):
    env = dict(os.environ, **PARTS[part])
    env.pop("LD_PRELOAD", None)
    if preload:
        env.update(LD_PRELOAD=str(build / "src/libhisparse.so"), HISPARSE_PLACE="host",
                   HISPARSE_WINDOW_MIB="32", HISPARSE_HOST_GIB="1", HISPARSE_SLOTS=str(HOT),
                   HISPARSE_LOG="info",
                   HISPARSE_PROFILES=str(pathlib.Path(__file__).resolve().parents[1] /
                                         "coherence/coherence.profile"))
    with tempfile.NamedTemporaryFile() as report:
        done = subprocess.run([sys.executable, "-B", __file__, "--child",
                               str(build / "tests/coherence/coherence.fatbin"), report.name], env=env,
                              capture_output=True, text=True)
        return done, json.loads(pathlib.Path(report.name).read_text() or "{}")


def tell(text, lines=25):
    for line in text.splitlines()[-lines:]:
        print("   ", line)


def judge(part, plain, said, done, now):
    """Prints what is wrong; whether nothing is."""
    for name, child in (("plain", plain), ("preload", done)):
        if child.returncode:
            print(f"{part}, {name}: exit {child.returncode} after {child.stdout.count('ok ')} steps")
            tell(child.stderr)
            return False
    hits = sum(map(int, re.findall(r"cache: .* (\d+) hits", done.stderr)))
    print(f"{part}: {done.stdout.count('ok ')} steps as on the CPU, {hits} hits")
    good = True
    for key in said if part == "windows" else ():  # the others' depend on how much memory is told
        if said[key] != now[key]:
            allowed = key in REFUSED | TOLD
            print(f"  {'allowed' if allowed else 'DIFFERS'}: {key}: plain {said[key]}, preload {now[key]}")
            good &= allowed
    if part == "windows" and not hits:
        print("  FAILED: no window was served from the host; the library's log ends so:")
        tell(done.stderr)
        good = False
    if part != "windows" and hits:
        print("  FAILED: a window where there should be none")
        good = False
    return good


def main():
    build, parts = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:] or list(PARTS)
    if not importlib.util.find_spec("torch") or not os.path.exists("/dev/nvidiactl"):
        return 77
    with concurrent.futures.ThreadPoolExecutor() as pool:  # they mostly wait for torch to load
        runs = [(part, pool.submit(run, build, part, False), pool.submit(run, build, part, True))
                for part in parts]
    if any(plain.result()[0].returncode == 77 for _, plain, _ in runs):
        return 77
    good = [judge(part, *plain.result(), *preload.result()) for part, plain, preload in runs]
    print("memory on the GPU:", "as it should be" if all(good) else "DIFFERS")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(child(*sys.argv[2:]) if sys.argv[1] == "--child" else main())
