# SPDX-License-Identifier: MIT
"""HISPARSE_METRICS of the demo's server on the stand-in driver.

usage: metrics.py DSA_DECODE LIBRARY SOFTGPU_FOLDER
"""
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

PROGRAM, LIBRARY, SOFTGPU = sys.argv[1:4]
COMMAND = [PROGRAM] + ("--layers 2 --requests 40 --prompt 3000 --tokens 6 --topk 256 "
                       "--threads 8").split()


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("HISPARSE_")}
    return dict(env, LD_LIBRARY_PATH=SOFTGPU, SOFTGPU_MEMORY_MIB="128", LD_PRELOAD=LIBRARY,
                HISPARSE_WINDOW_MIB="4", **more)


def values(text):
    """{family: sum of its series} of Prometheus text."""
    found = {}
    for name, value in re.findall(r"^hisparse_(\w+)\{[^}]*\} (\d+)$", text, re.M):
        found[name] = found.get(name, 0) + int(value)
    return found


class Metrics(unittest.TestCase):
    def test_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "x.%p.prom")
            with subprocess.Popen(
                    COMMAND, env=environment(HISPARSE_METRICS=str(path), HISPARSE_LOG="info"),
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
                log = process.communicate()[1]
            self.assertEqual(process.returncode, 0, log)
            files = os.listdir(folder)
            self.assertEqual(files, [f"x.{process.pid}.prom"])
            text = pathlib.Path(folder, files[0]).read_text()
        end = re.findall(r"cache: 2 layers, (\d+) hits, (\d+) misses, (\d+) in place, hit rate "
                         r"[\d.]+ %, (\d+) evictions", log)
        self.assertEqual(len(end), 1, log)
        found = values(text)
        # The last counters are in the file, after the context is gone.
        self.assertEqual([int(n) for n in end[0]],
                         [found[f"layer_{name}_total"]
                          for name in ("hits", "misses", "inplace_reads", "evictions")])
        self.assertGreater(found["layer_hits_total"], 0)
        self.assertGreater(found["layer_misses_total"], 0)
        self.assertEqual(found["layer_fetched_bytes_total"], 656 * found["layer_misses_total"])
        self.assertGreater(found["attention_remapped_total"], 0)
        self.assertGreater(found["host_pool_bytes"], 0)

    def test_port(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        text = ""
        with subprocess.Popen(COMMAND, env=environment(HISPARSE_METRICS=str(port)),
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            while not values(text).get("window_bytes") and process.poll() is None:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                        text = answer.read().decode()
                except (urllib.error.URLError, ConnectionError):
                    pass
            self.assertEqual(process.communicate()[1], b"")
            self.assertEqual(process.returncode, 0)
        self.assertIn(f'hisparse_build_info{{pid="{process.pid}",', text)
        self.assertGreater(values(text)["window_bytes"], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
