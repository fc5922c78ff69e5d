"""Replacement of lone surrogates in external text.

A string of JavaScript or JSON may contain half of a surrogate pair, which files, terminals and
tokenizers reject.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, TypeVar

T = TypeVar("T")

_SURROGATE = re.compile("[\ud800-\udfff]")


def to_well_formed(value: T) -> T:
    """Return the value with U+FFFD for every lone surrogate in its strings.

    Converts strings inside lists, dicts and the fields of dataclasses.
    """
    return _replace_surrogates(value)


def _replace_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value if value.isascii() else _SURROGATE.sub("\ufffd", value)
        case list():
            return [_replace_surrogates(item) for item in value]
        case dict():
            return {
                _replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()
            }
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            results = {name: _replace_surrogates(item) for name, item in fields.items()}
            updates = {name: item for name, item in results.items() if item is not fields[name]}
            return dataclasses.replace(value, **updates) if updates else value
    return value
