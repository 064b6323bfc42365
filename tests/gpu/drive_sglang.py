#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Start an unmodified SGLang server, ask it over HTTP, and write what it answers.

The server inherits the environment, LD_PRELOAD included; its output goes to
OUT.json.server.log. What is asked and what OUT.json holds: load.py. What follows
`--` goes to the server. Made for SGLang 0.5.17 and the checkpoint of
tests/gpu/checkpoint. The first start compiles SGLang's kernels: minutes.
"""
import argparse
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

import load

ENV = dict(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", SGLANG_NUMA_BIND_V2="0",
           GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo", FLASHINFER_USE_CUDA_NORM="1",
           CUDA_HOME="/usr/local/cuda", PYTHONUNBUFFERED="1")
DECODE = re.compile(r"Decode batch.*#running-req: (\d+),.*gen throughput \(token/s\): ([\d.]+)")
RETRACTED = re.compile(r"KV cache pool is full.*#retracted_reqs: (\d+)")
TOKENS = re.compile(r"max_total_num_tokens=(\d+)")
HOST = re.compile(r"hierarchical KV host pool: (\d+) tokens, ([\d.]+) GB host memory")


class Client:
    """One thread per request. Where log-probabilities are wanted nothing is streamed:
    every part would repeat them."""

    def __init__(self, log, port, temperature):
        self.log, self.port, self.temperature = log, port, temperature

    def submit(self, request):
        threading.Thread(target=self.ask, args=(request,), daemon=True).start()

    def ask(self, request):
        try:
            self.converse(request)
            request.finish()
        except (OSError, ValueError, KeyError, RuntimeError, http.client.HTTPException) as error:
            request.finish(f"{type(error).__name__}: {error}")

    def converse(self, request):
        stream = not (request.want_plp or request.want_olp)
        body = dict(input_ids=request.ids, stream=stream, sampling_params=dict(
            temperature=self.temperature, max_new_tokens=request.tokens, ignore_eos=True))
        if not stream:
            request.start = max(0, len(request.ids) - 512)
            body |= dict(return_logprob=True,
                         logprob_start_len=request.start if request.want_plp else -1)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=550)
        connection.request("POST", "/generate", json.dumps(body),
                           {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            raise RuntimeError(f"{reply.status} {reply.read(300)}")
        if stream:
            last = None
            for line in reply:
                if line.startswith(b"data: {"):
                    last = json.loads(line[6:])
                    if "error" in last:
                        raise RuntimeError(last["error"])
                    request.note(last["meta_info"]["completion_tokens"])
        else:
            last = json.loads(reply.read())
            request.note(last["meta_info"]["completion_tokens"])
        connection.close()
        if last is None:
            raise RuntimeError("an empty answer")
        meta = last["meta_info"]
        reason = meta.get("finish_reason") or {}
        if isinstance(reason, dict) and reason.get("type") == "abort":
            raise RuntimeError(reason.get("message", "aborted"))
        request.out, request.cached = last["output_ids"], meta.get("cached_tokens")
        request.retractions = meta.get("num_retractions") or 0
        if request.want_plp:
            request.plp = [x[0] for x in meta["input_token_logprobs"]]
        if request.want_olp:
            request.olp = [x[0] for x in meta["output_token_logprobs"]]

    def serve(self, work):
        return work()

    def text(self, start=0):
        with open(self.log, errors="replace") as file:
            file.seek(start)
            return file.read()

    def mark(self):
        return os.path.getsize(self.log)

    def since(self, mark, n):
        """The server's own word on the time since. Requests tell their retractions
        themselves; lines of fewer than nine tenths of the most that ran are its ramps."""
        lines = [(int(a), float(b)) for a, b in DECODE.findall(self.text(mark))]
        most = max((a for a, _ in lines), default=0)
        speeds = [b for a, b in lines if a >= 0.9 * most]
        return dict(server_running=most,
                    server_tokens_per_s=round(statistics.median(speeds), 1)) if speeds else {}

    def facts(self):
        text = self.text()
        found = dict(retracted=sum(map(int, RETRACTED.findall(text))))
        if tokens := TOKENS.findall(text):
            found["tokens"] = int(tokens[-1])
        if own := HOST.findall(text):  # SGLang's HiSparse: what it holds is in its host pool
            found |= dict(device_tokens=found.get("tokens"), tokens=int(own[-1][0]),
                          own_host_gb=float(own[-1][1]))
        return found


def wait_ready(server, log, port):
    while True:
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode}; see {log}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)


def server_command(a, extra):
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", a.model,
               "--skip-tokenizer-init", "--dtype", "bfloat16", "--kv-cache-dtype", a.kv,
               "--context-length", str(a.context), "--chunked-prefill-size", str(a.chunk),
               "--max-running-requests", str(a.seqs), "--cuda-graph-max-bs-decode", str(a.seqs),
               "--cuda-graph-backend-prefill", "disabled", "--sampling-backend", "pytorch",
               "--grammar-backend", "none", "--mm-feature-transport", "cpu",
               "--disable-flashinfer-autotune", "--random-seed", "1", "--watchdog-timeout", "600",
               "--stream-interval", str(a.interval), "--host", "127.0.0.1",
               "--port", str(a.port)]
    if a.tokens_in_pool:
        command += ["--max-total-tokens", str(a.tokens_in_pool)]
    fraction = a.fraction or (0.7 if a.tokens_in_pool else 0)
    if fraction:
        command += ["--mem-fraction-static", f"{fraction:.3f}"]
    return command + extra


def main():
    p = argparse.ArgumentParser(description=__doc__, epilog=load.__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    load.arguments(p)
    p.add_argument("--kv", default="fp8_e4m3", choices=("fp8_e4m3", "bfloat16"),
                   help="fp8_e4m3: FlashMLA, rows of 656 B; bfloat16: FA3 decode, rows of 1,152 B")
    p.add_argument("--tokens-in-pool", type=int, default=524288,
                   help="upper limit of the KV pool, which SGLang sizes from free memory; 0: none")
    p.add_argument("--fraction", type=float, default=0,
                   help="--mem-fraction-static; 0: SGLang's own where it sizes, else 0.7")
    p.add_argument("--chunk", type=int, default=8192, help="--chunked-prefill-size")
    p.add_argument("--interval", type=int, default=1, help="--stream-interval")
    p.add_argument("--port", type=int, default=30000)
    argv = sys.argv[1:]
    cut = argv.index("--") if "--" in argv else len(argv)
    a, extra = p.parse_args(argv[:cut]), argv[cut + 1:]
    try:
        phases = load.phases_of(a)
    except ValueError as error:
        p.error(str(error))
    log = a.out + ".server.log"
    out = load.Output(a.out)
    start = time.time()
    with open(log, "w") as output:
        server = subprocess.Popen(server_command(a, extra), env={**ENV, **os.environ},
                                  start_new_session=True, stdout=output, stderr=subprocess.STDOUT)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    try:
        wait_ready(server, log, a.port)
        client = Client(log, a.port, a.temperature)
        out.figures |= dict(ready_s=round(time.time() - start, 1)) | client.facts()
        out.write("ready")
        failed = client.serve(lambda: load.run(client, phases, out))
        out.write("end")
        sys.exit("; ".join(failed) or None)
    finally:
        try:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(10)


if __name__ == "__main__":
    main()
