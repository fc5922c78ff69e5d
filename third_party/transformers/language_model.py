"""Prefill, decode and update of a Hugging Face model by transformers on torch, on CPU.

The peer of `launch/benchmark.py --suite=language_model`. Reads sizes as JSON from standard input
and prints tokens per second as one line of JSON, {dtype: {name: rate}}.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch
from transformers import AutoModelForCausalLM


def seconds(run, repeats):
    times = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def sample(model, asked, slots, repeats):
    """Return tokens per second of prefill and decode with `slots` sequences."""

    def prompts(length):
        return torch.randint(0, asked["vocabulary"], (slots, length))

    def prefill():
        model(prompts(asked["prompt"]), use_cache=True, logits_to_keep=1)

    def decode():
        ids = prompts(asked["decode_prompt"])
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            min_new_tokens=asked["new_tokens"],
            max_new_tokens=asked["new_tokens"],
            do_sample=True,
            top_k=0,
        )

    with torch.inference_mode():
        return {
            f"prefill {slots}": slots * asked["prompt"] / seconds(prefill, repeats),
            f"decode {slots}": slots * asked["new_tokens"] / seconds(decode, repeats),
        }


def update(model, asked, repeats):
    """Return tokens per second of an AdamW step over one row; targets are spread over it."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    length = asked["row_tokens"]
    ids = torch.randint(0, asked["vocabulary"], (1, length))
    scored = torch.linspace(0, length - 2, asked["targets"]).long()

    def step():
        logits = model(ids, logits_to_keep=scored, use_cache=False).logits[0].float()
        loss = torch.nn.functional.cross_entropy(logits, ids[0, scored + 1])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return length / seconds(step, repeats)


def main():
    asked = json.load(sys.stdin)
    rates = {}
    for name in ("float32", "bfloat16"):
        model = AutoModelForCausalLM.from_pretrained(asked["policy"], dtype=getattr(torch, name))
        rates[name] = {}
        for slots in asked["slots"]:
            rates[name] |= sample(model, asked, slots, asked["repeats"])
        rates[name]["update"] = update(model, asked, asked["repeats"])
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
