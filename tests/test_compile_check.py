"""Tests of the compile check; some need the compiler of libtpu or of the CUDA plugin."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from importlib.util import find_spec

import jax
import pytest
from absl.testing import flagsaver
from jax.sharding import AbstractMesh, SingleDeviceSharding

from tests.launchers import load_main
from webagent_jax import chips, compile_check, config, policy
from webagent_jax.chips import CHIPS, Chip, TopologyError
from webagent_jax.compile_check import CostEstimate, ProgramReport, Report
from webagent_jax.config import (
    BCConfig,
    ConfigError,
    EngineConfig,
    GRPOConfig,
    LoRAConfig,
    MeshConfig,
    PolicyConfig,
    RunConfig,
)
from webagent_jax.inference import engine_shapes
from webagent_jax.inference.engine_shapes import EngineShapes
from webagent_jax.inference.kv_cache import kv_bytes_per_token
from webagent_jax.policy import sharding
from webagent_jax.policy.kernels import gpu

SMALL = RunConfig(
    policy=PolicyConfig(path="Qwen2.5-0.5B", dtype="bfloat16", remat="full"),
    mesh=MeshConfig(microbatch_rows_per_device=1),
    engine=EngineConfig(slots=4, max_model_len=512),
)
needs_libtpu = pytest.mark.skipif(not find_spec("libtpu"), reason="the extra webagent_jax[tpu]")
needs_cuda = pytest.mark.skipif(
    not find_spec("jax_cuda13_plugin"), reason="the extra webagent_jax[cuda]"
)


def test_cost_estimate_seconds_is_slowest_resource():
    chip = Chip(flops=10.0, hbm_bandwidth=5.0, ici_bandwidth=2.0, hbm=1.0)
    assert CostEstimate(flops=20.0, hbm_bytes=5.0).seconds(chip) == 2.0
    assert CostEstimate(flops=20.0, hbm_bytes=25.0).seconds(chip) == 5.0
    assert CostEstimate(flops=20.0, hbm_bytes=25.0, ici_bytes=14.0).seconds(chip) == 7.0


def test_model_config_accepts_model_names():
    model = compile_check.model_config(SMALL.policy)
    assert (model.num_layers, model.dtype, model.attention) == (24, "bfloat16", "tpu")
    assert compile_check.model_config(SMALL.policy, "gpu").attention == "gpu"
    tiny_model = compile_check.model_config(dataclasses.replace(SMALL.policy, path="webagent-tiny"))
    assert (tiny_model.num_layers, tiny_model.d_model) == (4, 128)
    with pytest.raises(FileNotFoundError, match="no policy at"):
        compile_check.model_config(dataclasses.replace(SMALL.policy, path="weights/unknown"))


def test_model_config_has_all_options_of_policy():
    options = PolicyConfig(
        path="Qwen2.5-0.5B",
        dtype="bfloat16",
        matmul_dtype="bfloat16",
        remat="full",
        unroll=4,
        attention="blockwise",
    )
    model = compile_check.model_config(options)
    names = {f.name for f in dataclasses.fields(options)} & set(vars(model))
    assert names == {"dtype", "matmul_dtype", "remat", "unroll", "attention"}
    for name in names:
        assert getattr(model, name) == getattr(options, name) != getattr(PolicyConfig(), name)


def test_update_work_of_adapters_has_no_gradients_of_weights():
    model = compile_check.model_config(SMALL.policy)
    cfg = dataclasses.replace(SMALL, grpo=GRPOConfig(kl_beta=0.0))
    adapted = dataclasses.replace(cfg, lora=LoRAConfig(rank=8))
    mesh = AbstractMesh((1, 1, 1), sharding.MESH_AXES)
    full, lora = (compile_check.update_work(c, model, mesh) for c in (cfg, adapted))
    # Forward, backward and recomputation: 4 passes with all params, 3 with frozen ones.
    assert lora.flops == pytest.approx(0.75 * full.flops)
    assert lora.hbm_bytes < 0.75 * full.hbm_bytes


def test_update_work_adds_gradients_over_data_axis():
    model = compile_check.model_config(SMALL.policy)
    mesh = AbstractMesh((8, 1, 1), sharding.MESH_AXES)
    sent = compile_check.update_work(SMALL, model, mesh, microbatches=3).ici_bytes
    assert sent == pytest.approx(3 * 2 * 7 / 8 * 4 * policy.count_params(model))


def test_decode_work_counts_draft_tokens():
    model = compile_check.model_config(SMALL.policy)

    def decode_work(drafts):
        engine = dataclasses.replace(SMALL.engine, num_speculative_tokens=drafts)
        return compile_check._decode_work(SMALL, EngineShapes.from_options(model, engine), model)

    plain, speculative = decode_work(0), decode_work(3)
    assert speculative.flops == 4 * plain.flops
    assert speculative.hbm_bytes == plain.hbm_bytes  # weights and cache are read once per step


def test_decode_work_reads_replicated_kv_heads():
    model = compile_check.model_config(SMALL.policy)
    assert model.num_kv_heads == 2

    def cache_bytes(num_devices):
        engine = dataclasses.replace(SMALL.engine, tensor_parallel_size=num_devices)
        cfg = dataclasses.replace(SMALL, engine=engine)
        work = compile_check._decode_work(cfg, EngineShapes.from_options(model, engine), model)
        return work.hbm_bytes - policy.weight_bytes(model) / num_devices

    tokens = SMALL.engine.slots * SMALL.engine.max_model_len
    assert cache_bytes(1) == pytest.approx(tokens * kv_bytes_per_token(model))
    assert cache_bytes(2) == pytest.approx(cache_bytes(1) / 2)
    assert cache_bytes(4) == pytest.approx(cache_bytes(1))


def test_asynchronous_update_keeps_kv_cache():
    model = dataclasses.replace(compile_check.model_config(SMALL.policy), attention="dense")
    mesh = sharding.make_mesh(devices=jax.devices()[:1])

    def resident_bytes(max_staleness):
        grpo = dataclasses.replace(SMALL.grpo, max_staleness=max_staleness)
        cfg = dataclasses.replace(SMALL, grpo=grpo)
        programs = compile_check._programs(cfg, model, mesh, "gpu")
        return {program.name: program.resident for program in programs}

    shapes = EngineShapes.from_options(model, SMALL.engine, platform="gpu")
    cache_bytes = shapes.num_pages * shapes.page_tokens * kv_bytes_per_token(model)
    synchronous, asynchronous = resident_bytes(0), resident_bytes(1)
    assert {name: asynchronous[name] - synchronous[name] for name in synchronous} == {
        "update": cache_bytes,
        "reference scoring": cache_bytes,
        "prefill": 0,
        "decode step": 0,
    }


def test_update_of_adapters_has_one_copy_of_base():
    cfg = dataclasses.replace(SMALL, lora=LoRAConfig(rank=8), grpo=GRPOConfig(kl_beta=0.1))
    model = dataclasses.replace(compile_check.model_config(SMALL.policy), attention="dense")
    mesh = sharding.make_mesh(devices=jax.devices()[:1])
    update, *_ = compile_check._programs(cfg, model, mesh, "gpu")
    # Base, reference, adapters with two moments, and rows.
    count = sum(aval.size for aval in jax.tree.leaves(update.lower().in_avals))
    assert policy.count_params(model) < count < 1.1 * policy.count_params(model)


def test_check_rejects_more_devices_than_the_topology_has(monkeypatch):
    monkeypatch.setattr(compile_check, "topology_devices", lambda topology: [object()] * 4)
    message = "--devices=5 is more than the 4 devices of v5e:2x2; choose a larger --topology"
    with pytest.raises(TopologyError, match=message):
        compile_check.check(SMALL, "v5e:2x2", print, 5)


def test_check_rejects_unknown_chip():
    with pytest.raises(TopologyError, match="available: v5e, v5p, v6e, h100, h200"):
        compile_check.check(SMALL, "v99:2x2", print)


@pytest.mark.parametrize(
    ("package", "topology", "extra"),
    [("libtpu", "v5e:2x2", "tpu"), ("jax_cuda13_plugin", "h100:8", "cuda")],
)
def test_check_without_compiler_reports_install_command(package, topology, extra, monkeypatch):
    monkeypatch.setattr("webagent_jax.chips.find_spec", lambda name: None)
    with pytest.raises(TopologyError, match=rf"pip install \"webagent_jax\[{extra}\]\""):
        compile_check.check(SMALL, topology, print)


@pytest.mark.parametrize("topology", ["h100", "h100:0", "h100:9", "h100:2x4"])
def test_check_rejects_invalid_number_of_gpus(topology, monkeypatch):
    monkeypatch.setattr("webagent_jax.chips.find_spec", lambda name: object())
    with pytest.raises(TopologyError, match="use h100:1 to h100:8, or a multiple of 8"):
        compile_check.check(SMALL, topology, print)


def test_table_reports_programs_that_do_not_fit():
    gib = 2**30
    program = ProgramReport(
        "update", gib, 0, 2 * gib, gib, CostEstimate(3e12, 4e9, 0), 0.5, fits=True
    )
    large_program = dataclasses.replace(
        program, name="decode step", fits=False, refusal="(used 20G)"
    )
    report = Report("weights/X", "v5e:2x2", 4, {"fsdp": 4}, 16 * gib, (program, large_program))
    lines = compile_check.table(report).splitlines()
    assert any("update" in line and "4.00" in line and line.endswith("fits") for line in lines)
    assert any("DOES NOT FIT (used 20G)" in line for line in lines)
    assert not report.fits
    record = json.loads(json.dumps(report.as_json()))
    assert record["programs"][0]["total"] == 4 * gib and record["fits"] is False


def test_command_checks_workdir_before_compilation(tmp_path, monkeypatch, capsys):
    report = Report("weights/X", "v5e:2x2", 4, {"fsdp": 4}, 2.0**34, ())
    compiled = []
    monkeypatch.setattr(compile_check, "check", lambda *args: compiled.append(args) or report)
    main = load_main("compile_check")
    (tmp_path / "file").write_text("")
    values = {"config": config.to_config_dict(SMALL), "topology": "v5e:2x2"}
    with (
        flagsaver.flagsaver(workdir=str(tmp_path / "file" / "run"), **values),
        pytest.raises(ConfigError, match="choose another --workdir"),
    ):
        main(["compile_check.py"])
    assert not compiled
    with flagsaver.flagsaver(workdir=str(tmp_path / "run"), **values):
        main(["compile_check.py"])
    assert json.loads((tmp_path / "run" / "compile.json").read_text()) == report.as_json() | {
        "programs": []
    }
    assert "all programs fit" in capsys.readouterr().out


@needs_libtpu
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", ["Qwen2.5-0.5B", "Qwen2.5-3B"])  # heads of 64 and of 128
def test_decode_step_copies_no_pages(model):
    cfg = dataclasses.replace(
        SMALL,
        policy=dataclasses.replace(SMALL.policy, path=model),
        engine=EngineConfig(slots=16, max_model_len=16_384),
        bc=BCConfig(row_tokens=16_384),
        grpo=GRPOConfig(row_tokens=16_384),
    )
    (decode,) = compile_check.check(cfg, "v5p:2x2x1", print, names=["decode step"]).programs
    assert decode.fits
    # Pages of all slots, and half as many for cached prefixes.
    cache_tokens = 1.5 * cfg.engine.slots * cfg.engine.max_model_len
    cache_bytes = cache_tokens * kv_bytes_per_token(compile_check.model_config(cfg.policy))
    assert decode.temporaries < 0.05 * cache_bytes


@needs_libtpu
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_engine_compiles_on_a_part_of_several_vms():
    # The mesh of v5e:4x4 begins with the ids 0, 1, 4 and 5, those of the first VM.
    cfg = dataclasses.replace(
        SMALL,
        policy=dataclasses.replace(SMALL.policy, path="Qwen2.5-3B"),
        engine=dataclasses.replace(SMALL.engine, tensor_parallel_size=4),
    )
    (decode,) = compile_check.check(cfg, "v5e:4x4", print, names=["decode step"]).programs
    assert decode.fits


@needs_libtpu
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("quantization", ["int8", "fp8"])
def test_quantized_decode_step_copies_no_weights(quantization):
    full, quantized = (
        compile_check.check(
            dataclasses.replace(SMALL, engine=dataclasses.replace(SMALL.engine, quantization=kind)),
            "v5e:2x2",
            print,
            names=["decode step"],
        ).programs[0]
        for kind in ("none", quantization)
    )
    model = compile_check.model_config(SMALL.policy)
    served = dataclasses.replace(model, quantization=quantization)
    saved_bytes = policy.weight_bytes(model) - policy.weight_bytes(served)
    assert full.arguments - quantized.arguments > 0.99 * saved_bytes
    assert quantized.temporaries <= full.temporaries
    # The estimates exclude waiting for memory, in which a decode step of a small model consists.
    assert quantized.cycles < 1.05 * full.cycles


@needs_libtpu
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("lora", [LoRAConfig(), LoRAConfig(rank=16)], ids=["all params", "lora"])
def test_small_model_fits_v5e(lora):
    cfg = dataclasses.replace(SMALL, lora=lora, grpo=GRPOConfig(row_tokens=2048))
    report = compile_check.check(cfg, "v5e:2x2", print)
    assert report.fits, compile_check.table(report)
    names = [program.name for program in report.programs]
    assert names == ["update", "reference scoring", "prefill", "decode step"]
    # The kernels of training have no estimate.
    assert [program.cycles > 0 for program in report.programs] == [False, False, True, True]
    update, *_ = report.programs
    # Params and two moments in float32, sharded over 4 devices.
    min_argument_bytes = 12 * 494_032_768 / 4 if not lora.rank else 0
    assert update.arguments > min_argument_bytes
    assert 0 < update.temporaries < CHIPS["v5e"].hbm


@needs_cuda
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("topology", ["h100:1", "h100:8"])
@pytest.mark.parametrize("lora", [LoRAConfig(), LoRAConfig(rank=16)], ids=["all params", "lora"])
def test_small_model_fits_h100(topology, lora):
    cfg = dataclasses.replace(SMALL, lora=lora, grpo=GRPOConfig(row_tokens=2048))
    report = compile_check.check(cfg, topology, print)
    assert report.fits, compile_check.table(report)
    update, *_, decode = report.programs
    assert 0 < update.temporaries < CHIPS["h100"].hbm
    # The loop over steps. No layer has one, and none copies pages: the temporaries are logits.
    assert decode.dynamic_loops == 1
    logits_bytes = 4 * cfg.engine.slots * 151_936
    assert decode.temporaries < 6 * logits_bytes


@needs_cuda
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_decode_step_for_gpu_loops_over_pages_without_kernel(monkeypatch):
    monkeypatch.setattr(engine_shapes, "_decode_attention", lambda config, platform: "xla")
    (decode,) = compile_check.check(SMALL, "h100:1", print, names=["decode step"]).programs
    assert decode.dynamic_loops == 1 + 24  # one in every layer


@needs_cuda
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("width", [32, 64, 128, 256])
@pytest.mark.parametrize(
    ("capability", "shared_kib"), [("major: 8 minor: 9", 99), ("major: 8", 163), ("major: 9", 227)]
)
def test_gpu_attention_fits_shared_memory(dtype, width, capability, shared_kib, monkeypatch):
    target = chips._GPU_TARGET.replace("optin: 232448", f"optin: {1024 * shared_kib}")
    target = target.replace("capability {{ major: 9 }}", f"capability {{{{ {capability} }}}}")
    monkeypatch.setattr(chips, "_GPU_TARGET", target)
    (device,) = chips.topology_devices("h100:1")
    placed = partial(jax.ShapeDtypeStruct, sharding=SingleDeviceSharding(device))
    operands = [placed((1, 512, heads, width), dtype) for heads in (8, 2, 2)]

    def loss(q, k, v, ends):
        return gpu.attention(q, k, v, ends).sum()

    gradients = jax.jit(jax.grad(loss, (0, 1, 2)))
    with chips.compile_target(device):
        gradients.trace(*operands, placed((1, 512), "int32")).lower().compile()
