"""An endpoint in the place of weights, in runs on live pages."""

from __future__ import annotations

import contextlib
import dataclasses
import re

import pytest

from configs import quickstart
from tests.chat_server import Answer, message, serving
from webagent_jax import config, demos, evaluate
from webagent_jax.collect_demos import collect_demos
from webagent_jax.config import ConfigError, EndpointConfig, EvalConfig, PolicyConfig
from webagent_jax.policy.loading import initial_policy, load_policy, require_local_policy
from webagent_jax.rollout.runtime import RolloutRuntime
from webagent_jax.tracking.progress import NullProgress

SMOKE = config.from_config_dict(quickstart.get_config("smoke"))


class Told(NullProgress):
    def __init__(self):
        self.lines = []

    def log(self, line):
        self.lines.append(line)


@pytest.fixture
def chats(monkeypatch):
    with serving(monkeypatch, "unused") as running:
        yield running


def replying(chats, **options):
    endpoint = EndpointConfig(
        chats.url, "tiny", completion_usd_per_mtok=2.0, prompt_usd_per_mtok=1.0
    )
    return dataclasses.replace(SMOKE, policy=PolicyConfig("openai", endpoint), **options)


def press_the_button(body):
    """Plays click-test: its page has one button. The first reply holds no action."""
    page = body["messages"][-1]["content"]
    button = re.search(r"button .*\[(\d+)\]", page)
    stumbles = body["seed"] % 2 and len(body["messages"]) == 2
    text = f'<think> press it </think> <answer> do(action="Click", element="{button[1]}") </answer>'
    usage = {"prompt_tokens": 100_000, "completion_tokens": 100_000}
    return Answer(message("Hm." if stumbles else text) | {"usage": usage})


@pytest.mark.browser
def test_an_endpoint_demonstrates(chats, tmp_path):
    chats.answer = press_the_button
    progress = Told()
    cfg = replying(
        chats,
        suite=dataclasses.replace(SMOKE.suite, tasks=("click-test",)),
        bc=dataclasses.replace(SMOKE.bc, demos_per_task=6),
    )
    collect_demos(cfg, tmp_path / "demos", progress, source="policy")
    collected = demos.read(tmp_path / "demos")
    stumbled = sum(len(body["messages"]) > 2 for body in chats.bodies)
    assert 0 < stumbled < 6
    assert len(collected) == 6 - stumbled
    assert all(turn.decision.thought == "press it" for demo in collected for turn in demo.turns)
    requests = len(chats.requests)
    assert (
        f"{stumbled} demonstrations contain a response without an action: skipped" in progress.lines
    )
    assert any(
        f"{requests} responses" in l and f"${0.3 * requests:.2f}" in l for l in progress.lines
    )


@pytest.mark.browser
def test_evaluation_samples_by_its_own_options(chats, tmp_path):
    chats.answer = press_the_button
    cfg = replying(
        chats,
        suite=dataclasses.replace(SMOKE.suite, tasks=("click-test",)),
        bc=dataclasses.replace(SMOKE.bc, demos_per_task=1),
        rollout=dataclasses.replace(SMOKE.rollout, max_new_tokens=96),
        eval=EvalConfig(
            seeds_per_task=1, temperature=0.5, top_p=0.9, max_new_tokens=200, max_turns=(3,)
        ),
    )

    def sampling(first):
        names = ("temperature", "top_p", "max_tokens")
        return {tuple(body[name] for name in names) for body in chats.bodies[first:]}

    evaluate.evaluate(cfg, tmp_path / "eval")
    assert sampling(0) == {(0.5, 0.9, 200)}
    evaluated = len(chats.bodies)
    with contextlib.suppress(demos.DemosError):
        collect_demos(cfg, tmp_path / "demos", NullProgress(), source="policy")
    assert sampling(evaluated) == {(1.0, 1.0, 96)}


@pytest.mark.browser
def test_a_stage_with_an_endpoint_has_no_engine(chats):
    cfg = replying(chats)
    model, snapshot = initial_policy(cfg)
    assert (model, snapshot) == (None, None)
    with RolloutRuntime(cfg, NullProgress(), model, snapshot) as opened:
        assert opened.usage.replies == 0
        with pytest.raises(ValueError, match="has no engine"):
            _ = opened.engine


def test_what_needs_weights_refuses_an_endpoint(chats):
    for ask in (require_local_policy, load_policy):
        with pytest.raises(ConfigError, match=r"policy\.kind=openai has no weights"):
            ask(replying(chats))
    require_local_policy(SMOKE)
