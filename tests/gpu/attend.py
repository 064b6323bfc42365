#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A PyTorch program that runs the example's attention on KV caches of its own.

usage: attend.py FATBIN SCENARIO [GO]

FATBIN is examples/dsa_kernels.fatbin. The scenario says what happens beside it:

  plain     nothing
  before    torch.profiler runs before there is a KV cache, and throughout
  after     torch.profiler runs in the second half
  capture   a global capture is open for seconds; touches GO when it is, goes on
            when GO is gone, replays the graph
  rules     no model: asks CUPTI who has it, before, while and after torch.profiler
            runs ([error of a flush, error of a subscription])

The last line of standard output is JSON. Started by tests/gpu/trace.py, under
the preload; runs without it, too.
"""
import ctypes
import json
import os
import sys
import time

import torch

LAYERS, BATCH, TOPK, ROW, BLOCK = 2, 8, 512, 656, 64
ROWS = 200_000 // BLOCK * BLOCK
WINDOWS = range(0x3d5b, 0x3d5b + 384)  # upper words of the library's addresses
# what cuGetProcAddress is asked for, the version, what dlsym is asked for
DOORS = (("cuMemAlloc", 3020, "cuMemAlloc_v2"), ("cuLaunchKernel", 4000, "cuLaunchKernel"),
         ("cuStreamSynchronize", 2000, "cuStreamSynchronize"),
         ("cuCtxSynchronize", 2000, "cuCtxSynchronize"))


class Params(ctypes.Structure):
    """struct dsa_attend_params"""
    _fields_ = [(name, ctypes.c_void_p) for name in ("kv", "indices", "query", "out")] + [
        (name, ctypes.c_longlong) for name in ("row_stride", "block_stride", "indices_stride")
    ] + [("batch", ctypes.c_int), ("topk", ctypes.c_int)]


class Model:
    def __init__(self, fatbin):
        torch.cuda.init()
        torch.manual_seed(1)
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.kv = [torch.randint(0, 256, (ROWS, ROW), dtype=torch.uint8, device="cuda")
                   for _ in range(LAYERS)]
        self.query = torch.randint(1, 1 << 30, (BATCH, ROW // 4), dtype=torch.int32, device="cuda")
        self.out = torch.zeros(LAYERS, BATCH, 128, dtype=torch.int32, device="cuda")
        self.lists = torch.zeros(LAYERS, BATCH, TOPK, dtype=torch.int32, device="cuda")
        self.image = ctypes.create_string_buffer(open(fatbin, "rb").read())
        module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.cuda.cuModuleLoadData(ctypes.byref(module), self.image))
        self.check(self.cuda.cuModuleGetFunction(ctypes.byref(self.kernel), module, b"dsa_attend"))

    @staticmethod
    def check(error):
        assert error == 0, f"driver error {error}"

    def select(self):
        """Other lists: half of the rows stay."""
        fresh = torch.randint(0, ROWS, (LAYERS, BATCH, TOPK // 2), dtype=torch.int32, device="cuda")
        self.lists[:, :, TOPK // 2:] = fresh

    def attend(self):
        for layer in range(LAYERS):
            p = Params(self.kv[layer].data_ptr(), self.lists[layer].data_ptr(),
                       self.query.data_ptr(), self.out[layer].data_ptr(), ROW, BLOCK * ROW, TOPK,
                       BATCH, TOPK)
            arguments = (ctypes.c_void_p * 1)(ctypes.addressof(p))
            self.check(self.cuda.cuLaunchKernel(
                self.kernel, BATCH, 1, 1, 128, 1, 1, 0,
                ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), arguments, None))

    def run(self, steps):
        for _ in range(steps):
            self.select()
            self.attend()
            torch.cuda.synchronize()
        return self.out.clone()


def doors():
    """Names for which the two doors to the driver do not give one address."""
    cuda, differ = ctypes.CDLL("libcuda.so.1"), {}
    for name, version, exported in DOORS:
        at = ctypes.c_void_p()
        error = cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(at), version,
                                         ctypes.c_uint64(0), None)
        other = ctypes.cast(getattr(cuda, exported), ctypes.c_void_p)
        if error or at.value != other.value:
            differ[name] = [error, hex(at.value or 0), hex(other.value)]
    return differ


def mapped():
    """What has addresses where the library wants its own."""
    lines = open("/proc/self/maps").read().splitlines()
    return [line for line in lines if int(line.split("-")[0], 16) >> 32 in WINDOWS][:12]


def rules():
    cupti, told = ctypes.CDLL("libcupti.so.13"), {}
    handle = ctypes.c_void_p()
    ignore = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(
        lambda *_: None)

    def ask(when):
        told[when] = [cupti.cuptiActivityFlushAll(0),
                      cupti.cuptiSubscribe(ctypes.byref(handle), ignore, None)]
        if told[when][1] == 0:
            cupti.cuptiUnsubscribe(handle)

    torch.cuda.init()
    ask("before")
    with profile():
        torch.ones(1000, device="cuda").sum().item()
        ask("while")
    ask("after")
    return told


def profile():
    activities = torch.profiler.ProfilerActivity
    return torch.profiler.profile(activities=[activities.CPU, activities.CUDA])


def seen(profiler):
    """How many attention kernels a profiler saw."""
    return sum(event.count for event in profiler.key_averages() if "dsa_attend" in event.key)


def busy(model, seconds):
    """Goes on launching, for our thread to notice what happens."""
    until = time.time() + seconds
    while time.time() < until:
        model.run(1)
        time.sleep(0.02)


def capture(model, go):
    expected = model.run(20)
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model.attend()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=side, capture_error_mode="global"):
            model.attend()
            open(go, "w").close()
            until = time.time() + 30
            while os.path.exists(go) and time.time() < until:
                time.sleep(0.01)
    model.out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    equal = bool((model.out == expected).all())
    for _ in range(50):
        model.select()
        graph.replay()
        torch.cuda.synchronize()
    replayed = model.out.clone()
    model.out.zero_()
    model.attend()
    torch.cuda.synchronize()
    return equal and bool((model.out == replayed).all())


def main():
    fatbin, scenario = sys.argv[1:3]
    found = {}
    if scenario == "rules":
        print(json.dumps(rules()), flush=True)
        return
    if scenario == "before":
        with profile() as profiler:
            torch.ones(1000, device="cuda").sum().item()
            model = Model(fatbin)
            busy(model, 2)
            found["doors"] = doors()
        found["profiler"] = seen(profiler)
    else:
        model = Model(fatbin)
        busy(model, 2)
        found["doors"] = doors()
    found["windows"] = [kv.data_ptr() >> 32 in WINDOWS for kv in model.kv]
    found["mapped"] = mapped()
    if scenario == "after":
        with profile() as profiler:
            busy(model, 3)
        found["profiler"] = seen(profiler)
        busy(model, 2)
    if scenario == "capture":
        found["equal"] = capture(model, sys.argv[3])
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
