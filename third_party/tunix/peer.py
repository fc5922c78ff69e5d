"""google-tunix with a random Qwen2, through its public classes; shared by the baselines."""

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
    """Tokenizer of numbers; the engine requires one, although prompts are token ids."""

    bos_token = eos_token = None

    def encode(self, text, **_):
        """Return the numbers of the text."""
        return [int(word) for word in text.split()] or [2]

    def decode(self, ids, **_):
        """Return the ids as text."""
        return " ".join(map(str, ids))

    def bos_id(self):
        """Return None: no such token."""
        return None

    def eos_id(self):
        """Return a token that responses never contain."""
        return NEVER

    def pad_id(self):
        """Return the padding token."""
        return PAD


def model(request):
    """Create a random Qwen2 of the requested sizes."""
    config = qwen2.ModelConfig(
        num_layers=request["layers"],
        vocab_size=request["vocab"],
        embed_dim=request["d"],
        hidden_dim=request["ffn"],
        num_heads=request["heads"],
        head_dim=request["d"] // request["heads"],
        num_kv_heads=request["kv"],
        rope_theta=1_000_000,
        norm_eps=1e-6,
        use_tied_embedding=True,
        dtype=jnp.float32,
        param_dtype=jnp.float32,
    )
    model = qwen2.Qwen2(config, rngs=nnx.Rngs(0))
    params = nnx.state(model, nnx.Param)  # its default initialization leaves some kernels at 0
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    random_leaves = [
        x if x.ndim == 1 else 0.02 * jax.random.normal(key, x.shape, x.dtype)
        for x, key in zip(leaves, keys, strict=True)
    ]
    nnx.update(model, jax.tree.unflatten(tree, random_leaves))
    return model


def engine(request):
    """Create the RL engine of google-tunix with its GRPO loss."""
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
            max_tokens_to_generate=request["response"],
            max_prompt_length=request["prompt"],
            kv_cache_size=request["prompt"] + request["response"],
            eos_tokens=[NEVER],
            return_logprobs=True,
        ),
    )
    engine_class = getattr(rl_cluster, "RLEngine", None) or rl_cluster.RLCluster
    engine = engine_class(
        actor=model(request), reference=model(request), tokenizer=Integers(), cluster_config=config
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
    """Return the median duration of `repeats` runs after two that compile."""
    times = []
    for _ in range(2 + repeats):  # the first two compile
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])
