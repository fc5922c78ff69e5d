"""Tests of config.json in the workdir of a run."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from pathlib import Path

import jax
import pytest

from webagent_jax import config_options, distributed
from webagent_jax.config import (
    BCConfig,
    BrowserConfig,
    ConfigError,
    EndpointConfig,
    EngineConfig,
    GRPOConfig,
    GuardConfig,
    LoRAConfig,
    MeshConfig,
    OptimizerConfig,
    PolicyConfig,
    PromptConfig,
    RunConfig,
)
from webagent_jax.policy.loading import with_policy_path
from webagent_jax.tracking import run_metadata
from webagent_jax.tracking.workdir_lock import hold_lock
from webagent_jax.train.resume import init_shared_workdir


def start_run(workdir: Path, cfg: RunConfig) -> None:
    """Initialize a workdir and write a result to it."""
    run_metadata.init_workdir(workdir, cfg, "train grpo")
    (workdir / "metrics.jsonl").write_text("")


def test_run_rejects_other_config_and_command(tmp_path: Path) -> None:
    start_run(tmp_path, RunConfig())
    run_metadata.init_workdir(tmp_path, RunConfig(), "train grpo")
    with pytest.raises(ConfigError, match="a run with seed=0, this one has 3: choose another"):
        run_metadata.init_workdir(tmp_path, RunConfig(seed=3), "train grpo")
    with pytest.raises(ConfigError, match="run of `webagent train grpo`, this is `webagent eval"):
        run_metadata.init_workdir(tmp_path, RunConfig(), "evaluate")


def test_run_continues_with_other_options_of_execution(tmp_path: Path, caplog) -> None:
    start_run(tmp_path, RunConfig())
    cfg = RunConfig(
        guard=GuardConfig(max_infra_fraction=0),
        engine=EngineConfig(slots=3),
        mesh=MeshConfig(microbatch_rows_per_device=1),
    )
    run_metadata.init_workdir(tmp_path, cfg, "train grpo")
    assert "the run continues with engine.slots=3 instead of" in caplog.text
    with pytest.raises(ConfigError, match=r"a run with engine\.max_model_len="):
        run_metadata.init_workdir(
            tmp_path, dataclasses.replace(cfg, engine=EngineConfig(max_model_len=128)), "train grpo"
        )


def test_run_continues_with_other_options_without_effect(tmp_path: Path) -> None:
    cfg = RunConfig()
    start_run(tmp_path, cfg)
    same = dataclasses.replace(
        cfg,
        bc=dataclasses.replace(cfg.bc, checkpoint_interval=7),
        grpo=dataclasses.replace(cfg.grpo, checkpoint_interval=7),
        policy=dataclasses.replace(cfg.policy, remat="full"),
        rollout=dataclasses.replace(cfg.rollout, episode_timeout=600.0, infra_retries=7),
        eval=dataclasses.replace(cfg.eval, screenshots_per_task=7),
    )
    run_metadata.init_workdir(tmp_path, same, "train grpo")
    engine = EngineConfig(num_speculative_tokens=3)
    with pytest.raises(ConfigError, match=r"engine\.num_speculative_tokens"):
        run_metadata.init_workdir(tmp_path, RunConfig(engine=engine), "train grpo")


def test_evaluation_continues_with_other_options_of_training(tmp_path: Path) -> None:
    cfg = RunConfig(bc=BCConfig(epochs=9), grpo=GRPOConfig(group_size=3))
    for command, folder in (("evaluate", tmp_path / "eval"), ("train bc", tmp_path / "bc")):
        run_metadata.init_workdir(folder, RunConfig(), command)
        (folder / "metrics.jsonl").write_text("")
    run_metadata.init_workdir(tmp_path / "eval", cfg, "evaluate")
    with pytest.raises(ConfigError, match=r"bc\.epochs"):
        run_metadata.init_workdir(tmp_path / "bc", cfg, "train bc")
    lora = LoRAConfig(rank=2)
    with pytest.raises(ConfigError, match=r"lora\.rank"):
        run_metadata.init_workdir(tmp_path / "eval", RunConfig(lora=lora), "evaluate")


def test_run_of_grpo_continues_with_other_updates(tmp_path: Path, caplog) -> None:
    start_run(tmp_path, RunConfig(grpo=GRPOConfig(updates=4)))
    longer = RunConfig(grpo=GRPOConfig(updates=9))
    run_metadata.init_workdir(tmp_path, longer, "train grpo")
    assert "the run continues to update 9 instead of 4" in caplog.text
    assert run_metadata.read_config(tmp_path) == longer
    # Other options still define the run, and an error leaves its config unchanged.
    with pytest.raises(ConfigError, match=r"grpo\.group_size=.*, this one has 3"):
        run_metadata.init_workdir(
            tmp_path, RunConfig(grpo=GRPOConfig(updates=12, group_size=3)), "train grpo"
        )
    assert run_metadata.read_config(tmp_path) == longer


def test_updates_define_a_run_with_cosine_schedule(tmp_path: Path) -> None:
    optimizer = OptimizerConfig(schedule="cosine")
    start_run(tmp_path, RunConfig(grpo=GRPOConfig(updates=4, optimizer=optimizer)))
    with pytest.raises(ConfigError, match=r"a run with grpo\.updates=4, this one has 9"):
        run_metadata.init_workdir(
            tmp_path, RunConfig(grpo=GRPOConfig(updates=9, optimizer=optimizer)), "train grpo"
        )


def test_updates_below_completed_ones_leave_config_unchanged(tmp_path: Path) -> None:
    cfg = RunConfig(grpo=GRPOConfig(updates=9))
    start_run(tmp_path, cfg)
    # An interrupted save leaves a folder whose name is not a number.
    for name in ("6", "8", "9.orbax-checkpoint-tmp"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    with pytest.raises(
        ConfigError, match=r"has completed 8 updates, .*=7: set at least 8, or export.* 6 or 8 with"
    ):
        run_metadata.init_workdir(tmp_path, RunConfig(grpo=GRPOConfig(updates=7)), "train grpo")
    assert run_metadata.read_config(tmp_path) == cfg
    cfg = RunConfig(grpo=GRPOConfig(updates=8))
    run_metadata.init_workdir(tmp_path, cfg, "train grpo")
    assert run_metadata.read_config(tmp_path) == cfg


def test_updates_must_not_extend_warmup_beyond_completed_ones(tmp_path: Path) -> None:
    def make_config(updates: int) -> RunConfig:
        return RunConfig(
            grpo=GRPOConfig(updates=updates, optimizer=OptimizerConfig(warmup_fraction=0.2))
        )

    start_run(tmp_path, make_config(10))
    # Without a checkpoint, the run starts again.
    run_metadata.init_workdir(tmp_path, make_config(20), "train grpo")
    (tmp_path / "checkpoints" / "6").mkdir(parents=True)
    message = r"warmup is longer than the 6 updates.*set grpo.updates=20"
    with pytest.raises(ConfigError, match=message):
        run_metadata.init_workdir(tmp_path, make_config(40), "train grpo")
    assert run_metadata.read_config(tmp_path) == make_config(20)
    run_metadata.init_workdir(tmp_path, make_config(30), "train grpo")
    assert run_metadata.read_config(tmp_path) == make_config(30)


def test_process_with_other_updates_is_an_error(tmp_path: Path, monkeypatch) -> None:
    start_run(tmp_path, RunConfig(grpo=GRPOConfig(updates=4)))
    monkeypatch.setattr(distributed, "process_index", lambda: 1)
    with pytest.raises(ConfigError, match=r"process 1 differs from process 0: .*grpo\.updates=4"):
        init_shared_workdir(tmp_path, RunConfig(grpo=GRPOConfig(updates=9)), "train grpo")


def test_options_of_execution_exist() -> None:
    names = [option.path for group in config_options.groups() for option in group.options]
    for prefix in run_metadata._EXECUTION_OPTIONS:
        assert any(name.startswith(prefix) for name in names), prefix
    assert set(run_metadata._COLLECTIVE_OPTIONS) < set(run_metadata._EXECUTION_OPTIONS)


def test_commit_is_that_of_the_repository_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*args: str) -> None:
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
        subprocess.run(["git", *identity, *args], cwd=tmp_path, check=True, capture_output=True)

    package = tmp_path / ".venv"  # of a project that does not track it
    package.mkdir()
    (package / "run_metadata.py").touch()
    monkeypatch.setattr(run_metadata, "__file__", str(package / "run_metadata.py"))
    git("init")
    git("commit", "--allow-empty", "-m", "first")
    assert run_metadata.commit() == ""
    git("add", ".")
    assert re.fullmatch(r"[0-9a-f]{12}\+", run_metadata.commit())
    git("commit", "-m", "second")
    assert re.fullmatch("[0-9a-f]{12}", run_metadata.commit())


def test_run_without_results_takes_new_config(tmp_path: Path) -> None:
    run_metadata.init_workdir(tmp_path, RunConfig(), "train grpo")
    with hold_lock(tmp_path):
        run_metadata.init_workdir(tmp_path, RunConfig(seed=3), "evaluate")
    content = json.loads((tmp_path / "config.json").read_text())
    assert content["config"]["seed"] == 3 and content["command"] == "evaluate"


@pytest.mark.parametrize(
    "name",
    [
        "policy.json",
        "initial_params.json",
        "wandb-run.txt",
        "wandb/run-1/run.wandb",
        "tensorboard/events.out",
        "phases/eval_base.json",
        "eval/base/config.json",
        "eval/base/policy.json",
    ],
)
def test_failed_start_does_not_occupy_workdir(tmp_path: Path, name: str) -> None:
    run_metadata.init_workdir(tmp_path, RunConfig(), "quickstart")
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("{}")
    run_metadata.init_workdir(tmp_path, RunConfig(seed=3), "quickstart")
    assert json.loads((tmp_path / "config.json").read_text())["config"]["seed"] == 3


def test_run_with_demonstrations_only_takes_new_config(tmp_path: Path) -> None:
    run_metadata.init_workdir(tmp_path, RunConfig(), "train bc")
    (tmp_path / "demos" / "1.0.0").mkdir(parents=True)
    (tmp_path / "demos" / "1.0.0" / "dataset_info.json").write_text("{}")
    run_metadata.init_workdir(tmp_path, RunConfig(seed=3), "train bc")
    assert json.loads((tmp_path / "config.json").read_text())["config"]["seed"] == 3


def test_workdir_of_another_program_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match="is not the config of a run: choose another --workdir"):
        run_metadata.init_workdir(tmp_path, RunConfig(), "train bc")


@pytest.mark.parametrize("kind", ["weights", "openai"])
def test_config_contains_devices_of_local_policies(tmp_path: Path, kind) -> None:
    endpoint = EndpointConfig("http://x/v1", "m") if kind == "openai" else EndpointConfig()
    policy = PolicyConfig(kind=kind, endpoint=endpoint)
    cfg = RunConfig(policy=policy, prompt=PromptConfig(template="webarena"))
    run_metadata.init_workdir(tmp_path, cfg, "evaluate")
    hardware = json.loads((tmp_path / "config.json").read_text())["hardware"]
    expected = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    assert hardware.get("devices") == (expected if kind == "weights" else None)


def test_process_with_other_config_is_an_error(tmp_path: Path, monkeypatch) -> None:
    init_shared_workdir(tmp_path, RunConfig(), "train grpo")
    monkeypatch.setattr(distributed, "process_index", lambda: 1)
    init_shared_workdir(tmp_path, RunConfig(), "train grpo")
    with pytest.raises(ConfigError, match="a run with seed=0, this one has 3"):
        init_shared_workdir(tmp_path, RunConfig(seed=3), "train grpo")
    assert json.loads((tmp_path / "config.json").read_text())["config"]["seed"] == 0


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mesh": MeshConfig(microbatch_rows_per_device=3)}, "mesh.microbatch_rows_per_device=3"),
        ({"grpo": GRPOConfig(checkpoint_interval=5)}, "grpo.checkpoint_interval=5"),
        ({"guard": GuardConfig(patience=9)}, "guard.patience=9"),
        ({"engine": EngineConfig(tensor_parallel_size=2)}, "engine.tensor_parallel_size=2"),
        ({"policy": PolicyConfig(remat=not PolicyConfig().remat)}, "policy.remat="),
        ({"engine": EngineConfig(slots=3), "browser": BrowserConfig(num_processes=7)}, None),
    ],
)
def test_processes_with_other_collective_options_are_an_error(
    tmp_path: Path, monkeypatch, index, options, message
) -> None:
    start_run(tmp_path, RunConfig())
    configs = [RunConfig(), RunConfig(**options)]
    gathered = json.loads(json.dumps(list(map(dataclasses.asdict, configs))))
    monkeypatch.setattr(distributed, "allgather", lambda value: gathered)
    monkeypatch.setattr(distributed, "process_index", lambda: index)
    if message is None:
        init_shared_workdir(tmp_path, configs[index], "train grpo")
        return
    with pytest.raises(ConfigError, match=f"process 1 has {message}.*, process 0 has .*: set the"):
        init_shared_workdir(tmp_path, configs[index], "train grpo")


def test_unwritable_workdir_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Not a directory; choose another --workdir"):
        run_metadata.init_workdir(tmp_path / "file" / "run", RunConfig(), "evaluate")


def test_damaged_config_is_an_error(tmp_path: Path) -> None:
    start_run(tmp_path, RunConfig())
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="is not valid JSON"):
        run_metadata.init_workdir(tmp_path, RunConfig(), "train grpo")


def test_moved_run_continues_with_moved_policy(tmp_path: Path) -> None:
    old, new, policy = tmp_path / "old", tmp_path / "new", Path("bc", "policy")
    start_run(old / "grpo", with_policy_path(RunConfig(), str(old / policy)))
    (old / policy).mkdir(parents=True)
    assert run_metadata.policy_path(old / "grpo") == str(old / policy)
    old.rename(new)
    cfg = with_policy_path(RunConfig(), str(new / policy))
    run_metadata.init_workdir(new / "grpo", cfg, "train grpo")
    assert run_metadata.policy_path(new / "grpo") == str(new / policy)
    for changed in (
        with_policy_path(cfg, str(new / "other" / "policy")),
        dataclasses.replace(cfg, seed=1),
    ):
        with pytest.raises(ConfigError, match="choose another --workdir"):
            run_metadata.init_workdir(new / "grpo", changed, "train grpo")


def test_policy_path_of_unmoved_run_is_unchanged(tmp_path: Path) -> None:
    start_run(tmp_path, RunConfig())
    assert run_metadata.policy_path(tmp_path) == "webagent-tiny"


@pytest.mark.parametrize("content", ["[]", "{}"])
def test_config_of_another_program_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match="is not the config of a run"):
        run_metadata.read_config(tmp_path)
