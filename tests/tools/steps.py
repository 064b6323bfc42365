#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`hisparse trace --report`: what a trace says of a step.

usage: steps.py HISPARSE TEST_TIMELINE
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HISPARSE, WRITER = map(os.path.abspath, sys.argv[1:3])
HEAD = dict(type="head", version="1", pid=1, clock="cupti")


def swap_in(step, **more):
    return dict(type="kernel", kind="swap-in", device=0, name="k", stream=7, start=0, end=1,
                layer=0, step=step, **more)


def step(number, start, rows, **more):
    return dict(type="step", start=start, end=start + 900000, step=number, device=0, launches=2,
                hits=rows * 2 - 100, misses=100, inplace=0, bytes=0, attention=5000,
                **dict(dict(swap_in=0, stall=0, topk_lead=0, topk_hides=0, list_lead=0,
                            list_hides=0), **more))


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "x.jsonl")

    def write(self, *records):
        self.path.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records))

    def call(self, *options, status=0, path=None):
        done = subprocess.run([HISPARSE, "trace", "--report", path or self.path, *options],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stderr if status else done.stdout

    def test_medians(self):
        """Three steps of batch 1, a millisecond each and the last cut; two of batch 8."""
        records = [HEAD]
        for i, hides in enumerate((100000, 300000, 200000)):
            records += [swap_in(i + 1, topk_lead=1, topk_kernels=5, list_lead=1, list_kernels=0),
                        swap_in(i + 1, topk_lead=1, topk_kernels=6, list_lead=1, list_kernels=1),
                        step(i + 1, 7000000 + i * 1000000, 2048, swap_in=400000, stall=410000,
                             topk_lead=500000, topk_hides=hides, list_lead=4000, list_hides=3000)]
        records += [step(5 + i, 20000000 + i * 2000000, 16380, swap_in=800000) for i in range(2)]
        self.write(*records)
        found = json.loads(self.call("--json"))
        one, eight = found["medians"]
        self.assertEqual((one["rows"], one["steps"], eight["rows"], eight["steps"]),
                         (2048, 3, 16384, 2))
        self.assertEqual([one[k] for k in ("step_us", "swap_in_us", "stall_us", "attention_us")],
                         [1000, 400, 410, 5])
        self.assertAlmostEqual(one["miss_rate"], 100 / 4096, 5)
        self.assertEqual([one[f"topk_{k}"] for k in ("lead_us", "kernels", "hides_us")],
                         [500, 5.5, 200])
        # 100 of 1,000; 300 of 1,000; 200 of 900, which no other step follows.
        self.assertAlmostEqual(one["topk_hides_share"], 200 / 900, 5)
        self.assertEqual([one[f"list_{k}"] for k in ("lead_us", "kernels", "hides_us")],
                         [4, 0.5, 3])
        self.assertEqual((eight["step_us"], eight["swap_in_us"]), (1450, 800))
        self.assertIsNone(eight["topk_hides_us"])
        self.assertIsNone(eight["list_hides_share"])
        self.assertEqual([s["step"] for s in found["steps"]], [1, 2, 3, 5, 6])
        self.assertEqual(found["steps"][1]["topk_hides_share"], 0.3)

    def test_text(self):
        self.write(HEAD, swap_in(1, topk_lead=1, topk_kernels=4),
                   step(1, 5000, 2048, swap_in=400000, topk_lead=500000, topk_hides=90000))
        text = self.call()
        self.assertRegex(text, r"up to 2,048 +1 +900\.0 +400\.0 +0\.0 +2\.4 +positions +500\.0 +"
                               r"4\.0 +90\.0 +10\.0\n +slots +- +- +- +-\n")
        self.assertEqual(text.count("positions"), 1)
        self.assertEqual(self.call("--steps").count("positions"), 2)

    def test_of_a_trace(self):
        """What the library writes (tests/unit/test_timeline.c)."""
        subprocess.run([WRITER, self.path], check=True, cwd=self.path.parent)
        found = json.loads(self.call("--json"))["steps"]
        self.assertEqual([s["step_us"] for s in found], [100, 11.5])
        self.assertEqual([found[0][k] for k in ("swap_in_us", "stall_us", "topk_lead_us",
                                                "topk_kernels", "topk_hides_us")],
                         [2, 3.8, 1.84, 2, 1.84])

    def test_bad_input(self):
        self.write(dict(HEAD, clock="device", why="another profiler has CUPTI"))
        self.assertIn("no kernel times: another profiler", self.call(status=1))
        self.write(HEAD)
        self.assertIn("no step", self.call(status=1))
        self.write(dict(type="step"))
        self.assertIn("no trace of ours", self.call(status=1))
        self.path.write_text("")
        self.assertIn("no trace of ours", self.call(status=1))
        self.write(HEAD, step(1, 5000, 2048), dict(step(1, 5000, 2048), device=99))
        self.assertIn("no trace of ours", self.call(status=1))
        self.assertIn("No such file", self.call(status=1, path="/no/such"))
        self.assertIn("no program", self.call("true", status=2))
        # One that is still written.
        self.write(HEAD, step(1, 5000, 2048))
        with open(self.path, "a") as file:
            file.write('{"type":"step","sta')
        self.call()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
