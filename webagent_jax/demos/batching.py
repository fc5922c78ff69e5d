"""Batches of demonstrations in training order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import grain

from webagent_jax import seeds
from webagent_jax.demos.dataset import Demonstrations
from webagent_jax.demos.demonstration import Demonstration
from webagent_jax.seeds import RandomStream

_Batch = TypeVar("_Batch")

_READ_OPTIONS = grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)


def make_batches(
    demonstrations: Demonstrations | Sequence[Demonstration], *, size: int, epochs: int, seed: int
) -> grain.MapDataset[list[Demonstration]]:
    """Return batches of `epochs` epochs, each epoch in its own random order.

    Each epoch contains every demonstration once. A demonstration is read when its batch is
    accessed, so a dataset (`demos.read`) need not fit into memory. The batch of an index depends on
    the arguments only; `map` converts batches to training rows.

    Args:
        demonstrations: dataset or sequence to read from.
        size: maximum demonstrations per batch.
        epochs: number of epochs.
        seed: seed of the run.

    Raises:
        ValueError: `size` is below 1.
        DemosError: on access of a batch, the files of the demonstrations are damaged.
    """
    if size < 1:
        raise ValueError(f"size is {size}: set it to 1 or more demonstrations per batch")
    source: grain.MapDataset[Demonstration] = grain.MapDataset.source(demonstrations)
    shuffled = source.seed(seeds.derive_seed(seed, RandomStream.BC_ORDER)).shuffle()
    # `repeat` reseeds the shuffle in each epoch. It follows `batch`, so no batch spans two epochs.
    return shuffled.batch(size, batch_fn=list).repeat(epochs)


def iterate(batches: grain.MapDataset[_Batch], *, start: int = 0) -> Iterator[_Batch]:
    """Return the batches in order; threads prefetch the next batches during training.

    Args:
        batches: batches of `make_batches`, possibly mapped.
        start: index of the first batch; a resumed run passes the number of completed batches.
    """
    # Sliced before it is read, so skipped batches cost nothing.
    return iter(batches.slice(slice(start, None)).to_iter_dataset(_READ_OPTIONS))
