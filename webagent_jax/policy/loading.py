"""Loading of the policy that a run config names."""

from __future__ import annotations

from dataclasses import replace

from jax.sharding import Mesh

from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.policy import matmul, weights
from webagent_jax.policy.transformer import ModelConfig, Params
from webagent_jax.types import PolicySnapshot


def require_local_policy(cfg: RunConfig) -> None:
    """Check that the config names a local policy.

    Raises:
        ConfigError: the policy is a chat endpoint, which cannot be trained.
    """
    if cfg.policy.kind != "weights":
        raise ConfigError(
            f"policy.kind={cfg.policy.kind} has no weights to train: set policy.kind=weights. "
            "To collect demonstrations of the endpoint, run webagent collect "
            "--demo_source=policy"
        )


def initial_policy(cfg: RunConfig) -> tuple[ModelConfig | None, PolicySnapshot | None]:
    """Return model and params for a rollout runtime; (None, None) for a chat endpoint."""
    if cfg.policy.kind == "openai":
        return None, None
    model, params = load_policy(cfg)
    return model, PolicySnapshot(0, params)


def load_policy(cfg: RunConfig, mesh: Mesh | None = None) -> tuple[ModelConfig, Params]:
    """Load the configured model and params, sharded over `mesh` or on one device.

    Raises:
        ConfigError: the policy is a chat endpoint, or the backend does not support
            `policy.matmul_dtype`.
        FileNotFoundError: the policy does not exist; see `weights.load`.
        ValueError: the policy is not supported; see `weights.load`.
    """
    require_local_policy(cfg)
    options = cfg.policy
    if options.matmul_dtype == "bfloat16" and not matmul.is_supported():
        raise ConfigError(
            "policy.matmul_dtype=bfloat16: XLA has no bfloat16 matmul with float32 sums for this "
            "CPU; set policy.matmul_dtype=float32"
        )
    model, params = weights.load(
        options.path, options.dtype, remat=options.remat, attention=options.attention, mesh=mesh
    )
    return replace(model, unroll=options.unroll, matmul_dtype=options.matmul_dtype), params


def with_policy_path(cfg: RunConfig, path: str) -> RunConfig:
    """Return the config with another initial policy."""
    return replace(cfg, policy=replace(cfg.policy, path=path))
