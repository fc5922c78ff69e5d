"""The two trainings: behaviour cloning and M-GRPO. Each resumes by itself from its workdir."""

from webagent_jax.train.bc import bc
from webagent_jax.train.grpo import grpo

__all__ = ["bc", "grpo"]
