"""The dataset of demonstrations: a TensorFlow Datasets builder over ArrayRecord files.

Neither writing nor reading needs TensorFlow, and `tfds.builder_from_directory` reads the same
files without this package.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from google.protobuf import json_format

from webagent_jax.agent import actions
from webagent_jax.demos.demonstration import Demonstration, DemoTurn
from webagent_jax.types import Action, Decision, Observation, Task


class DemosError(ValueError):
    """A directory of demonstrations cannot be written or read. The message says how to mend it."""


class WebagentDemos(tfds.core.GeneratorBasedBuilder):
    """One example is one episode; examples keep the order in which they were written."""

    VERSION = tfds.core.Version("1.0.0")

    def __init__(self, *, data_dir: str, demonstrations: Iterable[Demonstration] = ()) -> None:
        self._demonstrations = demonstrations
        super().__init__(data_dir=data_dir, file_format="array_record")

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text
        turn = {
            "observation": text(doc="The page as the agent saw it."),
            "url": text(),
            "title": text(),
            "error": text(doc="Why the last action failed; empty when it did not."),
            "truncated": tfds.features.Scalar(np.bool_, doc="Whether the page was cut to fit."),
            "thought": text(doc="What the agent thought of it."),
            "action": text(doc='What it did, as in do(action="Click", element="7").'),
        }
        episode = {
            "task_id": text(),
            "suite": text(),
            "sites": tfds.features.Sequence(text()),
            "intent": text(doc="The instruction, as the task or its page told it."),
            "start_url": text(),
            "seed": tfds.features.Scalar(np.int64, doc="Of the world, where it is generated."),
            "turns": tfds.features.Sequence(turn),
        }
        return tfds.core.DatasetInfo(
            builder=self,
            description="Episodes of web agents that earned their reward.",
            features=tfds.features.FeaturesDict(episode),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any) -> Mapping[str, Any]:
        del dl_manager  # there is nothing to download
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, demonstration in enumerate(self._demonstrations):
            yield number, _to_example(demonstration)

    def _log_download_bytes(self) -> None:
        """Says nothing: there is no download to announce."""

    _log_download_done = _log_download_bytes


class Demonstrations:
    """The demonstrations of a directory, in order. Each is read and decoded when asked for."""

    def __init__(self, source: Any, directory: Path) -> None:
        self._source, self._directory = source, directory

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Demonstration:
        """Raises DemosError when the files are damaged."""
        if not 0 <= index < len(self):
            raise IndexError(f"no demonstration {index} among {len(self)}")
        try:
            example = self._source[index]
        except RuntimeError as damage:
            raise _damaged(self._directory, damage) from damage
        return _from_example(example)

    def __iter__(self) -> Iterator[Demonstration]:
        return (self[index] for index in range(len(self)))


def exists(directory: Path) -> bool:
    """Whether demonstrations were written there. A write that was cut short leaves none."""
    return (_home(directory) / "dataset_info.json").exists()


def write(
    directory: Path, demonstrations: Iterable[Demonstration], *, overwrite: bool = False
) -> None:
    """Stores all of them or, when drawing one raises, none.

    They are serialized one by one as they are drawn. What is serialized waits in memory until the
    last, and may come to 1 GB: above it tfds asks for TensorFlow.

    Raises:
        DemosError: there are demonstrations already, or none was given.
    """
    if exists(directory):
        if not overwrite:
            raise DemosError(
                f"{directory} holds demonstrations already; remove it or choose another directory"
            )
        shutil.rmtree(_home(directory))
    remaining = iter(demonstrations)
    first = next(remaining, None)
    if first is None:
        raise DemosError(f"no demonstrations to write to {directory}: no episode earned its reward")
    tfds.disable_progress_bar()
    chained = (one for part in ((first,), remaining) for one in part)
    WebagentDemos(data_dir=str(directory), demonstrations=chained).download_and_prepare()


def read(directory: Path) -> Demonstrations:
    """Raises DemosError when there are none, or when they are damaged."""
    if not exists(directory):
        raise DemosError(
            f"no demonstrations in {directory}; "
            "launch/collect_demos.py --workdir=DIR writes them to DIR/demos"
        )
    try:
        source = WebagentDemos(data_dir=str(directory)).as_data_source("train")
    except (json_format.ParseError, LookupError, ValueError) as damage:
        raise _damaged(directory, damage) from damage
    return Demonstrations(source, directory)


def _home(directory: Path) -> Path:
    """Where tfds keeps this version of the dataset."""
    return directory / WebagentDemos.name / str(WebagentDemos.VERSION)


def _damaged(directory: Path, damage: Exception) -> DemosError:
    return DemosError(
        f"the demonstrations in {directory} are damaged ({damage}); remove it and collect them anew"
    )


def _to_example(demonstration: Demonstration) -> dict[str, Any]:
    task = demonstration.task
    return {
        "task_id": task.id,
        "suite": task.suite,
        "sites": list(task.sites),
        "intent": demonstration.intent,
        "start_url": task.start_url,
        "seed": task.seed,
        "turns": [
            {
                "observation": turn.observation.text,
                "url": turn.observation.url,
                "title": turn.observation.title,
                "error": turn.observation.error or "",
                "truncated": turn.observation.truncated,
                "thought": turn.decision.thought,
                "action": actions.format_action(turn.decision.action),
            }
            for turn in demonstration.turns
        ],
    }


def _from_example(example: Mapping[str, Any]) -> Demonstration:
    columns = example["turns"]  # tfds turns a sequence of turns into a turn of sequences
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    intent = example["intent"].decode()
    task = Task(
        id=example["task_id"].decode(),
        suite=example["suite"].decode(),
        sites=tuple(site.decode() for site in example["sites"]),
        intent=intent,
        start_url=example["start_url"].decode(),
        seed=int(example["seed"]),
    )
    return Demonstration(task, intent, tuple(map(_demo_turn, rows)))


def _demo_turn(row: Mapping[str, Any]) -> DemoTurn:
    observation = Observation(
        text=row["observation"].decode(),
        url=row["url"].decode(),
        title=row["title"].decode(),
        error=row["error"].decode() or None,
        truncated=bool(row["truncated"]),
    )
    action = actions.parse(row["action"].decode())
    assert isinstance(action, Action), action  # `write` stores what `format_action` wrote
    return DemoTurn(observation, Decision(row["thought"].decode(), action))
