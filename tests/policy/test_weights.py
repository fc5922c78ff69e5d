"""Tests of weight import and export between Hugging Face, Orbax and training: bit-exact."""

from __future__ import annotations

import hashlib
import json

import jax
import numpy as np
import optax
import pytest
from safetensors.numpy import load_file

from tests.adapters import merge_adapters
from tests.learn.tiny import MODEL, make_params
from webagent_jax import learn, policy
from webagent_jax.checkpoint import Checkpointer
from webagent_jax.config import ConfigError
from webagent_jax.policy import lora, weights
from webagent_jax.train import export


def assert_params_equal(a, b) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.fixture
def hf_dir(tmp_path):
    policy.save_hf(tmp_path / "hf", MODEL, make_params(0), dtype="bfloat16")
    (tmp_path / "hf" / "tokenizer.json").write_text("{}")
    return tmp_path / "hf"


def test_import_then_export_is_bit_exact(hf_dir, tmp_path):
    weights.import_weights(hf_dir, tmp_path / "imported")
    export.export_weights(tmp_path / "imported", tmp_path / "exported")
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "exported" / name).read_bytes() == (hf_dir / name).read_bytes()


def test_import_error_states_reason(hf_dir, tmp_path):
    imported = tmp_path / "imported"
    weights.import_weights(hf_dir, imported)
    with pytest.raises(ConfigError, match="is an imported policy already: set"):
        weights.import_weights(imported, tmp_path / "again")
    with pytest.raises(ConfigError, match="choose another output folder"):
        weights.import_weights(hf_dir, hf_dir)
    assert not (hf_dir / "params").exists()


def test_imported_policy_equals_original(hf_dir, tmp_path):
    weights.import_weights(hf_dir, tmp_path / "imported")
    config, params = weights.load(tmp_path / "imported", "bfloat16", remat="full")
    expected_config, expected = weights.load(hf_dir, "bfloat16", remat="full")
    assert config == expected_config
    assert_params_equal(params, expected)


def test_checksum_covers_the_files_of_a_policy(hf_dir, tmp_path):
    weights.import_weights(hf_dir, tmp_path / "imported")
    for directory in (hf_dir, tmp_path / "imported"):
        checksum = weights.checksum(directory)
        # As in earlier versions, which read all files, so that their evaluations resume.
        state = hashlib.sha256()
        for file in sorted(file for file in directory.rglob("*") if file.is_file()):
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            state.update(f"{file.relative_to(directory)} {digest}\n".encode())
        assert checksum == state.hexdigest()
        (directory / "README.md").write_text("A policy")
        (directory / ".cache").mkdir()
        (directory / ".cache" / "download").touch()
        assert weights.checksum(directory) == checksum
        for name in ("tokenizer.json", "config.json", "webagent_prompt.json"):
            with (directory / name).open("a") as file:
                file.write(" ")
            assert weights.checksum(directory) != checksum
            checksum = weights.checksum(directory)


@pytest.fixture
def workdir(hf_dir, tmp_path):
    """Return a training workdir with two checkpoints: the params of seed 1, then of seed 2."""
    run = tmp_path / "run"
    with Checkpointer(run / "checkpoints") as checkpoints:
        for step in (1, 2):
            state = learn.init_state(make_params(step), optax.adam(0.1))
            checkpoints.save(step, state, {})
    record = {"config": {"policy": {"path": str(hf_dir)}}}
    (run / "config.json").write_text(json.dumps(record))
    return run


@pytest.mark.parametrize(("update", "seed"), [(None, 2), (1, 1)])
def test_export_weights_selects_checkpoint(workdir, tmp_path, update, seed):
    export.export_weights(workdir, tmp_path / "exported", dtype="float32", update=update)
    assert_params_equal(weights.load(tmp_path / "exported")[1], make_params(seed))
    assert (tmp_path / "exported" / "tokenizer.json").exists()


@pytest.fixture
def lora_workdir(workdir, hf_dir, tmp_path):
    """Return the workdir of a training of adapters, and the merged params."""
    _, params = weights.load(hf_dir)
    adapters = lora.init(params, jax.random.key(0), rank=2, projections=("q", "down"))
    adapters = jax.tree.map(lambda x: x + 0.1, adapters)
    with Checkpointer(tmp_path / "tuned" / "checkpoints") as checkpoints:
        checkpoints.save(3, learn.init_state(adapters, optax.adam(0.1)), {})
    record = json.loads((workdir / "config.json").read_text())
    record["config"]["lora"] = {"rank": 2, "alpha": 8.0, "target_modules": ["q", "down"]}
    (tmp_path / "tuned" / "config.json").write_text(json.dumps(record))
    return tmp_path / "tuned", merge_adapters(lora.attach(lora.FrozenBase(params, 4.0), adapters))


def assert_params_close(a, b, tolerance=1e-6):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=tolerance), a, b)


def test_export_weights_merges_adapters_into_base(lora_workdir, tmp_path):
    workdir, expected = lora_workdir
    export.export_weights(workdir, tmp_path / "exported", dtype="float32")
    assert_params_close(weights.load(tmp_path / "exported")[1], expected)


def test_export_of_training_is_float32_by_default(lora_workdir, workdir, tmp_path):
    """The initial policy has bfloat16 in its config.json."""
    for source, expected in (lora_workdir, (workdir, make_params(2))):
        destination = tmp_path / f"exported-{source.name}"
        export.export_weights(source, destination)
        assert policy.checkpoint_dtype(destination) == "float32"
        assert_params_close(weights.load(destination)[1], expected)


def test_exported_adapter_loads_as_policy(lora_workdir, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    workdir, expected = lora_workdir
    export.export_adapter(workdir, tmp_path / "adapter", dtype="bfloat16")
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert {str(tensor.dtype) for tensor in tensors.values()} == {"bfloat16"}
    assert_params_close(weights.load(tmp_path / "adapter")[1], expected, tolerance=0.01)
    assert (policy.resolve_dir(tmp_path / "adapter") / "tokenizer.json").exists()


def test_export_adapter_error_states_reason(workdir, tmp_path):
    with pytest.raises(ValueError, match=r"trained all weights \(lora\.rank=0\)"):
        export.export_adapter(workdir, tmp_path / "adapter")
    with pytest.raises(FileNotFoundError, match="no checkpoints/"):
        export.export_adapter(tmp_path / "nothing", tmp_path / "adapter")


def test_export_weights_error_states_reason(workdir, hf_dir, tmp_path):
    with pytest.raises(ValueError, match=r"no checkpoint 7 .* available: \[1, 2\]"):
        export.export_weights(workdir, tmp_path / "exported", update=7)
    with pytest.raises(FileNotFoundError, match="no policy at"):
        export.export_weights(tmp_path / "nothing", tmp_path / "exported")
    raw = json.loads((hf_dir / "config.json").read_text()) | {"vocab_size": 62}
    (hf_dir / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=r"checkpoints/2.*: params/embed is \(61, 16\) in the"):
        export.export_weights(workdir, tmp_path / "exported")
