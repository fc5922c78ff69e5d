"""Tests of the learner: non-finite rows, rollout temperature and checkpoints."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace

import jax
import numpy as np
import pytest

from webagent_jax import distributed, learn, policy
from webagent_jax.config import (
    ConfigError,
    LoRAConfig,
    OptimizerConfig,
    PolicyConfig,
    PreemptedError,
    RunConfig,
)
from webagent_jax.inference import Engine
from webagent_jax.learn import Branch, NonFiniteStepError
from webagent_jax.policy import lora, peft_adapter, prompt_record, weights
from webagent_jax.tracking import run_metadata
from webagent_jax.train import bc, export
from webagent_jax.train.learner import Learner

CFG = RunConfig()
OPTIMIZER = OptimizerConfig(learning_rate=1e-3)


def make_rows(learner, logps):
    """Return one row per log-probability: 8 prompt tokens and 4 response tokens."""
    rng = np.random.default_rng(0)
    ids = rng.integers(10, 90, (len(logps), 12)).astype(np.int32)
    branches = [
        Branch(row_ids[:8], row_ids[8:], np.full(4, logp, np.float32), weight=0.1, advantage=1.0)
        for row_ids, logp in zip(ids, logps, strict=True)
    ]
    return learn.pack_branches(branches, row_tokens=12, **learner.packing_options).rows


def grpo_loss(learner, cfg):
    return learn.GRPOLoss.from_config(
        learner.model, cfg.grpo, cfg.rollout.temperature, learner.mesh
    )


@pytest.fixture(scope="module")
def learner(tmp_path_factory):
    with Learner(CFG, tmp_path_factory.mktemp("learner")) as learner:
        learner.restore_or_init(grpo_loss(learner, CFG), OPTIMIZER, 10, reference=True)
        yield learner


def test_only_a_single_process_packs_shorter_rows(learner, monkeypatch):
    num_rows = learner.microbatch
    assert learner.packing_options == {"row_multiple": 16 * num_rows, "microbatch": num_rows}
    monkeypatch.setattr(distributed, "process_count", lambda: 2)
    assert learner.packing_options == {"row_multiple": 8 * num_rows}


def test_step_reports_non_finite_rows_and_keeps_params(learner):
    rows = make_rows(learner, [-1.0, -1.0, -np.inf, -1.0, np.nan])
    initial_params = jax.tree.map(np.array, learner.state.params)
    non_finite_rows = [row for row in range(5) if not np.isfinite(rows.behavior_logp[row]).all()]
    row_list = ", ".join(map(str, non_finite_rows))
    with pytest.raises(NonFiniteStepError, match=f"step 1 was not applied.*Rows {row_list} of the"):
        learner.step(rows).fetch()
    jax.tree.map(np.testing.assert_array_equal, learner.state.params, initial_params)
    stats = learner.step(make_rows(learner, [-1.0, -2.0])).fetch()
    assert np.isfinite(stats["loss"]) and int(learner.state.step) == 1


def test_learner_logp_matches_engine_at_rollout_temperature(tmp_path):
    temperature = 0.6
    cfg = replace(CFG, rollout=replace(CFG.rollout, temperature=temperature))
    with Learner(cfg, tmp_path) as learner:
        learner.restore_or_init(grpo_loss(learner, cfg), OPTIMIZER, 10, reference=True)
        snapshot = learner.snapshot()
        prompt = np.arange(10, 40, dtype=np.int32)
        with Engine(learner.model, snapshot.params, slots=2, max_model_len=64) as engine:
            completion = engine.submit(
                prompt, max_new_tokens=20, temperature=temperature, seed=1
            ).result(timeout=120)
        branch = Branch(
            prompt,
            completion.token_ids,
            completion.behavior_logp,
            weight=1 / len(completion.token_ids),
            advantage=1.0,
        )
        rows = learn.pack_branches([branch], row_tokens=64, **learner.packing_options).rows
        weight_mask = rows.loss_weights != 0
        prox_logp = learner.compute_prox_logp(rows).prox_logp[weight_mask]
        np.testing.assert_allclose(prox_logp, rows.behavior_logp[weight_mask], atol=1e-4)
        stats = learner.step(rows).fetch()
        assert stats["logp_difference"] < 1e-4
        assert stats["kl"] == pytest.approx(0, abs=1e-6)
        # The temperature has an effect.
        assert np.abs(completion.logp - completion.behavior_logp).max() > 0.01


def test_restore_rejects_changed_weights(tmp_path):
    weights = tmp_path / "weights"
    shutil.copytree(policy.resolve_dir("webagent-tiny"), weights)
    cfg = replace(CFG, policy=PolicyConfig(path=str(weights)))
    with Learner(cfg, tmp_path / "run") as learner:
        assert learner.restore_or_init(learn.BCLoss(learner.model), OPTIMIZER, 10) == {}
        learner.save(1, {"update": 1})
    with Learner(cfg, tmp_path / "run") as learner:
        assert learner.restore_or_init(learn.BCLoss(learner.model), OPTIMIZER, 10) == {"update": 1}
    model, params = policy.load_hf(weights)
    params["final_norm"] = params["final_norm"] * 1.01
    policy.save_hf(weights, model, params)
    with (
        Learner(cfg, tmp_path / "run") as learner,
        pytest.raises(ConfigError, match="differ from those that this run and its reference"),
    ):
        learner.restore_or_init(learn.BCLoss(learner.model), OPTIMIZER, 10)


@pytest.mark.parametrize("num_processes", [1, 2])
def test_start_rejects_episodes_of_other_weights(tmp_path, monkeypatch, num_processes):
    weights, run = tmp_path / "weights", tmp_path / "run"
    shutil.copytree(policy.resolve_dir("webagent-tiny"), weights)
    cfg = replace(CFG, policy=PolicyConfig(path=str(weights)))
    # The other process finds the same.
    monkeypatch.setattr(distributed, "allgather", lambda value: [value] * num_processes)

    def start(scale=1.0, process=0):
        model, params = policy.load_hf(weights)
        params["final_norm"] = params["final_norm"] * scale
        policy.save_hf(weights, model, params)
        with Learner(cfg, run) as learner:
            monkeypatch.setattr(distributed, "process_index", lambda: process)
            try:
                learner.restore_or_init(learn.BCLoss(learner.model), OPTIMIZER, 10)
            finally:
                monkeypatch.setattr(distributed, "process_index", lambda: 0)

    # A start without episodes takes other weights.
    start()
    start(scale=1.01)
    (run / "episodes").mkdir()
    (run / "episodes" / "update-00001.jsonl").write_text("{}\n")
    start()
    record = (run / "initial_params.json").read_bytes()
    for process in range(num_processes):
        with pytest.raises(ConfigError, match="differ from those that this run and its reference"):
            start(scale=1.01, process=process)
    assert (run / "initial_params.json").read_bytes() == record
    # A run of an earlier version has no record.
    (run / "initial_params.json").unlink()
    start()


def test_sigterm_after_last_update_is_raised_at_exit(tmp_path):
    handler = signal.getsignal(signal.SIGTERM)
    # An export may run at this time.
    with (
        pytest.raises(PreemptedError, match="by SIGTERM after update 3"),
        Learner(CFG, tmp_path) as learner,
    ):
        learner.restore_or_init(learn.BCLoss(learner.model), OPTIMIZER, 3)
        learner.save(3, {"update": 3})
        os.kill(os.getpid(), signal.SIGTERM)
    # A further call of the completed run finds no update to train.
    with (
        pytest.raises(PreemptedError, match="by SIGTERM after update 3"),
        Learner(CFG, tmp_path) as learner,
    ):
        learner.restore_or_init(learn.BCLoss(learner.model), OPTIMIZER, 3)
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is handler


def test_failed_save_restores_sigterm_handler(tmp_path, monkeypatch):
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(OSError, match="disk"), Learner(CFG, tmp_path) as learner:
        close = learner._checkpoints.close

        def close_with_error():
            close()
            raise OSError("the disk is full")

        monkeypatch.setattr(learner._checkpoints, "close", close_with_error)
    assert signal.getsignal(signal.SIGTERM) is handler


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
def test_export_of_adapters_equals_merged_policy_in_peft(tmp_path):
    import peft
    import torch
    import transformers

    cfg = replace(CFG, lora=LoRAConfig(rank=2, target_modules=("q", "up")))
    with Learner(cfg, tmp_path) as learner:
        learner.restore_or_init(learn.BCLoss(learner.model), OPTIMIZER, 10)
        # Initial adapters do not change the policy.
        trained = jax.tree.map(lambda x: x + 0.05, learner.state.params)
        learner.export(tmp_path / "policy", trained)
    base = policy.resolve_dir("webagent-tiny")
    tokens = np.random.default_rng(0).integers(0, learner.model.vocab_size, (2, 30))
    logits = {}
    for directory in (base, tmp_path / "policy", tmp_path / "adapter"):
        is_adapter = directory.name == "adapter"
        model = transformers.AutoModelForCausalLM.from_pretrained(
            base if is_adapter else directory, dtype="float32"
        )
        model = peft.PeftModel.from_pretrained(model, directory) if is_adapter else model
        with torch.no_grad():
            logits[directory.name] = model(torch.from_numpy(tokens)).logits.numpy()
    np.testing.assert_allclose(logits["adapter"], logits["policy"], atol=1e-3)
    assert np.abs(logits["adapter"] - logits[base.name]).max() > 0.1
    # The exported policies name the template that they were trained with.
    for directory in (tmp_path / "policy", tmp_path / "adapter"):
        assert prompt_record.read(directory) == "compact"


def write_adapter(path, base_name="webagent-tiny"):
    """Write an adapter of webagent-tiny that changes its logits, with rank 2 and scale 3."""
    model, params = policy.load_hf("webagent-tiny")
    adapters = lora.init(params, jax.random.key(1), rank=2, projections=("q", "up"))
    adapters = jax.tree.map(lambda x: x + 0.05, adapters)
    peft_adapter.save(path, model, adapters, rank=2, alpha=6.0, base_name=base_name)


def continue_adapter(path, **options):
    options = {"rank": 2, "alpha": 2.0, "target_modules": ("q", "up")} | options
    return replace(
        CFG,
        policy=PolicyConfig(path=str(path)),
        lora=LoRAConfig(create_new_adapter=False, **options),
    )


def test_training_continues_an_adapter(tmp_path, monkeypatch):
    """The run starts from the policy with the adapter, and exports an adapter of equal rank."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_adapter(tmp_path / "first")
    cfg = continue_adapter(tmp_path / "first")
    run_metadata.init_workdir(tmp_path / "run", cfg, "train grpo")
    tokens = np.random.default_rng(0).integers(0, 90, (2, 30))
    with Learner(cfg, tmp_path / "run") as learner:
        loss = grpo_loss(learner, cfg)
        learner.restore_or_init(loss, OPTIMIZER, 10, reference=True)
        _, initial = policy.load_hf(tmp_path / "first")
        np.testing.assert_allclose(
            policy.logits(learner.model, learner.snapshot().params, tokens),
            policy.logits(learner.model, initial, tokens),
            atol=1e-3,
        )
        rows = make_rows(learner, [-1.0, -2.0])
        # XLA would gather and cast a second copy of the base again.
        reference = learner._frozen.reference
        assert jax.tree.structure(reference) == jax.tree.structure(learner.state.params)
        # The reference is the policy with the adapter, not its base.
        assert learner.step(rows).fetch()["kl"] == pytest.approx(0, abs=1e-6)
        assert learner.step(rows).fetch()["kl"] > 1e-6
        learner.save(2, {"update": 2})
        learner.export(tmp_path / "policy")
        expected = policy.logits(learner.model, learner.snapshot().params, tokens)
    config = peft_adapter.read_config(tmp_path / "adapter")
    assert (config["r"], config["base_model_name_or_path"]) == (2, "webagent-tiny")
    export.export_weights(tmp_path / "run", tmp_path / "exported")
    for directory in ("policy", "adapter", "exported"):
        model, params = policy.load_hf(tmp_path / directory)
        np.testing.assert_allclose(policy.logits(model, params, tokens), expected, atol=1e-3)
    assert np.abs(expected - policy.logits(model, initial, tokens)).max() > 0.01


def test_training_continues_an_adapter_of_an_imported_base(tmp_path, monkeypatch):
    """The base is a checkpoint of Orbax, into which no adapter is merged."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    base = str(tmp_path / "base")
    weights.import_weights("webagent-tiny", tmp_path / "base")
    write_adapter(tmp_path / "first", base)
    cfg = continue_adapter(tmp_path / "first")
    assert bc._tokenizer(cfg).stop_ids
    with Learner(cfg, tmp_path / "run") as learner:
        learner.export(tmp_path / "policy")
    assert (tmp_path / "policy" / "tokenizer.json").is_file()
    assert peft_adapter.base_path(tmp_path / "adapter") == base
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_continued_adapter_must_fit_the_config(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_adapter(tmp_path / "first")
    for cfg, message in (
        (continue_adapter("webagent-tiny"), "webagent-tiny is not a PEFT adapter"),
        (continue_adapter(tmp_path / "first", rank=4), "set --config.lora.rank=2"),
        (
            continue_adapter(tmp_path / "first", target_modules=("q",)),
            "--config.lora.target_modules=q,up",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            Learner(cfg, tmp_path / "run")
