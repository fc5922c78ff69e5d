"""Tests of the memory estimate, against the compiled programs of docs/sizing.md."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from configs import instruct, webagent_r1
from tools import recipes
from webagent_jax import compile_check, config, policy, sizing
from webagent_jax.policy.sharding import ShardingError
from webagent_jax.sizing import Hardware, Workload

WORKLOAD = Workload(turns=6.0, prompt_tokens=1_000, response_tokens=100)


def make_config(variant="zero", rank=0, tensor=None, engine_size=1):
    values = config.to_config_dict(webagent_r1.get_config(variant))
    values.lora.rank = rank
    values.mesh.tensor = tensor or values.mesh.tensor
    values.engine.tensor_parallel_size = engine_size
    return config.from_config_dict(values)


LLAMA = "llama-3.1-8b-zero"


# GiB of the update and of inference in docs/sizing.md, from the TPU compiler. With adapters it
# had the base as a second argument, the reference; the size of the base is subtracted here.
@pytest.mark.parametrize(
    ("options", "chip", "devices", "update", "rollout"),
    [
        ({}, "v5e", 16, 15.26, 13.52),
        ({"tensor": 1}, "v5e", 16, 17.07, None),
        ({}, "v6e", 8, 20.00, None),
        ({}, "v5p", 4, 29.51, None),
        ({"variant": LLAMA}, "v5p", 8, 52.15, 55.46),
        ({"variant": LLAMA, "tensor": 4, "engine_size": 4}, "v6e", 16, 22.88, None),
        ({"variant": LLAMA}, "v6e", 16, 39.85, None),
        ({"tensor": 1}, "v5p", 1, 89.96, 56.62),
        ({"tensor": 1, "rank": 32}, "v5p", 1, 46.08 - 11.50, 22.93),
        ({"variant": LLAMA, "rank": 32}, "v5p", 1, 113.9 - 29.9, 71.5),
    ],
)
def test_memory_is_close_to_compiled_programs(options, chip, devices, update, rollout):
    cfg = make_config(**options)
    engine_size = cfg.engine.tensor_parallel_size
    result = sizing.estimate(cfg, Hardware("", chip, devices, (engine_size,), 0), WORKLOAD)
    assert result.update_bytes / 2**30 == pytest.approx(update, rel=0.035)
    if rollout:
        assert result.rollout_bytes / 2**30 == pytest.approx(rollout, rel=0.035)


# GiB of the update and of the decode step of configs/instruct.py:arena in docs/sizing.md, from the
# compilers of GPUs and TPUs.
@pytest.mark.parametrize(
    ("model", "rank", "chip", "devices", "tensor", "engine_size", "update", "rollout"),
    [
        ("Qwen2.5-3B", 0, "h100", 1, 1, 1, 76.1, 55.1),
        ("Qwen2.5-3B", 0, "h100", 8, 1, 1, 17.8, 14.9),
        ("Qwen2.5-3B", 32, "h100", 1, 1, 1, 20.1, None),
        ("Llama-3.1-8B", 0, "h100", 1, 1, 1, 194.9, 146.7),
        ("Llama-3.1-8B", 0, "h100", 8, 1, 1, 44.7, 42.0),
        ("Llama-3.1-8B", 32, "h100", 1, 1, 1, 49.3, None),
        ("Qwen2.5-3B", 0, "v5e", 16, 1, 4, 9.3, 7.9),
        ("Qwen2.5-3B", 0, "v5p", 4, 1, 4, 23.9, 16.5),
        ("Qwen2.5-3B", 0, "v6e", 8, 1, 8, 13.5, 10.0),
        ("Llama-3.1-8B", 32, "v5e", 16, 1, 4, 11.8, None),
    ],
)
def test_memory_is_close_to_programs_of_instruct_recipes(
    model, rank, chip, devices, tensor, engine_size, update, rollout
):
    values = config.to_config_dict(instruct.get_config("arena"))
    values.policy.path, values.lora.rank = model, rank
    values.mesh.tensor, values.engine.tensor_parallel_size = tensor, engine_size
    cfg = config.from_config_dict(values)
    result = sizing.estimate(cfg, Hardware("", chip, devices, (engine_size,), 0), WORKLOAD)
    assert result.update_bytes / 2**30 == pytest.approx(update, rel=0.05)
    if rollout:
        assert result.rollout_bytes / 2**30 == pytest.approx(rollout, rel=0.05)


def test_asynchronous_update_keeps_kv_cache():
    cfg, hardware = make_config(), Hardware("", "v5e", 16, (1,), 0)
    asynchronous = dataclasses.replace(cfg, grpo=dataclasses.replace(cfg.grpo, max_staleness=1))
    synchronous_result = sizing.estimate(cfg, hardware, WORKLOAD)
    result = sizing.estimate(asynchronous, hardware, WORKLOAD)
    difference = result.update_bytes - synchronous_result.update_bytes
    assert difference == pytest.approx(cfg.engine.cache_bytes, rel=0.01)
    assert result.rollout_bytes == synchronous_result.rollout_bytes


def test_params_of_engine_exist_twice_during_transfer():
    cfg = make_config(rank=32, engine_size=2)
    one, several = (Hardware("", "v5e", 16, (2,), engines) for engines in (1, 8))
    params = policy.count_params(compile_check.model_config(cfg.policy)) / 2  # per device
    single = sizing.estimate(cfg, one, WORKLOAD)
    assert single.transfer_bytes > 2 * 2 * params
    # With several processes, each receives a copy in the dtype of its engine.
    copy = sizing.estimate(cfg, several, WORKLOAD).transfer_bytes - single.transfer_bytes
    assert copy == pytest.approx(2 * params, rel=0.01)
    quantized = dataclasses.replace(
        cfg, engine=dataclasses.replace(cfg.engine, quantization="int8")
    )
    copy = (
        sizing.estimate(quantized, several, WORKLOAD).transfer_bytes
        - sizing.estimate(quantized, one, WORKLOAD).transfer_bytes
    )
    assert copy == pytest.approx(4 * params, rel=0.01)
    assert single.max_bytes >= single.transfer_bytes


def test_replicated_kv_heads_are_read_by_each_device():
    # Qwen2.5-3B has two key-value heads. Weights divide over all devices.
    workload = dataclasses.replace(WORKLOAD, prompt_tokens=100_000.0)

    def decode_step(num_devices):
        hardware = Hardware("", "v5e", 16, (num_devices,), 0)
        cfg = make_config(engine_size=num_devices)
        return sizing.estimate(cfg, hardware, workload).engine_times.decode_step

    assert decode_step(2) == pytest.approx(decode_step(1) / 2)
    assert decode_step(4) > decode_step(2)


def test_recommendation_prefers_training_of_all_params():
    values = config.to_config_dict(instruct.get_config("arena"))
    values.policy.path = "Qwen2.5-3B"
    cfg = config.from_config_dict(values)
    one, eight = (Hardware("", "h100", count, (1,), 0) for count in (1, 8))
    assert sizing.recommend(cfg, eight, WORKLOAD).cfg.lora.rank == 0
    values.policy.path = "Llama-3.1-8B"
    large_cfg = config.from_config_dict(values)
    result = sizing.recommend(large_cfg, one, WORKLOAD)
    assert result.fits and result.cfg.lora.rank == 32
    result = sizing.recommend(large_cfg, Hardware("", "v5e", 1, (1,), 0), WORKLOAD)
    assert not result.fits and result.max_bytes > result.usable_bytes


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ({"tensor": 3}, "151936 does not divide by 3"),
        ({"fsdp": 3, "tensor": 1}, "does not cover 6 devices"),
    ],
)
def test_mesh_must_cover_devices_and_divide_model(mesh, message):
    cfg = make_config()
    bad_cfg = dataclasses.replace(cfg, mesh=dataclasses.replace(cfg.mesh, **mesh))
    with pytest.raises(ShardingError, match=message):
        sizing.estimate(bad_cfg, Hardware("", "v5p", 6, (1,), 0), WORKLOAD)


def test_hours_follow_work():
    cfg, hardware = make_config(tensor=1), Hardware("", "h100", 8, (1,), 0)
    result = sizing.estimate(cfg, hardware, WORKLOAD)
    assert result.hours == pytest.approx(
        cfg.grpo.updates * (result.update_seconds + result.rollout_seconds) / 3600
    )
    longer = dataclasses.replace(WORKLOAD, turns=12.0)
    assert sizing.estimate(cfg, hardware, longer).rollout_seconds == pytest.approx(
        2 * result.rollout_seconds, rel=0.01
    )
    faster = dataclasses.replace(WORKLOAD, roofline_fraction=0.6)
    assert sizing.estimate(cfg, hardware, faster).update_seconds == pytest.approx(
        result.update_seconds / 2
    )


def test_page_contains_current_table():
    page = Path("docs/recipes.md").read_text()
    assert recipes.table(recipes.MODELS) in page


def test_recipes_of_model_with_short_context_exit_with_message(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["recipes.py", "webagent-tiny"])
    with pytest.raises(SystemExit):
        recipes.main()
    assert "exceeds the context length" in capsys.readouterr().err
