# SPDX-License-Identifier: MIT
"""Answers like SGLang's server as far as drive_sglang.py asks; holds FAKE_TOKENS tokens.

A token's id is the sum of the prompt plus its number, so answers tell their prompt.
FAKE_SCHEDULER is started beside it, in the place of SGLang's process that uses the GPU;
how far that has come when the server answers is left open."""
import http.server
import json
import os
import shlex
import subprocess
import sys
import threading
import time

WORD = 8192
TOKENS = int(os.environ.get("FAKE_TOKENS", "100000"))
PACE = float(os.environ.get("FAKE_TOKEN_S", "0.001"))
running = threading.Semaphore(int(sys.argv[sys.argv.index("--max-running-requests") + 1]))
interval = int(sys.argv[sys.argv.index("--stream-interval") + 1])
seen = set()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def reply(self, body, ids, done):
        out = [(body["total"] + i) % WORD for i in range(ids)]
        meta = dict(completion_tokens=ids, cached_tokens=64 if body["known"] else 0,
                    num_retractions=1 if len(body["input_ids"]) == 777 else 0,
                    finish_reason=dict(type="length") if done else None)
        if body.get("return_logprob"):
            start = body["logprob_start_len"]
            given = [] if start < 0 else body["input_ids"][start:]
            meta["input_token_logprobs"] = [[-t / WORD, t, None] for t in given]
            meta["output_token_logprobs"] = [[-t / WORD, t, None] for t in out]
        return json.dumps(dict(output_ids=out, meta_info=meta)).encode()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = tuple(body["input_ids"])
        body |= dict(known=key in seen, total=sum(key))
        seen.add(key)
        if len(key) + 1 > TOKENS:
            self.send_response(400)
            self.end_headers()
            self.wfile.write(b'{"error": "too long"}')
            return
        self.send_response(200)
        self.end_headers()
        n = body["sampling_params"]["max_new_tokens"]
        with running:
            for i in range(1, n):
                time.sleep(PACE)
                if body["stream"] and i % interval == (1 if interval > 1 else 0):
                    self.wfile.write(b"data: " + self.reply(body, i, False) + b"\n\n")
                    self.wfile.flush()
            if body["stream"]:
                self.wfile.write(b"data: " + self.reply(body, n, True) + b"\n\ndata: [DONE]\n\n")
            else:
                self.wfile.write(self.reply(body, n, True))
        print("Decode batch, #running-req: 8, #token: 5, token usage: 0.1, cuda graph: True, "
              "gen throughput (token/s): 123.50, #queue-req: 0", flush=True)


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


if "FAKE_SCHEDULER" in os.environ:
    subprocess.Popen(shlex.split(os.environ["FAKE_SCHEDULER"]), stdout=subprocess.DEVNULL)
if "--enable-hisparse" in sys.argv:
    ratio = json.loads(sys.argv[sys.argv.index("--hisparse-config") + 1])["host_to_device_ratio"]
    print(f"Allocating kv hierarchical KV host pool: {TOKENS * ratio} tokens, 1.25 GB host memory.")
print(f"max_total_num_tokens={TOKENS}, chunked_prefill_size=2048, ", flush=True)
Server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
