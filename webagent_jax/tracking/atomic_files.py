"""JSON on disk that survives a killed process: whole files by rename, logs line by line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from absl import logging


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces `path` in one step: a reader sees the old file or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def write_text(path: Path, text: str) -> None:
    """As write_bytes, in UTF-8; what UTF-8 cannot hold (a lone surrogate) becomes `?`."""
    write_bytes(path, text.encode("utf-8", errors="replace"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Raises ValueError that names the file when it holds no JSON."""
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} holds no readable JSON ({error}); delete it to go on") from error


def append_jsonl(path: Path, records: Iterable[Any]) -> None:
    """Adds one line per record, after cutting off a line that a killed process left half-written.

    One writer per file at a time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    _cut_half_line(path)
    with path.open("a", encoding="ascii") as file:
        file.write(lines)


def filter_jsonl(path: Path, keep: Callable[[Any], bool]) -> None:
    """Replace a log by its records for which `keep` is true; do nothing if there is no log."""
    if path.exists():
        kept = [record for record in read_jsonl(path) if keep(record)]
        write_text(path, "".join(json.dumps(record) + "\n" for record in kept))


def read_jsonl(path: Path) -> Iterator[Any]:
    """The records of a log. A half-written last line is left out with a warning.

    Raises ValueError that names file and line for a broken line anywhere else.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                logging.warning("%s: line %d is half-written and left out", path, number)
                return
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number} is no JSON: {error}") from error


def _cut_half_line(path: Path) -> None:
    if not path.exists() or _ends_with_newline(path):
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    logging.warning("%s: cut %d bytes of a half-written line", path, len(content) - whole)
    os.truncate(path, whole)


def _ends_with_newline(path: Path) -> bool:
    """True for an empty file too. Looks at one byte, because logs grow long."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
