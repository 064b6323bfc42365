#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Traces on a GPU, by real CUPTI, and what runs beside them.

usage: trace.py HISPARSE LIBRARY PROGRAM [CASE...]

PROGRAM is the example's dsa_decode; dsa_kernels.fatbin lies beside it, or is
compiled with nvcc. Without cases all run, the first alone, the others at once:

  kernels    kernel times inside graphs, joined with the device's counts; a recording
  running    start and stop of a running process, twice
  before     torch.profiler has CUPTI first: we say so once and count without it
  after      torch.profiler comes later and gets CUPTI: we say so once and go on
  capture    metrics are scraped and traces written beside a global capture
  rules      without us: torch.profiler holds CUPTI's one subscription

Status 77: no GPU. Cases that need PyTorch are left out without it.
"""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ARGS = "--layers 4 --requests 16 --prompt 8192 --tokens 32 --topk 2048 --max-batch 16".split()
LONG = "--layers 2 --requests 400 --prompt 4096 --tokens 20000 --topk 512 --max-batch 4".split()
# For the example, which takes what it gets.
SMALL = dict(HISPARSE_GPU_GIB="2.5")
MULTIPLE_SUBSCRIBERS = 39  # CUPTI's error
COUNTS = (("hits", "hits"), ("misses", "misses"), ("inplace_reads", "inplace"),
          ("fetched_bytes", "bytes"))


def cupti_folder():
    """Of the Python packages, for programs that load no CUDA runtime."""
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations if spec else []:
        for path in sorted(pathlib.Path(root).glob("*/lib/libcupti.so.1[23]"), reverse=True):
            return str(path.parent)
    return None


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HISPARSE_", "LD_PRELOAD"))}
    folders = [os.environ.get("LD_LIBRARY_PATH"), cupti_folder()]
    return dict(kept, LD_LIBRARY_PATH=":".join(filter(None, folders)), HISPARSE_PLACE="host",
                HISPARSE_SLOTS="16384", HISPARSE_WINDOW_MIB="64", HISPARSE_HOST_GIB="4", **more)


def command_environment(**more):
    """Of `hisparse …`, which takes HISPARSE_LIBRARY away from what it starts."""
    return environment(HISPARSE_LIBRARY=LIBRARY, **SMALL, **more)


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def total(metrics, name):
    return sum(int(line.split()[-1]) for line in metrics.read_text().splitlines()
               if line.startswith(f"hisparse_layer_{name}_total{{"))


def kernels_of(told, kind):
    return [r for r in told if r["type"] == "kernel" and r["kind"] == kind]


def said(text):
    """What the library said of its trace without being asked."""
    return [line for line in text.splitlines() if re.match(r"hisparse\[\d+\]: warn: trace:", line)]


def strays(told):
    """Swap-ins of which only the launch or only the kernel is known, and what is near them."""
    swaps = kernels_of(told, "swap-in")
    at = [i for i, r in enumerate(swaps) if "start" not in r or "misses" not in r]
    for i in at[:4]:
        for near in swaps[max(0, i - 2):i + 3]:
            print("   ", "*" if near is swaps[i] else " ",
                  {k: near.get(k) for k in ("start", "end", "layer", "step", "misses", "node")})
    return len(at)


def check_counts(told, metrics):
    """Whatever CUPTI did, every launch is in the trace. (The counters may end a launch of each
    layer earlier: kernels tell the host what the launch before found.)"""
    for name, field in COUNTS:
        for kind in ("kernel", "step"):
            found, counted = sum(r.get(field, 0) for r in told if r["type"] == kind), \
                total(metrics, name)
            assert counted <= found <= counted * 1.05, (kind, name, found, counted)


def case_kernels(folder):
    trace, lists, metrics = folder / "x.jsonl", folder / "x.dsat", folder / "x.prom"
    subprocess.run([HISPARSE, "trace", "-o", trace, "--", PROGRAM, *ARGS], check=True,
                   env=command_environment(HISPARSE_RECORD=str(lists),
                                           HISPARSE_METRICS=str(metrics)),
                   stdout=subprocess.DEVNULL)
    told = records(trace)
    replay = json.loads(subprocess.run(
        [HISPARSE, "replay", lists, "--skip", "0", "--policy", "lru", "--json", "--slots",
         "65536"], stdout=subprocess.PIPE, check=True).stdout)
    print(told[0])
    assert told[0]["clock"] == "cupti", told[0]
    swaps, attention = kernels_of(told, "swap-in"), kernels_of(told, "attention")
    steps = [r for r in told if r["type"] == "step"]
    print(len(swaps), "swap-ins,", len(attention), "attention kernels,", len(steps), "steps;",
          told[-1])
    print(json.dumps(replay["trace"]), replay["selections"], "selections")
    assert told[-1]["type"] == "end" and told[-1]["lost_launches"] == 0
    timed = [r for r in swaps if "start" in r and "misses" in r]
    alone = strays(told)
    assert len(timed) >= 0.95 * len(swaps) and len(timed) > 4 * 16, (len(timed), alone)
    assert sum("node" in r for r in timed) > len(timed) / 2
    assert {r["layer"] for r in timed} == {0, 1, 2, 3}
    check_counts(told, metrics)
    # Launches and kernels met: what fetches much takes long.
    few, many = [[r["end"] - r["start"] for r in timed if wanted(r["misses"])]
                 for wanted in (lambda n: n < 100, lambda n: n > 10000)]
    if few and many:
        print("swap-in:", sum(few) / len(few), "ns without,", sum(many) / len(many),
              "ns with misses")
        assert sum(few) / len(few) < sum(many) / len(many)
    # The example chooses, converts, and attends.
    led = [r for r in timed if r.get("list_kernels") == 0 and r.get("topk_kernels") == 1]
    print(len(led), "swap-ins right behind the kernels that make their lists")
    assert len(led) > 0.9 * len(timed)
    assert all(r["topk_lead"] > r["list_lead"] for r in led)
    bounded = [r for r in attention if "stall" in r]
    assert len(bounded) > len(attention) / 2
    assert all(r["layer"] in (0, 1, 2, 3) for r in bounded if "step" in r)
    middle = steps[len(steps) // 2]
    print("a step in the middle:", middle)
    assert middle["launches"] == 4 and middle["attention"] > 0
    assert middle["stall"] >= middle["swap_in"] * 0.9


def child_of(process):
    """The process under `hisparse run` that has the library."""
    while process.poll() is None:
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        for pid in children.split():
            try:
                if "libhisparse" in pathlib.Path(f"/proc/{pid}/maps").read_text():
                    return pid
            except OSError:
                pass
        time.sleep(0.05)
    raise AssertionError(f"the program ended with {process.returncode}")


def ask(pid, *what):
    done = subprocess.run([HISPARSE, "trace", "--wait", "20", pid, *map(str, what)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.strip())


def case_running(folder):
    with subprocess.Popen([HISPARSE, "run", "--", PROGRAM, *LONG],
                          env=command_environment(),
                          stdout=subprocess.DEVNULL) as process:
        try:
            pid = child_of(process)
            time.sleep(4)  # its graphs are older than the trace
            good = 0
            for name in "abcdefgh":  # the first may come before anything is swapped
                trace = folder / f"{name}.jsonl"
                ask(pid, "start", "-o", trace)
                time.sleep(1.5)
                ask(pid, "stop")
                until = time.time() + 10
                while '"type":"end"' not in trace.read_text() and time.time() < until:
                    time.sleep(0.05)
                told = records(trace)
                timed = [r for r in kernels_of(told, "swap-in") if "start" in r and "layer" in r]
                graphs = sum("node" in r for r in timed)
                print(trace.name, told[0]["clock"], len(timed), "swap-ins with times,", graphs,
                      "in graphs;", told[-1])
                strays(told)
                assert told[0]["clock"] == "cupti" and told[-1]["type"] == "end"
                if not good and not kernels_of(told, "swap-in"):
                    continue
                assert graphs > 20 and len(kernels_of(told, "attention")) > 20
                good += 1
                if good == 3:
                    break
            assert good == 3, "the program did not get to swapping"
            assert process.poll() is None, "the program did not survive"
        finally:
            process.terminate()


def fatbin(folder):
    """The example's kernels, beside it or compiled."""
    built = pathlib.Path(PROGRAM).resolve().parent / "dsa_kernels.fatbin"
    if not built.exists():
        built = folder / "dsa_kernels.fatbin"
        root = HERE.parent.parent
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        subprocess.run([nvcc, "-fatbin", "-arch=sm_90", "-I", root, "-o", built,
                        root / "examples/dsa_kernels.cu"], check=True)
    return built


def attend(folder, scenario, **more):
    """What a PyTorch program said, and the trace it left."""
    trace, metrics = folder / "x.jsonl", folder / "x.prom"
    env = environment(HISPARSE_TRACE=str(trace), LD_PRELOAD=LIBRARY, HISPARSE_LOG="debug",
                      **dict(dict(HISPARSE_METRICS=str(metrics)), **more))
    done = subprocess.run([sys.executable, HERE / "attend.py", fatbin(folder), scenario], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=200)
    print("\n".join(done.stderr.strip().splitlines()[-40:])[-5000:])
    assert done.returncode == 0, done.returncode
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    if "windows" in found:
        assert not found["doors"], "the library is not in front of the driver"
        asked = re.findall(r"address 0x\w+ for .* the driver offers 0x\w+", done.stderr)
        assert all(found["windows"]), (
            f"no windows, so nothing to trace: the driver gave none of {len(asked)} addresses"
            if asked else "no windows, although no address was refused")
        print("windows that stay on the device:",
              re.findall(r"warn: window (.*)", done.stderr) or "none")
        assert trace.exists(), "no trace was begun"
    return found, said(done.stderr), records(trace) if trace.exists() else [], metrics


def case_before(folder):
    found, lines, told, metrics = attend(folder, "before")
    print(told[0], told[-1])
    assert kernels_of(told, "swap-in"), "no launch was resolved, so nothing to trace"
    assert found["profiler"] > 0, "the profiler saw no kernel"
    assert told[0]["clock"] == "device" and "another profiler" in told[0]["why"]
    assert len(lines) == 1 and "another profiler has CUPTI" in lines[0], lines
    check_counts(told, metrics)


def case_after(folder):
    found, lines, told, metrics = attend(folder, "after")
    swaps = kernels_of(told, "swap-in")
    timed = [r for r in swaps if "start" in r]
    print(told[0], told[-1], len(timed), "swap-ins with times of", len(swaps))
    assert swaps, "no launch was resolved, so nothing to trace"
    assert found["profiler"] > 0, "the profiler saw no kernel"
    assert told[0]["clock"] == "cupti"
    assert 20 < len(timed) < len(swaps)
    assert len(lines) == 1 and "took CUPTI over" in lines[0], lines
    check_counts(told, metrics)


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
        return reply.read().decode()


def case_capture(folder):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    go, trace = folder / "go", folder / "x.jsonl"
    env = environment(HISPARSE_TRACE=str(trace), HISPARSE_METRICS=str(port), LD_PRELOAD=LIBRARY)
    with subprocess.Popen([sys.executable, HERE / "attend.py", fatbin(folder), "capture", go],
                          env=env, stdout=subprocess.PIPE, text=True) as process:
        while not go.exists():
            assert process.poll() is None, process.returncode
            time.sleep(0.02)
        scrapes, until = 0, time.time() + 2
        while time.time() < until:
            assert "hisparse_layer_misses_total" in scrape(port)
            scrapes += 1
        go.unlink()
        found = json.loads(process.communicate(timeout=100)[0].splitlines()[-1])
    told = records(trace)
    graphs = sum("node" in r for r in kernels_of(told, "swap-in"))
    print(scrapes, "scrapes while the capture was open;", found, graphs, "swap-ins in graphs;",
          told[-1])
    assert process.returncode == 0 and found["equal"]
    assert scrapes > 10 and graphs > 50


def case_rules(folder):
    found = attend(folder, "rules", HISPARSE_DISABLE="1")[0]
    assert found["before"][1] == 0 and found["while"][1] == MULTIPLE_SUBSCRIBERS


CASES = dict(kernels=case_kernels, running=case_running, before=case_before, after=case_after,
             capture=case_capture, rules=case_rules)
TORCH = ("before", "after", "capture", "rules")


def run_case(name):
    """Whether it went well."""
    if name in TORCH and not importlib.util.find_spec("torch"):
        print(f"{name}: left out, there is no PyTorch")
        return True
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
        try:
            CASES[name](pathlib.Path(folder))
            good = True
        except Exception:  # the others still tell something
            good = False
            print(traceback.format_exc()[-3000:])
    print(f"{name}: {'ok' if good else 'FAILED'}, {time.time() - start:.0f} s", flush=True)
    return good


def run_all():
    """The first alone, for its times; the others at once, each in a process of its own."""
    good, names = run_case("kernels"), [name for name in CASES if name != "kernels"]
    started = [subprocess.Popen([sys.executable, "-B", __file__, *sys.argv[1:4], name],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for name in names]
    for name, process in zip(names, started):
        print(f"== {name}\n{process.communicate()[0].rstrip()}", flush=True)
        good = good and process.returncode == 0
    return good


def main():
    if subprocess.run([PROGRAM, "--probe"], stdout=subprocess.DEVNULL).returncode == 77:
        sys.exit(77)
    sys.stdout.reconfigure(line_buffering=True)
    good = all([run_case(name) for name in sys.argv[4:]]) if sys.argv[4:] else run_all()
    sys.exit(not good)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    HISPARSE, LIBRARY, PROGRAM = map(os.path.realpath, sys.argv[1:4])
    main()
