#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run an unmodified vLLM in this process and write what it answers.

The same seeded prompts twice (turns), as token ids; then, with --bench R, R
copies of each prompt with 256 output tokens. OUT.json: `answers` (ids, plp: the
prompt's log-probabilities from position `start` on) and `figures`. Made for
vLLM 0.26.0 and the checkpoint of tests/gpu/checkpoint. With random weights the
selected positions are close to random: right for equality and overhead, the
worst case for hit rates.
"""
import argparse
import json
import os
import random
import time

for name, value in dict(VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1",
                        VLLM_NO_USAGE_STATS="1", VLLM_DEEP_GEMM_WARMUP="skip",
                        VLLM_SPARSE_INDEXER_MAX_LOGITS_MB="256",
                        VLLM_USE_FLASHINFER_SAMPLER="0").items():
    os.environ.setdefault(name, value)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--kv", default="fp8", choices=("fp8", "auto"),
                   help="fp8: FlashMLA sparse, rows of 656 B; auto: bf16, FlashAttention 3")
    p.add_argument("--blocks", type=int, default=12000,
                   help="KV blocks of 64 tokens, whatever fits; 0: as vLLM sizes it")
    p.add_argument("--eager", action="store_true")
    p.add_argument("--prefix-caching", action="store_true")
    p.add_argument("--lens", default="3000,5000,9000,20000,2500,4096,7000,12000")
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--bench", type=int, default=0)
    a = p.parse_args()

    import torch
    from vllm import LLM, SamplingParams
    figures = {}
    t = time.time()
    llm = LLM(model=a.model, skip_tokenizer_init=True, kv_cache_dtype=a.kv, max_model_len=32768,
              max_num_seqs=32, max_num_batched_tokens=4096, seed=0,
              num_gpu_blocks_override=a.blocks or None, enforce_eager=a.eager,
              gpu_memory_utilization=0.6, enable_prefix_caching=a.prefix_caching,
              **({"attention_backend": "FLASHMLA_SPARSE"} if a.kv == "fp8" else {}))
    figures["ready_s"] = round(time.time() - t, 1)
    print("ready", figures, flush=True)

    rng = random.Random(7)
    prompts = [{"prompt_token_ids": [rng.randrange(8192) for _ in range(int(n))]}
               for n in a.lens.split(",")]
    greedy = dict(temperature=0, ignore_eos=True, detokenize=False)
    sampling = SamplingParams(max_tokens=a.tokens, prompt_logprobs=0, **greedy)
    answers = []
    for turn in (1, 2):
        t = time.time()
        for r in llm.generate(prompts, sampling, use_tqdm=False):
            plp = [next(iter(d.values())).logprob if d else None for d in r.prompt_logprobs or []]
            answers.append(dict(ids=list(r.outputs[0].token_ids), start=0, plp=plp))
        figures[f"turn{turn}_s"] = round(time.time() - t, 2)
        print(f"turn {turn}", figures, flush=True)
        json.dump(dict(answers=answers, figures=figures), open(a.out, "w"))
    if a.bench:
        batch = [q for q in prompts for _ in range(a.bench)]
        t = time.time()
        llm.generate(batch, SamplingParams(max_tokens=256, **greedy), use_tqdm=False)
        figures["bench_tokens_per_s"] = round(len(batch) * 256 / (time.time() - t), 1)
    free, _ = torch.cuda.mem_get_info()
    figures["gpu_free_mib"] = free >> 20
    print("end", figures, flush=True)
    json.dump(dict(answers=answers, figures=figures), open(a.out, "w"))


if __name__ == "__main__":
    main()
