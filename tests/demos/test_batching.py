"""Every demonstration once an epoch, in an order that a resumed run goes on with."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from tests.demos.test_demos import episode, store
from webagent_jax import demos
from webagent_jax.demos import Demonstration

SOME = [demos.from_episode(episode(n, turns=2)) for n in range(11)]


def ordered(source, *, size=4, epochs=3, seed=0, begin=0) -> list[list[int]]:
    batches = demos.make_batches(source, size=size, epochs=epochs, seed=seed)
    return list(map(seeds_of, demos.iterate(batches, start=begin)))


def seeds_of(batch: list[Demonstration]) -> list[int]:
    return [demonstration.task.seed for demonstration in batch]


def test_an_epoch_has_each_once_in_an_order_of_its_own() -> None:
    batches = ordered(SOME)
    assert len(batches) == len(demos.make_batches(SOME, size=4, epochs=3, seed=0)) == 9
    assert Counter(map(len, batches)) == {4: 6, 3: 3}
    epochs = [list(chain(*batches[i : i + 3])) for i in range(0, 9, 3)]
    assert all(sorted(epoch) == list(range(11)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_resumed_run_goes_on_with_what_it_would_have_seen() -> None:
    whole = ordered(SOME)
    for done in range(len(whole) + 1):
        assert ordered(SOME, begin=done) == whole[done:]


def test_the_order_follows_from_the_seed() -> None:
    assert ordered(SOME) == ordered(SOME) != ordered(SOME, seed=1)


def test_what_is_mapped_onto_batches_is_made_of_them_in_order() -> None:
    batches = demos.make_batches(SOME, size=4, epochs=2, seed=0)
    made = list(demos.iterate(batches.map(seeds_of), start=2))
    assert made == ordered(SOME, epochs=2)[2:]


def test_an_error_in_what_is_mapped_reaches_the_learner() -> None:
    def refuse(batch: list[Demonstration]) -> None:
        raise demos.DemosError("damaged")

    with pytest.raises(demos.DemosError, match="damaged"):
        next(demos.iterate(demos.make_batches(SOME, size=4, epochs=1, seed=0).map(refuse)))


def test_a_directory_is_read_batch_by_batch(tmp_path: Path) -> None:
    store(tmp_path, (episode(n, turns=2) for n in range(11)))
    written = demos.read(tmp_path)
    assert ordered(written) == ordered(SOME)
    read: list[int] = []
    source = written._source

    class Noted:
        def __len__(self) -> int:
            return len(source)

        def __getitem__(self, index: int) -> object:
            read.append(index)
            return source[index]

    watched = demos.Demonstrations(Noted(), tmp_path)
    assert len(demos.make_batches(watched, size=4, epochs=3, seed=0)[2]) == 3
    assert len(read) == 3


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="set it to 1 or more"):
        demos.make_batches(SOME, size=0, epochs=1, seed=0)
