"""Crash-safe JSON and JSONL files: atomic replacement of files, appending of log lines."""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from absl import logging

from webagent_jax.config import ConfigError


def make_workdir(workdir: Path) -> None:
    """Create the folder of a run unless it exists.

    Raises:
        ConfigError: it cannot be written; the message names it.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        # mkdir accepts an existing folder that is read-only.
        if not os.access(workdir, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ConfigError(
            f"cannot write to {workdir}: {error.strerror}; choose another --workdir"
        ) from error


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` atomically: a reader gets the complete old or the complete new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, because os.replace is atomic within one file system. The name is random,
    # because processes of several machines may write the same file.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except BaseException:
        # A full disk leaves a part of the file.
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically; `?` replaces what UTF-8 cannot encode (lone surrogates)."""
    write_bytes(path, text.encode("utf-8", errors="replace"))


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON atomically.

    Raises:
        ValueError: the value contains NaN or infinity.
    """
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Return the value of a JSON file.

    Raises:
        ConfigError: the file is not valid JSON; the message names it.
    """
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON ({error}); delete it to continue") from error


def append_jsonl(path: Path, records: Iterable[Any]) -> None:
    """Append one line per record, after truncating an incomplete last line.

    A killed process leaves such a line. Only one writer per file at a time is supported.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    # Otherwise, the new record would continue the incomplete line and be lost with it.
    _truncate_incomplete_line(path)
    # json.dumps escapes all other characters.
    with path.open("a", encoding="ascii") as file:
        file.write(lines)


def filter_jsonl(path: Path, keep: Callable[[Any], bool]) -> None:
    """Rewrite a log with the records for which `keep` is true; do nothing if it does not exist."""
    if path.exists():
        records = [record for record in read_jsonl(path) if keep(record)]
        write_text(path, "".join(json.dumps(record) + "\n" for record in records))


def read_jsonl(path: Path) -> Iterator[Any]:
    """Yield the records of a log; skip an incomplete last line with a warning.

    Raises:
        ConfigError: another line is not valid JSON; the message names file and line.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            # Only the last line of a file can lack its newline.
            if not line.endswith(b"\n"):
                logging.warning("%s: skipped the half-written line %d", path, number)
                return
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ConfigError(
                    f"{path}, line {number} is not valid JSON ({error}); remove it to continue"
                ) from error


def _truncate_incomplete_line(path: Path) -> None:
    if not path.exists() or _ends_with_newline(path):
        return
    content = path.read_bytes()
    # 0 without any newline: the whole file is one incomplete line.
    length = content.rfind(b"\n") + 1
    logging.warning("%s: removed %d bytes of a half-written line", path, len(content) - length)
    os.truncate(path, length)


def _ends_with_newline(path: Path) -> bool:
    """Return whether a file is empty or ends with a newline; read one byte, as logs are large."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
