"""Tests of stored demonstrations: writing, reading and damaged files."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from webagent_jax import demos
from webagent_jax.agent import TEMPLATES, PromptFormat, actions, format_response
from webagent_jax.types import (
    Action,
    ActionKind,
    Completion,
    Decision,
    Episode,
    IntArray,
    Message,
    Observation,
    Outcome,
    ParseError,
    Task,
    Turn,
)

DECISIONS = (
    Decision("the name field is empty", Action(ActionKind.TYPE, "1", 'Zoë "Z" \\ O\'Neil\n2')),
    Decision("clear the other", Action(ActionKind.TYPE, "2", "")),
    Decision("wait for it", Action(ActionKind.WAIT)),
    Decision("send", Action(ActionKind.CLICK, "12")),
    Decision("", Action(ActionKind.EXIT, value="42 €")),
)
EMPTY_COMPLETION = Completion(
    np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.int32), "stop"
)


def store(directory: Path, episodes: Iterable[Episode], **options: bool) -> None:
    demos.write(directory, map(demos.from_episode, episodes), **options)


def episode(number: int, turns: int = len(DECISIONS), thinking: bool = True) -> Episode:
    task = Task(f"miniwob/form/{number}", "miniwob", ("form",), "", "http://x/form", seed=number)
    observations = [
        Observation(
            f"Seite {k} é\ntextbox [1]", f"http://x/{k}", "Form", "no" if k else None, k == 2
        )
        for k in range(turns)
    ]
    return Episode(
        task=task,
        intent=f"Fill in form {number}",
        turns=tuple(
            Turn(
                EMPTY_COMPLETION.token_ids,
                EMPTY_COMPLETION,
                format_response(d.thought, d.action, thinking),
                d.action,
                page,
            )
            for d, page in zip(DECISIONS, observations, strict=False)
        ),
        reward=1.0,
        outcome=Outcome.SUCCESS,
    )


def shard_path(directory: Path) -> Path:
    (path,) = directory.rglob("*.array_record*")
    return path


@pytest.fixture
def demos_dir(tmp_path: Path) -> Path:
    store(tmp_path / "demos", (episode(n, turns=n % 6) for n in range(25)))
    return tmp_path / "demos"


def test_merge_keeps_first_demonstration_of_each_task(tmp_path):
    for name, numbers in {"a": (1, 2), "b": (2, 3)}.items():
        store(tmp_path / name, [episode(number, turns=1 + (name == "b")) for number in numbers])
    merged = demos.merge([tmp_path / "a", tmp_path / "b"])
    kept = [(demo.task.seed, len(demo.turns)) for demo in merged.demonstrations]
    assert kept == [(1, 1), (2, 1), (3, 2)]
    assert list(merged.skipped.values()) == [1]
    assert demos.merge([tmp_path / "a"]).skipped == {}
    with pytest.raises(demos.DemosError, match="no demonstrations in"):
        demos.merge([tmp_path / "a", tmp_path / "missing"])


def test_merge_keeps_all_demonstrations_of_one_directory(tmp_path):
    # As in imports from WebRL: the episodes of an instruction have equal seeds and no start page.
    store(tmp_path / "a", [episode(1, turns=1), episode(1, turns=2)])
    store(tmp_path / "b", [episode(1, turns=3), episode(2, turns=4), episode(2, turns=5)])
    merged = demos.merge([tmp_path / "a", tmp_path / "b"])
    assert [len(demo.turns) for demo in merged.demonstrations] == [1, 2, 4, 5]
    assert list(merged.skipped.values()) == [1]


def test_merge_distinguishes_task_names(tmp_path):
    # As in SiteSuite and BrowserGym: task names share an instruction, a start page and seeds.
    source = episode(1)
    for name in ("form", "table"):
        task = dataclasses.replace(source.task, sites=(name,))
        store(tmp_path / name, [dataclasses.replace(source, task=task)])
    merged = demos.merge([tmp_path / "form", tmp_path / "table"])
    assert [demo.task.sites for demo in merged.demonstrations] == [("form",), ("table",)]


def test_read_returns_demonstrations_in_order(demos_dir: Path) -> None:
    demonstrations = demos.read(demos_dir)
    assert len(demonstrations) == 25
    for number, demo in enumerate(demonstrations):
        source = episode(number, turns=number % 6)
        assert demo.task == dataclasses.replace(source.task, intent=source.intent)
        assert demo.intent == source.intent
        assert [turn.observation for turn in demo.turns] == [t.observation for t in source.turns]
        assert [turn.decision for turn in demo.turns] == list(DECISIONS[: number % 6])


def test_thoughts_are_equal_for_both_response_formats(tmp_path: Path) -> None:
    store(tmp_path, [episode(0, thinking=True), episode(0, thinking=False)])
    think_demo, comment_demo = demos.read(tmp_path)
    assert think_demo == comment_demo


def with_mistake(source: Episode, index: int) -> Episode:
    """Return the episode with a mistake in one of its turns."""
    turns = list(source.turns)
    completion = dataclasses.replace(turns[index].completion, is_mistake=True)
    turns[index] = dataclasses.replace(turns[index], completion=completion)
    return dataclasses.replace(source, turns=tuple(turns))


def test_mistakes_are_stored_and_not_trained_on(tmp_path: Path) -> None:
    store(tmp_path, [with_mistake(episode(0), 2), episode(1)])
    mistake, perfect = demos.read(tmp_path)
    assert mistake.trained_turns() == [0, 1, 3, 4]
    assert perfect.trained_turns() == [0, 1, 2, 3, 4]


def test_read_supports_datasets_without_mistakes(demos_dir: Path) -> None:
    expected = list(demos.read(demos_dir))
    (info,) = demos_dir.rglob("dataset_info.json")
    for name in ("dataset_info.json", "features.json"):
        metadata = json.loads((info.parent / name).read_text())
        if name == "features.json":
            turn = metadata["featuresDict"]["features"]["turns"]["sequence"]["feature"]
            del turn["featuresDict"]["features"]["is_mistake"]
        else:
            metadata["version"] = "1.0.0"
        (info.parent / name).write_text(json.dumps(metadata))
    info.parent.rename(info.parent.with_name("1.0.0"))
    assert list(demos.read(demos_dir)) == expected
    # Replacing them leaves only the new version.
    store(demos_dir, [episode(7)], overwrite=True)
    assert [demo.task.seed for demo in demos.read(demos_dir)] == [7]
    assert not list(demos_dir.rglob("1.0.0"))


def test_demonstrations_support_random_access(demos_dir: Path) -> None:
    demonstrations = demos.read(demos_dir)
    assert [demonstrations[n].task.seed for n in (17, 3, 24)] == [17, 3, 24]
    with pytest.raises(IndexError, match="25"):
        demonstrations[25]


def test_write_is_deterministic(demos_dir: Path, tmp_path: Path) -> None:
    store(tmp_path / "again", [episode(n, turns=n % 6) for n in range(25)])
    assert shard_path(demos_dir).read_bytes() == shard_path(tmp_path / "again").read_bytes()


def test_write_overwrites_only_on_request(demos_dir: Path) -> None:
    content = shard_path(demos_dir).read_bytes()
    with pytest.raises(demos.DemosError, match="already"):
        store(demos_dir, [episode(7)])
    assert shard_path(demos_dir).read_bytes() == content
    store(demos_dir, [episode(7)], overwrite=True)
    assert [demo.task.seed for demo in demos.read(demos_dir)] == [7]


@pytest.mark.parametrize(
    ("invalid_episode", "message"),
    [
        (dataclasses.replace(episode(1), reward=0.0), "reward 0.0"),
        (dataclasses.replace(episode(1), reward=None), "reward None"),
        (
            dataclasses.replace(
                episode(1),
                turns=(dataclasses.replace(episode(1).turns[0], action=ParseError("odd")),),
            ),
            "no action that can be stored",
        ),
        (
            dataclasses.replace(
                episode(1),
                turns=(
                    dataclasses.replace(
                        episode(1).turns[0], action=Action(ActionKind.TYPE, "1", "<answer>")
                    ),
                ),
            ),
            "no action that can be stored",
        ),
    ],
)
def test_write_rejects_invalid_episode_without_output(
    tmp_path: Path, invalid_episode: Episode, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        store(tmp_path, [episode(0), invalid_episode])
    assert not demos.exists(tmp_path)
    assert not list(tmp_path.rglob("*.array_record*"))


def test_write_without_episodes_raises(tmp_path: Path) -> None:
    with pytest.raises(demos.DemosError, match="no demonstrations to write"):
        store(tmp_path, [])


def test_read_without_demonstrations_names_collect(tmp_path: Path) -> None:
    with pytest.raises(demos.DemosError, match="webagent collect"):
        demos.read(tmp_path)


def test_incomplete_write_counts_as_missing(demos_dir: Path) -> None:
    dataset_dir = shard_path(demos_dir).parent
    dataset_dir.rename(dataset_dir.with_name("incomplete.4R7K2P_1.0.0"))
    assert not demos.exists(demos_dir)
    store(demos_dir, [episode(3)])
    assert len(demos.read(demos_dir)) == 1


@pytest.mark.parametrize("size", [None, 0, 70_000])
def test_read_reports_damaged_records(demos_dir: Path, size: int | None) -> None:
    if size is None:
        shard_path(demos_dir).unlink()
    else:
        os.truncate(shard_path(demos_dir), size)
    with pytest.raises(demos.DemosError, match=r"damaged.*collect them again"):
        list(demos.read(demos_dir))


def test_read_reports_damaged_index(demos_dir: Path) -> None:
    (shard_path(demos_dir).parent / "dataset_info.json").write_text("{")
    with pytest.raises(demos.DemosError, match="damaged"):
        demos.read(demos_dir)


class CodepointTokenizer:
    """Test tokenizer with one id per character and stop id 0."""

    def encode_response(self, text: str) -> IntArray:
        return np.asarray([*map(ord, text), 0], np.int32)

    def prompt_ids(self, conversation: list[Message]) -> IntArray:
        texts = [
            chr(0).join((m.role, m.text)) if m.token_ids is None else "".join(map(chr, m.token_ids))
            for m in conversation
        ]
        return np.asarray([ord(c) for c in "".join(texts)], np.int32)


@pytest.mark.parametrize("thinking", [True, False])
def test_to_episode_matches_policy_rollout(demos_dir: Path, thinking: bool) -> None:
    demo = demos.read(demos_dir)[5]
    result = demos.to_episode(
        demo, CodepointTokenizer(), PromptFormat(TEMPLATES["compact"], thinking)
    )  # type: ignore[arg-type]
    assert result.reward == 1
    assert len(result.turns) == len(DECISIONS)
    for turn, decision in zip(result.turns, DECISIONS, strict=True):
        assert turn.action == decision.action == actions.parse(turn.response_text)
        assert decision.thought in turn.response_text
        assert ("<think>" in turn.response_text) == thinking
        assert (
            len(turn.completion.logp)
            == len(turn.completion.token_ids)
            == len(turn.response_text) + 1
        )
    last_prompt = "".join(map(chr, result.turns[-1].prompt_ids))
    assert "Seite 4" in last_prompt
    assert "Seite 3" not in last_prompt, "a placeholder replaces earlier pages"
    assert all(turn.response_text in last_prompt for turn in result.turns[:-1])


def test_demos_do_not_import_tensorflow(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from tests.demos.test_demos import demos, episode, store
store(Path(sys.argv[1]), [episode(0)])
assert demos.read(Path(sys.argv[1]))[0].intent == "Fill in form 0"
assert "tensorflow" not in sys.modules
"""
    root = Path(__file__).parents[2]
    process = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=root, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert process.stdout == ""


def test_failed_write_leaves_existing_demonstrations(demos_dir: Path) -> None:
    content = shard_path(demos_dir).read_bytes()

    def fail():
        yield demos.from_episode(episode(7))
        raise KeyError("x")

    with pytest.raises(KeyError):
        demos.write(demos_dir, fail(), overwrite=True)
    assert shard_path(demos_dir).read_bytes() == content
    assert [path.name for path in demos_dir.iterdir()] == ["webagent_demos"]


def test_interrupted_replacement_restores_demonstrations(
    demos_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = shard_path(demos_dir).read_bytes()
    rename = Path.rename

    def rename_and_interrupt(path: Path, target: Path) -> None:
        rename(path, target)
        if target.name == "old":
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", rename_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        store(demos_dir, [episode(7)], overwrite=True)
    assert shard_path(demos_dir).read_bytes() == content


def test_write_keeps_demonstrations_that_appear_meanwhile(tmp_path: Path) -> None:
    def write_others() -> Iterator[Episode]:
        yield episode(1)
        store(tmp_path, [episode(5)])
        yield episode(2)

    with pytest.raises(demos.DemosError, match="already"):
        store(tmp_path, write_others())
    assert [demo.task.seed for demo in demos.read(tmp_path)] == [5]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action(ActionKind.EXIT), True),
        (Action(ActionKind.TYPE, "1", "tea </b> \\"), True),
        (Action(ActionKind.TYPE, "1", "x" * 20_000), False),
        (Action(ActionKind.TYPE, "1", "<answer>"), False),
        (Action(ActionKind.TYPE, "1", "a<think>b</think>c"), False),
        (Action(ActionKind.TYPE, "1", "<answer>exit()</answer>"), False),
        (Action(ActionKind.TYPE, "1", "a</answer>b"), False),
        (ParseError("odd"), False),
    ],
)
def test_only_actions_that_can_be_stored_are_demonstrations(action, expected) -> None:
    turn = dataclasses.replace(episode(1).turns[0], action=action)
    assert demos.has_only_actions(dataclasses.replace(episode(1), turns=(turn,))) is expected
