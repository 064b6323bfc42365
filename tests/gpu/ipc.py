#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Share GPU memory and events between two processes that both have the preload.

usage: ipc.py BUILD

torch.multiprocessing sends a small tensor and an event to a second process, which writes to the
one and waits for the other; plain and under the preload, with ordinary memory and with expandable
segments (shared by file descriptor where the machine lets it). A tensor that is a window cannot be
sent: that must be an error of the driver's, and both processes go on. Status 77: no GPU or no
torch.
"""
import json
import os
import pathlib
import subprocess
import sys

MIB = 1 << 20
WINDOW = 96 * MIB
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
              "PYTORCH_ALLOC_CONF": "expandable_segments:True"}


def other(inbox, outbox):
    """The second process: what it is sent is its neighbour's memory."""
    import torch

    window = torch.zeros(WINDOW, dtype=torch.uint8, device="cuda")  # one of its own
    tensor, handle = inbox.get()
    torch.cuda.Event.from_ipc_handle(torch.device("cuda", 0), handle).synchronize()
    seen = int(tensor.sum())
    tensor += 1
    torch.cuda.synchronize()
    outbox.put((seen, int(window.sum())))
    inbox.get()  # until the first one has looked


def attempt(what):
    try:
        return what()
    except Exception as error:  # torch's own kinds differ from version to version
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def child():
    import torch
    import torch.multiprocessing as multiprocessing

    if not torch.cuda.is_available():
        return 77
    context = multiprocessing.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    window = torch.full((WINDOW,), 3, dtype=torch.uint8, device="cuda")
    tensor = torch.arange(1000, dtype=torch.int32, device="cuda")
    told = {}

    def share():
        event = torch.cuda.Event(interprocess=True)
        event.record()
        handle = event.ipc_handle()
        tensor.untyped_storage()._share_cuda_()  # says what is wrong here, not in a queue's thread
        process = context.Process(target=other, args=(there, back), daemon=True)
        process.start()
        there.put((tensor, handle))
        try:
            seen, windows = back.get(timeout=120)
        finally:
            there.put(None)
            process.join(30)
            if process.is_alive():
                process.terminate()
        torch.cuda.synchronize()
        return {"seen there": seen, "its window": windows, "here": int(tensor.sum()),
                "exit": process.exitcode}

    told["tensor"] = attempt(share)
    told["window"] = attempt(lambda: bool(window.untyped_storage()._share_cuda_()))
    window[5 * MIB:6 * MIB] += 1
    told["window afterwards"] = int(window.sum(dtype=torch.int64))
    print("told", json.dumps(told))
    return 0


def run(build, variables, preload):
    env = dict(os.environ, **variables)
    env.pop("LD_PRELOAD", None)
    if preload:
        env.update(LD_PRELOAD=str(build / "src/libhisparse.so"), HISPARSE_WINDOW_MIB="64",
                   HISPARSE_HOST_GIB="2", HISPARSE_LOG="debug")
    done = subprocess.run([sys.executable, "-B", __file__, "--child"], env=env, capture_output=True, text=True)
    told = [line[5:] for line in done.stdout.splitlines() if line.startswith("told ")]
    if done.returncode != 77 and not told:
        print(done.stdout, done.stderr, f"exit {done.returncode}", sep="\n")
        sys.exit(1)
    return done, json.loads(told[0]) if told else {}


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    failed = False
    try:
        import torch  # noqa: F401
    except ImportError:
        return 77
    for name, variables in (("ordinary memory", {}), ("expandable segments", EXPANDABLE)):
        plain, said = run(build, variables, False)
        if plain.returncode == 77:
            return 77
        done, now = run(build, variables, True)
        print(f"{name}:\n  plain    {said}\n  preload  {now}")
        if name == "ordinary memory":
            failed |= said["tensor"] != {"seen there": 499500, "its window": 0, "here": 500500, "exit": 0}
            failed |= " MiB at 0x" not in done.stderr or now["window"] is True
            # what was refused is all that differs
            failed |= {**said, "window": None} != {**now, "window": None}
        else:
            failed |= said != now
        if failed:
            print(done.stdout, done.stderr, sep="\n")
    print("memory of two processes:", "DIFFERS" if failed else "as it should be")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(child() if sys.argv[1] == "--child" else main())
