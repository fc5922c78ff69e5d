"""Tests of the prompt length limit, faults and the resuming of `collect_demos`."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import ClassVar

import gymnasium
import pytest

from configs import quickstart
from examples.my_site import suite as my_site
from tests.chat_server import Answer, serve_chat
from tests.recording_progress import RecordingProgress
from webagent_jax import config, demos
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat
from webagent_jax.collect_demos import collect_demos
from webagent_jax.config import ConfigError, EndpointConfig, PolicyConfig, SuiteConfig
from webagent_jax.demos import DemosError
from webagent_jax.expert_steps import click
from webagent_jax.policy import resolve_dir
from webagent_jax.suites.site import SiteSuite
from webagent_jax.tracking.episode_log import EpisodeJournal
from webagent_jax.types import InfraError, Outcome

pytestmark = pytest.mark.browser

SMOKE = quickstart.get_config("smoke")


def collect(
    directory,
    max_model_len,
    max_turns=SMOKE.rollout.max_turns,
    source="expert",
    path=SMOKE.policy.path,
):
    progress = RecordingProgress()
    cfg = dataclasses.replace(
        SMOKE,
        policy=dataclasses.replace(SMOKE.policy, path=path),
        suite=dataclasses.replace(SMOKE.suite, tasks=("click-test", "enter-text")),
        bc=dataclasses.replace(SMOKE.bc, demos_per_task=1, row_tokens=4096),
        grpo=dataclasses.replace(SMOKE.grpo, row_tokens=4096),
        engine=dataclasses.replace(SMOKE.engine, max_model_len=max_model_len),
        rollout=dataclasses.replace(SMOKE.rollout, max_turns=max_turns),
    )
    collect_demos(cfg, directory, progress, source)
    tokenizer = ChatTokenizer(resolve_dir(cfg.policy.path))
    prompt = PromptFormat(TEMPLATES["compact"], cfg.prompt.thinking)
    prompt_lengths = {
        demo.task.id: max(
            len(turn.prompt_ids) for turn in demos.to_episode(demo, tokenizer, prompt).turns
        )
        for demo in demos.read(directory)
    }
    return prompt_lengths, progress.lines


def test_collect_demos_skips_and_counts_long_prompts(tmp_path):
    prompt_lengths, lines = collect(tmp_path / "all", 4096)
    assert len(prompt_lengths) == 2 and lines == []
    min_len = max(prompt_lengths.values()) + SMOKE.rollout.max_new_tokens
    num_skipped = sum(length == max(prompt_lengths.values()) for length in prompt_lengths.values())

    lengths, lines = collect(tmp_path / "tight", min_len)
    assert lengths == prompt_lengths and lines == []

    lengths, lines = collect(tmp_path / "short", min_len - 1)
    assert lengths == {
        task: length
        for task, length in prompt_lengths.items()
        if length < max(prompt_lengths.values())
    }
    assert lines == [
        f"{num_skipped} of 2 demonstrations have prompts too long for "
        f"engine.max_model_len={min_len - 1}: skipped; engine.max_model_len={min_len} fits all",
        "no demonstrations of these task names: "
        + ", ".join(name for name in ("click-test", "enter-text") if name not in str(lengths)),
    ]

    min_one_len = min(prompt_lengths.values()) + SMOKE.rollout.max_new_tokens
    with pytest.raises(ConfigError, match=rf"2 of 2 .*engine\.max_model_len={min_len} fits all"):
        collect(tmp_path / "none", min_one_len - 1)
    # The next collection in this workdir takes no failed episode over.
    assert not (tmp_path / "demo_episodes").exists()


def test_turn_limit_of_config_raises_that_of_experts(tmp_path, monkeypatch):
    monkeypatch.setattr("webagent_jax.collect_demos._MIN_EXPERT_TURNS", 1)
    prompt_lengths, lines = collect(tmp_path / "few", 4096, max_turns=1)
    assert len(prompt_lengths) == 1
    assert "1 of 2 experts need more than 1 turns: set rollout.max_turns above 1" in lines
    assert lines[-1] == "no demonstrations of these task names: enter-text"
    prompt_lengths, lines = collect(tmp_path / "all", 4096, max_turns=5)
    assert len(prompt_lengths) == 2 and lines == []


def test_demonstrations_above_turn_limit_are_reported(tmp_path):
    prompt_lengths, lines = collect(tmp_path, 4096, max_turns=1)
    assert len(prompt_lengths) == 2
    (line,) = lines
    pattern = r"1 demonstrations have more turns than rollout\.max_turns=1; the longest has [23]"
    assert re.fullmatch(pattern, line)


def interrupted_collection(monkeypatch, first, second):
    """Return the task ids of all episodes: one of `first`, interrupted, then those of `second`."""
    add, added = EpisodeJournal.add, []

    def interrupt_second(journal, episode, file):
        if added:
            raise KeyboardInterrupt
        add(journal, episode, file)
        added.append(episode.task.id)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(EpisodeJournal, "add", interrupt_second)
        first()

    def record(journal, episode, file):
        add(journal, episode, file)
        added.append(episode.task.id)

    with monkeypatch.context() as patch:
        patch.setattr(EpisodeJournal, "add", record)
        second()
    return added


# One before the interruption, and after it the other one, or both with another option.
@pytest.mark.parametrize(("max_model_len", "num_episodes"), [(4096, 2), (4095, 3)])
def test_interrupted_collection_resumes_with_equal_options(
    tmp_path, monkeypatch, max_model_len, num_episodes
):
    prompt_lengths = {}

    def continue_collection():
        assert not demos.exists(tmp_path / "demos")
        prompt_lengths.update(collect(tmp_path / "demos", max_model_len)[0])

    added = interrupted_collection(
        monkeypatch, lambda: collect(tmp_path / "demos", 4096), continue_collection
    )
    assert set(added) == set(prompt_lengths) and len(added) == num_episodes
    assert not (tmp_path / "demo_episodes").exists()


def test_failed_episode_of_expert_runs_again(tmp_path, monkeypatch):
    """The user may have corrected the expert after the interruption."""
    add = EpisodeJournal.add

    def add_failure(journal, episode, file):
        add(journal, dataclasses.replace(episode, reward=0.0, outcome=Outcome.FAILURE), file)

    def collect_from_experts():
        collect(tmp_path / "demos", 4096)

    monkeypatch.setattr(EpisodeJournal, "add", add_failure)
    added = interrupted_collection(monkeypatch, collect_from_experts, collect_from_experts)
    assert len(set(added)) == 2 and len(added) == 3


def test_task_with_changed_instruction_runs_again(tmp_path, monkeypatch):
    suite = SuiteConfig(factory="examples.my_site.suite:make_suite", tasks=("order",))
    bc = dataclasses.replace(SMOKE.bc, demos_per_task=2)
    cfg = dataclasses.replace(SMOKE, suite=suite, bc=bc)

    def collect_from_experts():
        collect_demos(cfg, tmp_path / "demos", RecordingProgress())

    def collect_with_changed_instruction():
        draw = my_site.order
        monkeypatch.setattr(
            my_site, "order", lambda rng: dataclasses.replace(draw(rng), intent="Order.")
        )
        collect_from_experts()

    added = interrupted_collection(
        monkeypatch, collect_from_experts, collect_with_changed_instruction
    )
    assert [demo.intent for demo in demos.read(tmp_path / "demos")] == ["Order.", "Order."]
    assert len(set(added)) == 2 and len(added) == 3


@pytest.mark.parametrize(("is_changed", "num_episodes"), [(False, 2), (True, 3)])
def test_interrupted_collection_resumes_with_equal_weights(
    tmp_path, monkeypatch, is_changed, num_episodes
):
    policy = tmp_path / "policy"
    shutil.copytree(resolve_dir("webagent-tiny"), policy)

    def collect_from_policy():
        # The policy may fail in all episodes.
        with contextlib.suppress(DemosError):
            collect(tmp_path / "demos", 2048, source="policy", path=str(policy))

    def continue_collection():
        if is_changed:
            (policy / "config.json").write_text((policy / "config.json").read_text() + " ")
        collect_from_policy()

    added = interrupted_collection(monkeypatch, collect_from_policy, continue_collection)
    assert len(set(added)) == 2 and len(added) == num_episodes


class SolvedGame(gymnasium.Env):
    """Game that is solved by every action, and ends with it if the seed is odd."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.reward = seed, 1.0
        return "button A [1]", {"intent": "Click."}

    def step(self, action):
        reward, self.reward = self.reward, 0.0
        return "solved", reward, self.seed % 2 == 1, False, {}


def game_config(url, game):
    """Return the config of four episodes of a game with the policy of an endpoint."""
    return dataclasses.replace(
        SMOKE,
        suite=config.SuiteConfig(factory=f"{__name__}:{game.__name__}", train_seeds_per_task=4),
        policy=PolicyConfig(
            kind="openai", endpoint=EndpointConfig(url, "tiny"), path=SMOKE.policy.path
        ),
        prompt=dataclasses.replace(SMOKE.prompt, template="compact"),
        bc=dataclasses.replace(SMOKE.bc, demos_per_task=4),
        rollout=dataclasses.replace(SMOKE.rollout, max_turns=2, max_concurrent_episodes=2),
    )


def test_success_at_turn_limit_is_no_demonstration(tmp_path, monkeypatch):
    with serve_chat(monkeypatch, 'do(action="Click", element="1")') as server:
        progress = RecordingProgress()
        collect_demos(game_config(server.url, SolvedGame), tmp_path, progress, "policy")
    assert {demo.task.seed for demo in demos.read(tmp_path)} == {1, 3}
    assert "2 successes ended at the turn or token limit: skipped" in progress.lines


class Game(gymnasium.Env):
    """Game that one action solves; some of its seeds fail a number of times."""

    num_faults: ClassVar[Counter[int]] = Counter()  # of each seed, from now on
    resets: ClassVar[Counter[int]] = Counter()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets[seed] += 1
        if self.num_faults[seed]:
            self.num_faults[seed] -= 1
            raise ConnectionError("site down")
        return f"button {seed} [1]", {"intent": "Click."}

    def step(self, action):
        return "solved", 1.0, True, False, {}


@pytest.fixture
def game():
    yield Game
    Game.num_faults.clear()
    Game.resets.clear()


def test_faults_of_policy_episodes_keep_the_journal(tmp_path, monkeypatch, game):
    num_runs = SMOKE.rollout.infra_retries + 1
    game.num_faults.update({2: num_runs, 3: 2 * num_runs})
    progress = RecordingProgress()
    with serve_chat(monkeypatch, 'do(action="Click", element="1")') as server:
        cfg = game_config(server.url, Game)
        message = r"^1 of 4 episodes have no reward.*/3: .*site down.*\n.*same command again"
        with pytest.raises(InfraError, match=message):
            collect_demos(cfg, tmp_path / "demos", progress, "policy")
        assert not demos.exists(tmp_path / "demos")
        assert "2 episodes have no reward: running them once more" in progress.lines
        assert game.resets == {0: 1, 1: 1, 2: num_runs + 1, 3: 2 * num_runs}
        # The same command continues with the missing episode.
        collect_demos(cfg, tmp_path / "demos", progress, "policy")
    assert game.resets == {0: 1, 1: 1, 2: num_runs + 1, 3: 2 * num_runs + 1}
    assert {demo.task.seed for demo in demos.read(tmp_path / "demos")} == {0, 1, 2, 3}
    assert not (tmp_path / "demo_episodes").exists()


def test_rejected_prompt_is_skipped(tmp_path, monkeypatch, game):
    pages = []

    def reject_third_page(body):
        page = body["messages"][-1]["content"]
        if page not in pages:
            pages.append(page)
        # With two concurrent episodes, there has been a response before the third one.
        if page in pages[2:3]:
            return Answer({"error": {"message": "content filter"}}, 400)
        return 'do(action="Click", element="1")'

    progress = RecordingProgress()
    with serve_chat(monkeypatch, "unused") as server:
        server.answer = reject_third_page
        collect_demos(game_config(server.url, Game), tmp_path, progress, "policy")
    assert len(demos.read(tmp_path)) == 3
    (line,) = (line for line in progress.lines if line.endswith(": skipped"))
    assert line.startswith("1 of 4 episodes have no reward (INFRA); the first is ")
    assert "rejects this prompt" in line and "content filter" in line


def make_suite_with_failing_expert(pool, suite_config):
    """Return a suite in which one of two experts clicks an element that does not exist."""

    def fail(rng):
        return dataclasses.replace(my_site.order(rng), expert=lambda page: click(page, "Beer"))

    site = Path(my_site.__file__).parent / "site"
    return SiteSuite(pool, suite_config, site, {"order": my_site.order, "fail": fail})


def test_faults_of_experts_are_skipped(tmp_path):
    cfg = dataclasses.replace(
        SMOKE,
        suite=config.SuiteConfig(
            factory=f"{__name__}:{make_suite_with_failing_expert.__name__}", train_seeds_per_task=1
        ),
        bc=dataclasses.replace(SMOKE.bc, demos_per_task=1),
        rollout=dataclasses.replace(SMOKE.rollout, infra_retries=0),
    )
    progress = RecordingProgress()
    collect_demos(cfg, tmp_path, progress)
    assert len(demos.read(tmp_path)) == 1
    (line,) = (line for line in progress.lines if line.endswith(": skipped"))
    assert line.startswith("1 of 2 episodes have no reward (INFRA); the first is site/fail/")
    assert "Beer" in line and "no demonstrations of these task names: fail" in progress.lines
    assert not any("without success" in line for line in progress.lines)


def test_collect_demos_without_expert_says_what_to_do(tmp_path):
    suite = dataclasses.replace(SMOKE.suite, tasks=("chase-circle",))
    bc = dataclasses.replace(SMOKE.bc, demos_per_task=1)
    cfg = dataclasses.replace(SMOKE, suite=suite, bc=bc)
    with pytest.raises(ConfigError, match=r"chase-circle/\d+ has no expert: select tasks with"):
        collect_demos(cfg, tmp_path, RecordingProgress())
    assert not demos.exists(tmp_path)


def test_options_of_experts_apply_to_every_suite(tmp_path):
    cfg = dataclasses.replace(
        SMOKE,
        suite=dataclasses.replace(SMOKE.suite, tasks=("click-shape", "enter-text")),
        bc=dataclasses.replace(
            SMOKE.bc, demos_per_task=2, expert_thoughts="long", mistake_rate=0.5
        ),
    )
    collected = []
    for name in ("first", "second"):
        collect_demos(cfg, tmp_path / name, RecordingProgress())
        demonstrations = demos.read(tmp_path / name)
        collected.append({d.task.id: [turn.decision for turn in d.turns] for d in demonstrations})
    decisions = [decision for one_demo in collected[0].values() for decision in one_demo]
    assert {decision.is_mistake for decision in decisions} == {False, True}
    # Instructions of click-shape have no period.
    pattern = re.compile(r"The task: .*[.] (Nothing is done yet|Done so far: .*)[.] .* Next: ")
    assert all(pattern.match(decision.thought) for decision in decisions)
    # Mistakes depend on the task only.
    assert collected[0] == collected[1]
