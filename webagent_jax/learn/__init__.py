"""Optimization: forest rows of groups, losses, and jitted optimizer steps of M-GRPO and BC."""

from webagent_jax.learn.advantages import (
    episode_turn_token_weights,
    group_advantages,
    has_equal_rewards,
    token_mean_weights,
    turn_mean_weights,
)
from webagent_jax.learn.forest import (
    Branch,
    Forest,
    branches_from_episodes,
    pack_branches,
    pad_to_shape,
)
from webagent_jax.learn.losses import GRPOStats, PolicyLossConfig, bc_loss, grpo_loss
from webagent_jax.learn.microbatches import accumulate_gradients
from webagent_jax.learn.objective import BatchTotals, count_totals, has_signal, pack_groups
from webagent_jax.learn.optimizer import learning_rate_schedule, make_optimizer
from webagent_jax.learn.train_step import (
    NonFiniteStepError,
    Optimizer,
    TrainState,
    abstract_state,
    bc_step,
    compute_prox_logp,
    grpo_step,
    init_state,
    lower_grpo_step,
    policy_snapshot,
)

__all__ = [
    "BatchTotals",
    "Branch",
    "Forest",
    "GRPOStats",
    "NonFiniteStepError",
    "Optimizer",
    "PolicyLossConfig",
    "TrainState",
    "abstract_state",
    "accumulate_gradients",
    "bc_loss",
    "bc_step",
    "branches_from_episodes",
    "compute_prox_logp",
    "count_totals",
    "episode_turn_token_weights",
    "group_advantages",
    "grpo_loss",
    "grpo_step",
    "has_equal_rewards",
    "has_signal",
    "init_state",
    "learning_rate_schedule",
    "lower_grpo_step",
    "make_optimizer",
    "pack_branches",
    "pack_groups",
    "pad_to_shape",
    "policy_snapshot",
    "token_mean_weights",
    "turn_mean_weights",
]
