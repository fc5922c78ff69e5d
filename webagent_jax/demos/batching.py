"""The order in which demonstrations are learned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import grain

from webagent_jax import seeds
from webagent_jax.demos.dataset import Demonstrations
from webagent_jax.demos.demonstration import Demonstration
from webagent_jax.seeds import Stream

_Batch = TypeVar("_Batch")

_AHEAD = grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)


def batches(
    demonstrations: Demonstrations | Sequence[Demonstration], *, size: int, epochs: int, seed: int
) -> grain.MapDataset[list[Demonstration]]:
    """Batches of at most `size`, epoch after epoch, each epoch in an order of its own.

    An epoch has every demonstration once. They are read as a batch is looked at, so those of a
    directory (`demos.read`) need not fit into memory. Which batch has which number follows from
    the arguments alone; what is to be made of it is mapped onto it.

    Raises:
        ValueError: `size` is below 1.
        DemosError: when a batch is looked at, the files of the demonstrations are damaged.
    """
    if size < 1:
        raise ValueError(f"a batch of {size} demonstrations holds nothing: ask for 1 or more")
    source: grain.MapDataset[Demonstration] = grain.MapDataset.source(demonstrations)
    shuffled = source.seed(seeds.derive(seed, Stream.BC_ORDER)).shuffle()
    return shuffled.batch(size, batch_fn=list).repeat(epochs)


def iterate(batches: grain.MapDataset[_Batch], *, begin: int = 0) -> Iterator[_Batch]:
    """The batches in order; the next ones are made, on threads, while one is learned.

    A run that was stopped goes on with `begin`, the number of those it has learned.
    """
    return iter(batches.slice(slice(begin, None)).to_iter_dataset(_AHEAD))
