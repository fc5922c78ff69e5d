"""GRPO step of google-tunix on random plain rows, a baseline of launch/benchmark.py.

Used by `--benchmark=update`. Runs in its own environment (google-tunix 0.1.7, Python 3.11), reads
sizes as JSON from standard input and prints its times as one line of JSON.
"""

from __future__ import annotations

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import peer
from flax import nnx
from tunix.rl.grpo import grpo_learner


def main():
    """Measure the step and the reference pass, and print their times."""
    request = json.load(sys.stdin)
    engine = peer.engine(request)
    rng = np.random.default_rng(1)
    prompts, responses = (
        jnp.array(rng.integers(10, request["vocab"], (request["rows"], request[part])))
        for part in ("prompt", "response")
    )

    def score_reference():
        return jax.block_until_ready(
            engine.get_ref_per_token_logps(
                prompt_tokens=prompts,
                completion_tokens=responses,
                pad_id=peer.PAD,
                eos_id=peer.NEVER,
            )
        )

    logp = score_reference()
    example = grpo_learner.TrainExample(
        prompt_ids=prompts,
        prompt_mask=prompts != peer.PAD,
        completion_ids=responses,
        completion_mask=responses != peer.PAD,
        advantages=jnp.array(rng.choice([-1.0, 1.0], request["rows"]), jnp.float32),
        ref_per_token_logps=logp,
        old_per_token_logps=logp,
    )

    def step():
        engine.update_actor([example], None, False)
        jax.block_until_ready(nnx.state(engine.actor_trainer.model))

    times = {
        "step_seconds": peer.seconds(step, request["repeats"]),
        "reference_seconds": peer.seconds(score_reference, request["repeats"]),
    }
    print(json.dumps(times))


if __name__ == "__main__":
    main()
