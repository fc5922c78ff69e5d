"""Tests of policies from the Hugging Face Hub: its cache, offline mode, and a local server."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jax
import numpy as np
import pytest
from huggingface_hub import constants

from tests.agent.families import FAMILIES, write_tokenizer
from tests.policy.test_peft_adapter import (
    ALPHA,
    CONFIGS,
    RANK,
    random_adapters,
    random_tokens,
    write_adapter,
)
from webagent_jax import policy
from webagent_jax.config import EndpointConfig, PolicyConfig, PolicyNotFoundError, RunConfig
from webagent_jax.doctor import CheckStatus, weights
from webagent_jax.doctor.check_result import gib
from webagent_jax.policy import lora, prompt_record
from webagent_jax.report import resend, token_text

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "owner/Tiny-1.5B-Instruct"
CONFIG = dataclasses.replace(CONFIGS["llama"], vocab_size=512)  # all tokens of the tokenizer


@pytest.fixture(autouse=True)
def hub_cache(tmp_path, monkeypatch):
    """Return the empty cache of a Hub that cannot be reached."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "hub"


@pytest.fixture
def tiny(tmp_path):
    """Return the directory of a policy with several weight files, and its params."""
    params = policy.init(CONFIG, jax.random.key(0))
    policy.save_hf(tmp_path / "tiny", CONFIG, params, file_bytes=9_000)
    write_tokenizer(FAMILIES["qwen2.5"], tmp_path / "tiny", ["a page"])
    return tmp_path / "tiny", params


def add_to_cache(hub_cache, source, name=NAME, revision="main"):
    """Copy a directory into the cache as a snapshot of the Hub."""
    repo = hub_cache / f"models--{name.replace('/', '--')}"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / revision).write_text(COMMIT)
    return Path(shutil.copytree(source, repo / "snapshots" / COMMIT))


def test_cached_model_loads_without_network(hub_cache, tiny):
    directory, params = tiny
    snapshot = add_to_cache(hub_cache, directory)
    assert policy.resolve_dir(NAME) == snapshot
    assert policy.is_policy_dir(NAME)
    jax.tree.map(np.testing.assert_array_equal, policy.load_hf(NAME)[1], params)


def test_revision_follows_at_sign(hub_cache, tiny):
    snapshot = add_to_cache(hub_cache, tiny[0], revision="v2")
    assert policy.resolve_dir(f"{NAME}@v2") == snapshot
    assert policy.resolve_dir(f"{NAME}@{COMMIT}") == snapshot
    with pytest.raises(PolicyNotFoundError, match=f"hf download {NAME} --revision v3"):
        policy.resolve_dir(f"{NAME}@v3")


def test_directory_precedes_model_of_same_name(hub_cache, tiny, tmp_path, monkeypatch):
    add_to_cache(hub_cache, tiny[0])
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny[0], NAME)
    assert policy.resolve_dir(NAME) == Path(NAME)


def test_adapter_of_hub_loads_its_base_from_hub(hub_cache, tiny, tmp_path):
    directory, params = tiny
    add_to_cache(hub_cache, directory)
    adapters = random_adapters(params)
    write_adapter(tmp_path / "adapter", CONFIG, adapters, NAME)
    add_to_cache(hub_cache, tmp_path / "adapter", name="owner/adapter")
    tokens = random_tokens(CONFIG)
    expected = policy.logits(
        CONFIG, lora.attach(lora.FrozenBase(params, ALPHA / RANK), adapters), tokens
    )
    actual = policy.logits(*policy.load_hf("owner/adapter"), tokens)
    np.testing.assert_allclose(actual, expected, atol=1e-4)


@pytest.mark.parametrize("missing", ["model-00002*", "tokenizer.json"])
def test_incomplete_copy_is_not_used(hub_cache, tiny, missing):
    snapshot = add_to_cache(hub_cache, tiny[0])
    (file,) = snapshot.glob(missing)
    file.unlink()
    with pytest.raises(
        PolicyNotFoundError, match=rf"has no {file.name} in (.|\n)*hf download {NAME}"
    ):
        policy.resolve_dir(NAME)


def add_config_to_cache(hub_cache, source):
    """Copy the text files of a directory into the cache as a snapshot of the Hub."""
    snapshot = add_to_cache(hub_cache, source)
    for file in snapshot.glob("model*"):
        file.unlink()
    return snapshot


def test_config_is_read_without_weights(hub_cache, tiny):
    snapshot = add_config_to_cache(hub_cache, tiny[0])
    assert policy.load_config(NAME).d_model == CONFIG.d_model
    assert policy.checkpoint_dtype(NAME) == "float32"
    assert policy.resolve_dir(NAME, needs_weights=False) == snapshot
    assert not policy.is_policy_dir(NAME)
    with pytest.raises(PolicyNotFoundError, match=r"has no model\.safetensors in"):
        policy.resolve_dir(NAME)


def test_report_shows_tokens_of_endpoint_without_weights(hub_cache, tiny, tmp_path):
    snapshot = add_config_to_cache(hub_cache, tiny[0])
    (tmp_path / "config.json").write_text(json.dumps({"config": {"policy": {"path": NAME}}}))
    assert token_text._policy(tmp_path) == snapshot
    endpoint = PolicyConfig("openai", EndpointConfig("http://127.0.0.1:9", "tiny"), path=NAME)
    resend._Policy(RunConfig(policy=endpoint))


def test_adapter_is_read_without_weights_of_its_base(hub_cache, tiny, tmp_path):
    directory, params = tiny
    snapshot = add_config_to_cache(hub_cache, directory)
    prompt_record.write(snapshot, "webarena")
    adapter = tmp_path / "adapter"
    write_adapter(adapter, CONFIG, random_adapters(params), NAME)
    prompt_record.write(adapter, "compact")
    assert policy.load_config(adapter).d_model == CONFIG.d_model
    assert policy.adapter_chain(adapter) == ([adapter], NAME)
    cfg = RunConfig(policy=PolicyConfig(path=str(adapter)))
    assert prompt_record.with_template(cfg).prompt.template == "compact"
    (adapter / "webagent_prompt.json").unlink()
    assert prompt_record.with_template(cfg).prompt.template == "webarena"
    assert not policy.is_policy_dir(adapter)
    with pytest.raises(PolicyNotFoundError, match=r"has no model\.safetensors in"):
        policy.resolve_dir(adapter)


def test_doctor_reports_weights_that_cannot_be_downloaded(hub_cache, tiny, tmp_path):
    add_config_to_cache(hub_cache, tiny[0])
    cfg = RunConfig(policy=PolicyConfig(path=NAME))
    findings = {finding.subject: finding for finding in weights.check(cfg, tmp_path)}
    assert findings["tokenizer"].status is CheckStatus.OK
    assert findings["weights"].status is CheckStatus.ERROR
    assert "the Hugging Face Hub cannot be read" in findings["weights"].description
    assert f"hf download {NAME}" in findings["weights"].fix


def test_error_without_network_names_command():
    with pytest.raises(PolicyNotFoundError) as error:
        policy.resolve_dir(NAME)
    lines = str(error.value).splitlines()
    assert len(lines) == 2
    assert "HF_HUB_OFFLINE" in lines[0]
    assert f"hf download {NAME} --local-dir DIR" in lines[1]
    assert not policy.is_policy_dir(NAME)


# --- a local server with the interface of the Hub ------------------------------------------------


@pytest.fixture
def hub_server(tiny, tmp_path):
    """Return address, request counts and files of a server with one model.

    It has files of other formats too.
    """
    files = {file.name: file.read_bytes() for file in tiny[0].iterdir()}
    files |= {"pytorch_model.bin": b"x" * 99, "onnx/model.safetensors": b"x", "README.md": b"x"}
    requests: Counter[str] = Counter()

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.reply(is_head=True)

        def do_GET(self):
            self.reply()

        def reply(self, is_head=False):
            path = self.path.split("?")[0]
            content, headers = b"{}", {}
            if path.startswith(f"/api/models/{NAME}/tree/"):
                content = json.dumps([entry(name) for name in files]).encode()
            elif path.startswith(f"/api/models/{NAME}"):
                content = json.dumps({"id": NAME, "sha": COMMIT}).encode()
            elif path.startswith(f"/{NAME}/resolve/{COMMIT}/"):
                name = path.removeprefix(f"/{NAME}/resolve/{COMMIT}/")
                content = files[name]
                headers = {"ETag": f'"{blob(name)}"', "X-Repo-Commit": COMMIT}
                requests[name] += not is_head
            else:
                code = "GatedRepo" if "gated" in path else "RepoNotFound"
                headers = {"X-Error-Code": code, "X-Error-Message": "no access"}
            self.send_response(403 if "X-Error-Code" in headers else 200)
            for header, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(header, value)
            self.end_headers()
            if not is_head:
                self.wfile.write(content)

        def log_message(self, *args):
            pass

    def blob(name):
        return hashlib.sha1(files[name]).hexdigest()

    def entry(name):
        return {"type": "file", "path": name, "size": len(files[name]), "oid": blob(name)}

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", requests, files
        server.shutdown()


RESOLVE = """
import sys
from webagent_jax import config, policy
try: print(policy.resolve_dir(sys.argv[1]))
except config.ConfigError as error: sys.exit(str(error))
"""
# What compile-check and doctor read of a policy.
CHECK = """
import sys
from pathlib import Path
from webagent_jax import compile_check
from webagent_jax.config import PolicyConfig, RunConfig
from webagent_jax.doctor import devices, weights
cfg = RunConfig(policy=PolicyConfig(path=sys.argv[1]))
print(compile_check.model_config(cfg.policy).d_model)
for check in (devices.check, weights.check):
    for finding in check(cfg, Path("runs")):
        print(finding.status.name, finding.subject, finding.description)
"""


def start_resolve(name, address, tmp_path, code=RESOLVE):
    """Start a process that runs `code` for a policy path with the Hub at `address`."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": address,
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    return subprocess.Popen(
        [sys.executable, "-c", code, name],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_processes_download_needed_files_once(hub_server, tiny, tmp_path):
    address, requests, _ = hub_server
    processes = [start_resolve(NAME, address, tmp_path) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    snapshot = tmp_path / f"hub/models--{NAME.replace('/', '--')}/snapshots/{COMMIT}"
    assert [stdout.strip() for stdout, _ in outputs] == [str(snapshot)] * 2
    assert requests == {file.name: 1 for file in tiny[0].iterdir()}
    assert "Fetching" in "".join(stderr for _, stderr in outputs)  # the progress bar
    jax.tree.map(np.testing.assert_array_equal, policy.load_hf(snapshot)[1], tiny[1])


def test_checks_download_no_weights(hub_server, tiny, tmp_path):
    address, requests, files = hub_server
    process = start_resolve(NAME, address, tmp_path, CHECK)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    d_model, *findings = stdout.splitlines()
    assert d_model == str(CONFIG.d_model)
    assert not [line for line in findings if not line.startswith("OK ")]
    weight_bytes = sum(len(files[file.name]) for file in tiny[0].glob("model*"))
    (line,) = [line for line in findings if line.startswith("OK weights ")]
    assert line == (
        f"OK weights {NAME}: {policy.count_params(CONFIG):,} params, not downloaded yet; the first "
        f"run downloads {gib(weight_bytes)}"
    )
    text_files = [file for file in tiny[0].iterdir() if not file.name.startswith("model")]
    assert +requests == {file.name: 1 for file in text_files}  # without those of headers only


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architectures": ["Qwen3MoeForCausalLM"]}, "Qwen3MoeForCausalLM'] is not supported"),
        ({"quantization_config": {"quant_method": "fp8"}}, "has a quantization_config"),
    ],
)
def test_unsupported_model_is_refused_before_its_download(options, message, hub_server, tmp_path):
    address, requests, files = hub_server
    files["config.json"] = json.dumps(json.loads(files["config.json"]) | options).encode()
    process = start_resolve(NAME, address, tmp_path)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 1 and message in stderr
    assert requests["config.json"] == 1
    assert not [name for name in +requests if name.startswith("model")]


def test_model_with_an_adapter_is_not_read_as_adapter(hub_server, tmp_path):
    """Only its weights show that it is a model, so they are downloaded."""
    address, requests, files = hub_server
    files["adapter_config.json"] = b'{"base_model_name_or_path": "owner/gated"}'
    process = start_resolve(NAME, address, tmp_path, CHECK)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert f"{policy.count_params(CONFIG):,} params, float32 on disk" in stdout
    assert requests["model.safetensors.index.json"] == 1


def test_doctor_reports_model_without_safetensors(hub_server, tiny, tmp_path):
    address, _, files = hub_server
    for file in tiny[0].glob("model*"):
        del files[file.name]
    process = start_resolve(NAME, address, tmp_path, CHECK)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert f"ERROR weights {NAME} has no model.safetensors" in stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("owner/misspelt", "no policy at owner/misspelt: neither a directory nor a model"),
        ("owner/gated", "owner/gated needs a license: accept it at https://huggingface.co/owner"),
    ],
)
def test_error_of_hub_names_fix(name, message, hub_server, tmp_path):
    process = start_resolve(name, hub_server[0], tmp_path)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    (line,) = stderr.strip().splitlines()
    assert line.startswith(message)
    assert "hf auth login" in line


@pytest.mark.parametrize(
    "name", ["models/grpo--2", "models/qwen-", "models/best..", "models/modèle"]
)
def test_missing_path_that_is_no_hub_name(name):
    with pytest.raises(PolicyNotFoundError, match="no such directory"):
        policy.resolve_dir(name)


@pytest.mark.parametrize("name", ["weights/Qwen2.5-3B-Instruct", "runs/grpo"])
def test_documented_local_folder_is_no_owner_of_the_hub(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyNotFoundError, match=f"no policy at {name}: expected") as error:
        policy.resolve_dir(name)
    command = f"hf download OWNER/NAME --local-dir {name}"
    assert str(error.value).endswith(command) == name.startswith("weights/")
