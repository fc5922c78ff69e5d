"""Learning: groups to forest rows, losses, and one jitted update for each of GRPO and BC."""

from webagent_jax.learn.advantages import (
    group_advantages,
    is_flat,
    three_level_weights,
    token_mean_weights,
    turn_mean_weights,
)
from webagent_jax.learn.forest import Branch, Forest, branches, build, widened
from webagent_jax.learn.losses import GRPOStats, Surrogate, bc_loss, grpo_loss
from webagent_jax.learn.microbatches import accumulate
from webagent_jax.learn.objective import Totals, has_signal, rows_of, tally
from webagent_jax.learn.optimizer import learning_rate, make_optimizer
from webagent_jax.learn.train_step import (
    NonFiniteUpdate,
    Optimizer,
    TrainState,
    abstract_state,
    bc_update,
    grpo_update,
    init_state,
    lower_grpo_update,
    proximal,
    snapshot,
)

__all__ = [
    "Branch",
    "Forest",
    "GRPOStats",
    "NonFiniteUpdate",
    "Optimizer",
    "Surrogate",
    "Totals",
    "TrainState",
    "abstract_state",
    "accumulate",
    "bc_loss",
    "bc_update",
    "branches",
    "build",
    "group_advantages",
    "grpo_loss",
    "grpo_update",
    "has_signal",
    "init_state",
    "is_flat",
    "learning_rate",
    "lower_grpo_update",
    "make_optimizer",
    "proximal",
    "rows_of",
    "snapshot",
    "tally",
    "three_level_weights",
    "token_mean_weights",
    "turn_mean_weights",
    "widened",
]
