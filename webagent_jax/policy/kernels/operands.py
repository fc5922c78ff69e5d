"""Operands of the Pallas kernels and the blocks of them that a program accesses.

A module of its own, because `common` must not import Pallas.
"""

from __future__ import annotations

from typing import NamedTuple

from jax import Array
from jax.experimental import pallas as pl


class BackwardInputs(NamedTuple):
    """Operands of both backward kernels, in the layout of the platform."""

    q: Array  # scaled queries
    k: Array
    v: Array
    ends: Array
    d_out: Array  # gradient of the output, with the shape of q
    logsumexp: Array  # as in `_Residuals`
    correction: Array  # float32, shape of logsumexp: sum of d_out · out over a head


class OperandSpecs(NamedTuple):
    """Blocks of each operand that a program accesses."""

    query: pl.BlockSpec  # q, out and their gradients
    key: pl.BlockSpec  # k, v and their gradients
    end: pl.BlockSpec  # ends
    row: pl.BlockSpec  # one number per query: logsumexp and correction

    def backward_inputs(self) -> list[pl.BlockSpec]:
        """Return the specs in the field order of `BackwardInputs`."""
        return [self.query, self.key, self.key, self.end, self.query, self.row, self.row]
