"""The episode loop, in a world without a browser."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.rollout.fakes import TASK, FakeSampler, FakeWorld
from webagent_jax import policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer
from webagent_jax.rollout import EngineAgent, EpisodeConfig, ExpertAgent, run_episode
from webagent_jax.types import Action, ActionKind, Completion, Decision, Outcome, ParseError

PRESS = '<think> go </think> <answer> do(action="Click", element="1") </answer>'
MISS = '<think> go </think> <answer> do(action="Click", element="9") </answer>'


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer(policy.resolve_dir("webagent-tiny"))


@pytest.fixture
def rules(tokenizer):
    return EpisodeConfig(
        tokenizer, TEMPLATES["compact"], True, max_turns=4, max_prompt_tokens=500, timeout=60.0
    )


def play(tokenizer, rules, replies, world=None):
    sampler = FakeSampler(tokenizer, replies)
    agent = EngineAgent(sampler, tokenizer.stop_ids, max_new_tokens=8, temperature=1.0)
    return run_episode(world or FakeWorld(), agent, TASK, rules, seed=5), sampler


def test_success_ends_it(tokenizer, rules):
    episode, sampler = play(tokenizer, rules, [PRESS])
    assert (episode.outcome, episode.reward, len(episode.turns)) == (Outcome.SUCCESS, 1.0, 2)
    assert episode.intent == "Press 1 twice"
    for turn, request in zip(episode.turns, sampler.requests, strict=True):
        np.testing.assert_array_equal(turn.prompt_ids, request["prompt_ids"])
        assert turn.response_text == PRESS
    assert len({request["seed"] for request in sampler.requests}) == 2
    assert [t.observation.text for t in episode.turns] == ["button go [1]", "button go 1 [1]"]


def test_prompts_hold_the_sampled_ids_and_the_current_page_alone(tokenizer, rules):
    episode, _ = play(tokenizer, rules, [PRESS])
    told = tokenizer.decode(episode.turns[1].prompt_ids)
    assert told.endswith(
        f"Page 0\n...<|end|><|assistant|>{PRESS}<|end|>"
        "<|user|>Page 1\nbutton go 1 [1]<|end|><|assistant|>"
    )


def test_a_turn_tells_what_its_phases_took(tokenizer, rules):
    episode, _ = play(tokenizer, rules, [PRESS, "What?"])
    first, unread = episode.turns[:2]
    told = {phase: seconds for phase, seconds in first.seconds.items() if "/" in phase}
    assert told == {"start/load": 0.5, "browser/act": 0.25}
    assert {"start", "prompt", "model", "browser"} < set(first.seconds)
    assert set(unread.seconds) == {"prompt", "model"}


def test_turn_limit_truncates(tokenizer, rules):
    episode, _ = play(tokenizer, rules, [MISS])
    assert (episode.outcome, episode.reward, len(episode.turns)) == (Outcome.TRUNCATED, 0.0, 4)
    assert episode.truncated
    assert episode.turns[1].observation.error == "no such element"


def test_a_limit_is_told_of_a_success_too(tokenizer, rules):
    class NeverDone(FakeWorld):
        def step(self, action):
            return dataclasses.replace(super().step(action), terminated=False)

    episode, _ = play(tokenizer, rules, [PRESS, PRESS, MISS], NeverDone())
    assert (episode.outcome, episode.reward, episode.truncated) == (Outcome.SUCCESS, 1.0, True)


@pytest.mark.parametrize(
    ("replies", "turns"),
    [
        ([MISS], 3),  # identical
        (["<think> a", "<think> b", "<think> c"], 3),  # unreadable
        ([MISS, "<think> a", MISS, MISS, "<think> b", "<think> c", MISS, MISS, MISS], 9),
        ([MISS.replace("go", thought) for thought in "abcdefghijklmn"], 12),  # other thoughts
    ],
)
def test_repeated_responses_end_an_episode(tokenizer, rules, replies, turns):
    limited = dataclasses.replace(rules, max_turns=12, max_repeats=3, max_prompt_tokens=2000)
    episode, _ = play(tokenizer, limited, replies)
    assert len(episode.turns) == turns
    assert (episode.outcome, episode.reward) == (Outcome.TRUNCATED, 0.0)
    assert episode.truncated


def test_repeated_responses_may_have_succeeded(tokenizer, rules):
    class NeverDone(FakeWorld):
        def step(self, action):
            return dataclasses.replace(super().step(action), terminated=False)

    limited = dataclasses.replace(rules, max_turns=12, max_repeats=2)
    episode, _ = play(tokenizer, limited, [PRESS], NeverDone())
    assert (episode.outcome, len(episode.turns)) == (Outcome.SUCCESS, 2)
    assert episode.truncated


def test_token_limit_truncates(tokenizer, rules):
    short = dataclasses.replace(rules, max_prompt_tokens=50)
    episode, _ = play(tokenizer, short, [MISS])
    assert episode.outcome is Outcome.TRUNCATED and episode.truncated
    assert 0 < len(episode.turns) < 4


def test_unreadable_replies_are_told_and_change_nothing(tokenizer, rules):
    world = FakeWorld()
    episode, _ = play(tokenizer, rules, ["<think> hm", PRESS, PRESS], world)
    assert isinstance(episode.turns[0].action, ParseError)
    assert "no action" in episode.turns[1].observation.error
    assert episode.outcome is Outcome.SUCCESS and not episode.truncated
    assert len(episode.turns) == 3


def test_exit_is_judged_with_its_answer(tokenizer, rules):
    episode, _ = play(tokenizer, rules, ['<answer> exit(message="42") </answer>'])
    assert (episode.outcome, episode.answer, len(episode.turns)) == (Outcome.SUCCESS, "42", 1)
    episode, _ = play(tokenizer, rules, ['<answer> exit(message="41") </answer>'])
    assert (episode.outcome, episode.reward) == (Outcome.FAILURE, 0.0)


def test_a_fault_has_no_reward(tokenizer, rules):
    episode, _ = play(tokenizer, rules, [PRESS], FakeWorld(fail_at=1))
    assert (episode.outcome, episode.reward) == (Outcome.INFRA, None)
    assert episode.infra_error == "the browser is gone"
    assert len(episode.turns) == 1


def test_a_reply_that_cannot_be_read_is_a_fault(tokenizer, rules):
    class Odd:
        def respond(self, request):
            zeros = np.zeros(1, np.int32)
            return Completion(zeros - 1, zeros.astype(np.float32), zeros, "stop")

    episode = run_episode(FakeWorld(), Odd(), TASK, rules)
    assert (episode.outcome, episode.reward) == (Outcome.INFRA, None)
    assert episode.infra_error.startswith("the response cannot be decoded: OverflowError(")


def test_a_reply_of_an_expert_that_cannot_be_tokenized_is_a_fault(tokenizer, rules):
    class Suite:
        def make_expert(self, task, start):
            yield Decision("half a character: \ud83d", Action(ActionKind.CLICK, "1"))

    episode = run_episode(FakeWorld(), ExpertAgent(Suite(), tokenizer, True), TASK, rules)
    assert (episode.outcome, episode.reward) == (Outcome.INFRA, None)
    assert episode.infra_error.startswith("the response cannot be tokenized: TypeError(")


def test_an_episode_that_takes_too_long_is_a_fault(tokenizer, rules):
    episode, _ = play(tokenizer, dataclasses.replace(rules, timeout=0.0), [PRESS])
    assert (episode.outcome, episode.reward) == (Outcome.INFRA, None)


def test_pictures_only_when_asked_for(tokenizer, rules):
    episode, _ = play(tokenizer, rules, [PRESS])
    assert episode.turns[0].screenshot is None
    assert episode.final_screenshot is None
    episode, _ = play(tokenizer, dataclasses.replace(rules, keep_screenshots=True), [PRESS])
    assert episode.turns[0].screenshot == episode.final_screenshot == b"jpeg"
