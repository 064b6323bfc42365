#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/gpu/ahead with an engine that is not there and a trace that was made by hand.

usage: ahead.py HISPARSE
"""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import unittest

HISPARSE = os.path.abspath(sys.argv[1])
GPU = pathlib.Path(__file__).resolve().parent.parent / "gpu"
sys.path.insert(0, str(GPU))
sys.dont_write_bytecode = True
import variants  # noqa: E402

variants.GPU = GPU  # there always
# As `hisparse trace PID start -o FILE`, once the engine is there.
TOOL = f"""#!/bin/sh
[ "$2" = --report ] && exec "{HISPARSE}" "$@"
cp "${{0%/*}}/canned" "$7"
"""


def step(number, batch, **lead):
    """A millisecond, 12.1 % misses."""
    swap = dict(type="kernel", kind="swap-in", device=0, layer=0, step=number, **lead)
    return swap, dict(type="step", step=number, device=0, launches=1, start=number * 1000000,
                      end=number * 1000000 + 1000000, swap_in=100000, attention=10, stall=110000,
                      topk_lead=50000, topk_hides=50000, list_lead=2000, list_hides=2000,
                      hits=batch * 1800, misses=batch * 248, inplace=0, bytes=0)


class Ahead(unittest.TestCase):
    def run_with(self, *records, at="1:900,8:500", status=0):
        """What results.jsonl holds afterwards."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        out = pathlib.Path(folder.name)
        tool = out / "tools/hisparse/hisparse"
        tool.parent.mkdir(parents=True)
        tool.write_text(TOOL)
        tool.chmod(0o755)
        tool.with_name("canned").write_text("".join(
            json.dumps(r, separators=(",", ":")) + "\n" for r in records))
        loader = importlib.machinery.SourceFileLoader("ahead", str(GPU / "ahead"))
        ahead = importlib.util.module_from_spec(importlib.util.spec_from_loader("ahead", loader))
        loader.exec_module(ahead)
        ahead.the_one = lambda a: "1"
        (out / "src").mkdir()
        (out / "src/libhisparse.so").touch()
        os.environ["FAKE_TOKENS"] = "100000"
        sys.argv = ["ahead", "vllm", str(GPU / "fakes"), "ckpt", str(out), "--build", str(out),
                    "--at", at, "--tokens", "1000"]  # half a second each
        with self.assertRaises(SystemExit) as ended:
            ahead.main()
        log = (out / "ahead-vllm/run.log").read_text()
        self.assertEqual(int(ended.exception.code), status, log)
        figures = json.loads((out / "ahead-vllm/run.json").read_text())["figures"]
        self.assertEqual(figures["batch1_running"], 1)
        results = out / "ahead-vllm/results.jsonl"
        lines = map(json.loads, results.read_text().splitlines() if results.exists() else [])
        return {line["figure"]: line["value"] for line in lines}

    def test_table(self):
        lead = dict(topk_lead=1, topk_kernels=4, list_lead=1, list_kernels=0)
        found = self.run_with(dict(type="head", clock="cupti"), *step(1, 1, **lead),
                              *step(2, 1, **lead), *step(3, 8, **lead))
        for batch in (1, 8):
            name = f"vllm decode step, batch {batch}"
            self.assertEqual(found[f"{name}: step"], 1000)
            self.assertEqual(found[f"{name}: misses"], 12.11)
            self.assertEqual(found[f"{name}: positions stood before swap-ins"], 50)
            self.assertEqual(found[f"{name}: hidden at most, from slots"], 0.2)
        self.assertEqual(len(found), 2 * 8)

    def test_what_is_missing_is_told(self):
        head, lead = dict(type="head", clock="cupti"), dict(topk_lead=1, topk_kernels=4)
        self.run_with(head, *step(1, 1), at="1:900", status=1)
        self.run_with(head, *step(1, 1, **lead), at="1:900", status=1)
        lead |= dict(list_lead=1, list_kernels=0)
        self.run_with(head, *step(1, 1, **lead), status=1)
        self.run_with(dict(head, why="taken"), *step(1, 1, **lead), at="1:900", status=1)
        self.run_with(head, *step(1, 1, **lead), at="1:900")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
