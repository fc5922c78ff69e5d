"""Tests of the replacement of lone surrogates."""

from __future__ import annotations

import pytest

from webagent_jax.types import Element, Observation
from webagent_jax.unicode import to_well_formed


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a \ud83d b\ude00", "a \ufffd b\ufffd"),
        ("é \U0001f600 \ufffd", "é \U0001f600 \ufffd"),
        ({"\ud83d": ["\ude00", {"a": "\udfff"}]}, {"\ufffd": ["\ufffd", {"a": "\ufffd"}]}),
        ([1, 2.5, None, True, b"\xff", ("a",)], [1, 2.5, None, True, b"\xff", ("a",)]),
        (
            Observation("\ud83d", "u", error="\ud83d", elements={"1": Element("link", "\ud83d")}),
            Observation("\ufffd", "u", error="\ufffd", elements={"1": Element("link", "\ufffd")}),
        ),
    ],
)
def test_to_well_formed_replaces_only_lone_surrogates(value: object, expected: object) -> None:
    assert to_well_formed(value) == expected
