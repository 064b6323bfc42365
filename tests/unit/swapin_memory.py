# SPDX-License-Identifier: MIT
"""Which memory the sides of tools/bench/swapin.py read, on the stand-in driver.

usage: swapin_memory.py SWAPIN.PY LIBSWAPIN LIBCUDA KERNELS
"""
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH, LIBRARY, DRIVER, KERNELS = sys.argv[1:5]
SMALL = ["--k", "128", "--hot", "256", "--ctx", "1024", "--layers", "2", "--steps", "2",
         "--settle", "0", "--pool-mib", "96", "--flush-mib", "1", "--host-calls", "4"]
sys.path.insert(0, os.path.dirname(BENCH))
import swapin_core as core_part  # noqa: E402
import swapin_report  # noqa: E402


class Benchmark(unittest.TestCase):
    def cell(self, *options):
        """What a run says of its only cell, and what it prints."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "cells"
            done = subprocess.run(
                [sys.executable, "-B", BENCH, LIBRARY, "--load", DRIVER, "--load", KERNELS,
                 "--no-sglang", "--rows", "656", "--batch", "3", "--miss", "134", *SMALL,
                 "--json", path, *options], text=True, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, check=False, env=dict(os.environ, LD_PRELOAD=""))
            self.assertEqual(done.returncode, 0, done.stdout)
            cell, = (json.loads(line) for line in path.read_text().splitlines())
        self.assertEqual(cell["right"], {"ours": True, "gather": True})
        return cell, done.stdout

    def test_managed_memory_is_what_is_read(self):
        cell, said = self.cell()
        self.assertEqual(cell["memory"], {"ours": "managed"})
        self.assertRegex(said, "(?m)^ours and the gathers read managed memory$")
        self.assertNotIn("memory instead", said)

    def test_registered_memory_when_asked_for(self):
        cell, said = self.cell("--memory", "registered")
        self.assertEqual(cell["memory"], {"ours": "registered"})
        self.assertRegex(said, "(?m)^ours and the gathers read registered memory$")

    def test_the_results_say_which(self):
        cell, _ = self.cell()
        # As with SGLang, on a driver that can time.
        cell["memory"]["sglang"] = "registered"
        for side in ("ours", "gather", "sglang"):
            cell["us"][side] = dict(cell["us"]["ours"], median=9.0)
            cell["gbps"][side] = 1.0
        beside = {one["figure"].split(", ")[1] + one["unit"]: one["beside"]
                  for one in swapin_report.table_figures(cell)}
        self.assertRegex(beside["oursus"], "^from managed memory, SGLang 9.0 us from registered "
                         "memory, gather 9.0 us,")
        self.assertRegex(beside["SGLangus"], "^from registered memory, ours 9.0 us from managed")
        self.assertEqual(beside["gatherGB/s"], "pool of 0.1 GiB of managed memory")
        self.assertEqual(beside["SGLangGB/s"], "pool of 0.1 GiB of registered memory")
        del cell["memory"]
        self.assertTrue(all("managed" not in one["beside"]
                            for one in swapin_report.table_figures(cell)))


class Pools(unittest.TestCase):
    """In a process of its own, with the library's mmap or without."""

    def inside(self, preload, *what):
        done = subprocess.run([sys.executable, "-B", __file__, BENCH, LIBRARY, DRIVER, KERNELS,
                               "inside", *what], text=True, capture_output=True, check=False,
                              env=dict(os.environ, LD_PRELOAD=preload))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout), done.stderr

    def test_a_driver_that_cannot_be_steered(self):
        found, said = self.inside("")
        self.assertEqual(found["kinds"], [core_part.REGISTERED])
        self.assertFalse(found["any_order"])
        self.assertRegex(said, r"\Aswapin: no managed memory for 96 MiB of rows \(CUDA error "
                         r"\d+\): registered memory instead\n\Z")

    def test_another_side_reads_the_same_rows_elsewhere(self):
        found, said = self.inside(LIBRARY)
        self.assertEqual(said, "")
        self.assertEqual(found["kinds"], [core_part.MANAGED, core_part.BESIDE])
        self.assertTrue(found["any_order"])
        self.assertTrue(found["elsewhere"])
        self.assertEqual(found["checked"], [found["entries"], 0, 0, 0, 0])

    def test_who_writes_to_either_is_seen(self):
        found, _ = self.inside(LIBRARY, "write")
        self.assertEqual(found["unharmed"], [True, False, False])


def inside(*what):
    for path in (DRIVER, KERNELS):
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    core = core_part.Core(LIBRARY)
    core.open_pool(96 << 20)
    core.open_beside()
    found = {"kinds": [rows.kind for rows in core.pools()]}
    if what:
        found["unharmed"] = [core.check_pool()]
        for rows in core.pools():
            byte = ctypes.c_uint8.from_address(rows.start + rows.bytes - 1)
            byte.value ^= 1
            found["unharmed"].append(core.check_pool())
            byte.value ^= 1
    lists = core_part.Lists(core.library, 2, 8, 3, 128, 1024, 256, 17, 150, 1)
    cell = core_part.Cell(core, lists, 656, 1 << 20, 0, 1, 0, False, False, core.rows)
    cell.load(0)
    views = [cell.view(layer) for layer in range(2)]
    found["any_order"] = all(view.any_order for view in views)
    start = core.beside.start or core.rows.start
    found["elsewhere"] = bool(core.beside.start) and views[0].window == start and all(
        start <= view.window < start + core.beside.bytes for view in views)
    found["entries"] = 2 * 3 * 128
    found["checked"] = cell.check_other([view.slots for view in views],
                                        [view.window for view in views], views[0].slot_count)
    cell.close()
    lists.close()
    core.close()
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[5:] and sys.argv[5] == "inside":
        inside(*sys.argv[6:])
    else:
        unittest.main(argv=sys.argv[:1] + sys.argv[5:])
