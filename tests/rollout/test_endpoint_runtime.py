"""Tests of runs with an endpoint as policy, on live pages."""

from __future__ import annotations

import contextlib
import dataclasses
import re

import pytest

from configs import quickstart
from tests.chat_server import Answer, message, serve_chat
from tests.recording_progress import RecordingProgress
from webagent_jax import demos, evaluate
from webagent_jax.collect_demos import collect_demos
from webagent_jax.config import (
    ConfigError,
    EndpointConfig,
    EvalConfig,
    PolicyConfig,
    PromptConfig,
)
from webagent_jax.policy.loading import initial_policy, load_policy, require_local_policy
from webagent_jax.rollout.runtime import RolloutRuntime
from webagent_jax.tracking.progress import NullProgress

SMOKE = quickstart.get_config("smoke")


@pytest.fixture
def chat_server(monkeypatch):
    with serve_chat(monkeypatch, "unused") as server:
        yield server


def make_config(chat_server, **options):
    endpoint = EndpointConfig(
        chat_server.url, "tiny", completion_usd_per_mtok=2.0, prompt_usd_per_mtok=1.0
    )
    prompt = PromptConfig("compact")
    policy = PolicyConfig("openai", endpoint)
    return dataclasses.replace(SMOKE, policy=policy, prompt=prompt, **options)


def press_button(body):
    """Solve click-test, whose page has one button; for odd seeds the first reply has no action."""
    page = body["messages"][-1]["content"]
    button = re.search(r"button .*\[(\d+)\]", page)
    is_invalid = body["seed"] % 2 and len(body["messages"]) == 2
    text = f'<think> press it </think> <answer> do(action="Click", element="{button[1]}") </answer>'
    usage = {"prompt_tokens": 100_000, "completion_tokens": 100_000}
    return Answer(message("Hm." if is_invalid else text) | {"usage": usage})


@pytest.mark.browser
def test_collect_demos_with_endpoint_policy(chat_server, tmp_path):
    chat_server.answer = press_button
    progress = RecordingProgress()
    cfg = make_config(
        chat_server,
        suite=dataclasses.replace(SMOKE.suite, tasks=("click-test",)),
        bc=dataclasses.replace(SMOKE.bc, demos_per_task=6),
    )
    collect_demos(cfg, tmp_path / "demos", progress, source="policy")
    demonstrations = demos.read(tmp_path / "demos")
    num_invalid = sum(len(body["messages"]) > 2 for body in chat_server.bodies)
    assert 0 < num_invalid < 6
    assert len(demonstrations) == 6 - num_invalid
    assert all(
        turn.decision.thought == "press it" for demo in demonstrations for turn in demo.turns
    )
    num_requests = len(chat_server.requests)
    assert (
        f"{num_invalid} demonstrations have no turns, or a response without a valid action: skipped"
        in progress.lines
    )
    assert any(
        f"{num_requests} responses" in line and f"${0.3 * num_requests:.2f}" in line
        for line in progress.lines
    )


@pytest.mark.browser
def test_evaluation_and_demos_use_separate_sampling_options(chat_server, tmp_path):
    chat_server.answer = press_button
    cfg = make_config(
        chat_server,
        suite=dataclasses.replace(SMOKE.suite, tasks=("click-test",)),
        bc=dataclasses.replace(SMOKE.bc, demos_per_task=1),
        rollout=dataclasses.replace(SMOKE.rollout, temperature=0.75, max_new_tokens=96),
        eval=EvalConfig(
            seeds_per_task=1, temperature=0.5, top_p=0.9, max_new_tokens=200, max_turns=(3,)
        ),
    )

    def sampling_options(start):
        names = ("temperature", "top_p", "max_tokens")
        return {tuple(body[name] for name in names) for body in chat_server.bodies[start:]}

    evaluate.evaluate(cfg, tmp_path / "eval")
    assert sampling_options(0) == {(0.5, 0.9, 200)}
    num_eval_requests = len(chat_server.bodies)
    with contextlib.suppress(demos.DemosError):
        collect_demos(cfg, tmp_path / "demos", NullProgress(), source="policy")
    assert sampling_options(num_eval_requests) == {(0.75, 1.0, 96)}


@pytest.mark.browser
def test_runtime_with_endpoint_has_no_engine(chat_server):
    cfg = make_config(chat_server)
    model, snapshot = initial_policy(cfg)
    assert (model, snapshot) == (None, None)
    with RolloutRuntime(cfg, NullProgress(), model, snapshot) as runtime:
        assert runtime.usage.responses == 0
        with pytest.raises(ValueError, match="has no engine"):
            _ = runtime.engine


def test_weight_loading_rejects_endpoint_policy(chat_server):
    for load in (require_local_policy, load_policy):
        with pytest.raises(ConfigError, match=r"policy\.kind=openai has no weights"):
            load(make_config(chat_server))
    require_local_policy(SMOKE)
