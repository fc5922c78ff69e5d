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
from webagent_jax.learn.microbatches import accumulate_gradients, split_microbatches
from webagent_jax.learn.objective import (
    BatchTotals,
    count_totals,
    has_signal,
    make_layout,
    minibatch_totals,
    objective_rewards,
    pack_groups,
    with_advantages,
)
from webagent_jax.learn.optimizer import learning_rate_schedule, make_optimizer
from webagent_jax.learn.step_credit import num_compared_turns
from webagent_jax.learn.train_step import (
    BCLoss,
    FrozenParams,
    GRPOLoss,
    LossFn,
    NonFiniteStepError,
    Optimizer,
    TrainState,
    abstract_state,
    compute_prox_logp,
    fetch_metrics,
    init_state,
    make_train_step,
    policy_snapshot,
)

__all__ = [
    "BCLoss",
    "BatchTotals",
    "Branch",
    "Forest",
    "FrozenParams",
    "GRPOLoss",
    "GRPOStats",
    "LossFn",
    "NonFiniteStepError",
    "Optimizer",
    "PolicyLossConfig",
    "TrainState",
    "abstract_state",
    "accumulate_gradients",
    "bc_loss",
    "branches_from_episodes",
    "compute_prox_logp",
    "count_totals",
    "episode_turn_token_weights",
    "fetch_metrics",
    "group_advantages",
    "grpo_loss",
    "has_equal_rewards",
    "has_signal",
    "init_state",
    "learning_rate_schedule",
    "make_layout",
    "make_optimizer",
    "make_train_step",
    "minibatch_totals",
    "num_compared_turns",
    "objective_rewards",
    "pack_branches",
    "pack_groups",
    "pad_to_shape",
    "policy_snapshot",
    "split_microbatches",
    "token_mean_weights",
    "turn_mean_weights",
    "with_advantages",
]
