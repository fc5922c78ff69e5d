"""Tests of `RolloutRuntime`: sampling options of rollouts and evaluation, options of the engine."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future

import jax
import numpy as np
import pytest

from configs import quickstart
from webagent_jax import policy
from webagent_jax.agent import ChatTokenizer, build_messages
from webagent_jax.config import ConfigError, EngineConfig, EvalConfig, RolloutConfig
from webagent_jax.policy import lora, peft_adapter, weights
from webagent_jax.policy.loading import initial_policy
from webagent_jax.rollout import runtime as runtime_module
from webagent_jax.rollout.runtime import RolloutRuntime, make_engine, prompt_format
from webagent_jax.tracking.progress import NullProgress
from webagent_jax.types import AgentRequest, Completion, Observation, PolicySnapshot, Task

SMOKE = quickstart.get_config("smoke")
REQUEST = AgentRequest(
    Task("t", "s", (), "", ""), "", 0, Observation("", ""), (), np.ones(3, np.int32), seed=1
)
SAMPLING = ("temperature", "top_p", "top_k", "max_new_tokens")


@pytest.mark.browser
def test_runtime_uses_separate_eval_sampling_options(monkeypatch):
    cfg = dataclasses.replace(
        SMOKE,
        rollout=RolloutConfig(max_concurrent_episodes=1, max_new_tokens=96),
        eval=EvalConfig(
            temperature=0.5, top_p=0.9, top_k=7, max_new_tokens=200, max_repeats=5, max_turns=(8,)
        ),
    )
    requests = []

    def submit(prompt_ids, **options):
        requests.append(tuple(options[name] for name in SAMPLING))
        future = Future()
        empty_ids = np.zeros(0, np.int32)
        future.set_result(Completion(empty_ids, empty_ids.astype(np.float32), empty_ids, "stop"))
        return future

    with RolloutRuntime(cfg, NullProgress(), *initial_policy(cfg)) as runtime:
        monkeypatch.setattr(runtime.engine, "submit", submit)
        runtime.policy_agent().respond(REQUEST)
        runtime.policy_agent(evaluation=True).respond(REQUEST)
        train_config = runtime.episode_config(8)
        eval_config = runtime.episode_config(8, evaluation=True)
    assert requests == [(1.0, 1.0, 0, 96), (0.5, 0.9, 7, 200)]
    assert (train_config.max_prompt_tokens, train_config.max_repeats) == (512 - 96, 0)
    assert (eval_config.max_prompt_tokens, eval_config.max_repeats) == (512 - 200, 5)


@pytest.mark.browser
def test_engine_is_compiled_before_the_first_episode():
    with RolloutRuntime(SMOKE, NullProgress(), *initial_policy(SMOKE)) as runtime:
        runtime.collector()
        num_compiled = runtime.engine.stats().num_compiled_programs
        runtime.engine.warmup()  # every program
        assert runtime.engine.stats().num_compiled_programs == num_compiled


@pytest.mark.browser
def test_update_policy_applies_to_the_rest_of_running_responses():
    model, snapshot = initial_policy(SMOKE)
    new_params = jax.tree.map(lambda x: 1.1 * x, snapshot.params)
    with RolloutRuntime(SMOKE, NullProgress(), model, snapshot) as runtime:
        prompt = runtime.tokenizer.prompt_ids(
            build_messages(prompt_format(SMOKE), "Press go.", (), Observation("button go [1]", ""))
        )
        decode, num_dispatches = runtime.engine._programs.decode, 0

        def update_before_third_dispatch(*args):
            nonlocal num_dispatches
            num_dispatches += 1
            if num_dispatches == 3:
                runtime.update_policy(PolicySnapshot(7, new_params))
            return decode(*args)

        runtime.engine._programs.decode = update_before_third_dispatch
        completion = runtime.engine.submit(prompt, max_new_tokens=64, seed=1).result(120)
    num_old = int(np.argmax(completion.policy_version))
    assert num_old > 0
    expected_version = np.where(np.arange(64) < num_old, snapshot.version, 7)
    np.testing.assert_array_equal(completion.policy_version, expected_version)
    # One forward pass: the keys and values of all earlier tokens belong to the same params.
    tokens = np.concatenate([prompt, completion.token_ids[:-1]])[None]
    forward = jax.jit(lambda params: jax.nn.log_softmax(policy.logits(model, params, tokens)))
    for params, part in ((snapshot.params, slice(num_old)), (new_params, slice(num_old, None))):
        logp = np.asarray(forward(params))[0, len(prompt) - 1 :][part]
        ids = completion.token_ids[part]
        np.testing.assert_allclose(completion.logp[part], logp[np.arange(len(ids)), ids], atol=1e-4)


@pytest.mark.browser
def test_runtime_serves_an_adapter_without_a_merge(tmp_path, monkeypatch):
    """The base is a checkpoint of Orbax, into which no adapter is merged."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    weights.import_weights("webagent-tiny", base)
    model, params = weights.load(base)
    adapters = lora.init(params, jax.random.key(0), rank=2, projections=("q",))
    peft_adapter.save(adapter, model, adapters, rank=2, alpha=2.0, base_name=str(base))
    options = dataclasses.replace(SMOKE.policy, path=str(adapter), dtype="bfloat16")
    cfg = dataclasses.replace(SMOKE, policy=options)
    with RolloutRuntime(cfg, NullProgress(), *initial_policy(cfg)) as runtime:
        assert runtime.tokenizer.stop_ids
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_engine_longer_than_positions_of_policy_raises_config_error():
    # A training row must fit a sequence of the engine.
    cfg = dataclasses.replace(
        SMOKE,
        engine=dataclasses.replace(SMOKE.engine, max_model_len=1_000_000),
        bc=dataclasses.replace(SMOKE.bc, row_tokens=1_000_000),
        grpo=dataclasses.replace(SMOKE.grpo, row_tokens=1_000_000),
    )
    model, snapshot = initial_policy(cfg)
    tokenizer = ChatTokenizer(policy.resolve_dir(cfg.policy.path))
    with pytest.raises(
        ConfigError, match=r"max_model_len=1000000 exceeds the context of \d+ tokens"
    ):
        make_engine(cfg, tokenizer, model, snapshot)
    # Smaller than the keys and values of one sequence.
    model = dataclasses.replace(model, num_layers=1_000)
    small_cfg = dataclasses.replace(SMOKE, engine=dataclasses.replace(SMOKE.engine, kv_cache_mib=1))
    with pytest.raises(ConfigError, match=r"--config\.engine\.kv_cache_mib"):
        make_engine(small_cfg, tokenizer, model, snapshot)


def test_make_engine_passes_options_and_shared_prefix_of_prompts(monkeypatch):
    calls = []
    monkeypatch.setattr(
        runtime_module, "Engine", lambda *args, **options: calls.append((args, options))
    )
    engine = EngineConfig(
        slots=3,
        max_model_len=384,
        steps_per_dispatch=5,
        num_speculative_tokens=2,
        kv_cache_mib=7,
        quantization="int8",
    )
    cfg = dataclasses.replace(SMOKE, engine=engine, seed=11)
    model, snapshot = initial_policy(cfg)
    tokenizer = ChatTokenizer(policy.resolve_dir(cfg.policy.path))
    make_engine(cfg, tokenizer, model, dataclasses.replace(snapshot, version=4))
    (((engine_model, params), options),) = calls
    assert engine_model == dataclasses.replace(model, quantization="int8")
    assert params is snapshot.params
    prefix = options.pop("shared_prefix")
    assert options == {
        "slots": 3,
        "max_model_len": 384,
        "steps_per_dispatch": 5,
        "num_speculative_tokens": 2,
        "cache_bytes": 7 * 2**20,
        "seed": 11,
        "version": 4,
        "mesh": None,
    }
    prompts = [
        tokenizer.prompt_ids(
            build_messages(prompt_format(cfg), intent, (), Observation("button go [1]", "http://a"))
        )
        for intent in ("Press go.", "Select Ada, then send.")
    ]
    for prompt in prompts:
        np.testing.assert_array_equal(prompt[: len(prefix)], prefix)
    # The intents begin with different tokens, and the prefix ends before them.
    assert len(prefix) < min(map(len, prompts))
    assert prompts[0][len(prefix)] != prompts[1][len(prefix)]
