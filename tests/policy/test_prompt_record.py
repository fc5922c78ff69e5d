"""Tests of the prompt template that follows the policy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jax
import pytest

from configs import arena, quickstart
from tests.policy.test_peft_adapter import CONFIGS, random_adapters, write_adapter
from webagent_jax import config, policy
from webagent_jax.config import ConfigError, EndpointConfig, PolicyConfig, PromptConfig, RunConfig
from webagent_jax.policy import prompt_record, weights

TINY = policy.resolve_dir("webagent-tiny")


@pytest.fixture
def instruct_model(tmp_path):
    """Return the directory of a model that this project has not trained."""
    params = policy.init(CONFIGS["llama"], jax.random.key(0))
    policy.save_hf(tmp_path / "instruct", CONFIGS["llama"], params)
    (tmp_path / "instruct" / "tokenizer.json").write_text("{}")
    return tmp_path / "instruct"


def template(path, chosen="auto", **options):
    cfg = RunConfig(policy=PolicyConfig(path=str(path), **options), prompt=PromptConfig(chosen))
    return prompt_record.with_template(cfg).prompt.template


def test_auto_selects_template_of_policy(instruct_model, tmp_path):
    assert template("webagent-tiny") == "compact"
    assert template(instruct_model) == "webarena"
    prompt_record.write(instruct_model, "compact")
    assert template(instruct_model) == "compact"


def test_policy_of_webagent_tiny_without_record_is_compact(tmp_path):
    policy_dir = Path(shutil.copytree(TINY, tmp_path / "policy"))
    (policy_dir / "webagent_prompt.json").unlink()
    assert template(policy_dir) == "compact"
    (policy_dir / "tokenizer.json").write_text("{}")
    assert template(policy_dir) == "webarena"


def test_template_of_another_training_is_refused(instruct_model):
    with pytest.raises(ConfigError, match=r"webagent-tiny was trained with .*=compact, .*=auto"):
        template("webagent-tiny", "webarena")
    prompt_record.write(instruct_model, "webarena")
    with pytest.raises(ConfigError, match=r"was trained with prompt\.template=webarena"):
        template(instruct_model, "compact")


def test_config_may_choose_template_of_instruct_model(instruct_model):
    # Behavior cloning teaches the grammar that the compact template leaves out.
    assert template(instruct_model, "compact") == "compact"


def test_path_of_endpoint_does_not_restrict_template():
    endpoint = EndpointConfig("http://x/v1", "m")
    assert template("webagent-tiny", "webarena", kind="openai", endpoint=endpoint) == "webarena"


def test_damaged_record_is_refused(instruct_model):
    for content in ("{", "[]", "{}", '{"template": "auto"}'):
        (instruct_model / "webagent_prompt.json").write_text(content)
        with pytest.raises(ConfigError, match=r"webagent_prompt.json is damaged: write"):
            template(instruct_model)


def test_record_follows_adapter_and_import(instruct_model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _, params = policy.load_hf(instruct_model)
    adapter = tmp_path / "adapter"
    write_adapter(adapter, CONFIGS["llama"], random_adapters(params), instruct_model)
    assert template(adapter) == "webarena"
    prompt_record.write(adapter, "compact")
    assert template(adapter) == "compact"
    weights.import_weights(adapter, tmp_path / "imported")
    assert template(tmp_path / "imported") == "compact"


def test_prompts_of_existing_configs_are_unchanged():
    for module in (quickstart, arena):
        cfg = module.get_config()
        assert prompt_record.with_template(cfg).prompt == PromptConfig("compact", thinking=True)
    assert arena.get_config("smollm2").prompt.template == "compact"
    # Configs of earlier runs contain the template.
    stored = json.loads(json.dumps(config.to_config_dict(quickstart.get_config()).to_dict()))
    stored["prompt"]["template"] = "compact"
    assert config.from_config_dict(stored).prompt.template == "compact"
