"""Tests of hindsight relabeling on live Chromium: experts of one task run under another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from configs import arena as arena_config
from tests.demos.test_demos import episode as make_episode
from tests.recording_progress import RecordingProgress
from tests.suites.scripted_episodes import run_script
from tools.check_relabeling import ExpertOf, run
from webagent_jax import demos
from webagent_jax.arena import selection
from webagent_jax.arena.registry import TEMPLATES, seed_data
from webagent_jax.arena.selection import GeneratedTask
from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig, ConfigError
from webagent_jax.relabel_episodes import read_failures, relabel_episodes
from webagent_jax.seeds import RandomStream, derive_seed
from webagent_jax.suites.arena import ArenaSuite
from webagent_jax.suites.arena_hindsight import Candidate, HindsightIndex
from webagent_jax.tracking import episode_log
from webagent_jax.tracking.progress import NullProgress
from webagent_jax.types import (
    Action,
    ActionKind,
    Episode,
    ParseError,
    Turn,
)

pytestmark = pytest.mark.browser

CONFIG = arena_config.get_config()
SEED = derive_seed(CONFIG.seed, RandomStream.HINDSIGHT)


@pytest.fixture(scope="module")
def suite() -> Iterator[ArenaSuite]:
    with BrowserPool(BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)) as pool:
        suite = ArenaSuite(pool, ["shop"])
        yield suite
        suite.close()


@pytest.fixture(scope="module")
def index() -> HindsightIndex:
    return HindsightIndex(["shop"], 3, SEED)


def first_task(name: str, seed: int = SEED) -> GeneratedTask:
    template = next(template for template in TEMPLATES if template.name == name)
    return next(selection.generate_tasks([template], seed_data(), seed))


def test_failures_become_demonstrations_of_the_tasks_they_solve(
    suite: ArenaSuite, tmp_path: Path
) -> None:
    solved = [first_task(name) for name in ("shop/wish", "shop/order-total", "shop/search")]
    other = first_task("shop/buy", seed=1).task
    episodes = [run(suite, other, ExpertOf(generated)) for generated in solved]
    # Opens the product, but does not put it on the wish list.
    wish = solved[0].instance.slots["product"]
    episodes.append(
        run_script(
            suite,
            first_task("shop/newsletter", seed=1).task,
            ("Search", "Search products", wish),
            ("Click", wish),
            ("exit", ""),
        )
    )
    assert [episode.reward for episode in episodes] == [0.0] * 4, episodes
    log = tmp_path / "grpo" / "episodes" / "update-00001.jsonl"
    log.parent.mkdir(parents=True)
    episode_log.append_episodes(log, episodes)

    restating = replace(CONFIG, bc=replace(CONFIG.bc, expert_thoughts="restate"))
    progress = RecordingProgress()
    relabel_episodes(restating, read_failures(tmp_path / "grpo"), tmp_path / "demos", progress, 3)
    by_intent = {demo.intent: demo for demo in demos.read(tmp_path / "demos")}
    for generated, episode in zip(solved, episodes, strict=False):
        demo = by_intent[generated.task.intent]
        actions = [turn.action for turn in episode.turns]
        assert [turn.decision.action for turn in demo.turns] == actions
        assert all(
            turn.decision.thought.startswith(f"Task: {demo.intent} Next: ") for turn in demo.turns
        )
    assert other.intent not in by_intent
    # Not every candidate solves its task.
    num_solved, num_replays = (int(progress.lines[1].split()[i]) for i in (0, 2))
    assert len(by_intent) <= num_solved < num_replays


def test_replays_with_unstorable_actions_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = first_task("shop/wish").task
    solved = make_episode(1, turns=1)
    episodes = []
    for number, text in enumerate(("use <think> tags", "Zoë")):
        turn = replace(solved.turns[0], action=Action(ActionKind.TYPE, "1", text))
        episodes.append(replace(solved, task=replace(task, id=f"{number}"), turns=(turn,)))
    runtime = MagicMock()
    runtime.return_value.__enter__.return_value.run.return_value = episodes
    monkeypatch.setattr("webagent_jax.relabel_episodes.RolloutRuntime", runtime)
    candidates = [Candidate(task, (), "")]
    monkeypatch.setattr("webagent_jax.relabel_episodes._find_candidates", lambda *_: candidates)
    relabel_episodes(CONFIG, [], tmp_path, NullProgress(), 3)
    assert [demo.task.id for demo in demos.read(tmp_path)] == ["1"]


def test_replay_leaves_out_detours_and_refused_actions(
    suite: ArenaSuite, index: HindsightIndex
) -> None:
    search = first_task("shop/search")
    words = search.instance.slots["words"]
    episode = run_script(
        suite,
        first_task("shop/buy", seed=1).task,
        ("Click", "Deals"),
        ("Click", "Marigold"),
        ("Search", "Search products", words),
        ("exit", ""),
    )
    candidates = {c.task.id: c for c in index.candidates(episode)}
    steps = candidates[search.task.id].steps
    assert [step.action for step in steps] == [episode.turns[2].action]
    # An unknown element, a refused button, and a response without an action.
    home, search_turn, end = episode.turns[0], episode.turns[2], episode.turns[3]
    page = home.observation
    unknown = replace(home, action=Action(ActionKind.CLICK, "999"))
    button_id = next(i for i, e in page.elements.items() if e.kind == "button")
    button = replace(home, action=Action(ActionKind.CLICK, button_id))
    no_action = replace(
        home, action=ParseError("no action"), observation=replace(page, error="not clickable")
    )
    assert solving_actions(
        index, episode, search, unknown, button, no_action, search_turn, end
    ) == [search_turn.action]
    # The button was not refused: it may have changed something that the page does not show.
    actions = solving_actions(index, episode, search, button, search_turn, end)
    assert actions == [button.action, search_turn.action]


def solving_actions(
    index: HindsightIndex, episode: Episode, generated: GeneratedTask, *turns: Turn
) -> list[Action]:
    """Return the actions of the candidate for a task, for the episode with these turns."""
    candidates = {c.task.id: c for c in index.candidates(replace(episode, turns=turns))}
    return [step.action for step in candidates[generated.task.id].steps]


def test_answers_need_their_evidence(suite: ArenaSuite, index: HindsightIndex) -> None:
    total = first_task("shop/order-total")
    episode = run(suite, first_task("shop/buy", seed=1).task, ExpertOf(total))
    assert total.task.id in {c.task.id for c in index.candidates(episode)}
    # The same answer, without a page that mentions the order.
    first, last = episode.turns[0], episode.turns[-1]
    other_page = replace(last.observation, text="Help", elements={})
    guess = replace(episode, turns=(first, replace(last, observation=other_page)))
    assert total.task.id not in {c.task.id for c in index.candidates(guess)}


def test_candidates_reject_answers_that_list_options(
    suite: ArenaSuite, index: HindsightIndex
) -> None:
    delivery = first_task("shop/order-delivery")
    episode = run(suite, first_task("shop/buy", seed=1).task, ExpertOf(delivery))
    for answer, is_candidate in (
        (episode.answer, True),
        (f"The delivery was '{episode.answer}'.", True),
        ("Standard, Express or Pick-up point", False),
        (f"{episode.answer} {'and so on ' * 6}", False),
    ):
        candidates = index.candidates(replace(episode, answer=answer))
        assert (delivery.task.id in {c.task.id for c in candidates}) == is_candidate, answer


def test_index_contains_no_test_task() -> None:
    data = seed_data()
    test = selection.select_tasks(TEMPLATES, data)["test"]
    keys = {(item.template.name, json.dumps(dict(item.instance.slots))) for item in test}
    index = HindsightIndex(["shop"], 60, SEED)
    drawn = [*index._others, *(g for found in index._by_address.values() for g in found)]
    assert not keys & {(g.template.name, json.dumps(dict(g.instance.slots))) for g in drawn}
    # The draws are large enough to hit test tasks otherwise.
    free = [
        generated
        for template in TEMPLATES
        if template.group == "shop"
        for generated, _ in zip(
            selection.generate_tasks([template], data, SEED), range(60), strict=False
        )
    ]
    assert keys & {(g.template.name, json.dumps(dict(g.instance.slots))) for g in free}


def test_run_without_failures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no episodes of training"):
        read_failures(tmp_path)
    (tmp_path / "episodes").mkdir()
    (tmp_path / "episodes" / "update-00001.jsonl").write_text("")
    with pytest.raises(ConfigError, match="nothing to relabel"):
        read_failures(tmp_path)


def test_other_suite_is_refused(tmp_path: Path) -> None:
    miniwob = replace(CONFIG, suite=replace(CONFIG.suite, name="miniwob", tasks=()))
    with pytest.raises(ConfigError, match="only the arena"):
        relabel_episodes(miniwob, [], tmp_path, NullProgress(), 3)


def test_missing_policy_is_reported_before_the_search(tmp_path: Path) -> None:
    missing = replace(CONFIG, policy=replace(CONFIG.policy, path=str(tmp_path / "policy")))
    with pytest.raises(ConfigError, match="no policy at"):
        relabel_episodes(missing, [], tmp_path / "demos", NullProgress(), 3)
