"""Learning: episodes to forest rows, losses, and one jitted update for each of GRPO and BC."""

from webagent_jax.learn.advantages import (
    group_advantages,
    is_flat,
    three_level_weights,
    token_mean_weights,
)
from webagent_jax.learn.forest import Branch, Forest, branches, build, credited
from webagent_jax.learn.losses import GRPOStats, bc_loss, grpo_loss
from webagent_jax.learn.optimizer import learning_rate, make_optimizer
from webagent_jax.learn.step import (
    NonFiniteUpdate,
    Optimizer,
    TrainState,
    abstract_state,
    accumulate,
    bc_update,
    grpo_update,
    init_state,
    lower_grpo_update,
    snapshot,
)

__all__ = [
    "Branch",
    "Forest",
    "GRPOStats",
    "NonFiniteUpdate",
    "Optimizer",
    "TrainState",
    "abstract_state",
    "accumulate",
    "bc_loss",
    "bc_update",
    "branches",
    "build",
    "credited",
    "group_advantages",
    "grpo_loss",
    "grpo_update",
    "init_state",
    "is_flat",
    "learning_rate",
    "lower_grpo_update",
    "make_optimizer",
    "snapshot",
    "three_level_weights",
    "token_mean_weights",
]
