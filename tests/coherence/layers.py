#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""layers.py PROGRAM: one allocation for all layers, in the layouts that vLLM 0.29 has.

Every layer must swap with exactly its own slots, the indexer's keys must be on the device, and an
interleaved layout must be left alone.
"""
import os
import re
import subprocess
import sys

BLOCKS = 900
MIB = 1 << 20


def run(layout, **options):
    env = dict(os.environ, SOFTGPU_MEMORY_MIB="96", HISPARSE_WINDOW_MIB="3", HISPARSE_SLOTS="2048",
               HISPARSE_LOG="info", **{"HISPARSE_HOST_GIB": "0.25", **options})
    done = subprocess.run([sys.argv[1], layout, str(BLOCKS), "40"], env=env, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, f"{layout}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout, done.stderr


for order in ("first", "last"):
    for place in ("auto", "host"):
        out, log = run(order, HISPARSE_PLACE=place)
        total, device, host = map(int, re.findall(r"(\d+) MiB", out))
        slots = re.findall(r"layer (\d+): (\d+) slots of 656 bytes, 2048 hot rows", log)
        # the last word on each layer
        last = {layer: int(count) for layer, count in slots}
        assert len(last) == 3 if place == "host" else last, log
        # in auto the lowest ones may be left on the device, and never start again
        assert last["2"] == BLOCKS * 64, log
        assert place == "auto" or set(last.values()) == {BLOCKS * 64}, log
        # two granules of each layer stay, and the keys (22 MiB)
        most = 3 * (BLOCKS * 64 * 656 // MIB - 2)
        assert host <= most, (order, place, out)
        assert place == "auto" or host >= most - 3 * 4, (order, place, out)
        assert "taken for a writer" not in log, log

# more than the host has, and more than the device has
for order in ("first", "last"):
    out, log = run(order, HISPARSE_PLACE="auto", HISPARSE_HOST_GIB="0.1")
    assert "slots of 656 bytes, 2048 hot rows" in log, log

out, log = run("mixed", HISPARSE_PLACE="auto")
assert "hot rows" not in log, log
assert log.count("left alone") == 1, log
print("layers of one allocation: each its own slots, keys on the device, mixed ones left alone")
