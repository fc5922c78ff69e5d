"""Dataset of demonstrations: a TensorFlow Datasets builder over ArrayRecord files.

Neither writing nor reading needs TensorFlow, and `tfds.builder_from_directory` reads the same
files without this package.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds
from google.protobuf import json_format

from webagent_jax.agent import actions
from webagent_jax.config import ConfigError
from webagent_jax.demos.demonstration import Demonstration, DemoTurn
from webagent_jax.types import Action, Decision, Observation, Task


class DemosError(ConfigError):
    """Demonstrations cannot be written or read. The message says how to fix it."""


class WebagentDemos(tfds.core.GeneratorBasedBuilder):
    """TFDS builder with one example per episode, in the order of writing."""

    VERSION = tfds.core.Version("1.1.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.1.0": "Turns have `is_mistake`."}

    def __init__(self, *, data_dir: str, demonstrations: Iterable[Demonstration] = ()) -> None:
        self._demonstrations = demonstrations
        super().__init__(data_dir=data_dir, file_format="array_record")

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text
        turn = {
            "observation": text(doc="Text of the page in the observation."),
            "url": text(),
            "title": text(),
            "error": text(doc="Error of the previous action; empty without one."),
            "truncated": tfds.features.Scalar(np.bool_, doc="Whether the page text is truncated."),
            "thought": text(doc="Thought of the agent."),
            "action": text(doc='Action of the agent, e.g. do(action="Click", element="7").'),
            "is_mistake": tfds.features.Scalar(
                np.bool_, doc="Whether the turn is an injected mistake, without loss."
            ),
        }
        episode = {
            "task_id": text(),
            "suite": text(),
            "sites": tfds.features.Sequence(text()),
            "intent": text(doc="Instruction from the task or its page."),
            "start_url": text(),
            "seed": tfds.features.Scalar(np.int64, doc="Seed of a generated task."),
            "turns": tfds.features.Sequence(turn),
        }
        return tfds.core.DatasetInfo(
            builder=self,
            description="Successful episodes of web agents.",
            features=tfds.features.FeaturesDict(episode),
            # Keep the order of writing.
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any) -> Mapping[str, Any]:
        del dl_manager  # nothing to download
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, demonstration in enumerate(self._demonstrations):
            yield number, _to_example(demonstration)

    def _log_download_bytes(self) -> None:
        """Log nothing: the dataset has no download."""

    _log_download_done = _log_download_bytes


@dataclass(frozen=True)
class Imported:
    """Result of an import: demonstrations and the number of skipped episodes."""

    demonstrations: tuple[Demonstration, ...]
    skipped: Mapping[str, int]  # number of episodes by reason


class Demonstrations:
    """Sequence of the demonstrations in a directory; each is read and decoded on access."""

    def __init__(self, source: Any, directory: Path) -> None:
        self._source, self._directory = source, directory

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Demonstration:
        """Return one demonstration.

        Raises:
            DemosError: the files are damaged.
            IndexError: `index` is out of range.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is out of range: there are {len(self)} demonstrations")
        try:
            example = self._source[index]
        # ArrayRecord raises RuntimeError if a record cannot be read.
        except RuntimeError as damage:
            raise _damage_error(self._directory, damage) from damage
        return _from_example(example)

    def __iter__(self) -> Iterator[Demonstration]:
        return (self[index] for index in range(len(self)))


def exists(directory: Path) -> bool:
    """Return whether the directory contains demonstrations; an interrupted write leaves none."""
    return _dataset_dir(directory) is not None


def write(
    directory: Path, demonstrations: Iterable[Demonstration], *, overwrite: bool = False
) -> None:
    """Write all demonstrations; if the iterable raises, the directory stays as it is.

    Demonstrations are serialized one by one and stay in memory until the last one. Above 1 GB of
    serialized data, tfds requires TensorFlow.

    Args:
        directory: data directory of tfds.
        demonstrations: demonstrations to write; consumed once.
        overwrite: whether to replace existing demonstrations.

    Raises:
        DemosError: the directory already contains demonstrations, or the iterable is empty.
    """
    _existing_dataset(directory, overwrite)
    remaining = iter(demonstrations)
    # Drawn before any file is written, so an empty iterable leaves no dataset.
    first = next(remaining, None)
    if first is None:
        raise DemosError(f"no demonstrations to write to {directory}: all episodes are skipped")
    tfds.disable_progress_bar()
    all_demos = (demo for part in ((first,), remaining) for demo in part)
    directory.mkdir(parents=True, exist_ok=True)
    # Existing demonstrations are removed only when the new ones are complete.
    with tempfile.TemporaryDirectory(dir=directory, prefix=".new-") as new_directory:
        new = WebagentDemos(data_dir=new_directory, demonstrations=all_demos)
        new.download_and_prepare()
        target = directory / new.name / str(new.version)
        target.parent.mkdir(exist_ok=True)
        # Two renames, so that demonstrations are missing at `target` only for an instant.
        old = Path(new_directory) / "old"
        # Again, because the iterable may take long.
        existing = _existing_dataset(directory, overwrite)
        try:
            if existing is not None:
                existing.rename(old)
            Path(new.data_dir).rename(target)
        except BaseException:  # such as Ctrl-C
            if existing is not None and old.exists() and not target.exists():
                old.rename(existing)
            raise


def read(directory: Path) -> Demonstrations:
    """Return the demonstrations of a directory.

    Raises:
        DemosError: the directory contains no demonstrations, or they are damaged.
    """
    dataset = _require_dataset(directory)
    try:
        # The features are those of the directory, which may have an older version.
        source = tfds.builder_from_directory(dataset).as_data_source("train")
    except (json_format.ParseError, LookupError, ValueError) as damage:
        raise _damage_error(directory, damage) from damage
    return Demonstrations(source, directory)


def checksum(directory: Path) -> str:
    """Return a checksum of the demonstrations in a directory, which a copy has too.

    Raises:
        DemosError: the directory contains no demonstrations.
    """
    total = hashlib.sha256()
    for path in sorted(_require_dataset(directory).glob("*.array_record*")):
        total.update(path.read_bytes())
    return total.hexdigest()


def merge(directories: Sequence[Path]) -> Imported:
    """Return the demonstrations of several directories, without tasks of earlier directories.

    Tasks are equal if suite, sites, instruction, start page and seed are. A directory may contain
    several demonstrations of one task; they are kept or skipped together.

    Args:
        directories: directories of `write`. The order decides which demonstrations of a task are
            kept: those of the first directory.

    Raises:
        DemosError: a directory contains no demonstrations, or they are damaged.
    """
    kept: list[Demonstration] = []
    earlier_tasks: set[Hashable] = set()
    count = 0
    for demonstrations in map(read, directories):
        count += len(demonstrations)
        new = [demo for demo in demonstrations if _task_key(demo) not in earlier_tasks]
        earlier_tasks.update(map(_task_key, new))
        kept += new
    repeated = count - len(kept)
    skipped = {"the task has an earlier demonstration": repeated} if repeated else {}
    return Imported(tuple(kept), skipped)


def _task_key(demo: Demonstration) -> Hashable:
    """Return a value that is equal for equal tasks; their ids may differ between runs."""
    task = demo.task
    return task.suite, task.sites, demo.intent, task.start_url, task.seed


def _dataset_dir(directory: Path) -> Path | None:
    """Return the folder of the dataset, of this version or an older one; None without a dataset."""
    infos = directory.glob(f"{WebagentDemos.name}/[0-9]*/dataset_info.json")
    return max((info.parent for info in infos), default=None)


def _require_dataset(directory: Path) -> Path:
    """Return the folder of the dataset.

    Raises:
        DemosError: the directory contains no demonstrations.
    """
    dataset = _dataset_dir(directory)
    if dataset is None:
        raise DemosError(
            f"no demonstrations in {directory}: "
            "write them to DIR/demos with webagent collect --workdir=DIR"
        )
    return dataset


def _existing_dataset(directory: Path, overwrite: bool) -> Path | None:
    """Return the folder of the dataset that a write replaces; None without a dataset.

    Raises:
        DemosError: there is a dataset, and `overwrite` is False.
    """
    existing = _dataset_dir(directory)
    if existing is not None and not overwrite:
        raise DemosError(
            f"{directory} already contains demonstrations: remove them or choose another directory"
        )
    return existing


def _damage_error(directory: Path, cause: Exception) -> DemosError:
    reason = " ".join(str(cause).split())  # messages of Protocol Buffers have several lines
    return DemosError(
        f"the demonstrations in {directory} are damaged ({reason}): "
        "remove the directory and collect them again"
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
                # Features have no null: an empty text means no error.
                "error": turn.observation.error or "",
                "truncated": turn.observation.truncated,
                "thought": turn.decision.thought,
                "action": actions.format_action(turn.decision.action),
                "is_mistake": turn.decision.is_mistake,
            }
            for turn in demonstration.turns
        ],
    }


def _from_example(example: Mapping[str, Any]) -> Demonstration:
    columns = example["turns"]  # tfds stores a sequence of dicts as a dict of sequences
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    # Only the intent of the episode is stored; the task receives the same one.
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
    if not isinstance(action, Action):  # of an earlier version
        raise DemosError(f"a demonstration contains an invalid action: {action.reason[:200]}")
    # Version 1.0.0 has no mistakes.
    is_mistake = bool(row.get("is_mistake", False))
    return DemoTurn(observation, Decision(row["thought"].decode(), action, is_mistake=is_mistake))
