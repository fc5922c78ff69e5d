"""google-tunix as its public classes give it, on a random Qwen2: what the peers share."""

from __future__ import annotations

import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh
from tunix.models.qwen2 import model as qwen2
from tunix.rl import rl_cluster
from tunix.rl.grpo import grpo_learner
from tunix.rl.rollout import base_rollout

PAD, NEVER = 0, 1


class Integers:
    """A tokenizer of numbers; nothing is tokenized here, but the engine asks for one."""

    bos_token = eos_token = None

    def encode(self, text, **_):
        return [int(word) for word in text.split()] or [2]

    def decode(self, ids, **_):
        return " ".join(map(str, ids))

    def bos_id(self):
        return None

    def eos_id(self):
        return NEVER

    def pad_id(self):
        return PAD


def model(asked):
    config = qwen2.ModelConfig(
        num_layers=asked["layers"],
        vocab_size=asked["vocab"],
        embed_dim=asked["d"],
        hidden_dim=asked["ffn"],
        num_heads=asked["heads"],
        head_dim=asked["d"] // asked["heads"],
        num_kv_heads=asked["kv"],
        rope_theta=1_000_000,
        norm_eps=1e-6,
        use_tied_embedding=True,
        dtype=jnp.float32,
        param_dtype=jnp.float32,
    )
    model = qwen2.Qwen2(config, rngs=nnx.Rngs(0))
    params = nnx.state(model, nnx.Param)  # its own first values leave some kernels at 0
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    drawn = [
        x if x.ndim == 1 else 0.02 * jax.random.normal(key, x.shape, x.dtype)
        for x, key in zip(leaves, keys, strict=True)
    ]
    nnx.update(model, jax.tree.unflatten(tree, drawn))
    return model


def engine(asked):
    mesh = Mesh(np.array(jax.devices()).reshape(-1, 1), ("fsdp", "tp"))
    roles = (rl_cluster.Role.ACTOR, rl_cluster.Role.REFERENCE, rl_cluster.Role.ROLLOUT)
    config = rl_cluster.ClusterConfig(
        role_to_mesh=dict.fromkeys(roles, mesh),
        rollout_engine="vanilla",
        offload_to_cpu=False,
        training_config=rl_cluster.RLTrainingConfig(
            actor_optimizer=optax.adamw(1e-5), eval_every_n_steps=10**9, max_steps=10**9
        ),
        rollout_config=base_rollout.RolloutConfig(
            max_tokens_to_generate=asked["response"],
            max_prompt_length=asked["prompt"],
            kv_cache_size=asked["prompt"] + asked["response"],
            eos_tokens=[NEVER],
            return_logprobs=True,
        ),
    )
    made = getattr(rl_cluster, "RLEngine", None) or rl_cluster.RLCluster
    engine = made(
        actor=model(asked), reference=model(asked), tokenizer=Integers(), cluster_config=config
    )
    name = "rl_engine" if hasattr(rl_cluster, "RLEngine") else "rl_cluster"
    grpo_learner.GRPOLearner(  # sets the loss
        **{name: engine},
        algo_config=grpo_learner.GRPOConfig(
            num_generations=4, num_iterations=1, beta=0.04, epsilon=0.2
        ),
        reward_fns=lambda prompts, completions, **_: [0.0] * len(completions),
    )
    return engine


def seconds(run, repeats):
    times = []
    for _ in range(2 + repeats):  # the first two compile
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return statistics.median(times[2:])
