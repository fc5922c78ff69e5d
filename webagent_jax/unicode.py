"""Text that comes from elsewhere, as Unicode has it.

A string of JavaScript or JSON may hold half of a surrogate pair, which no file, terminal or
tokenizer takes.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, TypeVar

T = TypeVar("T")

_SURROGATE = re.compile("[\ud800-\udfff]")


def to_well_formed(value: T) -> T:
    """Return the value with U+FFFD for every lone surrogate in its strings.

    Strings are looked for in lists, dicts and the fields of dataclasses.
    """
    return _replaced(value)


def _replaced(value: Any) -> Any:
    match value:
        case str():
            return value if value.isascii() else _SURROGATE.sub("\ufffd", value)
        case list():
            return [_replaced(item) for item in value]
        case dict():
            return {_replaced(key): _replaced(item) for key, item in value.items()}
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            old = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            new = {name: _replaced(item) for name, item in old.items()}
            changed = {name: item for name, item in new.items() if item is not old[name]}
            return dataclasses.replace(value, **changed) if changed else value
    return value
