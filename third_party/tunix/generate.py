"""Sampling by google-tunix: the peer of `launch/benchmark.py --suite=generate`.

Runs in an environment of its own (google-tunix 0.1.7, Python 3.11), takes sizes and the prompts of
episodes as JSON from standard input, and prints its times as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

import jax
import numpy as np
import peer
from tunix.generate import sampler as sampler_lib


def static(asked):
    """Seconds for so many rows of one length, all together."""
    model = peer.model(asked)
    config = model.config
    sampler = sampler_lib.Sampler(
        model,
        peer.Integers(),
        sampler_lib.CacheConfig(
            asked["prompt"] + asked["response"],
            config.num_layers,
            config.num_kv_heads,
            config.head_dim,
        ),
    )
    rng = np.random.default_rng(0)
    prompts = [
        " ".join(map(str, rng.integers(10, asked["vocab"], asked["prompt"])))
        for _ in range(asked["rows"])
    ]

    def sample(tokens):
        sampler(
            prompts,
            max_generation_steps=tokens,
            max_prompt_length=asked["prompt"],
            temperature=1.0,
            top_p=1.0,
            top_k=None,
            return_logprobs=True,
            eos_tokens=[peer.NEVER],
            seed=0,
        )

    return {
        "seconds": peer.seconds(lambda: sample(asked["response"]), asked["repeats"]),
        "prefill_seconds": peer.seconds(lambda: sample(1), asked["repeats"]),
    }


def agentic(asked):
    """Turn by turn as its agentic learner asks: one prompt to a call, the whole history each time.

    Seconds of calls that compiled nothing, and of all.
    """
    engine = peer.engine(asked)
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, secs, **_: name.endswith("backend_compile_duration") and compiled.append(secs)
    )
    warm = cold = 0.0
    tokens = warm_tokens = 0
    for turns in asked["episodes"]:
        for prompt, reply in turns:
            before, begun = len(compiled), time.perf_counter()
            engine.generate([" ".join(map(str, prompt))], max_generation_steps=reply)
            seconds = time.perf_counter() - begun
            tokens += reply
            if len(compiled) == before:
                warm, warm_tokens = warm + seconds, warm_tokens + reply
            else:
                cold += seconds
    return {
        "tokens": tokens,
        "seconds": warm + cold,
        "warm_tokens": warm_tokens,
        "warm_seconds": warm,
        "compilations": len(compiled),
    }


def main():
    asked = json.load(sys.stdin)
    print(json.dumps({"static": static(asked["static"]), "agentic": agentic(asked["agentic"])}))


if __name__ == "__main__":
    main()
