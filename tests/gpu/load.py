# SPDX-License-Identifier: MIT
"""What is asked of an engine, whichever it is, and what is measured of it.

A client (drive_vllm.py, drive_sglang.py) takes `submit(request)`, ends a request
through `Request.note` and `Request.finish`, and tells `facts()`. Phases, given as
KIND or KIND:key=value,key=value, run one after another in one engine:

  turns    lens=3000+5000+…, tokens=32: the same prompts twice, with log-probabilities
  bench    copies=2, lens, tokens=256: copies of each prompt, all at once; until=FILE: again
           and again until there is such a file
  tiny     one prompt of prompt=3000 tokens, 8 tokens: lets the windows become known, and what an
           engine makes at its first request be made
  batch    n=64, prompt=20000, tokens=256, name=…: n different prompts at once
  decode   n=32, prompt=128, tokens=64, repeat=40, skip=3: decode speed in many short windows
           after some that do not count; meet=FILE: begins when another process, too, has got here
  churn    seconds=300, n=48, shortest=500, longest=20000: requests come and go, a fixed
           subset of prompts is asked before, during and after

OUT.json holds `answers` (ids, plp: log-probabilities of the prompt from position `start`
on, olp: of the output; `moment` in churn) and `figures`.
"""
import array
import glob
import json
import os
import random
import statistics
import threading
import time

VOCABULARY = 8192
LENS = "3000+5000+9000+20000+2500+4096+7000+12000"
SUBSET = (1500, 2500, 5000, 9000, 14000)


class Request:
    """One prompt and what came of it. `events`: (time, output tokens so far)."""

    def __init__(self, ids, tokens, plp=False, olp=False):
        self.ids, self.tokens, self.want_plp, self.want_olp = ids, tokens, plp, olp
        self.out, self.plp, self.olp, self.start = [], [], [], 0
        self.events, self.cached, self.retractions, self.error = [], None, 0, None
        self.begun = self.ended = 0.0
        self.done = threading.Event()

    def note(self, tokens):
        if tokens and (not self.events or tokens > self.events[-1][1]):
            self.events.append((time.monotonic(), tokens))

    def finish(self, error=None):
        self.ended, self.error = time.monotonic(), error
        self.done.set()

    def count(self, until):
        """Output tokens at a time, between events in proportion."""
        before = (self.begun, 0)
        for event in self.events:
            if event[0] > until:
                part = (until - before[0]) / (event[0] - before[0]) if before[1] else 0
                return before[1] + part * (event[1] - before[1])
            before = event
        return before[1]

    def answer(self, **more):
        return dict(ids=self.out, start=self.start, plp=self.plp, olp=self.olp,
                    cached=self.cached, **more)


def prompts(seed, lens):
    rng = random.Random(seed)
    return [[rng.randrange(VOCABULARY) for _ in range(n)] for n in lens]


def quick(rng, n):
    """n token ids, made while an engine may run in this process."""
    return [x % VOCABULARY for x in array.array("H", rng.randbytes(2 * n))]


def ask(client, requests, timeout=550):
    """All at once; returns when all have ended."""
    for request in requests:
        request.begun = time.monotonic()
        client.submit(request)
    until = time.monotonic() + timeout
    for request in requests:
        if not request.done.wait(max(0, until - time.monotonic())):
            raise TimeoutError(f"a request took more than {timeout} s")
    errors = [r.error for r in requests if r.error]
    if errors:
        raise RuntimeError(f"{len(errors)} of {len(requests)} requests failed: {errors[0]}")
    return requests


def at_once(requests):
    """The most requests that had their first token and not their last at one time."""
    edges = sorted([(r.events[0][0], 1) for r in requests if r.events] +
                   [(r.events[-1][0], -1) for r in requests if r.events])
    most = now = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most


def measure(requests):
    """Speeds of a batch. decode: between the last request's first token (then nothing
    prefills any more) and the first request's end, if that lies later; `spread`: all tokens
    but the first ones over the time from the first token of all to the last."""
    begun, ended = min(r.begun for r in requests), max(r.ended for r in requests)
    firsts = [r.events[0] for r in requests]
    lasts = [r.events[-1] for r in requests]
    waits = [first[0] - r.begun for first, r in zip(firsts, requests)]
    out = dict(wall_s=ended - begun, tokens_per_s=sum(n for _, n in lasts) / (ended - begun),
               ttft_median_s=statistics.median(waits), ttft_longest_s=max(waits),
               running=at_once(requests))
    start, end = max(t for t, _ in firsts), min(t for t, _ in lasts)
    tokens = sum(r.count(end) - r.count(start) for r in requests) if end > start else 0
    if tokens >= 8 * len(requests):
        out["decode_tokens_per_s"] = tokens / (end - start)
    start, end = min(t for t, _ in firsts), max(t for t, _ in lasts)
    if end > start:
        out["spread_tokens_per_s"] = sum(b[1] - a[1] for a, b in zip(firsts, lasts)) / (end - start)
    paces = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in zip(firsts, lasts) if b[1] > a[1]]
    if paces:
        out["token_ms"] = 1000 * statistics.median(paces)
    return {key: round(value, 4 if value < 100 else 1) for key, value in out.items()}


def lens_of(o):
    return [int(n) for n in o.get("lens", LENS).split("+")]


def turns(client, o, out):
    lens = lens_of(o)
    for turn in (1, 2):
        t = time.monotonic()
        asked = ask(client, [Request(ids, int(o.get("tokens", 32)), plp=True)
                             for ids in prompts(7, lens)])
        out.answers += [r.answer() for r in asked]
        out.figures[f"turn{turn}_s"] = round(time.monotonic() - t, 2)
        out.write(f"turn {turn}")
    out.figures["cached_tokens"] = sum(x["cached"] or 0 for x in out.answers)


def bench(client, o, out):
    batch = [ids for ids in prompts(7, lens_of(o)) for _ in range(int(o.get("copies", 2)))]
    tokens = int(o.get("tokens", 256))
    t, rounds = time.monotonic(), 0
    while not rounds or ("until" in o and not os.path.exists(o["until"])):
        ask(client, [Request(ids, tokens) for ids in batch])
        rounds += 1
    speed = rounds * len(batch) * tokens / (time.monotonic() - t)
    out.figures["bench_tokens_per_s"] = round(speed, 1)


def tiny(client, o, out):
    ask(client, [Request(ids, int(o.get("tokens", 8))) for ids in prompts(3, [int(o.get("prompt", 3000))])])


def batch(client, o, out):
    n, length, tokens = (int(o.get(k, d)) for k, d in (("n", 64), ("prompt", 20000),
                                                      ("tokens", 256)))
    name = o.get("name", f"batch{n}")
    mark = client.mark()
    asked = ask(client, [Request(ids, tokens) for ids in prompts(100 + n, [length] * n)])
    found = measure(asked) | client.since(mark, n)
    found["retractions"] = found.get("retractions", 0) + sum(r.retractions for r in asked)
    out.figures |= {f"{name}_{key}": value for key, value in found.items()}


def meet(path, patience=180):
    """Waits for another process: what disturbs one then disturbs both."""
    open(f"{path}.{os.getpid()}", "w").close()
    until = time.monotonic() + patience
    while len(glob.glob(f"{glob.escape(path)}.*")) < 2:
        if time.monotonic() > until:
            print(f"nobody else came to {path}", flush=True)
            return
        time.sleep(0.01)


def decode(client, o, out):
    """The speed of a small model is as noisy as its machine: most of that is in the median, little
    in the median of the best tenth."""
    n, length, tokens, repeat, skip = (int(o.get(k, d)) for k, d in (
        ("n", 32), ("prompt", 128), ("tokens", 64), ("repeat", 40), ("skip", 3)))
    speeds = []
    for i in range(skip + repeat):
        if i == skip and "meet" in o:
            meet(o["meet"])
        asked = ask(client, [Request(ids, tokens) for ids in prompts(11, [length] * n)])
        speeds.append(measure(asked).get("decode_tokens_per_s", 0))
    name, counted = o.get("name", "decode"), speeds[skip:]
    best = sorted(counted, reverse=True)[:max(1, repeat // 10)]
    out.figures |= {f"{name}_each": counted,
                    f"{name}_best_tokens_per_s": round(statistics.median(best), 1),
                    f"{name}_tokens_per_s": round(statistics.median(counted), 1)}


def fixed(client, out, moment):
    """The fixed subset: once with the prompt's log-probabilities, which engines compute
    anew, and once as users ask, prefix cache and all."""
    for kind, plp in (("whole", True), ("cached", False)):
        asked = ask(client, [Request(ids, 32, plp=plp, olp=True) for ids in prompts(7, SUBSET)])
        out.answers += [r.answer(moment=moment, kind=kind) for r in asked]
    out.write(moment)


def churn(client, o, out):
    seconds, n = float(o.get("seconds", 300)), int(o.get("n", 48))
    shortest, longest = int(o.get("shortest", 500)), int(o.get("longest", 20000))
    rng = random.Random(int(o.get("seed", 5)))
    common = prompts(21, [longest] * 8)
    stop, lock, done = threading.Event(), threading.Lock(), []
    mark, start = client.mark(), time.monotonic()

    def come_and_go():
        while not stop.is_set():
            with lock:
                length = rng.randrange(shortest, longest)
                shared = rng.choice((0, 0, rng.randrange(length)))
                ids = rng.choice(common)[:shared]
                ids = ids + quick(rng, length - shared)
                request = Request(ids, rng.choice((16, 64, 256)))
            try:
                ask(client, [request])
            except (RuntimeError, TimeoutError) as error:
                request.error = str(error)
            with lock:
                done.append((length, request))

    fixed(client, out, "before")
    threads = [threading.Thread(target=come_and_go, daemon=True) for _ in range(n)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for moment in ("during1", "during2", "during3"):
        time.sleep(max(0, min(seconds / 4, begun + seconds - time.monotonic())))
        fixed(client, out, moment)
    time.sleep(max(0, begun + seconds - time.monotonic()))
    stop.set()
    for thread in threads:
        thread.join(300)
    fixed(client, out, "after")
    took = time.monotonic() - start
    found = client.since(mark, n)
    found |= dict(seconds=round(took, 1), requests=len(done),
                  failed=sum(bool(r.error) for _, r in done),
                  prompt_tokens=sum(length for length, _ in done),
                  tokens_per_s=round(sum(len(r.out) for _, r in done) / took, 1),
                  cached_tokens=sum(r.cached or 0 for _, r in done))
    found["retractions"] = found.get("retractions", 0) + sum(r.retractions for _, r in done)
    out.figures |= {f"churn_{key}": value for key, value in found.items()}
    errors = [r.error for _, r in done if r.error]
    if errors:
        raise RuntimeError(f"{len(errors)} of {len(done)} requests failed: {errors[0]}")


PHASES = dict(turns=turns, bench=bench, tiny=tiny, batch=batch, decode=decode, churn=churn)


class Output:
    """OUT.json, written anew after every phase."""

    def __init__(self, path):
        self.path, self.answers, self.figures = path, [], {}

    def write(self, what):
        print(what, {k: v for k, v in self.figures.items() if not isinstance(v, list)}, flush=True)
        with open(self.path, "w") as file:
            json.dump(dict(answers=self.answers, figures=self.figures), file)


def parse(text):
    """KIND:key=value,… as (kind, options)."""
    kind, _, rest = text.partition(":")
    if kind not in PHASES:
        raise ValueError(f"no phase {kind}; there are {', '.join(PHASES)}")
    return kind, dict(pair.split("=", 1) for pair in rest.split(",") if pair)


def arguments(p):
    """What all drive scripts take."""
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--phase", action="append", default=[], help="see load.py; again and again")
    p.add_argument("--seqs", type=int, default=32, help="requests that run at once")
    p.add_argument("--context", type=int, default=32768, help="the longest request")
    p.add_argument("--temperature", type=float, default=0)
    p.add_argument("--lens", default=LENS.replace("+", ","))
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--bench", type=int, default=0)


def phases_of(a):
    lens = a.lens.replace(",", "+")
    texts = a.phase or [f"turns:lens={lens},tokens={a.tokens}"] + (
        [f"bench:copies={a.bench},lens={lens}"] if a.bench else [])
    return [parse(text) for text in texts]


def run(client, phases, out):
    """All phases; one that fails does not keep the others from running."""
    failed = []
    for kind, options in phases:
        t = time.monotonic()
        try:
            PHASES[kind](client, options, out)
        except (RuntimeError, TimeoutError) as error:
            failed.append(f"{kind}: {error}")
            print(f"{kind} failed: {error}", flush=True)
        out.figures |= client.facts()
        out.write(f"{kind}, {time.monotonic() - t:.1f} s;")
    return failed
