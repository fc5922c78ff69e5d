"""Sampling of google-tunix, a baseline of `launch/benchmark.py --benchmark=generate`.

Runs in its own environment (google-tunix 0.1.7, Python 3.11), reads sizes and the prompts of
episodes as JSON from standard input and prints its times as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

import jax
import numpy as np
import peer
from tunix.generate import sampler as sampler_lib


def static(request):
    """Return the seconds for a batch of rows of one length, and those of its prefill."""
    model = peer.model(request)
    config = model.config
    sampler = sampler_lib.Sampler(
        model,
        peer.Integers(),
        sampler_lib.CacheConfig(
            request["prompt"] + request["response"],
            config.num_layers,
            config.num_kv_heads,
            config.head_dim,
        ),
    )
    rng = np.random.default_rng(0)
    prompts = [
        " ".join(map(str, rng.integers(10, request["vocab"], request["prompt"])))
        for _ in range(request["rows"])
    ]

    def sample(tokens):
        sampler(
            prompts,
            max_generation_steps=tokens,
            max_prompt_length=request["prompt"],
            temperature=1.0,
            top_p=1.0,
            top_k=None,
            return_logprobs=True,
            eos_tokens=[peer.NEVER],
            seed=0,
        )

    return {
        "seconds": peer.seconds(lambda: sample(request["response"]), request["repeats"]),
        "prefill_seconds": peer.seconds(lambda: sample(1), request["repeats"]),
    }


def agentic(request):
    """Return tokens and seconds with one prompt per call, as in its agentic learner.

    Each prompt is the complete history. "warm" values exclude calls that compiled a program.
    """
    engine = peer.engine(request)
    compile_seconds = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, secs, **_: (
            name.endswith("backend_compile_duration") and compile_seconds.append(secs)
        )
    )
    warm = cold = 0.0
    tokens = warm_tokens = 0
    for turns in request["episodes"]:
        for prompt, num_tokens in turns:
            num_compiled, start = len(compile_seconds), time.perf_counter()
            engine.generate([" ".join(map(str, prompt))], max_generation_steps=num_tokens)
            seconds = time.perf_counter() - start
            tokens += num_tokens
            if len(compile_seconds) == num_compiled:
                warm, warm_tokens = warm + seconds, warm_tokens + num_tokens
            else:
                cold += seconds
    return {
        "tokens": tokens,
        "seconds": warm + cold,
        "warm_tokens": warm_tokens,
        "warm_seconds": warm,
        "compilations": len(compile_seconds),
    }


def main():
    """Measure both ways to sample, and print their times."""
    request = json.load(sys.stdin)
    print(json.dumps({"static": static(request["static"]), "agentic": agentic(request["agentic"])}))


if __name__ == "__main__":
    main()
