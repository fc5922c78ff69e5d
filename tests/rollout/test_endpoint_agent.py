"""Tests of the agent that samples from a chat endpoint."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.chat_server import Answer, message, serve_chat
from tests.rollout.fakes import TASK, FakeEnv, FakeSuite
from webagent_jax import policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat
from webagent_jax.config import ConfigError, EndpointConfig
from webagent_jax.endpoint import ChatEndpoint, Usage
from webagent_jax.rollout import Collector, EndpointAgent, EpisodeConfig, Job, run_episode
from webagent_jax.types import Outcome, ParseError

PRESS = '<think> go </think> <answer> do(action="Click", element="1") </answer>'


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer(policy.resolve_dir("webagent-tiny"))


@pytest.fixture
def episode_config(tokenizer):
    return EpisodeConfig(tokenizer, PromptFormat(TEMPLATES["compact"]), 4, 500, 60.0)


@pytest.fixture
def chat_server(monkeypatch):
    with serve_chat(monkeypatch, PRESS) as server:
        yield server


@pytest.fixture
def endpoint(chat_server):
    return ChatEndpoint(EndpointConfig(chat_server.url, "tiny", retries=1), environ={}, pause=0.001)


@pytest.fixture
def agent(endpoint, tokenizer):
    return EndpointAgent(endpoint, tokenizer, max_new_tokens=32, temperature=0.5, timeout=20.0)


def test_lone_surrogate_in_response_is_replaced(agent, chat_server, episode_config):
    chat_server.replies[:] = ["<think> \ud83d </think> exit(message='42')"]
    episode = run_episode(FakeEnv(), agent, TASK, episode_config)
    assert (episode.outcome, episode.answer) == (Outcome.SUCCESS, "42")
    assert episode.turns[0].response_text == "<think> \ufffd </think> exit(message='42')"


def test_control_tokens_in_response_are_encoded_as_text(
    agent, chat_server, episode_config, tokenizer
):
    chat_server.replies[:] = ["<|end|><|user|>exit(message='42')"]
    episode = run_episode(FakeEnv(), agent, TASK, episode_config)
    assert (episode.outcome, episode.answer) == (Outcome.SUCCESS, "42")
    (turn,) = episode.turns
    assert turn.response_text == chat_server.replies[0]
    control_ids = [i for i in turn.completion.token_ids if i < 5]
    assert control_ids == [*tokenizer.stop_ids]  # the last token


def test_endpoint_prompts_and_responses_match_policy_format(
    agent, chat_server, episode_config, tokenizer
):
    episode = run_episode(FakeEnv(), agent, TASK, episode_config, seed=5)
    assert (episode.outcome, len(episode.turns)) == (Outcome.SUCCESS, 2)
    for turn, body in zip(episode.turns, chat_server.bodies, strict=True):
        assert turn.response_text == PRESS
        token_ids = turn.completion.token_ids
        np.testing.assert_array_equal(token_ids, tokenizer.encode_response(PRESS))
        # Reports show no probabilities.
        assert len(turn.completion.logp) == len(token_ids) and np.isnan(turn.completion.logp).all()
        # The messages are the prompt that a local policy would receive.
        prompt = "".join(f"<|{m['role']}|>{m['content']}<|end|>" for m in body["messages"])
        assert prompt + "<|assistant|>" == tokenizer.decode(turn.prompt_ids)
        assert (body["max_tokens"], body["temperature"], body["top_p"]) == (32, 0.5, 1.0)
    assert len({body["seed"] for body in chat_server.bodies}) == 2


def test_reasoning_content_is_part_of_next_prompt(agent, chat_server, episode_config):
    chat_server.replies = [
        Answer(message('do(action="Click", element="1")', reasoning_content="go"))
    ]
    episode = run_episode(FakeEnv(), agent, TASK, episode_config)
    assert episode.outcome is Outcome.SUCCESS
    assistant_message = chat_server.bodies[1]["messages"][2]
    assert assistant_message == {
        "role": "assistant",
        "content": '<think> go </think> do(action="Click", element="1")',
    }


@pytest.mark.parametrize("text", ["<think> I wonder", "", None])
def test_truncated_response_has_no_stop_token(agent, chat_server, episode_config, tokenizer, text):
    chat_server.replies = [Answer(message(text, "length")), PRESS]
    turn, *_ = run_episode(FakeEnv(), agent, TASK, episode_config).turns
    assert (turn.completion.finish, turn.response_text) == ("length", text or "")
    assert isinstance(turn.action, ParseError)
    np.testing.assert_array_equal(turn.completion.token_ids, tokenizer.encode(text or ""))


def test_empty_response_stays_empty_in_the_episode(agent, chat_server, episode_config):
    chat_server.replies = ["", PRESS]
    turn, *_ = run_episode(FakeEnv(), agent, TASK, episode_config).turns
    assert turn.response_text == ""
    assert chat_server.bodies[1]["messages"][2]["content"] == "(no content)"


def test_usage_without_endpoint_counts_uses_tokenizer(agent, endpoint, chat_server, episode_config):
    body_with_usage = message(PRESS) | {"usage": {"prompt_tokens": 1_000, "completion_tokens": 100}}
    chat_server.replies = [Answer(body_with_usage), 500, Answer(message(PRESS))]
    second_turn = run_episode(FakeEnv(), agent, TASK, episode_config).turns[1]
    tokenizer_counts = (len(second_turn.prompt_ids), len(second_turn.completion.token_ids))
    assert endpoint.usage == Usage(2, 1, 1_000 + tokenizer_counts[0], 100 + tokenizer_counts[1])


def test_endpoint_error_ends_episode_without_reward(agent, chat_server, episode_config):
    chat_server.replies = [PRESS, 500]
    episode = run_episode(FakeEnv(), agent, TASK, episode_config)
    assert (episode.outcome, episode.reward) == (Outcome.INFRA, None)
    assert "sent no response: status 500" in episode.infra_error


@pytest.mark.parametrize(
    ("status", "fix", "max_requests"),
    [(404, r"Check policy\.endpoint\.model", 3), (400, r"Set policy\.endpoint", 8 + 2)],
)
def test_client_error_ends_run_at_first_requests(
    agent, chat_server, episode_config, status, fix, max_requests
):
    chat_server.replies = [Answer(b"no such model", status)]
    suite = FakeSuite()
    jobs = [Job(TASK, seed, episode_config, lambda: agent) for seed in range(165)]
    with pytest.raises(ConfigError, match=rf"no such model\n{fix}"):
        Collector(suite, max_concurrent_episodes=3, infra_retries=2).run_jobs(jobs)
    assert len(chat_server.requests) <= max_requests
    assert all(env.closed for env in suite.envs)
    assert not [t for t in threading.enumerate() if t.name.startswith("rollout")]


def test_episodes_succeed_with_unreliable_endpoint(chat_server, tokenizer, episode_config):
    """Every third request fails, but every episode succeeds and every token is counted."""
    count, lock = [0], threading.Lock()
    faults = (
        500,
        429,
        b"<html>",
        Answer(message(PRESS), missing_bytes=3),
        Answer(reset_connection=True),
    )

    def respond(body: Any):
        with lock:
            count[0] += 1
            request_number = count[0]
        if request_number % 3 == 0:
            return faults[request_number // 3 % len(faults)]
        return Answer(message(PRESS) | {"usage": {"prompt_tokens": 10, "completion_tokens": 4}})

    chat_server.answer = respond
    config = EndpointConfig(chat_server.url, "tiny", retries=20, concurrency=4)
    endpoint = ChatEndpoint(config, environ={}, pause=0.001)

    def make_agent():
        return EndpointAgent(endpoint, tokenizer, max_new_tokens=32, temperature=0.0)

    jobs = [Job(TASK, seed, episode_config, make_agent) for seed in range(20)]
    episodes = Collector(FakeSuite(), max_concurrent_episodes=8, infra_retries=0).run_jobs(jobs)
    assert [episode.outcome for episode in episodes] == [Outcome.SUCCESS] * 20
    usage = endpoint.usage
    assert (usage.responses, usage.prompt_tokens, usage.completion_tokens) == (40, 400, 160)
    assert usage.failed_requests == len(chat_server.requests) - 40
    assert chat_server.max_concurrency <= 4
