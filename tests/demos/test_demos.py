"""Demonstrations come back as they were written, and damage is told from absence."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from webagent_jax import demos
from webagent_jax.agent import TEMPLATES, actions, format_response
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

SCRIPT = (
    Decision("the name field is empty", Action(ActionKind.TYPE, "1", 'Zoë "Z" \\ O\'Neil\n2')),
    Decision("clear the other", Action(ActionKind.TYPE, "2", "")),
    Decision("wait for it", Action(ActionKind.WAIT)),
    Decision("send", Action(ActionKind.CLICK, "12")),
    Decision("", Action(ActionKind.EXIT, value="42 €")),
)
NO_IDS = Completion(np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.int32), "stop")


def store(directory: Path, episodes: Iterable[Episode], **options: bool) -> None:
    demos.write(directory, map(demos.from_episode, episodes), **options)


def episode(number: int, turns: int = len(SCRIPT), thinking: bool = True) -> Episode:
    task = Task(f"miniwob/form/{number}", "miniwob", ("form",), "", "http://x/form", seed=number)
    seen = [
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
                NO_IDS.token_ids,
                NO_IDS,
                format_response(d.thought, d.action, thinking),
                d.action,
                page,
            )
            for d, page in zip(SCRIPT, seen, strict=False)
        ),
        reward=1.0,
        outcome=Outcome.SUCCESS,
    )


def shard(directory: Path) -> Path:
    (path,) = directory.rglob("*.array_record*")
    return path


@pytest.fixture
def written(tmp_path: Path) -> Path:
    store(tmp_path / "demos", (episode(n, turns=n % 6) for n in range(25)))
    return tmp_path / "demos"


def test_what_is_read_is_what_was_written_in_the_same_order(written: Path) -> None:
    read = demos.read(written)
    assert len(read) == 25
    for number, demo in enumerate(read):
        source = episode(number, turns=number % 6)
        assert demo.task == dataclasses.replace(source.task, intent=source.intent)
        assert demo.intent == source.intent
        assert [turn.observation for turn in demo.turns] == [t.observation for t in source.turns]
        assert [turn.decision for turn in demo.turns] == list(SCRIPT[: number % 6])


def test_a_thought_is_the_same_from_either_form_of_reply(tmp_path: Path) -> None:
    store(tmp_path, [episode(0, thinking=True), episode(0, thinking=False)])
    thoughtful, plain = demos.read(tmp_path)
    assert thoughtful == plain


def test_access_is_random_and_bounded(written: Path) -> None:
    read = demos.read(written)
    assert [read[n].task.seed for n in (17, 3, 24)] == [17, 3, 24]
    with pytest.raises(IndexError, match="25"):
        read[25]


def test_the_files_depend_on_the_episodes_alone(written: Path, tmp_path: Path) -> None:
    store(tmp_path / "again", [episode(n, turns=n % 6) for n in range(25)])
    assert shard(written).read_bytes() == shard(tmp_path / "again").read_bytes()


def test_nothing_is_overwritten_unasked(written: Path) -> None:
    before = shard(written).read_bytes()
    with pytest.raises(demos.DemosError, match="already"):
        store(written, [episode(7)])
    assert shard(written).read_bytes() == before
    store(written, [episode(7)], overwrite=True)
    assert [demo.task.seed for demo in demos.read(written)] == [7]


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        (dataclasses.replace(episode(1), reward=0.0), "reward 0.0"),
        (dataclasses.replace(episode(1), reward=None), "reward None"),
        (
            dataclasses.replace(
                episode(1),
                turns=(dataclasses.replace(episode(1).turns[0], action=ParseError("odd")),),
            ),
            "odd",
        ),
    ],
)
def test_an_episode_not_to_imitate_is_refused_and_leaves_nothing(
    tmp_path: Path, spoiled: Episode, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        store(tmp_path, [episode(0), spoiled])
    assert not demos.exists(tmp_path)
    assert not list(tmp_path.rglob("*.array_record*"))


def test_no_episodes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(demos.DemosError, match="no demonstrations to write"):
        store(tmp_path, [])


def test_absence_says_how_to_get_some(tmp_path: Path) -> None:
    with pytest.raises(demos.DemosError, match="collect_demos"):
        demos.read(tmp_path)


def test_a_write_cut_short_is_absence(written: Path) -> None:
    home = shard(written).parent
    home.rename(home.with_name("incomplete.4R7K2P_1.0.0"))
    assert not demos.exists(written)
    store(written, [episode(3)])
    assert len(demos.read(written)) == 1


@pytest.mark.parametrize("size", [None, 0, 70_000])
def test_damaged_records_are_named(written: Path, size: int | None) -> None:
    if size is None:
        shard(written).unlink()
    else:
        os.truncate(shard(written), size)
    with pytest.raises(demos.DemosError, match=r"damaged.*collect them anew"):
        list(demos.read(written))


def test_a_damaged_index_is_named(written: Path) -> None:
    (shard(written).parent / "dataset_info.json").write_text("{")
    with pytest.raises(demos.DemosError, match="damaged"):
        demos.read(written)


class Codepoints:
    """A tokenizer for tests: one id per character, and 0 to stop."""

    def encode_response(self, text: str) -> IntArray:
        return np.asarray([*map(ord, text), 0], np.int32)

    def prompt_ids(self, conversation: list[Message]) -> IntArray:
        said = [
            chr(0).join((m.role, m.text)) if m.token_ids is None else "".join(map(chr, m.token_ids))
            for m in conversation
        ]
        return np.asarray([ord(c) for c in "".join(said)], np.int32)


@pytest.mark.parametrize("thinking", [True, False])
def test_an_episode_of_a_demonstration_is_what_a_policy_would_have_lived(
    written: Path, thinking: bool
) -> None:
    demo = demos.read(written)[5]
    lived = demos.to_episode(demo, Codepoints(), TEMPLATES["compact"], thinking)  # type: ignore[arg-type]
    assert lived.reward == 1
    assert len(lived.turns) == len(SCRIPT)
    for turn, decision in zip(lived.turns, SCRIPT, strict=True):
        assert turn.action == decision.action == actions.parse(turn.response_text)
        assert decision.thought in turn.response_text
        assert ("<think>" in turn.response_text) == thinking
        assert (
            len(turn.completion.logp)
            == len(turn.completion.token_ids)
            == len(turn.response_text) + 1
        )
    last = "".join(map(chr, lived.turns[-1].prompt_ids))
    assert "Seite 4" in last
    assert "Seite 3" not in last, "earlier pages are told by their placeholder"
    assert all(turn.response_text in last for turn in lived.turns[:-1])


def test_no_tensorflow_is_imported(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from tests.demos.test_demos import demos, episode, store
store(Path(sys.argv[1]), [episode(0)])
assert demos.read(Path(sys.argv[1]))[0].intent == "Fill in form 0"
assert "tensorflow" not in sys.modules
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=root, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
