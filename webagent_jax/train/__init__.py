"""The two trainings: behaviour cloning and M-GRPO. Each resumes by itself from its workdir."""

from webagent_jax.train.bc import bc
from webagent_jax.train.grpo import check_sampling, grpo

__all__ = ["bc", "check_sampling", "grpo"]
