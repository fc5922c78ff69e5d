"""Tests of the atomic replacement of files."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from webagent_jax.config import ConfigError
from webagent_jax.tracking import atomic_files


def test_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    # Threads share a pid, as processes of two containers may.
    contents = [bytes([number]) * 1000 for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(50):
            list(threads.map(lambda x: atomic_files.write_bytes(tmp_path / "file", x), contents))
            assert (tmp_path / "file").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_failed_write_leaves_old_content_and_no_other_file(tmp_path: Path, monkeypatch) -> None:
    atomic_files.write_bytes(tmp_path / "file", b"old")
    write_bytes = Path.write_bytes

    def fill_disk(path: Path, content: bytes) -> int:
        write_bytes(path, content[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", fill_disk)
    with pytest.raises(OSError, match="No space left"):
        atomic_files.write_bytes(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_damaged_line_of_log_raises_config_error(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"a": 1}\n\0\0\n{"a": 2}\n')
    with pytest.raises(ConfigError, match=r"log.jsonl, line 2 is not valid JSON .*remove it"):
        list(atomic_files.read_jsonl(log))
