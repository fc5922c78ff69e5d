"""Prefill, decode and update of a Hugging Face model with transformers on torch, on CPU.

A baseline of `launch/benchmark.py --benchmark=language_model`. Reads sizes as JSON from standard
input and prints tokens per second as one line of JSON, {dtype: {name: rate}}.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch
from transformers import AutoModelForCausalLM


def seconds(run, repeats):
    """Return the median duration of `repeats` runs after one of warmup."""
    times = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def sample(model, request, slots, repeats):
    """Return tokens per second of prefill and decode with `slots` sequences."""

    def prompts(length):
        return torch.randint(0, request["vocabulary"], (slots, length))

    def prefill():
        model(prompts(request["prompt"]), use_cache=True, logits_to_keep=1)

    def decode():
        ids = prompts(request["decode_prompt"])
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            min_new_tokens=request["new_tokens"],
            max_new_tokens=request["new_tokens"],
            do_sample=True,
            # The whole distribution; generation_config.json of the policy may restrict it.
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            repetition_penalty=1.0,
        )

    with torch.inference_mode():
        return {
            f"prefill {slots}": slots * request["prompt"] / seconds(prefill, repeats),
            f"decode {slots}": slots * request["new_tokens"] / seconds(decode, repeats),
        }


def update(model, request, repeats):
    """Return tokens per second of an AdamW step over one row with evenly spaced targets."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    length = request["row_tokens"]
    ids = torch.randint(0, request["vocabulary"], (1, length))
    target_indices = torch.linspace(0, length - 2, request["targets"]).long()

    def step():
        logits = model(ids, logits_to_keep=target_indices, use_cache=False).logits[0].float()
        loss = torch.nn.functional.cross_entropy(logits, ids[0, target_indices + 1])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return length / seconds(step, repeats)


def main():
    """Measure each dtype that the CPU has and print the rates."""
    request = json.load(sys.stdin)
    rates = {}
    # Without AVX512, torch takes minutes for a bfloat16 step.
    has_avx512 = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    for name in ("float32", "bfloat16") if has_avx512 else ("float32",):
        model = AutoModelForCausalLM.from_pretrained(request["policy"], dtype=getattr(torch, name))
        rates[name] = {}
        for slots in request["slots"]:
            rates[name] |= sample(model, request, slots, request["repeats"])
        rates[name]["update"] = update(model, request, request["repeats"])
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
