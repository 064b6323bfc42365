# SPDX-License-Identifier: MIT
"""Answers like vLLM as far as drive_vllm.py asks; holds FAKE_TOKENS tokens.

A token's id is the sum of the prompt plus its number, so answers tell their prompt."""
import os
import time
from types import SimpleNamespace

WORD = 8192


class SamplingParams:
    def __init__(self, **kwargs):
        self.__dict__.update(kwargs)


def logprob(token):
    return {token: SimpleNamespace(logprob=-token / WORD)}


class Engine:
    def __init__(self, blocks, utilization, seqs):
        self.waiting, self.running, self.preempted, self.seqs = [], [], 0, seqs
        self.vllm_config = SimpleNamespace(cache_config=SimpleNamespace(
            num_gpu_blocks=blocks, block_size=64, gpu_memory_utilization=utilization))

    def add_request(self, key, prompt, params):
        ids = prompt["prompt_token_ids"]
        self.waiting.append([key, ids, params, 0, sum(ids)])
        return key + "-inner"

    def has_unfinished_requests(self):
        return bool(self.waiting or self.running)

    def step(self):
        while self.waiting and len(self.running) < self.seqs:
            self.running.append(self.waiting.pop(0))
        time.sleep(0.0005)
        results = []
        for entry in self.running:
            key, ids, params, done, total = entry
            token = (total + done) % WORD
            self.preempted += len(ids) == 777 and not done
            plp = None
            if params.prompt_logprobs is not None and not done:
                plp = [None] + [logprob(t) for t in ids[1:]]
            entry[3] += 1
            results.append(SimpleNamespace(
                request_id=key, prompt_logprobs=plp, finished=entry[3] == params.max_tokens,
                num_cached_tokens=0,
                outputs=[SimpleNamespace(token_ids=[token], logprobs=[logprob(token)]
                                         if params.logprobs is not None else None)]))
        self.running = [e for e in self.running if e[3] < e[2].max_tokens]
        return results


class LLM:
    def __init__(self, num_gpu_blocks_override=None, gpu_memory_utilization=0.92, max_num_seqs=32,
                 **kwargs):
        time.sleep(float(os.environ.get("FAKE_START_S", "0")))
        blocks = num_gpu_blocks_override or int(os.environ.get("FAKE_TOKENS", "100000")) // 64
        self.llm_engine = Engine(blocks, gpu_memory_utilization, max_num_seqs)

    def get_metrics(self):
        return [SimpleNamespace(name="vllm:num_preemptions", value=self.llm_engine.preempted)]
