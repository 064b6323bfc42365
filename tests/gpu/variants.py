# SPDX-License-Identifier: MIT
"""Runs variants of an engine run: what tests/gpu/engine and tests/gpu/showings share."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
GPU = pathlib.Path("/dev/nvidiactl")
_device = []


def arguments(p):
    p.add_argument("site")
    p.add_argument("checkpoint")
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("variants", nargs="*")
    p.add_argument("--library", type=pathlib.Path,
                   default=HERE.parent.parent / "build/src/libhisparse.so")
    p.add_argument("--limit", type=int, default=420)
    p.add_argument("--total", type=int, default=0)
    p.add_argument("--env", action="append", default=[])


def parse(p, engines):
    """The arguments, checked; ends with 77 where there is no GPU."""
    argv = sys.argv[1:]
    cut = argv.index("--") if "--" in argv else len(argv)
    a = p.parse_intermixed_args(argv[:cut])
    a.rest = argv[cut + 1:]
    for name in a.variants:
        if name not in engines[a.engine]:
            p.error(f"unknown variant {name}")
    if any("=" not in pair for pair in a.env):
        p.error("--env takes K=V")
    if not GPU.exists():
        print("no GPU")
        sys.exit(77)
    a.library = a.library.resolve()
    if not a.library.exists():
        p.error(f"no {a.library}: build it, or name it with --library")
    a.out.mkdir(parents=True, exist_ok=True)
    return a


def run(a, name, environment, args, more=()):
    """Runs one variant; returns how it ended. environment: None for no preload; more: set with
    and without."""
    env = dict(os.environ, PYTHONPATH=f"{a.site}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"))
    env.pop("LD_PRELOAD", None)
    env |= dict(more)
    if environment is not None:
        env |= dict(HISPARSE_LOG="info") | environment
        env |= dict(pair.split("=", 1) for pair in a.env)
        env |= dict(LD_PRELOAD=str(a.library), HISPARSE_METRICS=str(a.out / f"{name}.prom"))
    command = [sys.executable, str(HERE / f"drive_{a.engine}.py"), a.checkpoint,
               str(a.out / f"{name}.json"), *args]
    for old in a.out.glob(f"{name}.prom*"):
        old.unlink()
    (a.out / f"{name}.json").unlink(missing_ok=True)
    with open(a.out / f"{name}.log", "w") as log:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            limit = min(a.limit, max(1, a.until - time.time()))
            status = process.wait(limit)
            return "ok" if status == 0 else f"status {status}"
        except subprocess.TimeoutExpired:
            return f"over {limit:.0f} s"
        finally:
            stop(process)


def stop(process):
    """Ends what is left of a variant's process group."""
    for sign, wait in ((signal.SIGTERM, 40), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, sign)
            process.wait(wait)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def each(a, names, ended, one):
    """one(name) for every variant while there is time, its end kept in `ended`; a
    variant that fails does not stop the others. A name may be two, with a + between."""
    a.until = time.time() + a.total if a.total else float("inf")
    for name in names:
        if a.until - time.time() < 60:
            print(f"{name}: no time left", flush=True)
            continue
        t = time.time()
        print(f"{name} …", end=" ", flush=True)
        try:
            one(name)
        except OSError as error:
            ended |= {part: str(error) for part in name.split("+") if part not in ended}
        how = ", ".join(str(ended.get(part)) for part in name.split("+"))
        print(f"{how}, {time.time() - t:.0f} s", flush=True)


def status_of(ended):
    return any(how not in ("ok", "earlier") for how in ended.values())


def logs(out, name):
    return [log for log in (out / f"{name}.log", out / f"{name}.json.server.log") if log.exists()]


def own_lines(out, name):
    lines = []
    for log in logs(out, name):
        lines += [line for line in log.read_text(errors="replace").splitlines()
                  if "hisparse[" in line]
    (out / f"{name}.hisparse").write_text("\n".join(lines) + "\n")
    return lines


def tail(out, name, lines):
    return [line[:200] for log in logs(out, name)
            for line in log.read_text(errors="replace").splitlines()[-lines:]]


def figures(out, name):
    try:
        return json.loads((out / f"{name}.json").read_text())["figures"]
    except (OSError, ValueError, KeyError):
        return {}


def counters(out, name):
    """Name to the sum over processes; of layers the sum, and NAME_least."""
    found = {}
    for file in out.glob(f"{name}.prom*"):
        for key, labels, value in re.findall(r"^hisparse_(\w+)\{(.*)\} (\d+)$", file.read_text(),
                                             re.M):
            place = re.search(r'place="(\w+)"', labels)
            key += f"_{place[1]}" if place else ""
            found[key] = found.get(key, 0) + int(value)
            if "layer=" in labels:
                found[f"{key}_least"] = min(int(value), found.get(f"{key}_least", int(value)))
    return found


def compare(a, b):
    """The last line of tests/gpu/compare; arguments may end in :MOMENT."""
    if not all(pathlib.Path(str(x).partition(":")[0]).exists() for x in (a, b)) or a == b:
        return ""
    done = subprocess.run([sys.executable, HERE / "compare", str(a), str(b)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "cannot be compared"


def record(out, command, figure, value, unit, beside=""):
    """One line of results.jsonl, in the form of tests/gpu/record."""
    loader = importlib.machinery.SourceFileLoader("record", str(HERE / "record"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("record", loader))
    loader.exec_module(module)
    if not _device:
        _device.append(module.device())
    with open(out / "results.jsonl", "a") as file:
        file.write(module.line(_device[0], command, figure, value, unit, beside))
