# SPDX-License-Identifier: MIT
"""`hisparse run` and `hisparse doctor` around a program that has a KV cache.

usage: program.py COMMAND LIBRARY PROBE SOFTGPU DSA_DECODE

The demo's server on the stand-in driver; and, where every line counts, a shell
that writes what the library would.
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

COMMAND, LIBRARY, PROBE, SOFTGPU, DECODE = sys.argv[1:6]
SERVER = [DECODE] + ("--layers 2 --requests 40 --prompt 3000 --tokens 6 --topk 256 "
                     "--threads 8").split()
FILE = 'f=$(echo "$HISPARSE_METRICS" | sed s/%p/$$/)\n'
COUNTERS = FILE + 'echo "hisparse_build_info{pid=\\"$$\\",version=\\"1\\"} 1" >$f\n'


def series(**values):
    """Lines that a shell writes into its file of counters."""
    names = {"device": "window_bytes{pid=\\\"1\\\",place=\\\"device\\\"}",
             "host": "window_bytes{pid=\\\"1\\\",place=\\\"host\\\"}",
             "windows": "windows{pid=\\\"1\\\",place=\\\"host\\\"}",
             "pool": "host_pool_bytes{pid=\\\"1\\\"}",
             "unknown": "unknown_kernels{pid=\\\"1\\\"}",
             "hot": "layer_hot_rows{device=\\\"0\\\",layer=\\\"0\\\"}",
             "slots": "layer_slots{device=\\\"0\\\",layer=\\\"0\\\"}"}
    return "".join(f'echo "hisparse_{names[k]} {v}" >>$f\n' for k, v in values.items())


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        (self.path / "tmp").mkdir()

    def go(self, *arguments, memory=128, preexec_fn=None, **more):
        kept = {k: v for k, v in os.environ.items()
                if not k.startswith(("HISPARSE_", "LD_PRELOAD"))}
        return subprocess.run(
            [COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False,
            timeout=120, preexec_fn=preexec_fn, env=dict(kept, LD_LIBRARY_PATH=os.path.dirname(SOFTGPU),
                                  SOFTGPU_MEMORY_MIB=str(memory), HISPARSE_WINDOW_MIB="4",
                                  TMPDIR=str(self.path / "tmp"), **more))

    def tearDown(self):
        self.assertEqual(os.listdir(self.path / "tmp"), [])


class Run(Case):
    def test_summary(self):
        # On one processor, so that it runs for a while: counters come once a second.
        cpu = min(os.sched_getaffinity(0))
        long = [*SERVER, "--tokens", 24]
        done = self.go("run", "--slots", 2048, "--library", LIBRARY, "--", *long,
                       preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
        self.assertEqual(done.returncode, 0, done.stderr)
        found = re.findall(r"^hisparse: KV cache: 4 windows, ([\d.]+) GiB on the device, "
                           r"([\d.]+) GiB on the host \(pool ([\d.]+) GiB\); (\d) of 2 layers "
                           r"swap, 2,048 hot rows for ([\d,]+) tokens each, policy lru$",
                           done.stderr, re.M)
        self.assertEqual(len(found), 1, done.stderr)
        self.assertGreater(float(found[0][1]), 0.1)
        self.assertGreater(float(found[0][2]), float(found[0][1]))
        # As many tokens as the server has blocks for.
        self.assertGreater(int(found[0][4].replace(",", "")), 40 * 3000)

    def test_all_on_the_device(self):
        script = COUNTERS + series(device=3 << 30, windows=4, hot=0)
        done = self.go("run", "--library", PROBE, "--", "sh", "-c", script)
        self.assertEqual(done.stderr, "hisparse: KV cache: 4 windows, 3.00 GiB on the device, "
                         "0.00 GiB on the host (pool 0.00 GiB); 1 layers, all on the device: "
                         "nothing is swapped\n")

    def test_memory_is_freed_before_the_end(self):
        # It never stands still, so the line comes at the end.
        script = "".join(COUNTERS + series(host=i << 30, hot=9, slots=99, windows=i) +
                         "sleep 0.4\n" for i in range(1, 9)) + COUNTERS
        done = self.go("run", "--library", PROBE, "--", "sh", "-c", script)
        self.assertRegex(done.stderr, r"^hisparse: KV cache: (\d) windows, 0.00 GiB on the device, "
                         r"\1.00 GiB on the host [^\n]*\n$")

    def test_quiet(self):
        for more in (["--quiet"], ["--disable"]):
            done = self.go("run", *more, "--library", LIBRARY, "--", *SERVER)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("KV cache", done.stderr)

    def test_what_has_no_cache_is_silent(self):
        done = self.go("run", "--library", LIBRARY, "--", "sh", "-c", "exit 3")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (3, "", ""))

    def test_own_metrics(self):
        path = self.path / "m.prom"
        # Of an earlier program: not what this one has.
        path.write_text('hisparse_build_info{pid="1",version="1"} 1\n'
                        'hisparse_windows{pid="1",place="host"} 77\n')
        os.utime(path, (1, 1))
        script = FILE + "echo done"
        done = self.go("run", "--metrics", path, "--library", PROBE, "--", "sh", "-c", script)
        self.assertEqual((done.stdout, done.stderr), ("done\n", ""))

    def test_while_it_runs_and_once(self):
        counters = series(host=3 << 30, pool=5 << 30, windows=2, hot=4096, slots=1 << 20,
                          unknown=2)
        script = COUNTERS + counters + "read stop\n"
        with subprocess.Popen(
                [COMMAND, "run", "--policy", "fifo", "--library", PROBE, "--", "sh", "-c", script],
                stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=dict(os.environ, TMPDIR=str(self.path / "tmp"))) as child:
            line = child.stderr.readline()
            self.assertIsNone(child.poll())
            time.sleep(0.6)
            self.assertEqual(child.communicate("stop\n")[1], "")
        self.assertEqual(
            line, "hisparse: KV cache: 2 windows, 0.00 GiB on the device, 3.00 GiB on the host "
            "(pool 5.00 GiB); 1 of 1 layers swap, 4,096 hot rows for 1,048,576 tokens each, "
            "policy fifo; kernels that no profile knows: 2 (hisparse doctor -- … names them)\n")

    def test_several_processes(self):
        one = COUNTERS + series(host=1 << 30, pool=2 << 30, windows=1)
        script = one + "cp $f ${f}1\n"
        done = self.go("run", "--library", PROBE, "--", "sh", "-c", script)
        self.assertRegex(done.stderr, r"^hisparse: KV cache of 2 processes: 2 windows, .* 2.00 GiB "
                         r"on the host \(pool 4.00 GiB\); no attention on them is known")


class Doctor(Case):
    def look(self, *program, library=LIBRARY, more=(), **environment):
        done = self.go("doctor", "--json", "--quick", "--python", sys.executable, *more, "--",
                       *program, HISPARSE_LIBRARY=library, **environment)
        topics = ("program", "recognised", "unknown kernel", "would move", "would stay", "windows",
                  "attention", "library")
        found = [(f["topic"], f["level"], f["finding"]) for f in json.loads(done.stdout)["findings"]
                 if f["topic"] in topics and f["finding"] != os.path.realpath(library)]
        for f in json.loads(done.stdout)["findings"]:
            if f["level"] == "act":
                self.assertNotEqual(f["advice"], "", f)
        return found, done.stderr

    def test_the_demo(self):
        found, said = self.look(*SERVER, memory=256)
        # What the program prints is not among the findings.
        self.assertIn("40 requests at once", said)
        self.assertNotIn("hisparse[", said)
        self.assertEqual(found[0], ("program", "ok", f"{DECODE}: status 0"))
        kernels = sorted(text for topic, level, text in found
                         if (topic, level) == ("recognised", "ok"))
        self.assertRegex(kernels[0], r"^attention dsa_attend: profile example-attend, \d+ launches$")
        self.assertRegex(kernels[1], r"^writer dsa_write_kv: profile example-write, \d+ launches$")
        self.assertEqual(len(kernels), 2)
        self.assertRegex(found[3][2], r"^2 windows, 0.\d\d GiB, 2 layers, KV rows of 656 bytes: ")
        self.assertRegex(found[4][2], r"^2 windows, 0.\d\d GiB, hold something else")
        self.assertEqual(len(found), 5)

    def test_unknown_kernels(self):
        name = "_Z" + "x" * 200
        script = COUNTERS + f"""
say() {{ echo "hisparse[$$]: $*" >&2; }}
say "debug: seen window 3: 2048 MiB of other data, rows of 0 bytes"
say "debug: seen kernel {name}: unknown, profile none"
printf "graphs:  0%%|   | 0/7 " >&2
say "debug: seen kernel stray: unknown, profile none"
say "debug: seen window 3: 2048 MiB of KV, rows of 576 bytes"
say "warn: kernel {name[:100]} is not known and touches KV window 3: taken for a writer"
say "warn: launches of attention kernel a are left alone and read in place: x > 1 (f:3)"
say "warn: launches of attention kernel a are left alone and read in place: x > 1 (f:3)"
say "debug: launches of kernel {name}: 12"
"""
        found, said = self.look("sh", "-c", script, library=PROBE)
        self.assertEqual(said, "")
        self.assertEqual(found[1], ("unknown kernel", "act", f"{name[:140]} carries a window of KV, "
                                    "12 launches"))
        self.assertEqual(found[2], ("unknown kernel", "note", "stray carries a window without KV"))
        self.assertEqual(found[3][:2], ("attention", "act"))
        self.assertEqual(found[4][2][:45], "1 windows, 2.00 GiB, 0 layers, KV rows of 576")
        self.assertEqual([f for f in found if f[0] == "library"], [
            ("library", "act", "launches of attention kernel a are left alone and read in place: "
             "x > 1 (f:3)")])
        self.assertNotIn("would stay", {f[0] for f in found})

    def test_no_windows(self):
        found, said = self.look("sh", "-c", "echo out; echo err >&2; exit 4", library=PROBE)
        self.assertEqual(sorted(said.split()), ["err", "out"])
        self.assertEqual([f[:2] for f in found], [("program", "act"), ("windows", "act")])
        self.assertIn("status 4", found[0][2])
        found, said = self.look("./no-such-program", library=PROBE)
        self.assertIn("status 127", found[0][2])

    def test_stops(self):
        script = 'trap "exit 0" TERM; echo "hisparse[1]: debug: seen kernel k: writer, profile p" ' \
            ">&2; while :; do sleep 0.1; done"
        found, _ = self.look("sh", "-c", script, library=PROBE, more=["--seconds", "1"])
        self.assertIn("stopped after 1 seconds", found[0][2])

    def test_environment(self):
        script = 'echo "$HISPARSE_PLACE $HISPARSE_LOG $HISPARSE_DISABLE $LD_PRELOAD"'
        _, said = self.look("sh", "-c", script, library=PROBE, HISPARSE_DISABLE="1")
        self.assertEqual(said, f"device debug  {os.path.realpath(PROBE)}\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[6:], verbosity=1)
