"""A chat model somewhere else in the place of the policy."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.chat_server import Answer, message, serving
from tests.rollout.fakes import TASK, FakeSuite, FakeWorld
from webagent_jax import policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer
from webagent_jax.config import ConfigError, EndpointConfig
from webagent_jax.endpoint import ChatEndpoint, Usage
from webagent_jax.rollout import Collector, EndpointAgent, EpisodeConfig, Job, run_episode
from webagent_jax.types import Outcome, ParseError

PRESS = '<think> go </think> <answer> do(action="Click", element="1") </answer>'


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer(policy.resolve_dir("webagent-tiny"))


@pytest.fixture
def rules(tokenizer):
    return EpisodeConfig(tokenizer, TEMPLATES["compact"], True, 4, 500, 60.0)


@pytest.fixture
def chats(monkeypatch):
    with serving(monkeypatch, PRESS) as running:
        yield running


@pytest.fixture
def endpoint(chats):
    return ChatEndpoint(EndpointConfig(chats.url, "tiny", retries=1), environ={}, pause=0.001)


@pytest.fixture
def agent(endpoint, tokenizer):
    return EndpointAgent(endpoint, tokenizer, max_new_tokens=32, temperature=0.5, timeout=20.0)


def test_half_a_character_in_a_reply_is_replaced(agent, chats, rules):
    chats.replies[:] = ["<think> \ud83d </think> exit(message='42')"]
    episode = run_episode(FakeWorld(), agent, TASK, rules)
    assert (episode.outcome, episode.answer) == (Outcome.SUCCESS, "42")
    assert episode.turns[0].response_text == "<think> \ufffd </think> exit(message='42')"


def test_a_control_token_in_a_reply_is_text(agent, chats, rules, tokenizer):
    chats.replies[:] = ["<|end|><|user|>exit(message='42')"]
    episode = run_episode(FakeWorld(), agent, TASK, rules)
    assert (episode.outcome, episode.answer) == (Outcome.SUCCESS, "42")
    (turn,) = episode.turns
    assert turn.response_text == chats.replies[0]
    control = [i for i in turn.completion.token_ids if i < 5]
    assert control == [*tokenizer.stop_ids]  # at its end


def test_an_episode_by_an_endpoint(agent, chats, rules, tokenizer):
    episode = run_episode(FakeWorld(), agent, TASK, rules, seed=5)
    assert (episode.outcome, len(episode.turns)) == (Outcome.SUCCESS, 2)
    for turn, body in zip(episode.turns, chats.bodies, strict=True):
        assert turn.response_text == PRESS
        ids = turn.completion.token_ids
        np.testing.assert_array_equal(ids, tokenizer.encode_response(PRESS))
        assert not turn.completion.logp.any() and len(turn.completion.logp) == len(ids)
        # What it was told is what a policy of ours would have been.
        told = "".join(f"<|{m['role']}|>{m['content']}<|end|>" for m in body["messages"])
        assert told + "<|assistant|>" == tokenizer.decode(turn.prompt_ids)
        assert (body["max_tokens"], body["temperature"], body["top_p"]) == (32, 0.5, 1.0)
    assert len({body["seed"] for body in chats.bodies}) == 2


def test_thoughts_that_come_apart_are_said_in_the_next_turn(agent, chats, rules):
    chats.replies = [Answer(message('do(action="Click", element="1")', reasoning_content="go"))]
    episode = run_episode(FakeWorld(), agent, TASK, rules)
    assert episode.outcome is Outcome.SUCCESS
    said = chats.bodies[1]["messages"][2]
    assert said == {
        "role": "assistant",
        "content": '<think> go </think> do(action="Click", element="1")',
    }


@pytest.mark.parametrize("text", ["<think> I wonder", "", None])
def test_a_reply_that_was_cut_short_has_no_stop_token(agent, chats, rules, tokenizer, text):
    chats.replies = [Answer(message(text, "length")), PRESS]
    first, *_ = run_episode(FakeWorld(), agent, TASK, rules).turns
    assert (first.completion.finish, first.response_text) == ("length", text or "")
    assert isinstance(first.action, ParseError)
    np.testing.assert_array_equal(first.completion.token_ids, tokenizer.encode(text or ""))


def test_tokens_are_counted_by_the_endpoint_and_where_it_is_silent_by_ours(
    agent, endpoint, chats, rules
):
    told = message(PRESS) | {"usage": {"prompt_tokens": 1_000, "completion_tokens": 100}}
    chats.replies = [Answer(told), 500, Answer(message(PRESS))]
    second = run_episode(FakeWorld(), agent, TASK, rules).turns[1]
    silent = (len(second.prompt_ids), len(second.completion.token_ids))
    assert endpoint.usage == Usage(2, 1, 1_000 + silent[0], 100 + silent[1])


def test_a_fault_ends_the_episode_without_a_reward(agent, chats, rules):
    chats.replies = [PRESS, 500]
    episode = run_episode(FakeWorld(), agent, TASK, rules)
    assert (episode.outcome, episode.reward) == (Outcome.INFRA, None)
    assert "sent no response: status 500" in episode.infra_error


def test_a_refusal_ends_the_run_at_its_first_requests(agent, chats, rules):
    chats.replies = [Answer(b"no such model", 404)]
    suite = FakeSuite()
    jobs = [Job(TASK, seed, rules, lambda: agent) for seed in range(165)]
    with pytest.raises(ConfigError, match=r"no such model\nCheck policy\.endpoint\.model"):
        Collector(suite, max_concurrent_episodes=3, infra_retries=2).run_jobs(jobs)
    assert len(chats.requests) <= 3
    assert all(world.closed for world in suite.worlds)
    assert not [t for t in threading.enumerate() if t.name.startswith("rollout")]


def test_many_episodes_over_a_shaky_endpoint(chats, tokenizer, rules):
    """Every third request fails; every episode ends well, and every token is counted."""
    count, lock = [0], threading.Lock()
    faults = (500, 429, b"<html>", Answer(message(PRESS), lost=3), Answer(reset=True))

    def answer(body: Any):
        with lock:
            count[0] += 1
            number = count[0]
        if number % 3 == 0:
            return faults[number // 3 % len(faults)]
        return Answer(message(PRESS) | {"usage": {"prompt_tokens": 10, "completion_tokens": 4}})

    chats.answer = answer
    config = EndpointConfig(chats.url, "tiny", retries=20, concurrency=4)
    endpoint = ChatEndpoint(config, environ={}, pause=0.001)

    def make():
        return EndpointAgent(endpoint, tokenizer, max_new_tokens=32, temperature=0.0)

    jobs = [Job(TASK, seed, rules, make) for seed in range(20)]
    episodes = Collector(FakeSuite(), max_concurrent_episodes=8, infra_retries=0).run_jobs(jobs)
    assert [episode.outcome for episode in episodes] == [Outcome.SUCCESS] * 20
    usage = endpoint.usage
    assert (usage.replies, usage.prompt_tokens, usage.completion_tokens) == (40, 400, 160)
    assert usage.retries == len(chats.requests) - 40
    assert chats.most_at_once <= 4
