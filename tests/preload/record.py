#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Record and trace the example on the stand-in driver, from outside.

usage: record.py HISPARSE LIBRARY PROGRAM [FOLDER of a libcupti.so.13 that tells nothing]
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

HISPARSE, LIBRARY, PROGRAM = sys.argv[1:4]
SMALL = ("--layers 2 --requests 24 --prompt 3000 --tokens 12 --topk 256 --threads 8 "
         "--max-batch 8").split()
LONG = ("--layers 2 --requests 2 --prompt 1500 --tokens 4000 --topk 64 --threads 8 "
        "--max-batch 2").split()


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HISPARSE_", "LD_PRELOAD"))}
    if sys.argv[4:]:
        kept["LD_LIBRARY_PATH"] = sys.argv[4] + ":" + kept["LD_LIBRARY_PATH"]
    return dict(kept, SOFTGPU_MEMORY_MIB="192", HISPARSE_HOST_GIB="0.2", HISPARSE_PLACE="host",
                HISPARSE_WINDOW_MIB="4", HISPARSE_SLOTS="4096", HISPARSE_LIBRARY=LIBRARY, **more)


def run(*arguments, **more):
    return subprocess.run([HISPARSE, *map(str, arguments)], capture_output=True, text=True,
                          timeout=200, env=environment(**more))


def counters(path):
    """Sums and values by layer."""
    found = {}
    for name, layer, value in re.findall(r'^hisparse_layer_(\w+)_total\{device="0",layer="(\d+)"\} (\d+)',
                                         path.read_text(), re.M):
        found.setdefault(name, {})[int(layer)] = int(value)
    return found


def said(done):
    """The library's own lines."""
    return [line for line in done.stderr.splitlines() if line.startswith("hisparse[")]


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def good(self, *arguments, **more):
        done = run(*arguments, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_record(self):
        file, metrics = self.path / "x.dsat", self.path / "x.prom"
        self.good("record", "-o", file, "--", PROGRAM, *SMALL, HISPARSE_METRICS=str(metrics))
        counts = counters(metrics)
        found = json.loads(self.good("replay", file, "--slots", "2048,4096", "--policy", "lru",
                                     "--skip", 0, "--json").stdout)
        self.assertIn(" 0 more found the ring full", found["trace"]["note"])
        self.assertEqual(found["trace"]["layers"], 2)
        # Every row that a launch asked for is in the file, and no other.
        asked = [counts["hits"][i] + counts["misses"][i] + counts["inplace_reads"][i]
                 for i in (0, 1)]
        self.assertEqual(found["selections"], sum(asked))
        self.assertEqual(asked[0], asked[1])
        # Rows that are always on the device do not miss; a few are free.
        misses = [p["miss_rate"]["lru"] * asked[0] for p in found["policies"]]
        self.assertGreater(counts["misses"][0], found["first_time"] * asked[0] * 0.7)
        self.assertLess(counts["misses"][0], misses[0])
        self.assertLess(misses[1], misses[0])

    def test_record_every(self):
        notes = []
        for every in (1, 3):
            file = self.path / f"{every}.dsat"
            self.good("record", "-o", file, "--every", every, "--", PROGRAM, *SMALL)
            notes.append(int(re.search(rb"recorded slots: (\d+) launches", file.read_bytes())[1]))
        self.assertEqual(notes[1], 2 * -(-notes[0] // 2 // 3))

    def test_trace(self):
        file, metrics = self.path / "x.jsonl", self.path / "x.prom"
        done = self.good("trace", "-o", file, "--", PROGRAM, *SMALL, HISPARSE_METRICS=str(metrics))
        counts, told = counters(metrics), records(file)
        self.assertEqual(told[0]["type"], "head")
        self.assertEqual(told[-1], dict(type="end", lost_kernels=0, lost_launches=0, unmatched=0))
        if sys.argv[4:]:
            self.assertEqual(told[0]["clock"], "cupti")
            self.assertEqual(len(said(done)), 1, done.stderr)
            self.assertIn("another profiler took CUPTI over: no kernel times", said(done)[0])
        else:
            self.assertIn("without kernel times", done.stderr)
        for name, field in (("hits", "hits"), ("misses", "misses"), ("inplace_reads", "inplace"),
                            ("fetched_bytes", "bytes")):
            for kind in ("kernel", "step"):
                self.assertEqual(sum(r[field] for r in told if r["type"] == kind),
                                 sum(counts[name].values()), (kind, name))
        steps = [r for r in told if r["type"] == "step"]
        self.assertEqual([r["step"] for r in steps], list(range(1, len(steps) + 1)))
        self.assertEqual({r["launches"] for r in steps}, {2})
        self.assertGreater(sum(r["misses"] for r in steps), 0)

    def test_wrong_name(self):
        done = run("trace", "-o", self.path / "x.txt", "--", PROGRAM, *SMALL)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(said(done)), 1, done.stderr)
        self.assertIn(".jsonl, .json or .pftrace", done.stderr)
        self.assertEqual(os.listdir(self.path), [])

    def ask(self, pid, *what, status=0, says=""):
        done = run("trace", pid, *what)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertIn(says, done.stdout + done.stderr)

    def test_running(self):
        file, more = self.path / "x.jsonl", self.path / "y.pftrace"
        with subprocess.Popen([HISPARSE, "run", "--", PROGRAM, *LONG], env=environment(),
                              stdout=subprocess.DEVNULL) as process:
            try:
                self.running(process, file, more)
            finally:
                process.terminate()

    def running(self, process, file, more):
        child = None
        while not child and process.poll() is None:
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            child = next((c for c in children.split()
                          if "libhisparse" in pathlib.Path(f"/proc/{c}/maps").read_text()), None)
        steps = 0
        while steps < 2 and process.poll() is None:  # a trace may be too short to hold any
            self.ask(child, "start", "-o", file, says=str(file))
            self.ask(child, "start", "-o", more, status=1, says="a trace runs already")
            time.sleep(0.2)
            self.ask(child, "stop", says=str(file))
            while '"type":"end"' not in file.read_text():
                time.sleep(0.01)
            steps = sum(r["type"] == "step" for r in records(file))
        self.assertGreaterEqual(steps, 2)
        self.ask(child, "stop", status=1, says="no trace runs")
        self.ask(child, "start", "-o", more, says=str(more))
        self.ask(child, "stop", says=str(more))
        self.assertIsNone(process.poll())

    def test_no_such_process(self):
        self.ask(os.getpid(), "start", status=1, says="without libhisparse.so")
        self.ask(2 ** 22 + 1, "stop", status=1, says="no process")
        self.ask(os.getpid(), "fly", status=2, says="start or stop")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
