#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Drive two GPUs with torch, with windows on both, on the device and on the host.

usage: pair.py [--library FILE] [PART...]

PART is one of copies, peers, together, ranks (all of them if none is named):
    copies      tensors copied between the GPUs both ways, on streams of either
    peers       a kernel of one GPU that reads and writes the other's memory
    together    NCCL's all-reduce by one process that drives both
    ranks       NCCL's all-reduce by a process for each GPU
Each runs plain and under the preload, with less GPU memory allowed than the tensors need, so that
some of them live on the host. Every byte is compared with the same work on the CPU. Status 77: no
torch, or fewer than two GPUs.
"""
import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys

MIB = 1 << 20
BYTES, COUNT, CAP = 96 * MIB, 8, 512 * MIB  # of a tensor; tensors on each GPU; what a GPU may hold
SEAM = 2 * MIB // 8  # in elements
PARTS = ("copies", "peers", "together", "ranks")


def pattern(torch, seed, count=BYTES // 8):
    """int64 values that differ from tensor to tensor and from place to place, on the CPU."""
    return torch.arange(count, dtype=torch.int64) * (2 * seed + 3) + (seed << 40)


class Both:
    """Tensors of both GPUs, and what they must hold."""

    def __init__(self, torch, devices, count=COUNT):
        self.torch, self.checks = torch, 0
        self.cpu = {d: [pattern(torch, 100 * d + i) for i in range(count)] for d in devices}
        self.gpu = {d: [torch.empty(BYTES // 8, dtype=torch.int64, device=f"cuda:{d}")
                        for _ in range(count)] for d in devices}
        for d in devices:
            for mine, model in zip(self.gpu[d], self.cpu[d]):
                mine.copy_(model)
        self.check("filled")

    def check(self, what):
        for d, tensors in self.gpu.items():
            self.torch.cuda.synchronize(d)
            for i, mine in enumerate(tensors):
                back = mine.cpu()
                if not self.torch.equal(back, self.cpu[d][i]):
                    at = (back != self.cpu[d][i]).nonzero().flatten()
                    raise AssertionError(f"{what}: tensor {i} of GPU {d}: {len(at)} values differ, "
                                         f"the first at {int(at[0])} of {BYTES // 8}")
                self.checks += 1
        print("ok", what, flush=True)


def copies(torch, both):
    """First and last tensors are of different kinds; parts cross the end of the first 2 MiB."""
    for i in range(COUNT):
        for to, source in ((0, 1), (1, 0)):
            j = COUNT - 1 - i
            both.gpu[to][i].copy_(both.gpu[source][j])
            both.cpu[to][i].copy_(both.cpu[source][j])
    both.check("whole tensors")
    length = 5 * SEAM
    for i in range(COUNT):
        for to, source, stream_of in ((0, 1, 0), (1, 0, 0), (0, 1, 1), (1, 0, 1)):
            at, start = SEAM - 1001 - 17 * i, SEAM - 77 * (i + stream_of)
            stream = torch.cuda.Stream(stream_of)
            for d in (0, 1):
                torch.cuda.synchronize(d)
            with torch.cuda.stream(stream):
                both.gpu[to][i][at:at + length].copy_(
                    both.gpu[source][(i + 3) % COUNT][start:start + length], non_blocking=True)
            stream.synchronize()
            for d in (0, 1):
                torch.cuda.synchronize(d)
            both.cpu[to][i][at:at + length] = \
                both.cpu[source][(i + 3) % COUNT][start:start + length].clone()
    both.check("parts, on streams of both")
    moved = both.gpu[0][0].to("cuda:1")
    assert torch.equal(moved.cpu(), both.cpu[0][0])


def peers(torch, both):
    """What is not contiguous is copied by a kernel, which works on the peer's memory."""
    reach = [torch.cuda.can_device_access_peer(0, 1), torch.cuda.can_device_access_peer(1, 0)]
    for i in range(COUNT):
        for to, source in ((0, 1), (1, 0)):
            j = (i + COUNT // 2) % COUNT
            both.gpu[to][i][1::3].copy_(both.gpu[source][j][::3][:len(both.gpu[to][i][1::3])])
            both.cpu[to][i][1::3] = both.cpu[source][j][::3][:len(both.cpu[to][i][1::3])]
    both.check(f"every third value by a kernel (access {reach})")
    # Windows that are made once access stands.
    for d in (0, 1):
        both.gpu[d][0] = torch.full((BYTES // 8,), 7 + d, dtype=torch.int64, device=f"cuda:{d}")
        both.cpu[d][0] = torch.full((BYTES // 8,), 7 + d, dtype=torch.int64)
    for to, source in ((0, 1), (1, 0)):
        both.gpu[to][1][::2].copy_(both.gpu[source][0][::2])
        both.cpu[to][1][::2] = both.cpu[source][0][::2]
    both.check("tensors made afterwards")


def together(torch, both):
    import torch.cuda.nccl as nccl

    for i in range(COUNT):
        pair = [both.gpu[0][i], both.gpu[1][COUNT - 1 - i]]
        nccl.all_reduce(pair)
        total = both.cpu[0][i] + both.cpu[1][COUNT - 1 - i]
        both.cpu[0][i], both.cpu[1][COUNT - 1 - i] = total, total.clone()
    both.check("sums of one process")


def rank(number, port):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(number)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=number,
                            world_size=2)
    mine = Both(torch, [number])
    for i in range(COUNT):
        dist.all_reduce(mine.gpu[number][i])
        mine.cpu[number][i] = pattern(torch, i) + pattern(torch, 100 + i)
    mine.check(f"sums, rank {number}")
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps({"checks": mine.checks}))
    return 0


def ranks():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = [subprocess.Popen([sys.executable, "-B", __file__, "--rank", str(n), "--port",
                                  str(port)], stdout=subprocess.PIPE, text=True) for n in (0, 1)]
    out = [child.communicate(timeout=300)[0] for child in children]
    if any(child.returncode for child in children):
        raise AssertionError(f"ranks: {out}")
    return sum(json.loads(text.splitlines()[-1])["checks"] for text in out)


def child(part):
    if part == "ranks":
        checks = ranks()
    else:
        import torch

        both = Both(torch, (0, 1))
        globals()[part](torch, both)
        checks = both.checks
    print(json.dumps({"checks": checks}))
    return 0


def gpus():
    try:
        import torch
    except ImportError:
        return 0
    return torch.cuda.device_count()


def run(part, library):
    # NCCL's buffers have to fit beside the tensors under the cap.
    env = dict(os.environ, HISPARSE_LOG="debug", NCCL_MAX_NCHANNELS="2", NCCL_BUFFSIZE=str(MIB))
    if library:
        env.update(LD_PRELOAD=str(library), HISPARSE_GPU_GIB=str(CAP / (1 << 30)),
                   HISPARSE_HOST_GIB="4", HISPARSE_WINDOW_MIB="16", HISPARSE_PLACE="auto")
    try:
        done = subprocess.run([sys.executable, "-B", __file__, "--child", part], env=env,
                              capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return None, "none in 600 s", ""
    last = done.stdout.strip().splitlines()[-1:] if done.returncode == 0 else []
    return json.loads(last[0])["checks"] if last else None, done.stdout, done.stderr


def windows(said):
    """How many windows the library told of: made on the devices, made on the host, moved there.
    A window that is moved was made on its device, so it counts twice."""
    made = [set(re.findall(rf"hisparse\[(\d+)\]: \w+: window (\d+): {what}", said)) for what in
            (r"\d+ MiB at \S+ on the device", r"\d+ MiB at \S+ on the host",
             r"[\d.]+ GiB moved to the host")]
    return [len(one) for one in made]


def wrong(checks, plain, places):
    """What is not as it should be of a part under the preload."""
    device, host, moved = places
    if checks is None:
        yield "it failed"
    elif checks != plain:
        yield f"{plain} tensors compared without the preload"
    if not device:
        yield "no window was made on a device"
    if not host + moved:
        yield "no window ever lived on the host"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=pathlib.Path, default="build/src/libhisparse.so")
    parser.add_argument("--child", choices=PARTS)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--port", type=int)
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args()
    if options.child:
        return child(options.child)
    if options.rank is not None:
        return rank(options.rank, options.port)
    library = options.library.resolve()
    if any(part not in PARTS for part in options.parts) or not library.is_file():
        parser.error(f"no {library}, or a part other than {', '.join(PARTS)}")
    # In a process of its own: this one is not to hold memory of the GPUs.
    found = subprocess.run([sys.executable, "-B", "-c", "import pair; print(pair.gpus())"],
                           cwd=pathlib.Path(__file__).parent, capture_output=True, text=True)
    if found.returncode or int(found.stdout) < 2:
        return 77
    good = True
    for part in options.parts or PARTS:
        plain, told, errors = run(part, None)
        if plain is None:
            print(f"{part}: fails without the preload\n{told}\n{errors[-2000:]}", flush=True)
            good = False
            continue
        checks, told, errors = run(part, library)
        places = windows(errors)
        found = list(wrong(checks, plain, places))
        good &= not found
        print(f"{part}: {checks} tensors compared ({plain} plain), windows: {places[0]} made on "
              f"the devices, {places[1]} on the host, {places[2]} moved there: "
              f"{'WRONG: ' + '; '.join(found) if found else 'ok'}", flush=True)
        if found:
            print("\n".join([told] + errors.splitlines()[-40:]), flush=True)
    print("pair:", "as the CPU has it" if good else "WRONG")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
