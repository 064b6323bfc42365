#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the programs of tests/preload that touch windows on a GPU, and the memory module's tests.

usage: touch.py BUILD

Each runs without the library's doing anything first, where that makes sense, so that what the
driver itself refuses is told apart, and then with it. All run, whatever fails. Status 77: no GPU.
"""
import os
import pathlib
import subprocess
import sys

# program, parts, whether it also runs with HISPARSE_DISABLE
PROGRAMS = (
    ("copies", ("lines", "boxes", "batches", "fills", "captured"), True),
    ("values", ("values", "arrays"), True),
    ("nodes", ("nodes",), True),
    ("rest", ("moved", "placed", "changed", "verified"), False),
    ("boxes", ("rules",), True),
    ("answers", ("answers",), True),
    ("share", (), False),
    ("allocs", ("cap", "segments", "sleep"), False),
    ("managed", ("managed",), False),
    ("devices", ("caps", "across", "peers", "near"), False),  # with two GPUs
)
ROOT = pathlib.Path(__file__).resolve().parents[2]


def real_driver():
    """The folder of the installed libcuda.so.1, which goes before the stand-in's."""
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    found = [line.split("=> ")[1] for line in listed.splitlines() if "libcuda.so.1 " in line]
    return os.path.dirname(found[0]) if found and os.path.exists("/dev/nvidiactl") else None


def run(what, command, env):
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
        status, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        status, out, err = "none in 300 s", str(late.stdout), str(late.stderr)
    cache = [line.split("info: ")[1] for line in err.splitlines() if "info: cache:" in line]
    if status == 77:
        print(f"{what}: not on this machine", flush=True)
        return True
    print(f"{what}: {'ok' if status == 0 else f'exit {status}'}: "
          f"{'; '.join(out.strip().splitlines()[-5:] + cache)}", flush=True)
    if status:
        told = [line for line in err.splitlines() if "info: " not in line]
        told = told if len(told) < 40 else told[:30] + ["..."] + told[-10:]
        print("\n".join("    " + line for line in told), flush=True)
    return status == 0


def main():
    build, driver = pathlib.Path(sys.argv[1]).resolve(), real_driver()
    if not driver:
        return 77
    env = dict(os.environ, LD_LIBRARY_PATH=driver, HISPARSE_LOG="info",
               HISPARSE_PROFILES=str(ROOT / "tests/coherence/coherence.profile"))
    good = True
    for name, parts, plain in PROGRAMS:
        program = build / f"tests/preload/touch_{name}_gpu"
        for part in parts or (None,):
            command = [program] + ([part] if part else [])
            if plain:
                good &= run(f"{part or name}, plain", command, dict(env, HISPARSE_DISABLE="1"))
            good &= run(part or name, command, env)
    # cmocka's library may have to come along, beside the program.
    memory = build / "tests/unit/test_memory_driver"
    good &= run("memory module", [memory], dict(env, LD_LIBRARY_PATH=f"{driver}:{memory.parent}"))
    print("touched:", "as the models" if good else "DIFFERS")
    return 0 if good else 1


sys.exit(main())
