#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The hisparse command from outside: outputs, numbers and exit statuses."""
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

COMMAND, PROBE, SOFTGPU = sys.argv[1:4]
MODELS = pathlib.Path(__file__).parent / "models"
EIGHT = ["--gpus", "8", "--host-gib", "1000", "--weights-gib", "90"]


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HISPARSE_", "LD_PRELOAD"))}
    # A sanitized command, too, is started with something preloaded.
    return dict(kept, ASAN_OPTIONS="verify_asan_link_order=0", **more)


def run(*arguments, **more):
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True,
                          timeout=120, env=environment(**more))


def write_trace(path, lists, context, note=""):
    """lists[step][layer][request] = positions."""
    data = struct.pack("<4s5IQ", b"DSAT", 1, len(lists[0]), len(lists), len(lists[0][0]),
                       len(lists[0][0][0]), context)
    for step in lists:
        for layer in step:
            for row in layer:
                data += struct.pack(f"<{len(row)}i", *row)
    path.write_bytes(data + (b"NOTE" + note.encode() if note else b""))


def give_up(*_):
    raise TimeoutError("it hangs")


class Case(unittest.TestCase):
    def setUp(self):
        signal.signal(signal.SIGALRM, give_up)
        signal.alarm(100)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def good(self, *arguments, status=0, **more):
        done = run(*arguments, **more)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout

    def bad(self, *arguments, status=2, says="", **more):
        done = run(*arguments, **more)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertIn(says, done.stderr)
        self.assertEqual(done.stdout, "")


class Front(Case):
    def test_help_of_every_command(self):
        commands = re.findall(r"^  (\w+)  ", self.good("--help"), re.M)
        self.assertGreaterEqual(set(commands), {"run", "doctor", "plan", "replay", "synth", "plot"})
        for command in commands:
            text = self.good(command, "--help")
            self.assertRegex(text, rf"(?i)usage: hisparse {command}")
            self.assertEqual(self.good("help", command), text)

    def test_wrong_usage(self):
        self.bad(says="Usage: hisparse COMMAND")
        self.bad("fly", says="no command is called fly")
        for command in ("run", "doctor", "plan", "replay", "synth"):
            self.bad(command, "--no-such-option", "x", says="no-such-option")
        self.assertRegex(self.good("--version"), r"^hisparse \d+\.\d+\.\d+\n$")


class Plan(Case):
    def plan(self, model, *arguments, status=0):
        return json.loads(self.good("plan", "--json", "--model", MODELS / f"{model}.json", *EIGHT,
                                    *arguments, status=status))

    def test_bytes_of_a_token(self):
        for model, kv, total in (("deepseek-v3.2", "fp8", 48068), ("deepseek-v3.2", "bf16", 78324),
                                 ("glm-5", "fp8", 61464), ("glm-5", "bf16", 100152),
                                 ("glm-5.2", "fp8", 53940)):
            self.assertEqual(self.plan(model, "--kv", kv)["bytes_per_token"]["engine"], total)

    def test_text_says_what_to_set(self):
        text = self.good("plan", "--model", MODELS / "deepseek-v3.2.json", *EIGHT)
        self.assertIn("HISPARSE_SLOTS=131072 HISPARSE_HOST_GIB=125 HISPARSE_ROW=656 "
                      "HISPARSE_LAYERS=61", text)
        self.assertIn("40,016", text)
        self.assertIn("256 requests of 32,768 tokens fit.", text)
        self.assertNotIn("\033", text)
        self.assertFalse([line for line in text.splitlines() if line != line.rstrip()])

    def test_status_tells_whether_it_fits(self):
        self.assertTrue(self.plan("deepseek-v3.2", "--concurrency", 300)["node"]["fits"])
        node = self.plan("deepseek-v3.2", "--concurrency", 3000, status=1)["node"]
        self.assertFalse(node["fits"])

    def test_link_time_grows_with_the_requests(self):
        one, two = (self.plan("glm-5", "--concurrency", n)["step"] for n in (64, 128))
        self.assertAlmostEqual(two["missed_rows"], 2 * one["missed_rows"], delta=2)
        self.assertAlmostEqual(two["link_ms"], 2 * one["link_ms"], delta=0.001)
        self.assertAlmostEqual(one["link_ms"], one["missed_rows"] * 656 / 43e6, delta=0.001)

    def test_bad_input(self):
        self.bad("plan", *EIGHT, says="--model is needed")
        self.bad("plan", "--model", MODELS, says="--host-gib is needed")
        self.bad("plan", "--model", "nowhere.json", *EIGHT, status=1, says="nowhere.json")
        self.bad("plan", "--model", MODELS / "glm-5.json", *EIGHT, "--gpu", "H9000", says="H9000")
        self.bad("plan", "--model", MODELS / "glm-5.json", *EIGHT, "--dp", "3", says="--dp=3")
        self.bad("plan", "--model", MODELS / "glm-5.json", *EIGHT, "--context", "long", says="long")
        self.bad("plan", "--model", MODELS / "glm-5.json", "--host-gib", "9", status=1,
                 says="no room for KV")


class Replay(Case):
    def setUp(self):
        super().setUp()
        self.trace = self.path / "t.dsat"
        # A core of two rows, two that alternate over four.
        step = [[[0, 1, 2, 3]]], [[[0, 1, 4, 5]]]
        write_trace(self.trace, [step[i % 2] for i in range(20)], 8, "made by hand")

    def test_numbers(self):
        found = json.loads(self.good("replay", self.trace, "--json", "--slots", "4,6"))
        self.assertEqual(found["skip"], 4)
        self.assertEqual(found["selections"], 16 * 4)
        self.assertEqual(found["not_in_step_before"], 0.5)
        self.assertEqual(found["trace"]["note"], "made by hand")
        self.assertFalse(found["trace"]["synthetic"])
        small, large = found["policies"]
        self.assertEqual(set(small["miss_rate"].values()), {0.5})
        self.assertEqual(large["miss_rate"],
                         {"vanilla": 0.5, "fifo": 0, "random": 0, "lru": 0, "belady": 0})
        self.assertEqual(found["curve"]["mean"][0], 0.5)
        self.assertEqual(found["heat"]["misses"][0][:3], [4, 2, 0])

    def test_policies_and_buffers_are_chosen(self):
        write_trace(self.trace, [[[[0, 1], [2, 3]]] for _ in range(9)], 8)
        text = self.good("replay", self.trace, "--policy", "lru,fifo", "--buffer", "shared",
                         "--slots", "2")
        self.assertIn("one buffer shared by all", text)
        self.assertNotIn("a buffer per request", text)
        self.assertNotIn("belady", text)
        self.assertIn("4 slots", text)

    def test_recordings(self):
        """Version 2: requests come and go, their lists are one."""
        head = struct.pack("<4s7I", b"DSAT", 2, *[0] * 6)

        def lists(step, layer, *rows):
            return struct.pack(f"<4I{len(rows)}I", layer, step, len(rows), 3, *map(len, rows)) + \
                b"".join(struct.pack(f"<{len(row)}i", *row) for row in rows)

        steps = [lists(i, layer, [1, 2, 3 + i % 2], *([[7, 8]] if i > 4 else []))
                 for i in range(12) for layer in (0, 1)]
        self.trace.write_bytes(head + b"".join(steps) + b"NOTEhere")
        found = json.loads(self.good("replay", self.trace, "--json", "--slots", "5,6", "--skip", 0))
        self.assertTrue(found["trace"]["merged"])
        self.assertEqual(found["heat"]["slots_per_request"], 6)
        self.assertEqual([line[:7] for line in found["heat"]["misses"]],
                         [[3, 1, 0, 0, 0, 2, 0]] * 2)
        self.assertIn("all requests together: up to 5 rows a step, 9 slots",
                      self.good("replay", self.trace, "--skip", 0))
        self.trace.write_bytes(head + b"NOTErecorded slots: 0 launches")
        self.bad("replay", self.trace, status=1, says="nothing was recorded")

    def test_bad_input(self):
        self.bad("replay", says="which trace?")
        self.bad("replay", self.trace, "--slots", "3", says="below the trace's top-k 4")
        self.bad("replay", self.trace, "--policy", "mru", says="mru")
        self.bad("replay", self.trace, "--skip", "20", status=1, says="too few")
        self.bad("replay", self.path / "none", status=1, says="No such file")
        whole = self.trace.read_bytes()
        self.trace.write_bytes(whole[:100])
        self.bad("replay", self.trace, status=1, says="not a DSAT version 1 or 2 trace")
        self.trace.write_bytes(b"DSAX" + whole[4:])
        self.bad("replay", self.trace, status=1, says="not a DSAT version 1 or 2 trace")
        write_trace(self.trace, [[[[8, 1]]]] * 9, 8)
        self.bad("replay", self.trace, status=1, says="beyond the trace's context")


class Synth(Case):
    def test_says_that_it_is_synthetic(self):
        trace = self.path / "s.dsat"
        self.good("synth", "--output", trace, "--layers", 4, "--steps", 30, "--top-k", 64,
                  "--context", "2k", "--calibration", "hard")
        text = self.good("replay", trace)
        self.assertIn("\nsynthetic, calibration hard", text)
        found = json.loads(self.good("replay", trace, "--json"))
        self.assertTrue(found["trace"]["synthetic"])
        # Layers 1-16 of 61 change least: the first of four is calmer than the second.
        first, second = (line[0] for line in found["curve"]["layers"][:2])
        self.assertLess(first, second)

    def test_bad_input(self):
        self.bad("synth", "--calibration", "soft", says="easy or hard")
        self.bad("synth", "--context", "100", says="below --top-k")
        self.bad("synth", "--output", self.path / "no" / "t", "--steps", 1, "--layers", 1,
                 "--top-k", 8, "--context", 64, status=1, says="No such file")


class Plot(Case):
    def test_pictures(self):
        trace, document = self.path / "s.dsat", self.path / "s.json"
        self.good("synth", "--output", trace, "--layers", 3, "--steps", 30, "--top-k", 64,
                  "--context", "2k", "--requests", 2)
        document.write_text(self.good("replay", trace, "--json"))
        page = self.good("plot", document, "-o", self.path / "out").strip()
        names = {path.name for path in (self.path / "out").iterdir()}
        self.assertEqual(names, {"index.html", "s.bars.svg", "s.shared.svg", "s.curve.svg",
                                 "s.heat.svg"})
        for path in (self.path / "out").glob("*.svg"):
            xml.etree.ElementTree.parse(path)
            self.assertIn("SYNTHETIC", path.read_text())
        html = pathlib.Path(page).read_text()
        self.assertEqual(html.count("<svg"), 4)
        # Self-contained: nothing is loaded from elsewhere.
        self.assertFalse(re.search(r'(?:src|href)="(?!data:)', html))
        for kind, slots in (("bars", (64, 128, 256)), ("shared", (128, 256, 512))):
            text = (self.path / "out" / f"s.{kind}.svg").read_text()
            self.assertEqual(re.findall(r">(\d+) slots<", text), [str(n) for n in slots])
        rate = json.loads(document.read_text())["policies"][1]["miss_rate"]["lru"]
        self.assertIn(f"LRU: {100 * rate:.2f} %", html)

    def trace(self, name, timed):
        """Two steps of three layers; the second misses what its number says."""
        lines = [dict(type="head", version="1", pid=1, clock="cupti" if timed else "device")]
        for step in (1, 2, 3):
            for layer in range(3):
                t = 1000000 * step + 10000 * layer
                swap = dict(type="kernel", kind="swap-in", device=0, end=t + 3000, layer=layer,
                            step=step, hits=9, misses=100 * step + layer, inplace=0, bytes=7)
                if timed:
                    swap.update(name="hs_resolve", stream=7, start=t)
                    lines.append(dict(type="kernel", kind="attention", device=0, name="a", stream=7,
                                      start=t + 4000, end=t + 9000, layer=layer, step=step,
                                      stall=4500))
                lines.append(swap)
            lines.append(dict(type="step", start=1000000 * step, end=1000000 * step + 29000,
                              step=step, device=0, launches=3, swap_in=9000 * timed,
                              attention=15000 * timed, stall=13500 * timed, hits=27,
                              misses=300 * step + 3, inplace=0, bytes=21))
        path = self.path / name
        path.write_text("".join(json.dumps(line) + "\n" for line in
                                [*lines, dict(type="end", lost_kernels=0)]))
        return path

    def test_traces(self):
        self.good("plot", self.trace("t.jsonl", True), self.trace("u.jsonl", False), "-o",
                  self.path / "out")
        names = {path.name for path in (self.path / "out").iterdir()}
        self.assertEqual(names, {"index.html", "t.timeline.svg", "t.steps.svg", "t.heat.svg",
                                 "u.heat.svg"})
        for path in (self.path / "out").glob("*.svg"):
            xml.etree.ElementTree.parse(path)
        text = (self.path / "out" / "t.timeline.svg").read_text()
        self.assertIn("Step 2: what ran when", text)
        self.assertIn("603 misses, attention waited 13.5 µs", text)
        self.assertEqual(re.findall(r"<title>(layer 1[^<]*|swap-in, layer 1[^<]*)<", text),
                         ["layer 1, attention waited 4.5 µs",
                          "swap-in, layer 1, 3.0 µs, 201 misses, 9 hits"])
        self.assertIn("≥ 301<", (self.path / "out" / "u.heat.svg").read_text())
        empty = self.path / "e.jsonl"
        for content, says in (("", "no head"), ('{"type":"head"}\n', "no step")):
            empty.write_text(content)
            self.bad("plot", empty, "-o", self.path / "out", status=1, says=says)

    def test_bad_input(self):
        document = self.path / "x.json"
        document.write_text("{}")
        self.bad("plot", document, "-o", self.path / "out", status=1, says="x.json")
        self.bad("plot", status=2, says="FILE")


class Run(Case):
    def go(self, *arguments, **more):
        return run("run", "--library", PROBE, *arguments, **more)

    def test_sets_the_preload_and_the_options(self):
        show = 'printf "%s|%s|%s|%s" "$LD_PRELOAD" "$HISPARSE_SLOTS" "$HISPARSE_DISABLE" "$1"'
        done = self.go("--slots", 4096, "--disable", "--", "sh", "-c", show, "sh", "--slots")
        self.assertEqual(done.stdout, f"{os.path.realpath(PROBE)}|4096|1|--slots")
        self.assertEqual(done.returncode, 0)

    def test_prepends_once(self):
        probe = os.path.realpath(PROBE)
        for present, expected in (("", probe), (probe, probe), (f"/x.so {probe}", f"/x.so {probe}"),
                                  ("/x.so:/y.so", f"{probe}:/x.so:/y.so")):
            done = self.go("--dry-run", "true", LD_PRELOAD=present)
            line = done.stdout.replace("'", "")
            self.assertTrue(line.startswith(f"LD_PRELOAD={expected} true"), line)

    def test_flags_win_over_the_environment(self):
        done = self.go("--slots", 8192, "--dry-run", "true", HISPARSE_SLOTS="4096",
                       HISPARSE_LIBRARY="/nowhere")
        self.assertIn("HISPARSE_SLOTS=8192", done.stdout)
        self.assertNotIn("HISPARSE_LIBRARY", done.stdout)

    def test_row_comes_from_the_model(self):
        model = self.path / "model"
        model.mkdir()
        (model / "config.json").write_text((MODELS / "glm-5.json").read_text())
        for program, row in ((["vllm", "serve", model, "--kv-cache-dtype", "fp8"], 656),
                             (["vllm", "serve", model], 1152),
                             (["python", "-m", "server", f"--model-path={model}",
                               "--kv-cache-dtype=fp8_e4m3"], 656),
                             (["x", "--model", model, "--kv-cache-dtype", "bfloat16"], 1152),
                             (["vllm", "serve", "some/hub-name"], None)):
            line = self.go("--dry-run", "--", *program).stdout
            self.assertEqual(re.findall(r"HISPARSE_ROW=(\d+)", line), [str(row)] if row else [])
            self.assertEqual(re.findall(r"HISPARSE_LAYERS=(\d+)", line), ["78"] if row else [])
        line = self.go("--row", 576, "--dry-run", "--", "vllm", "serve", model).stdout
        self.assertIn("HISPARSE_ROW=576", line)
        self.assertIn("HISPARSE_LAYERS=78", line)

    def test_exit_statuses(self):
        self.assertEqual(self.go("sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.go("sh", "-c", "kill -9 $$").returncode, 128 + 9)
        self.assertEqual(self.go("./no-such-program").returncode, 127)
        self.assertEqual(self.go(str(MODELS)).returncode, 126)
        self.bad("run", "--library", PROBE, "--slots", "12", "true", says="HISPARSE_SLOTS='12'")
        self.bad("run", "--library", PROBE, "--policy", "mru", "true", says="lru|fifo")
        self.bad("run", "--library", PROBE, says="which program?")
        self.bad("run", "--library", "/no/such.so", "true", status=1, says="libhisparse.so")

    def test_signals_reach_the_program(self):
        program = ('trap "echo term; exit 3" TERM; trap "echo usr1" USR1; echo ready; '
                   "while :; do sleep 0.05; done")
        child = subprocess.Popen([COMMAND, "run", "--library", PROBE, "--", "sh", "-c", program],
                                 stdout=subprocess.PIPE, text=True, env=environment())
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.readline(), "ready\n")
        child.send_signal(signal.SIGUSR1)
        self.assertEqual(child.stdout.readline(), "usr1\n")
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.stdout.readline(), "term\n")
        self.assertEqual(child.wait(), 3)
        child.stdout.close()

    def test_program_does_not_outlive_a_killed_command(self):
        child = subprocess.Popen([COMMAND, "run", "--library", PROBE, "--", "sh", "-c",
                                  "echo $$; exec sleep 60"], stdout=subprocess.PIPE, text=True,
                                 env=environment())
        pid = int(child.stdout.readline())
        child.kill()
        child.wait()
        child.stdout.close()
        for _ in range(200):
            if not os.path.exists(f"/proc/{pid}") or "Z" in pathlib.Path(
                    f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1][:3]:
                return
            time.sleep(0.05)
        self.fail("the program is still there")


class Doctor(Case):
    def setUp(self):
        super().setUp()
        self.root, self.python = self.path / "root", self.path / "python"
        self.put("proc/meminfo", "MemTotal:  1056964608 kB\nMemAvailable:  1048576000 kB\n")
        self.put("sys/devices/system/node/node0/meminfo", "Node 0 MemFree: 524288000 kB\n")
        self.put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
        self.put("proc/self/cgroup", "0::/pod/one\n")
        self.engines("python 3.12.1")

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def engines(self, *lines):
        self.python.write_text("#!/bin/sh\n" + "".join(f"echo {line}\n" for line in lines))
        self.python.chmod(0o755)

    def look(self, *arguments, status=0, **more):
        more.setdefault("LD_LIBRARY_PATH", os.path.dirname(SOFTGPU))
        text = self.good("doctor", "--json", "--root", self.root, "--python", self.python,
                         *arguments, status=status, HISPARSE_LIBRARY=PROBE, **more)
        return {(f["topic"], f["level"]): f for f in json.loads(text)["findings"]}

    def test_a_good_machine(self):
        found = self.look("--quick")
        self.assertNotIn("act", {level for _, level in found})
        self.assertIn("1000 of 1008 GiB available; about 900 GiB",
                      found["host memory", "ok"]["finding"])
        self.assertEqual(found["NUMA", "ok"]["finding"], "node 0 has 500 GiB free")
        self.assertIn("[madvise]", found["huge pages", "ok"]["finding"])
        self.assertIn("1 GPU", found["driver", "ok"]["finding"])
        self.assertIn("sm_90", found["GPU", "ok"]["finding"])

    def test_measures_the_copy(self):
        # How fast the stand-in copies, and so the status, is the machine's business.
        done = run("doctor", "--root", self.root, "--python", self.python,
                   LD_LIBRARY_PATH=os.path.dirname(SOFTGPU))
        self.assertRegex(done.stdout, r"(?m)^\w+ +copy +GPU 0: \d+\.\d GB/s from pinned memory$")

    def test_measures_the_gather(self):
        arguments = ["doctor", "--root", self.root, "--python", self.python]
        folder = os.path.dirname(SOFTGPU)
        gather = pathlib.Path(PROBE).with_name("libhisparse_gather.so")
        for option, kind in (("", "managed"), ("managed", "managed"), ("registered", "pinned")):
            done = run(*arguments, LD_LIBRARY_PATH=folder, LD_PRELOAD=gather,
                       HISPARSE_HOST_MEMORY=option)
            self.assertRegex(done.stdout, r"(?m)^\w+ +gather +GPU 0: rows of 656 bytes at "
                             rf"\d+\.\d GB/s from {kind} memory$")
        done = run(*arguments, LD_LIBRARY_PATH=folder)
        self.assertRegex(done.stdout, r"(?m)^note +gather +GPU 0: no gather of rows")
        self.assertNotIn("gather", run(*arguments, "--quick", LD_LIBRARY_PATH=folder).stdout)

    def test_what_needs_attention(self):
        self.put("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n")
        self.put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")
        # The parent's limit is the smaller one.
        self.put("sys/fs/cgroup/pod/one/memory.max", f"{64 << 30}\n")
        self.put("sys/fs/cgroup/pod/memory.max", f"{8 << 30}\n")
        self.put("sys/fs/cgroup/memory.max", "max\n")
        found = self.look("--quick", status=1)
        self.assertEqual(found["container", "act"]["finding"], "the control group may hold 8.0 GiB")
        self.assertIn("HISPARSE_HOST_GIB", found["container", "act"]["advice"])
        self.assertIn("8 of 16 GiB", found["host memory", "act"]["finding"])
        self.assertIn("madvise", found["huge pages", "act"]["advice"])
        self.assertNotIn(("copy", "ok"), found)

    def test_no_driver(self):
        empty = self.path / "libcuda.so.1"
        empty.write_text("")
        found = self.look(status=1, LD_LIBRARY_PATH=self.folder.name)
        self.assertIn("no libcuda.so.1", found["driver", "act"]["finding"])
        self.assertIn("plot work without", found["driver", "act"]["advice"])

    def test_engines(self):
        self.engines("python 3.12.1", "vllm 0.26.0", "sglang 0.5.2", "nvidia-cuda-cupti 13.0.85")
        found = self.look("--quick")
        self.assertEqual(found["engine", "ok"]["finding"], "vllm 0.26.0: its kernels are known")
        self.assertIn("sglang 0.5.2: verified is 0.5.17", found["engine", "note"]["finding"])
        self.assertIn("13.0.85", found["CUPTI", "ok"]["finding"])
        self.engines("exit 3")
        self.python.write_text("#!/bin/sh\nexit 3\n")
        self.assertIn(("Python", "act"), self.look("--quick", status=1))

    def test_real_python(self):
        text = self.good("doctor", "--json", "--root", self.root, "--quick", "--python",
                         sys.executable, HISPARSE_LIBRARY=PROBE,
                         LD_LIBRARY_PATH=os.path.dirname(SOFTGPU))
        found = {f["topic"]: f["finding"] for f in json.loads(text)["findings"]}
        self.assertEqual(found["Python"], f"{sys.executable} {sys.version.split()[0]}")

    def test_text(self):
        done = run("doctor", "--root", self.root, "--python", self.python, "--quick",
                   HISPARSE_LIBRARY="/no/such.so", LD_LIBRARY_PATH=os.path.dirname(SOFTGPU))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^act   library  .*\n +set HISPARSE_LIBRARY")
        self.assertNotIn("\033", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=1)
