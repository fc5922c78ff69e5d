"""Tests of policies outside of this project: transformers reads and serves them."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

import jax
import numpy as np
import pytest

from configs import quickstart
from tests.agent.families import FAMILIES, write_tokenizer
from tests.devices import find_free_port
from webagent_jax import evaluate, policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat, build_messages
from webagent_jax.config import EndpointConfig, PolicyConfig
from webagent_jax.inference import Engine
from webagent_jax.train import export
from webagent_jax.types import Message, Observation

SMOKE = quickstart.get_config("smoke")
PAGES = (
    "button Submit [1]\ninput text [2] empty",
    "link Home [3]",
    "option Ada [4]\noption Bob [5]",
)


@pytest.fixture
def exported(tmp_path):
    """Return the export of a policy whose weights differ from those of the package."""
    directory = policy.resolve_dir("webagent-tiny")
    model, params = policy.load_hf(directory)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: x * (1 + 0.01 * rng.normal(size=x.shape)), params)
    base = tmp_path / "base"
    policy.save_hf(base, model, params)
    policy.copy_tokenizer(directory, base)
    add_sampling_options(base)
    export.export_weights(base, tmp_path / "policy")
    return tmp_path / "policy"


def add_sampling_options(directory):
    """Add those of Qwen2.5-Instruct to generation_config.json; return the token ids in it."""
    file = directory / "generation_config.json"
    ids = json.loads(file.read_text())
    options = {"do_sample": True, "repetition_penalty": 1.1, "top_p": 0.8, "top_k": 20}
    file.write_text(json.dumps(ids | options))
    return ids


def test_policy_of_run_has_only_token_ids_in_generation_config(tmp_path):
    base, destination = tmp_path / "base", tmp_path / "policy"
    shutil.copytree(policy.resolve_dir("webagent-tiny"), base)
    destination.mkdir()
    ids = add_sampling_options(base)
    run = dataclasses.replace(SMOKE, policy=PolicyConfig(path=str(base)))
    export.copy_text_files(run, destination)
    assert json.loads((destination / "generation_config.json").read_text()) == ids
    assert "eos_token_id" in ids
    assert ChatTokenizer(destination).stop_ids == ChatTokenizer(base).stop_ids


@pytest.mark.parametrize("options", [None, {}, {"eos_token_id": 0, "bos_token_id": 0}])
def test_policy_of_base_model_has_stop_ids_of_template(tmp_path, options):
    """generation_config.json of a base model does not contain the end of a response."""
    base, destination = tmp_path / "base", tmp_path / "policy"
    family = dataclasses.replace(FAMILIES["qwen2.5"], eos="<|endoftext|>")
    write_tokenizer(family, base, PAGES)
    shutil.copy(policy.resolve_dir("webagent-tiny") / "config.json", base)
    if options is not None:
        (base / "generation_config.json").write_text(json.dumps(options))
    destination.mkdir()
    export.copy_text_files(
        dataclasses.replace(SMOKE, policy=PolicyConfig(path=str(base))), destination
    )
    stop_ids = ChatTokenizer(base).stop_ids
    assert len(stop_ids) >= 2
    exported_options = json.loads((destination / "generation_config.json").read_text())
    assert exported_options == (options or {}) | {"eos_token_id": list(stop_ids)}
    assert ChatTokenizer(destination).stop_ids == stop_ids


def test_transformers_generates_same_text(exported):
    import torch
    import transformers

    tokenizer = ChatTokenizer(exported)
    conversations = [
        build_messages(
            PromptFormat(TEMPLATES["compact"]), f"Click {page[7:10]}", (), Observation(page, "")
        )
        for page in PAGES
    ]
    with Engine(*policy.load_hf(exported), slots=2, max_model_len=512) as engine:
        texts = [
            tokenizer.decode(
                engine.submit(
                    tokenizer.prompt_ids(messages),
                    max_new_tokens=60,
                    temperature=0.0,
                    stop_ids=tokenizer.stop_ids,
                )
                .result(timeout=120)
                .token_ids
            )
            for messages in conversations
        ]
    reference_tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(exported)
    model = transformers.AutoModelForCausalLM.from_pretrained(exported)
    for messages, text in zip(conversations, texts, strict=True):
        chat = [{"role": message.role, "content": message.text} for message in messages]
        prompt = reference_tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with torch.no_grad():
            output = model.generate(**prompt, max_new_tokens=60, do_sample=False)
        ids = output[0, prompt["input_ids"].shape[1] :]
        assert reference_tokenizer.decode(ids, skip_special_tokens=True) == text
    assert len(set(texts)) > 1


def test_example_server_has_the_date_of_training(exported):
    """The template of Llama 3.2 writes the current date unless it receives one."""
    from examples.serve_transformers import ChatModel

    file = exported / "chat_template.jinja"
    file.write_text(
        "{%- if not date_string is defined %}"
        "{%- set date_string = strftime_now('%A %B %d %Y %H %M %S %j') %}{%- endif %}"
        "{{- date_string }}" + file.read_text()
    )
    # The template of this project's prompts writes the date in the format of Llama 3.2.
    prompt_ids = ChatTokenizer(exported).prompt_ids([Message("user", "x")])
    request = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "temperature": 0}
    usage = ChatModel(str(exported)).complete(request)["usage"]
    assert usage["prompt_tokens"] == len(prompt_ids)


@pytest.fixture
def server_url(exported, tmp_path):
    """Return the address of examples/serve_transformers.py with the policy."""
    port = find_free_port()
    url = f"http://127.0.0.1:{port}/v1"
    command = [sys.executable, "examples/serve_transformers.py", f"--policy={exported}"]
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen([*command, f"--port={port}"], stdout=log, stderr=log)
    try:
        for _ in range(240):
            assert process.poll() is None, (tmp_path / "server.log").read_text()
            try:
                urllib.request.urlopen(url)
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.mark.slow
@pytest.mark.browser
def test_evaluation_of_served_policy_has_same_results(exported, server_url, tmp_path):
    cfg = dataclasses.replace(
        SMOKE,
        policy=PolicyConfig(path=str(exported)),
        suite=dataclasses.replace(SMOKE.suite, tasks=("click-test", "click-option", "click-tab")),
        eval=dataclasses.replace(SMOKE.eval, seeds_per_task=3, temperature=0.0, max_turns=(3,)),
    )
    endpoint = EndpointConfig(server_url, "webagent-tiny")
    served_cfg = dataclasses.replace(
        cfg, policy=PolicyConfig("openai", endpoint, path=str(exported))
    )
    results = []
    for name, run_cfg in (("local", cfg), ("served", served_cfg)):
        evaluate.evaluate(run_cfg, tmp_path / name)
        tasks = json.loads((tmp_path / name / "eval.json").read_text())["tasks"]
        results.append({(t["task_id"], t["reward"], t["turns"], t["outcome"]) for t in tasks})
    assert len(results[0]) == 9
    assert results[1] == results[0]
    assert {reward for _, reward, _, _ in results[0]} == {0.0, 1.0}
