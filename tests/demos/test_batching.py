"""Tests of demonstration batches: epochs, order and resumption."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from tests.demos.test_demos import episode, store
from webagent_jax import demos
from webagent_jax.demos import Demonstration

DEMONSTRATIONS = [demos.from_episode(episode(n, turns=2)) for n in range(11)]


def collect_seeds(source, *, size=4, epochs=3, seed=0, start=0) -> list[list[int]]:
    batches = demos.make_batches(source, size=size, epochs=epochs, seed=seed)
    return list(map(batch_seeds, demos.iterate(batches, start=start)))


def batch_seeds(batch: list[Demonstration]) -> list[int]:
    return [demonstration.task.seed for demonstration in batch]


def test_epoch_contains_each_demonstration_in_new_order() -> None:
    batches = collect_seeds(DEMONSTRATIONS)
    assert len(batches) == len(demos.make_batches(DEMONSTRATIONS, size=4, epochs=3, seed=0)) == 9
    assert Counter(map(len, batches)) == {4: 6, 3: 3}
    epochs = [list(chain(*batches[i : i + 3])) for i in range(0, 9, 3)]
    assert all(sorted(epoch) == list(range(11)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_resume_continues_with_same_batches() -> None:
    batches = collect_seeds(DEMONSTRATIONS)
    for start in range(len(batches) + 1):
        assert collect_seeds(DEMONSTRATIONS, start=start) == batches[start:]


def test_order_depends_on_seed() -> None:
    assert (
        collect_seeds(DEMONSTRATIONS)
        == collect_seeds(DEMONSTRATIONS)
        != collect_seeds(DEMONSTRATIONS, seed=1)
    )


def test_map_applies_to_batches_in_order() -> None:
    batches = demos.make_batches(DEMONSTRATIONS, size=4, epochs=2, seed=0)
    actual = list(demos.iterate(batches.map(batch_seeds), start=2))
    assert actual == collect_seeds(DEMONSTRATIONS, epochs=2)[2:]


def test_map_error_propagates() -> None:
    def raise_error(batch: list[Demonstration]) -> None:
        raise demos.DemosError("damaged")

    with pytest.raises(demos.DemosError, match="damaged"):
        next(
            demos.iterate(
                demos.make_batches(DEMONSTRATIONS, size=4, epochs=1, seed=0).map(raise_error)
            )
        )


def test_dataset_is_read_one_batch_at_a_time(tmp_path: Path) -> None:
    store(tmp_path, (episode(n, turns=2) for n in range(11)))
    demonstrations = demos.read(tmp_path)
    assert collect_seeds(demonstrations) == collect_seeds(DEMONSTRATIONS)
    indices: list[int] = []
    source = demonstrations._source

    class RecordingSource:
        def __len__(self) -> int:
            return len(source)

        def __getitem__(self, index: int) -> object:
            indices.append(index)
            return source[index]

    recorded_demonstrations = demos.Demonstrations(RecordingSource(), tmp_path)
    assert len(demos.make_batches(recorded_demonstrations, size=4, epochs=3, seed=0)[2]) == 3
    assert len(indices) == 3


def test_batch_size_zero_raises() -> None:
    with pytest.raises(ValueError, match="set it to 1 or more"):
        demos.make_batches(DEMONSTRATIONS, size=0, epochs=1, seed=0)
