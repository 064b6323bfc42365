#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run schedules of the coherence test, on the stand-in driver or on a GPU.

usage: run.py PROGRAM PART SEEDS OPERATIONS     seeds PART * SEEDS + [0, SEEDS): every one must hold
       run.py PROGRAM BUG SEEDS OPERATIONS      BUG (stale, twice, flight) is planted: one must catch it
       run.py PROGRAM gpu SEEDS OPERATIONS      on the real driver; 77 without a GPU

Placement, device memory and policy differ from seed to seed, so that windows live on the device, on
the host and move between the two, and rows are evicted.
"""
import os
import re
import subprocess
import sys

PLANTS = {"stale": "1", "twice": "2", "flight": "3"}
PLACES = ("host", "auto", "host", "device")
POLICIES = ("lru", "lru", "fifo", "random", "vanilla")


def real_driver():
    """The folder of the installed libcuda.so.1, which goes before the stand-in's."""
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    found = [line.split("=> ")[1] for line in listed.splitlines() if "libcuda.so.1 " in line]
    return os.path.dirname(found[0]) if found and os.path.exists("/dev/nvidiactl") else None


def run(program, seed, operations, plant, driver=None):
    memory = 48 + seed % 5 * 12
    env = dict(os.environ, SOFTGPU_SEED=str(seed + 1), SOFTGPU_MEMORY_MIB=str(memory),
               HISPARSE_WINDOW_MIB="3", HISPARSE_LOG="info", HISPARSE_SLOTS="2048", HISPARSE_HOST_GIB="0.25",
               HISPARSE_PLACE="host" if plant else PLACES[seed % len(PLACES)],
               HISPARSE_POLICY=POLICIES[seed % len(POLICIES)])
    if driver:
        env["LD_LIBRARY_PATH"] = driver
    command = [program, str(seed), operations] + ([PLANTS[plant]] if plant else [])
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)


def main():
    program, what, seeds, operations = sys.argv[1:]
    plant = what if what in PLANTS else None
    driver = real_driver() if what == "gpu" else None
    if what == "gpu" and not driver:
        return 77
    first = 0 if plant or driver else int(what) * int(seeds)
    rows = hits = evictions = 0
    for seed in range(first, first + int(seeds)):
        done = run(program, seed, operations, plant, driver)
        if plant and "STALE" in done.stderr:
            print(f"seed {seed} caught it: {done.stderr.strip()}")
            return 0
        if done.returncode:
            print(f"seed {seed}: exit {done.returncode}\n{done.stdout}{done.stderr}")
            return 1
        rows += int(done.stdout.split(", ")[1].split()[0])
        hits += sum(map(int, re.findall(r"cache: .* (\d+) hits", done.stderr)))
        evictions += sum(map(int, re.findall(r"cache: .* (\d+) evictions", done.stderr)))
    if plant:
        print(f"{what}: not caught in {seeds} schedules")
        return 1
    print(f"{seeds} schedules, {int(seeds) * int(operations)} operations, {rows} rows compared, "
          f"{hits} hits, {evictions} evictions")
    return 0 if hits and evictions else 1  # else nothing was shown


if __name__ == "__main__":
    sys.exit(main())
