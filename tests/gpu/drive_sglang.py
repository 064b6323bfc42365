#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Start an unmodified SGLang server, send it seeded prompts and write what it answers.

The server inherits the environment, LD_PRELOAD included; its output goes to
OUT.json.server.log. Prompts, turns, --bench and OUT.json as in drive_vllm.py.
What follows `--` goes to the server. Made for SGLang 0.5.17 and the checkpoint
of tests/gpu/checkpoint. The first start compiles SGLang's kernels: minutes.
"""
import argparse
import concurrent.futures
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request

URL = "http://127.0.0.1:30000"
ENV = dict(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", SGLANG_NUMA_BIND_V2="0",
           GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo", FLASHINFER_USE_CUDA_NORM="1",
           CUDA_HOME="/usr/local/cuda", PYTHONUNBUFFERED="1")


def generate(ids, tokens, start):
    body = {"input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": tokens,
                                                  "ignore_eos": True}}
    if start is not None:
        body |= {"return_logprob": True, "logprob_start_len": start}
    request = urllib.request.Request(URL + "/generate", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=550) as reply:
        return json.load(reply)


def ask(prompts, tokens, concurrency, logprobs=True):
    """All answers, in order."""
    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(
            lambda ids: generate(ids, tokens, max(0, len(ids) - 512) if logprobs else None),
            prompts))


def wait_ready(server, log):
    while True:
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode}; see {log}")
        try:
            urllib.request.urlopen(URL + "/health", timeout=5).close()
            return
        except OSError:
            time.sleep(1)


def drive(a, figures):
    rng = random.Random(7)
    prompts = [[rng.randrange(8192) for _ in range(int(n))] for n in a.lens.split(",")]
    answers = []
    for turn in (1, 2):
        t = time.time()
        for ids, r in zip(prompts, ask(prompts, a.tokens, a.concurrency)):
            meta = r["meta_info"]
            answers.append(dict(ids=r["output_ids"], start=max(0, len(ids) - 512),
                                plp=[x[0] for x in meta["input_token_logprobs"]],
                                cached=meta.get("cached_tokens")))
        figures[f"turn{turn}_s"] = round(time.time() - t, 2)
        print(f"turn {turn}", figures, flush=True)
        json.dump(dict(answers=answers, figures=figures), open(a.out, "w"))
    if a.bench:
        batch = [q for q in prompts for _ in range(a.bench)]
        t = time.time()
        ask(batch, 256, len(batch), logprobs=False)
        figures["bench_tokens_per_s"] = round(len(batch) * 256 / (time.time() - t), 1)
    figures["cached_tokens"] = sum(x["cached"] or 0 for x in answers)
    print("end", figures, flush=True)
    json.dump(dict(answers=answers, figures=figures), open(a.out, "w"))


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--kv", default="fp8_e4m3", choices=("fp8_e4m3", "bfloat16"),
                   help="fp8_e4m3: FlashMLA, rows of 656 B; bfloat16: FA3 decode, rows of 1,152 B")
    p.add_argument("--tokens-in-pool", type=int, default=524288,
                   help="upper limit of the KV pool, which SGLang sizes from free memory")
    p.add_argument("--lens", default="3000,5000,9000,20000,2500,4096,7000,12000")
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--concurrency", type=int, default=8)
    p.add_argument("--bench", type=int, default=0)
    argv = sys.argv[1:]
    cut = argv.index("--") if "--" in argv else len(argv)
    a, extra = p.parse_args(argv[:cut]), argv[cut + 1:]
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", a.model,
               "--skip-tokenizer-init", "--dtype", "bfloat16", "--kv-cache-dtype", a.kv,
               "--context-length", "32768", "--chunked-prefill-size", "8192",
               "--max-running-requests", "32", "--max-total-tokens", str(a.tokens_in_pool),
               "--mem-fraction-static", "0.7", "--cuda-graph-max-bs-decode", "32",
               "--cuda-graph-backend-prefill", "disabled", "--sampling-backend", "pytorch",
               "--grammar-backend", "none", "--mm-feature-transport", "cpu",
               "--disable-flashinfer-autotune", "--random-seed", "1", "--watchdog-timeout", "600",
               "--host", "127.0.0.1", "--port", "30000", *extra]
    log = a.out + ".server.log"
    start = time.time()
    with open(log, "w") as output:
        server = subprocess.Popen(command, env={**ENV, **os.environ}, start_new_session=True,
                                  stdout=output, stderr=subprocess.STDOUT)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    figures = {}
    try:
        wait_ready(server, log)
        figures["ready_s"] = round(time.time() - start, 1)
        print("ready", figures, flush=True)
        drive(a, figures)
    finally:
        try:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(20)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
