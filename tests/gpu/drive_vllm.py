#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run an unmodified vLLM in this process, ask it, and write what it answers.

What is asked and what OUT.json holds: load.py. Made for vLLM 0.26.0 and the
checkpoint of tests/gpu/checkpoint. With random weights the selected positions
are close to random: right for equality and overhead, the worst case for hit
rates. Requests are stepped here, as vLLM's own server does in its engine
process, so nothing of HTTP is in the figures.
"""
import argparse
import os
import queue
import sys
import threading
import time

import load

# No AOT artifact. vLLM 0.26.0 cannot load the one that a fresh compilation has left ("Kernel
# index 1 not found"): the next start compiles again, and ran out of memory in its profiling run
# at a cap (5.93 GiB, plain) that other starts were content with.
for name, value in dict(VLLM_USE_AOT_COMPILE="0", VLLM_ENABLE_V1_MULTIPROCESSING="0",
                        HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_DEEP_GEMM_WARMUP="skip",
                        VLLM_SPARSE_INDEXER_MAX_LOGITS_MB="256",
                        VLLM_USE_FLASHINFER_SAMPLER="0").items():
    os.environ.setdefault(name, value)


class Client:
    """Engine steps in the thread that made it, phases in another."""

    def __init__(self, llm, temperature):
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind
        self.llm, self.engine = llm, llm.llm_engine
        self.queue, self.open, self.n = queue.Queue(), {}, 0
        self.params = lambda r: SamplingParams(
            temperature=temperature, ignore_eos=True, detokenize=False, max_tokens=r.tokens,
            prompt_logprobs=0 if r.want_plp else None, logprobs=0 if r.want_olp else None,
            output_kind=RequestOutputKind.DELTA)

    def submit(self, request):
        self.queue.put(request)

    def take(self, wait):
        """New requests into the engine; waits a little if there is nothing else to do."""
        try:
            while True:
                request = self.queue.get(timeout=0.02) if wait else self.queue.get_nowait()
                wait = False
                self.n += 1
                self.open[str(self.n)] = request
                self.engine.add_request(str(self.n), {"prompt_token_ids": request.ids},
                                        self.params(request))
        except queue.Empty:
            pass

    def give(self, result):
        request = self.open[result.request_id]
        part = result.outputs[0]
        request.out += part.token_ids
        if request.want_olp:
            request.olp += [d[t].logprob for t, d in zip(part.token_ids, part.logprobs or [])]
        request.plp += [next(iter(d.values())).logprob if d else None
                        for d in result.prompt_logprobs or []]
        if result.num_cached_tokens is not None:
            request.cached = result.num_cached_tokens
        request.note(len(request.out))
        if result.finished:
            del self.open[result.request_id]
            request.finish()

    def serve(self, work):
        """Steps while work() runs beside; returns what it returned."""
        box = {}

        def beside():
            try:
                box["result"] = work()
            except BaseException as error:  # shown by the thread that waits
                box["error"] = error

        thread = threading.Thread(target=beside, daemon=True)
        thread.start()
        while thread.is_alive():
            self.take(not self.engine.has_unfinished_requests())
            if self.engine.has_unfinished_requests():
                for result in self.engine.step():
                    self.give(result)
        if "error" in box:
            raise box["error"]
        return box["result"]

    def preemptions(self):
        return sum(m.value for m in self.llm.get_metrics() if m.name == "vllm:num_preemptions")

    def mark(self):
        return self.preemptions()

    def since(self, mark, n):
        return dict(retractions=self.preemptions() - mark)

    def facts(self):
        import torch
        free, total = torch.cuda.mem_get_info()
        return dict(gpu_free_mib=free >> 20, gpu_total_mib=total >> 20)


def main():
    p = argparse.ArgumentParser(description=__doc__, epilog=load.__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    load.arguments(p)
    p.add_argument("--kv", default="fp8", choices=("fp8", "auto"),
                   help="fp8: FlashMLA sparse, rows of 656 B; auto: bf16, FlashAttention 3")
    p.add_argument("--blocks", type=int, default=12000,
                   help="KV blocks of 64 tokens, whatever fits; 0: as vLLM sizes it")
    p.add_argument("--util", type=float, default=0,
                   help="gpu_memory_utilization; 0: vLLM's own where it sizes, else 0.6")
    p.add_argument("--eager", action="store_true")
    p.add_argument("--prefix-caching", action="store_true")
    a = p.parse_args()
    try:
        phases = load.phases_of(a)
    except ValueError as error:
        p.error(str(error))

    from vllm import LLM
    out = load.Output(a.out)
    util = a.util or (0.6 if a.blocks else 0)
    sizes = [n for n in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128) if n <= a.seqs]
    t = time.time()
    llm = LLM(model=a.model, skip_tokenizer_init=True, kv_cache_dtype=a.kv,
              max_model_len=a.context, max_num_seqs=a.seqs, max_num_batched_tokens=4096, seed=0,
              disable_log_stats=False,
              num_gpu_blocks_override=a.blocks or None, enforce_eager=a.eager,
              enable_prefix_caching=a.prefix_caching,
              **({} if a.eager else {"cudagraph_capture_sizes": sizes}),
              **({"gpu_memory_utilization": util} if util else {}),
              **({"attention_backend": "FLASHMLA_SPARSE"} if a.kv == "fp8" else {}))
    cache = llm.llm_engine.vllm_config.cache_config
    out.figures |= dict(ready_s=round(time.time() - t, 1), share=cache.gpu_memory_utilization,
                        tokens=cache.num_gpu_blocks * cache.block_size)
    out.write("ready")
    client = Client(llm, a.temperature)
    failed = client.serve(lambda: load.run(client, phases, out))
    out.write("end")
    sys.exit("; ".join(failed) or None)


if __name__ == "__main__":
    main()
