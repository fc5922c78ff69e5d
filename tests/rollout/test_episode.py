"""Tests of the episode loop in an environment without a browser."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from tests.rollout.fakes import TASK, FakeEnv, FakeSampler
from webagent_jax import learn, policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat
from webagent_jax.config import ConfigError
from webagent_jax.rollout import EngineAgent, EpisodeConfig, ExpertAgent, run_episode
from webagent_jax.types import (
    Action,
    ActionKind,
    Completion,
    Decision,
    InfraError,
    Outcome,
    ParseError,
)

PRESS = '<think> go </think> <answer> do(action="Click", element="1") </answer>'
MISS = '<think> go </think> <answer> do(action="Click", element="9") </answer>'


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer(policy.resolve_dir("webagent-tiny"))


@pytest.fixture
def episode_config(tokenizer):
    return EpisodeConfig(
        tokenizer,
        PromptFormat(TEMPLATES["compact"]),
        max_turns=4,
        max_prompt_tokens=500,
        timeout=60.0,
    )


def run(tokenizer, episode_config, responses, env=None, **sampler_options):
    sampler = FakeSampler(tokenizer, responses, **sampler_options)
    agent = EngineAgent(sampler, tokenizer.stop_ids, max_new_tokens=8, temperature=1.0)
    return run_episode(env or FakeEnv(), agent, TASK, episode_config, seed=5), sampler


def test_success_ends_episode(tokenizer, episode_config):
    episode, sampler = run(tokenizer, episode_config, [PRESS])
    assert (episode.outcome, episode.reward, len(episode.turns)) == (Outcome.SUCCESS, 1.0, 2)
    assert episode.intent == "Press 1 twice"
    for turn, request in zip(episode.turns, sampler.requests, strict=True):
        np.testing.assert_array_equal(turn.prompt_ids, request["prompt_ids"])
        assert turn.response_text == PRESS
    assert len({request["seed"] for request in sampler.requests}) == 2
    assert [t.observation.text for t in episode.turns] == ["button go [1]", "button go 1 [1]"]


def test_prompt_contains_sampled_ids_and_only_current_page(tokenizer, episode_config):
    episode, _ = run(tokenizer, episode_config, [PRESS], by_letter=True)
    sampled_ids = [*(int(tokenizer.encode(letter)[0]) for letter in PRESS), tokenizer.stop_ids[0]]
    # The policy may sample other tokens than those that the encoder chooses for the same text.
    assert sampled_ids != tokenizer.encode_response(PRESS).tolist()
    assert [turn.completion.token_ids.tolist() for turn in episode.turns] == [sampled_ids] * 2
    prompt_ids, count = episode.turns[1].prompt_ids.tolist(), len(sampled_ids)
    (start,) = (i for i in range(len(prompt_ids)) if prompt_ids[i : i + count] == sampled_ids)
    assert tokenizer.decode(prompt_ids[:start]).endswith("Page 0\n...<|end|><|assistant|>")
    next_page = "<|user|>Page 1\nbutton go 1 [1]<|end|><|assistant|>"
    assert tokenizer.decode(prompt_ids[start + count :]) == next_page


def test_prompt_with_all_pages_extends_earlier_ones(tokenizer, episode_config):
    prompt = dataclasses.replace(episode_config.prompt, full_pages=0)
    episode, _ = run(
        tokenizer, dataclasses.replace(episode_config, prompt=prompt), [MISS, MISS, PRESS]
    )
    assert len(episode.turns) == 4
    for turn, following in pairwise(episode.turns):
        earlier = [*turn.prompt_ids, *turn.completion.token_ids]
        assert following.prompt_ids[: len(earlier)].tolist() == earlier
    # In a row, the tokens of all prompts are those of the last one.
    gains = [np.zeros(len(episode.turns), np.float32)]
    packed = learn.pack_branches(learn.branches_from_episodes([episode], gains), row_tokens=1_024)
    responses = sum(len(turn.completion.token_ids) for turn in episode.turns)
    num_tokens = round((1 - packed.padding_fraction) * 1_024)
    assert num_tokens == len(episode.turns[-1].prompt_ids) + responses


def test_turn_records_seconds_of_phases(tokenizer, episode_config):
    episode, _ = run(tokenizer, episode_config, [PRESS, "What?"])
    first_turn, second_turn = episode.turns[:2]
    phase_seconds = {
        phase: seconds for phase, seconds in first_turn.seconds.items() if "/" in phase
    }
    assert phase_seconds == {"start/load": 0.5, "browser/act": 0.25}
    assert {"start", "prompt", "model", "browser"} < set(first_turn.seconds)
    assert set(second_turn.seconds) == {"prompt", "model"}


def test_turn_limit_truncates_episode(tokenizer, episode_config):
    episode, _ = run(tokenizer, episode_config, [MISS])
    assert (episode.outcome, episode.reward, len(episode.turns)) == (Outcome.TRUNCATED, 0.0, 4)
    assert episode.truncated
    assert episode.turns[1].observation.error == "no such element"


def test_success_at_turn_limit_is_marked_truncated(tokenizer, episode_config):
    class NonTerminatingEnv(FakeEnv):
        def step(self, action):
            return dataclasses.replace(super().step(action), terminated=False)

    episode, _ = run(tokenizer, episode_config, [PRESS, PRESS, MISS], NonTerminatingEnv())
    assert (episode.outcome, episode.reward, episode.truncated) == (Outcome.SUCCESS, 1.0, True)


@pytest.mark.parametrize(
    ("responses", "num_turns"),
    [
        ([MISS], 3),  # identical
        (["<think> a", "<think> b", "<think> c"], 3),  # parse errors
        ([MISS, "<think> a", MISS, MISS, "<think> b", "<think> c", MISS, MISS, MISS], 9),
        ([MISS.replace("go", thought) for thought in "abcdefghijklmn"], 12),  # other thoughts
    ],
)
def test_repeated_responses_truncate_episode(tokenizer, episode_config, responses, num_turns):
    limited_config = dataclasses.replace(
        episode_config, max_turns=12, max_repeats=3, max_prompt_tokens=2000
    )
    episode, _ = run(tokenizer, limited_config, responses)
    assert len(episode.turns) == num_turns
    assert (episode.outcome, episode.reward) == (Outcome.TRUNCATED, 0.0)
    assert episode.truncated


def test_repeated_responses_can_end_in_success(tokenizer, episode_config):
    class NonTerminatingEnv(FakeEnv):
        def step(self, action):
            return dataclasses.replace(super().step(action), terminated=False)

    limited_config = dataclasses.replace(episode_config, max_turns=12, max_repeats=2)
    episode, _ = run(tokenizer, limited_config, [PRESS], NonTerminatingEnv())
    assert (episode.outcome, len(episode.turns)) == (Outcome.SUCCESS, 2)
    assert episode.truncated


def test_prompt_token_limit_truncates_episode(tokenizer, episode_config):
    short_config = dataclasses.replace(episode_config, max_prompt_tokens=50)
    episode, _ = run(tokenizer, short_config, [MISS])
    assert episode.outcome is Outcome.TRUNCATED and episode.truncated
    assert 0 < len(episode.turns) < 4


def test_parse_error_is_reported_in_next_observation(tokenizer, episode_config):
    env = FakeEnv()
    episode, _ = run(tokenizer, episode_config, ["<think> hm", PRESS, PRESS], env)
    assert isinstance(episode.turns[0].action, ParseError)
    assert "no action" in episode.turns[1].observation.error
    assert episode.outcome is Outcome.SUCCESS and not episode.truncated
    assert len(episode.turns) == 3


@pytest.mark.parametrize("call", ["exit()", 'exit(message="")'])
def test_exit_without_message_has_empty_answer(tokenizer, episode_config, call):
    class AnsweredEnv(FakeEnv):
        def compute_reward(self, answer):
            return float(answer == "")

    episode, _ = run(tokenizer, episode_config, [f"<answer> {call} </answer>"], AnsweredEnv())
    assert (episode.reward, episode.answer, len(episode.turns)) == (1.0, "", 1)
    # None means that there was no exit action.
    episode, _ = run(tokenizer, episode_config, [MISS], AnsweredEnv())
    assert (episode.reward, episode.answer) == (0.0, None)


def test_exit_answer_determines_reward(tokenizer, episode_config):
    episode, _ = run(tokenizer, episode_config, ['<answer> exit(message="42") </answer>'])
    assert (episode.outcome, episode.answer, len(episode.turns)) == (Outcome.SUCCESS, "42", 1)
    episode, _ = run(tokenizer, episode_config, ['<answer> exit(message="41") </answer>'])
    assert (episode.outcome, episode.reward) == (Outcome.FAILURE, 0.0)


def test_infra_error_has_no_reward(tokenizer, episode_config):
    episode, _ = run(tokenizer, episode_config, [PRESS], FakeEnv(fail_step=1))
    assert (episode.outcome, episode.reward) == (Outcome.INFRA, None)
    assert episode.infra_error == "the browser is gone"
    assert len(episode.turns) == 1


def test_response_decoding_error_is_infra_error(tokenizer, episode_config):
    class InvalidTokenAgent:
        def respond(self, request):
            zeros = np.zeros(1, np.int32)
            return Completion(zeros - 1, zeros.astype(np.float32), zeros, "stop")

    episode = run_episode(FakeEnv(), InvalidTokenAgent(), TASK, episode_config)
    assert (episode.outcome, episode.reward) == (Outcome.INFRA, None)
    assert episode.infra_error.startswith("the response cannot be decoded: OverflowError(")


def test_expert_tokenization_error_is_infra_error(tokenizer, episode_config):
    class Suite:
        def make_expert(self, task, start):
            yield Decision("half a character: \ud83d", Action(ActionKind.CLICK, "1"))

    agent = ExpertAgent(Suite(), tokenizer, thinking=True)
    episode = run_episode(FakeEnv(), agent, TASK, episode_config)
    assert (episode.outcome, episode.reward) == (Outcome.INFRA, None)
    assert episode.infra_error.startswith("the response cannot be tokenized: TypeError(")


def test_episode_timeout_is_infra_error(tokenizer, episode_config):
    episode, _ = run(tokenizer, dataclasses.replace(episode_config, timeout=0.0), [PRESS])
    assert (episode.outcome, episode.reward) == (Outcome.INFRA, None)


def test_screenshots_are_recorded_only_if_enabled(tokenizer, episode_config):
    episode, _ = run(tokenizer, episode_config, [PRESS])
    assert episode.turns[0].screenshot is None
    assert episode.final_screenshot is None
    episode, _ = run(tokenizer, dataclasses.replace(episode_config, keep_screenshots=True), [PRESS])
    assert episode.turns[0].screenshot == episode.final_screenshot == b"jpeg"


def test_final_screenshot_is_not_of_page_that_evaluator_opens(tokenizer, episode_config):
    class Environment(FakeEnv):
        page = b"page of the agent"

        def screenshot(self):
            return self.page

        def compute_reward(self, answer):
            self.page = b"page of the evaluator"
            return super().compute_reward(answer)

    config = dataclasses.replace(episode_config, keep_screenshots=True)
    episode, _ = run(tokenizer, config, [PRESS], Environment())
    assert episode.final_screenshot == b"page of the agent"


def test_files_of_environment_are_part_of_episode(tokenizer, episode_config):
    class EnvWithFiles(FakeEnv):
        def episode_files(self):
            return {"pressed.txt": str(self.pressed).encode()}

    episode, _ = run(tokenizer, episode_config, [PRESS], EnvWithFiles())
    assert episode.files == {"pressed.txt": b"2"}
    episode, _ = run(tokenizer, episode_config, [PRESS])
    assert episode.files == {}


def test_failed_screenshots_keep_reward(tokenizer, episode_config):
    class Environment(FakeEnv):
        def screenshot(self):
            raise InfraError("a font does not load")

    config = dataclasses.replace(episode_config, keep_screenshots=True)
    episode, _ = run(tokenizer, config, [PRESS], Environment())
    assert (episode.outcome, episode.reward) == (Outcome.SUCCESS, 1.0)
    assert episode.turns[0].screenshot is episode.final_screenshot is None


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (Action(ActionKind.CLICK, "1"), "the expert of .* raised AttributeError.*fix the function"),
        (None, "the expert of .* raised TypeError.*fix the function"),
    ],
)
def test_error_in_code_of_expert_is_config_error(tokenizer, episode_config, decision, message):
    class Suite:
        def make_expert(self, task, start):
            yield decision or len(decision)

    agent = ExpertAgent(Suite(), tokenizer, thinking=True)
    with pytest.raises(ConfigError, match=message):
        run_episode(FakeEnv(), agent, TASK, episode_config)


def test_expert_that_ends_before_episode_names_remedy(tokenizer, episode_config):
    class Suite:
        def make_expert(self, task, start):
            return (yield Decision("press", Action(ActionKind.CLICK, "1")))

    agent = ExpertAgent(Suite(), tokenizer, thinking=True)
    episode = run_episode(FakeEnv(), agent, TASK, episode_config)
    assert episode.outcome is Outcome.INFRA
    assert episode.infra_error == (
        "the expert of fake/0 ended, but the episode did not: end it with finish() or answer(), or "
        "set SiteTask.is_done"
    )


def test_expert_with_wrong_parameters_is_config_error(tokenizer, episode_config):
    class Suite:
        def make_expert(self, task, start):
            return iter(start, 1, 2)

    agent = ExpertAgent(Suite(), tokenizer, thinking=True)
    with pytest.raises(ConfigError, match=r"the expert of .* raised TypeError"):
        run_episode(FakeEnv(), agent, TASK, episode_config)
