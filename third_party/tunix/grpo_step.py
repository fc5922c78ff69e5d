"""One GRPO step of google-tunix on random plain rows: the peer of `launch/benchmark.py --suite=update`.

Runs in an environment of its own (google-tunix 0.1.7, Python 3.11), takes the sizes as JSON from
standard input, and prints its times as one line of JSON.
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
    asked = json.load(sys.stdin)
    engine = peer.engine(asked)
    rng = np.random.default_rng(1)
    prompts, replies = (
        jnp.array(rng.integers(10, asked["vocab"], (asked["rows"], asked[part])))
        for part in ("prompt", "response")
    )

    def reference():
        return jax.block_until_ready(
            engine.get_ref_per_token_logps(
                prompt_tokens=prompts, completion_tokens=replies, pad_id=peer.PAD, eos_id=peer.NEVER
            )
        )

    logp = reference()
    example = grpo_learner.TrainExample(
        prompt_ids=prompts,
        prompt_mask=prompts != peer.PAD,
        completion_ids=replies,
        completion_mask=replies != peer.PAD,
        advantages=jnp.array(rng.choice([-1.0, 1.0], asked["rows"]), jnp.float32),
        ref_per_token_logps=logp,
        old_per_token_logps=logp,
    )

    def step():
        engine.update_actor([example], None, False)
        jax.block_until_ready(nnx.state(engine.actor_trainer.model))

    times = {
        "step_seconds": peer.seconds(step, asked["repeats"]),
        "reference_seconds": peer.seconds(reference, asked["repeats"]),
    }
    print(json.dumps(times))


if __name__ == "__main__":
    main()
