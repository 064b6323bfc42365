#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/gpu/{engine,showings,see,nsight,counters,pair.py} against what is not there (fakes/).

usage: harness.py [BUILD] …, a build folder for see and nsight: without, they are left out.
"""
import csv
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
import load  # noqa: E402
import variants  # noqa: E402

variants.GPU = HERE  # there always
BUILD = pathlib.Path(sys.argv.pop(1)) if os.path.isdir((sys.argv + [""])[1]) else None
# What uses the GPU beside the fake server, on the stand-in driver.
SCHEDULER = ("examples/dsa_decode --layers 2 --requests 400 --prompt 500 --tokens 3000 --topk 64 "
             "--threads 2 --max-batch 8")


def script(name):
    loader = importlib.machinery.SourceFileLoader(name, str(HERE / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


class Harness(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)

    def call(self, name, engine, names, *options, tokens=100000, status=0, drive=()):
        """Runs a script's main with the fakes; checks its status."""
        library = self.out / "not-a-library.so"
        library.touch()
        options = [*options, "--library", str(library), "--", *drive]
        if engine == "sglang":
            options += ["--port", free_port()]
        os.environ |= dict(FAKE_TOKENS=str(tokens), PYTHONDONTWRITEBYTECODE="1")
        sys.argv = [name, engine, str(HERE / "fakes"), "ckpt", str(self.out), *names, *options]
        with self.assertRaises(SystemExit) as ended:
            script(name).main()
        log = "".join(f"{f.name}:\n{f.read_text()}" for f in self.out.glob("*.log"))
        self.assertEqual(int(ended.exception.code or 0), status, log)

    def figures(self, name):
        return json.loads((self.out / f"{name}.json").read_text())["figures"]

    def results(self):
        lines = map(json.loads, (self.out / "results.jsonl").read_text().splitlines())
        return {line["figure"]: line for line in lines}

    def lanes(self, status, *options, **lists):
        """Runs tests/gpu/lanes with lists of these names; returns what OUT/progress says."""
        for name, text in lists.items():
            (self.out / f"{name}.list").write_text(text)
        done = subprocess.run([HERE / "lanes", self.out / "lanes", *options,
                               *(self.out / f"{name}.list" for name in lists)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, status, done.stdout)
        return [line.partition(" ")[2] for line in done.stdout.splitlines()]

    def test_lanes_wait_for_each_other(self):
        told = self.lanes(1, a="# GPU 0\nfirst: touch $OUT/first; sleep 0.2; exit 3\n"
                               "second: wait b made\nthird: cat $OUT/made; echo $LANE\n",
                          b="wait: wait a first\nmade: ls $OUT/first > $OUT/made\n"
                            "none: wait nobody\n")
        made = next(i for i, line in enumerate(told) if line.startswith("b made: status 0"))
        self.assertLess(told.index("a first: status 3, 0 s"), made)
        self.assertLess(made, told.index("a third begins"))
        text = (self.out / "lanes/a-third.log").read_text()
        self.assertEqual(text.split(), [str(self.out / "lanes/first"), "a"])

    def test_lanes_end_at_the_limit(self):
        told = self.lanes(1, "--limit", "0.5", a="long: sleep 60\nmore: true\n")
        self.assertEqual([line.split(", ")[0] for line in told],
                         ["a long begins", "a long: status over the limit", "a more: no time left"])
        self.assertIn("not LABEL: COMMAND", self.lanes(1, a="nothing\n")[0])

    def test_sizes_and_ratio(self):
        for engine in ("vllm", "sglang"):
            self.call("showings", engine, ["size-plain"], tokens=64000)
            self.call("showings", engine, ["size-preload"], tokens=320000)
            self.assertEqual(self.figures("size-plain")["tokens"], 64000)
            line = self.results()[f"{engine} size-preload tokens"]
            self.assertEqual((line["value"], line["beside"]), (320000, "plain 64000, ratio 5.0"))

    def test_cap_is_shared_and_learnt(self):
        showings = script("showings")
        a = type("A", (), dict(engine="vllm", out=self.out, gpu_gib=None, host_gib=None,
                               requests=64, prompt=20000, output=256, seconds=300, at=[64],
                               churn=False, both=False, ratio=5, rest=["--x"]))
        plain, _ = showings.plan(a, "size-plain")
        mine, args = showings.plan(a, "size-preload")
        self.assertEqual(plain["HISPARSE_GPU_GIB"], mine["HISPARSE_GPU_GIB"])
        self.assertEqual((plain["HISPARSE_PLACE"], plain["HISPARSE_HOST_GIB"]), ("device", "0"))
        self.assertNotIn("HISPARSE_PLACE", mine)
        self.assertIn("--x", args)
        # The engine held less than wanted: what it takes beside its KV is known now, and
        # with it the cap of the next group is right.
        gib = float(plain["HISPARSE_GPU_GIB"])
        showings.learn(a, "size", 1_800_000)
        beside = gib * showings.VLLM_SHARE - 1_800_000 * 6 * 788 / (1 << 30)
        many, _ = showings.plan(a, "many-plain")
        holds = (float(many["HISPARSE_GPU_GIB"]) * showings.VLLM_SHARE - beside) * (1 << 30) / 4728
        self.assertAlmostEqual(holds / (16 * 20256), 1, delta=0.02)
        again, _ = showings.plan(a, "size-plain")
        self.assertEqual(again, plain)
        a.engine = "sglang"
        _, args = showings.plan(a, "many-theirs")
        self.assertLess(args.index("--x"), args.index("--"))
        self.assertEqual(json.loads(args[-1]), dict(top_k=2048, device_buffer_size=4096,
                                                    host_to_device_ratio=5))

    def test_many_requests(self):
        options = ("--requests", "6", "--prompt", "777", "--output", "64", "--at", "2,6")
        self.call("showings", "vllm", ["many-plain", "many-preload"], *options)
        self.call("showings", "vllm", ["many-hot"], *options)
        self.assertEqual(self.figures("many-hot")["tokens"], 6 * 15 * 64)
        self.call("showings", "sglang", ["many-theirs"], *options, tokens=1000)
        for name in ("many-plain", "many-theirs"):
            found = self.figures(name)
            self.assertEqual([found[f"batch{n}_retractions"] for n in (2, 6)], [2, 6])
            self.assertEqual(found["batch6_running"], 6)
            for key in ("tokens_per_s", "decode_tokens_per_s", "ttft_median_s"):
                self.assertGreater(found[f"batch6_{key}"], 0)
            self.assertLess(found["batch6_decode_tokens_per_s"], 6 * 4000)
        self.assertEqual(found["tokens"], 5000)
        self.assertEqual((found["device_tokens"], found["own_host_gb"]), (1000, 1.25))
        self.assertEqual(found["batch6_server_tokens_per_s"], 123.5)
        self.assertIn("ratio", self.results()["vllm many-preload batch6_tokens_per_s"]["beside"])

    def test_churn(self):
        for engine, group in (("vllm", "many"), ("sglang", "churn")):
            self.call("showings", engine, [f"{group}-plain", f"{group}-preload"], "--seconds", "1",
                      "--prompt", "900", "--requests", "32", "--churn")
            summary = (self.out / "summary.txt").read_text()
            for moment in ("during1", "after"):
                self.assertIn(f"{group}-plain before and {group}-preload {moment}: "
                              "same token ids 10/10", summary)
            self.assertIn("output: bit-equal 1.0000", summary)
            found = self.figures(f"{group}-preload")
            self.assertGreater(found["churn_requests"], 48)
            self.assertEqual(found["churn_failed"], 0)

    def test_pools_are_enough_for_the_goals(self):
        """With what SGLang took beside its KV, and what was kept for hot rows, at these caps."""
        showings = script("showings")
        a = type("A", (), dict(engine="sglang", out=self.out, gpu_gib=None, host_gib=None,
                               requests=64, prompt=20000, output=256, seconds=300, at=[64],
                               churn=False, rest=[]))
        for group, goal, reserve, row in (("size", 5, 1.5, 656), ("bsize", 7.5, 1.7, 1152)):
            env, _ = showings.plan(a, f"{group}-preload")
            gib, share = showings.cap_of(a, group)
            plain, told = (share * total - 1.302 for total in (
                gib, gib + float(env["HISPARSE_HOST_GIB"]) - reserve))
            self.assertGreater(told / plain, goal, group)
            self.assertLess(told / plain, goal + 0.2, group)

    def test_fits(self):
        self.call("showings", "vllm", ["fits-plain1", "fits-preload1"])
        self.assertEqual(len(self.figures("fits-plain1")["decode_each"]), 40)
        for what in ("decode", "decode_best"):
            self.assertIn(f"fits {what}_tokens_per_s: preload / plain [",
                          (self.out / "summary.txt").read_text())

    def test_both_at_once(self):
        """On two GPUs, which they change; where there is one only churn."""
        os.environ["CUDA_VISIBLE_DEVICES"] = "4,7"
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES")
        names = [f"fits-{who}{i}" for i in "123" for who in ("plain", "preload")]
        self.call("showings", "vllm", names, "--both")
        self.assertEqual({p.name.rpartition(".")[0] for p in self.out.glob("*.meet.*")},
                         {f"fits{i}.meet" for i in "123"})
        self.assertEqual(len(list(self.out.glob("*.meet.*"))), 6)
        for log in self.out.glob("fits*.log"):
            self.assertNotIn("nobody else came", log.read_text())
        summary = (self.out / "summary.txt").read_text()
        self.assertEqual(summary.count("pairs 1 and 2 together"), 2)
        line = self.results()["vllm fits decode_tokens_per_s preload / plain, median of 3 pairs"]
        self.assertAlmostEqual(line["value"], 1, delta=0.4)
        showings, a = script("showings"), types.SimpleNamespace(engine="vllm", both=True)
        self.assertEqual([showings.beside(a, name)[0]["CUDA_VISIBLE_DEVICES"] for name in names],
                         ["4", "7", "7", "4", "4", "7"])
        os.environ["CUDA_VISIBLE_DEVICES"] = "4"
        names += ["size-plain", "size-preload", "churn-plain", "churn-preload"]
        self.assertEqual(showings.jobs(a, names), names[:8] + ["churn-plain+churn-preload"])
        a.both = False
        self.assertEqual(showings.jobs(a, names), names)

    def test_churn_at_once_and_alone(self):
        options = ("--seconds", "1", "--prompt", "900", "--requests", "32")
        self.call("showings", "sglang", ["churn-plain", "churn-preload"], *options, "--both")
        summary = (self.out / "summary.txt").read_text()
        self.assertIn("churn-plain before and churn-preload after: same token ids 10/10", summary)
        (self.out / "churn-plain.json").unlink()
        self.call("showings", "vllm", ["churn-preload"], *options)
        summary = (self.out / "summary.txt").read_text()
        self.assertNotIn("churn-plain", summary)
        for moment in ("during1", "after"):
            self.assertIn(f"churn-preload before and churn-preload {moment}: same token ids 10/10",
                          summary)

    def test_engine(self):
        for engine in ("vllm", "sglang"):
            self.call("engine", engine, ["plain1", "plain2", "graphs"],
                      drive=("--lens", "2500,5000"))
            self.assertEqual(self.figures("graphs")["cached_tokens"] > 0, engine == "sglang")
            self.assertIn("plain1 and graphs: same token ids 4/4",
                          (self.out / "summary.txt").read_text())
            self.assertGreater(self.results()[f"{engine} graphs bench_tokens_per_s"]["value"], 0)

    @unittest.skipUnless(BUILD, "no build folder")
    def test_see(self):
        """Everything but kernel times, of a process below the server's, in its session."""
        env = dict(os.environ, SEE_WITHOUT_GPU="1", FAKE_TOKENS="100000", FAKE_TOKEN_S="0.005",
                   FAKE_SCHEDULER=f"{BUILD}/{SCHEDULER}", HISPARSE_HOST_GIB="0.6",
                   HISPARSE_WINDOW_MIB="4", SOFTGPU_MEMORY_MIB="512",
                   LD_LIBRARY_PATH=str(BUILD / "tests/softgpu"))
        done = subprocess.run(
            [sys.executable, "-B", HERE / "see", "sglang", HERE / "fakes", "ckpt", self.out,
             "--build", BUILD, "--doctor", "--slots", "2048", "--rows", "1", "--dsat-mib", "1",
             "--tokens", "64", "--port", free_port(), "--limit", "200"], env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        for line in ("trace.jsonl: stopped", "trace.pftrace: stopped", "top: 2 layers",
                     "the drive ended with status 0", "attention dsa_attend: profile",
                     "2 windows, 0.38 GiB, 2 layers", "replay.json: status 0"):
            self.assertIn(line, done.stdout)
        self.out /= "see-sglang"
        self.assertGreater(self.results()["sglang bench_tokens_per_s"]["value"], 0)
        self.assertTrue((self.out / "plots/index.html").exists())

    def test_see_waits_for_counters_to_move(self):
        look = script("see").Look(types.SimpleNamespace(engine="vllm", out=self.out, limit=99,
                                                        build=self.out, site=""))
        moved = []
        for rows in ({}, dict(hits=(0, 0), misses=(0, 0)), dict(hits=(5, 0), misses=(3, 0)),
                     dict(hits=(5, 4), misses=(0, 0)), dict(hits=(5, 4), misses=(3, 0))):
            (look.out / "run.prom").write_text("".join(
                f'hisparse_layer_{what}_total{{device="0",layer="{i}"}} {n}\n'
                for what, counts in rows.items() for i, n in enumerate(counts)))
            moved.append(bool(look.swaps()))
        self.assertEqual(moved, [False, False, False, False, True])
        # Nobody waits for an engine that has ended.
        look.wait(subprocess.Popen("true"), lambda: False, 99)
        looks = iter(moved)
        with subprocess.Popen("cat", stdin=subprocess.PIPE) as engine:
            look.wait(engine, lambda: next(looks), 99)
            engine.stdin.close()
        self.assertEqual(list(looks), [])

    def test_see_asks_doctor_for_more_than_words(self):
        good = [dict(level=level, topic=topic, finding=finding) for level, topic, finding in (
            ("act", "copy", "GPU 0: 5.1 GB/s"), ("ok", "program", "python3: status 0"),
            ("ok", "recognised", "writer w: profile a-writer"),
            ("ok", "recognised", "attention a: profile an-attention, 16 launches"),
            ("ok", "would move", "12 windows, 1.40 GiB, 6 layers, KV rows of 656 bytes: to …"))]
        wrong = script("see").wrong
        self.assertEqual(wrong(good, 1), [])
        self.assertEqual(wrong(good[1:], 0), [])
        self.assertEqual(len(wrong(good, 0)), 1)
        for i in range(1, 5):
            self.assertEqual(len(wrong(good[:i] + good[i + 1:], 1)), 1, good[i])
        good[1]["finding"] = "python3: status 1"
        good[4]["finding"] = "0 windows, 0 GiB, 0 layers, KV rows of 0 bytes"
        self.assertEqual(len(wrong(good, 1)), 2)

    @unittest.skipUnless(BUILD and (BUILD / "tests/unit/libcupti.so.13").exists(), "no CUPTI")
    def test_nsight(self):
        """A tool that holds CUPTI; one that loses what is set below it, as the script is to tell;
        one that profiles none of our kernels."""
        every, theirs = "dsa_attend hs_resolve", "dsa_attend"
        for kernels, loses, ways, status, words in (
                (every, "", "inside,option", 0, (
                    "without kernel times: another profiler has CUPTI",
                    "kernels 1 x dsa_attend, 1 x hs_resolve",
                    "ncu: right: inside, option; wrong: none")),
                (every, "inside", "inside,outside", 0, (
                    "ncu inside: WRONG: no swap-ins in the trace",
                    "in the program's process: libcuda.so.1\n", 'doors: {"preload": null',
                    "ncu: right: outside; wrong: inside")),
                (theirs, "", "option", 1, (
                    "ncu option: WRONG: none of our kernels in the profile",
                    '"dlsym": {"cuInit": "libcuda.so.1", "cuMemAlloc_v2": "libhisparse.so"',
                    "ncu: right: no way; wrong: option"))):
            done = subprocess.run(
                [sys.executable, "-B", HERE / "nsight", BUILD, "--soft", "--tools", "ncu", "--ncu",
                 HERE / "fakes/ncu", "--ways", ways, "--out", self.out], text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=dict(os.environ, FAKE_KERNELS=kernels, FAKE_LOSES=loses))
            self.assertEqual(done.returncode, status, done.stdout)
            for word in words:
                self.assertIn(word, done.stdout)
        self.assertEqual(self.results()["kernels in ncu beside our trace, outside"]["value"], 2)

    def counters(self, *options, **fake):
        os.environ |= dict(FAKE_CELLS="3", FAKE_SLOW="") | fake
        counters = script("counters")
        counters.GPU, counters.known = HERE, lambda _: lambda metric: "unknown" not in metric
        sys.argv = ["counters", "x.so", "--ncu", str(HERE / "fakes/ncu"), "--out", str(self.out),
                    *options]
        status = counters.main()
        with open(self.out / "counters.csv") as file:
            found = {(row["kernel"], row["cell"], row["what"]): float(row["median"])
                     for row in csv.DictReader(file)}
        return status, found

    def test_counters_run_a_group_at_a_time(self):
        status, found = self.counters("--more", "x__y.sum,x__unknown.sum")
        self.assertEqual(status, 0)
        # Launches 0 to 3, 4 to 7 and 8 to 11 are a cell's.
        for cell, launch in (("b64 0.0%", 1002), ("b64 0.1%", 1006), ("b64 13.4%", 10010)):
            for kernel in ("resolve", "swapin_gather"):
                self.assertEqual([found[kernel, cell, what] for what in (
                    "occupancy %", "MB host sectors", "blocks", "x__y.sum")],
                    [launch, round(launch * 32e-6, 4), launch, launch])
        self.assertFalse([key for key in found if "stall" in key[2] or "unknown" in key[2]])

    def test_counters_keep_what_a_slow_group_has(self):
        slow = "lts__d_sectors_fill_sysmem.sum"
        status, found = self.counters("--limit", "1", "--groups", "bytes,host", FAKE_SLOW=slow)
        self.assertEqual(status, 1)
        self.assertIn(("resolve", "b64 13.4%", "MB PCIe read"), found)
        self.assertEqual(found["resolve", "b64 0.0%", "MB host sectors"], round(1001 * 32e-6, 4))
        self.assertNotIn(("resolve", "b64 0.1%", "MB host sectors"), found)

    def test_failure_is_told_and_goes_no_further(self):
        options = ("--requests", "2", "--prompt", "2000", "--output", "8", "--at", "2")
        self.call("showings", "sglang", ["many-plain", "size-plain"], *options, tokens=1000,
                  status=1)
        summary = (self.out / "summary.txt").read_text()
        self.assertIn("many-plain: status 1", summary)
        self.assertIn("400", summary)
        self.assertIn("size-plain: status 1", summary)  # 3,000 tokens do not fit either

    def test_total_ends_a_variant(self):
        a = type("A", (), dict(site=str(HERE / "fakes"), out=self.out, engine="vllm", total=61,
                               checkpoint="ckpt", limit=99))
        ended = {}

        def one(name):
            a.until -= 60  # as if it had been a long time
            ended[name] = variants.run(a, name, None, [])

        os.environ["FAKE_TOKENS"] = "64000"
        os.environ["FAKE_START_S"] = "99"
        try:
            variants.each(a, ["endless", "later"], ended, one)
        finally:
            del os.environ["FAKE_START_S"]
        self.assertEqual(ended, dict(endless="over 1 s"))

    def test_counters(self):
        (self.out / "x.prom").write_text(
            'hisparse_window_bytes{pid="1",place="device"} 7\n'
            'hisparse_window_bytes{pid="1",place="host"} 9\n'
            'hisparse_layer_hot_rows{device="0",layer="0"} 5\n'
            'hisparse_layer_hot_rows{device="0",layer="1"} 4\n')
        self.assertEqual(variants.counters(self.out, "x"), dict(
            window_bytes_device=7, window_bytes_host=9, layer_hot_rows=9, layer_hot_rows_least=4))

    def test_pair_counts_windows_that_moved(self):
        pair = script("pair.py")
        said = "".join(f"hisparse[{pid}]: debug: window {i}: {what}\n" for pid, i, what in (
            (1, 0, "96 MiB at 0x3d00 on the device"), (2, 0, "96 MiB at 0x3d00 on the device"),
            (1, 0, "0.09 GiB moved to the host"), (1, 0, "0.09 GiB moved to the device"),
            (1, 0, "0.09 GiB moved to the host"), (1, 1, "96 MiB at 0x3d60 on the host")))
        self.assertEqual(pair.windows(said), [2, 1, 1])
        self.assertEqual(list(pair.wrong(32, 32, (16, 0, 8))), [])
        self.assertEqual(list(pair.wrong(32, 32, (16, 1, 0))), [])
        for checks, places, word in ((32, (16, 0, 0), "on the host"), (None, (1, 1, 0), "failed"),
                                     (32, (0, 2, 0), "on a device"), (31, (2, 2, 0), "32 tensors")):
            self.assertEqual([word in one for one in pair.wrong(checks, 32, places)], [True])

    def test_measure(self):
        fast, late = load.Request([1], 4), load.Request([1], 4)
        fast.begun, fast.events, fast.ended = 0, [(1, 1), (2, 21), (3, 41)], 3
        late.begun, late.events, late.ended = 0, [(2, 1), (4, 21)], 4
        found = load.measure([fast, late])
        # from 2 (the last first token) to 3 (the first end): 20 and 10 tokens
        self.assertEqual(found["decode_tokens_per_s"], 30)
        self.assertEqual((found["running"], found["ttft_median_s"], found["tokens_per_s"]),
                         (2, 1.5, 15.5))


if __name__ == "__main__":
    unittest.main()
