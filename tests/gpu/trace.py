#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trace and record the example on a GPU: kernel times from CUPTI, inside graphs.

usage: trace.py HISPARSE LIBRARY PROGRAM

Status 77: no GPU. Prints what it found.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HISPARSE, LIBRARY, PROGRAM = sys.argv[1:]
ARGS = ("--layers 4 --requests 16 --prompt 16384 --tokens 32 --topk 2048 --max-batch 16").split()

if subprocess.run([PROGRAM, "--probe"], stdout=subprocess.DEVNULL).returncode == 77:
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    trace, lists = pathlib.Path(folder, "x.jsonl"), pathlib.Path(folder, "x.dsat")
    metrics = pathlib.Path(folder, "x.prom")
    env = dict(os.environ, HISPARSE_LIBRARY=LIBRARY, HISPARSE_PLACE="host", HISPARSE_SLOTS="16384",
               HISPARSE_WINDOW_MIB="64", HISPARSE_RECORD=str(lists), HISPARSE_METRICS=str(metrics))
    subprocess.run([HISPARSE, "trace", "-o", trace, "--", PROGRAM, *ARGS], env=env, check=True,
                   stdout=subprocess.DEVNULL)
    told = [json.loads(line) for line in trace.read_text().splitlines()]
    replay = json.loads(subprocess.run(
        [HISPARSE, "replay", lists, "--skip", "0", "--policy", "lru", "--json", "--slots",
         "65536"], stdout=subprocess.PIPE, check=True).stdout)
    misses = sum(int(line.split()[-1]) for line in metrics.read_text().splitlines()
                 if line.startswith("hisparse_layer_misses_total"))

print(told[0])
assert told[0]["clock"] == "cupti", told[0]
kernels = [r for r in told if r["type"] == "kernel"]
swaps = [r for r in kernels if r["kind"] == "swap-in"]
attention = [r for r in kernels if r["kind"] == "attention"]
steps = [r for r in told if r["type"] == "step"]
print(len(swaps), "swap-ins,", len(attention), "attention kernels,", len(steps), "steps;", told[-1])
print(json.dumps(replay["trace"]), replay["selections"], "selections")
assert told[-1]["type"] == "end" and told[-1]["lost_launches"] == 0
timed = [r for r in swaps if "start" in r and "misses" in r]
assert len(timed) >= 0.95 * len(swaps) and len(timed) > 4 * 16, len(timed)
assert sum("node" in r for r in timed) > len(timed) / 2
assert {r["layer"] for r in timed} == {0, 1, 2, 3}
assert sum(r.get("misses", 0) for r in swaps) == misses
# Launches and kernels met: what fetches much takes long.
few, many = [[r["end"] - r["start"] for r in timed if wanted(r["misses"])]
             for wanted in (lambda n: n < 100, lambda n: n > 10000)]
if few and many:
    print("swap-in:", sum(few) / len(few), "ns without,", sum(many) / len(many), "ns with misses")
    assert sum(few) / len(few) < sum(many) / len(many)
bounded = [r for r in attention if "stall" in r]
assert len(bounded) > len(attention) / 2
assert all(r["layer"] in (0, 1, 2, 3) for r in bounded if "step" in r)
middle = steps[len(steps) // 2]
print("a step in the middle:", middle)
assert middle["launches"] == 4 and middle["attention"] > 0
assert middle["stall"] >= middle["swap_in"] * 0.9
