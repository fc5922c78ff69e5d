"""Loading of the policy that a run config names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
from jax.sharding import Mesh

from webagent_jax.config import PROJECTIONS, ConfigError, RunConfig
from webagent_jax.policy import hf, lora, matmul, peft_adapter, sharding, weights
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
    """Return model and params for a rollout runtime; (None, None) for a chat endpoint.

    If the engine rounds weights (bfloat16 activations or matmuls, or `engine.quantization`), an
    adapter at `policy.path` stays separate, as in training: a merge would round small updates away.
    An adapter of lm_head is merged.

    Raises:
        ShardingError: this process has fewer devices than `engine.tensor_parallel_size`, or the
            policy does not divide over them.
    """
    if cfg.policy.kind == "openai":
        return None, None
    # The params are float32, and one device may not have the memory for all of them.
    mesh = sharding.engine_mesh(cfg.engine.tensor_parallel_size)
    adapter = _separate_adapter(cfg)
    if adapter is None:
        model, params = load_policy(cfg, mesh)
        return model, PolicySnapshot(0, params)
    model, params = load_policy(with_policy_path(cfg, peft_adapter.base_path(adapter)), mesh)
    adapters = peft_adapter.load(adapter, model, scale=1.0)
    shardings = None if mesh is None else sharding.param_shardings(adapters, mesh)
    adapters = jax.device_put(adapters, shardings)
    return model, PolicySnapshot(0, lora.attach(lora.FrozenBase(params, 1.0), adapters))


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
            "policy.matmul_dtype=bfloat16: XLA has no bfloat16 matmul with float32 accumulation "
            "for this CPU; set policy.matmul_dtype=float32"
        )
    model, params = weights.load(
        options.path, options.dtype, remat=options.remat, attention=options.attention, mesh=mesh
    )
    return replace(model, unroll=options.unroll, matmul_dtype=options.matmul_dtype), params


def frozen_base_path(cfg: RunConfig) -> str:
    """Return the path of the policy that the adapters of a run modify.

    This is `policy.path`, or with `lora.create_new_adapter=False` the base of the adapter there.

    Raises:
        ConfigError: the run trains the adapter at `policy.path`, and there is none.
    """
    if cfg.lora.create_new_adapter:
        return cfg.policy.path
    return peft_adapter.base_path(_adapter_dir(cfg))


def load_trained_adapter(cfg: RunConfig, model: ModelConfig) -> lora.Adapters:
    """Return the adapter at `policy.path` with the scale of the run, as NumPy arrays.

    Raises:
        ConfigError: there is no adapter, it does not fit the model or lacks layers, or its rank or
            modules are not those of the config.
    """
    directory = _adapter_dir(cfg)
    adapters = peft_adapter.load(
        directory, model, scale=cfg.lora.alpha / cfg.lora.rank, all_layers=True
    )
    rank = peft_adapter.read_config(directory)["r"]
    modules = tuple(name for name in PROJECTIONS if name in adapters["layers"])
    if rank != cfg.lora.rank or set(modules) != set(cfg.lora.target_modules):
        raise ConfigError(
            f"lora.create_new_adapter=False: the adapter {directory} has other options than this "
            f"run;\nset --config.lora.rank={rank} --config.lora.target_modules={','.join(modules)}"
        )
    return adapters


def with_policy_path(cfg: RunConfig, path: str) -> RunConfig:
    """Return the config with another initial policy."""
    return replace(cfg, policy=replace(cfg.policy, path=path))


def _separate_adapter(cfg: RunConfig) -> Path | None:
    """Return the adapter that inference does not merge into its base; None without one."""
    policy = cfg.policy
    is_rounded = "bfloat16" in (policy.dtype, policy.matmul_dtype)
    if not is_rounded and cfg.engine.quantization == "none":
        return None
    adapters, _ = hf.adapter_chain(cfg.policy.path)
    return adapters[0] if adapters and not peft_adapter.adapts_head(adapters[0]) else None


def _adapter_dir(cfg: RunConfig) -> Path:
    adapters, _ = hf.adapter_chain(cfg.policy.path)
    if not adapters:
        raise ConfigError(
            f"lora.create_new_adapter=False: {cfg.policy.path} is not a PEFT adapter; set "
            "--config.policy.path to the adapter/ of a run, or omit lora.create_new_adapter"
        )
    return adapters[0]
