"""Tests of the folders that suites write to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from webagent_jax.browser import BrowserPool
from webagent_jax.config import ConfigError
from webagent_jax.suites.folders import create_writable_folder
from webagent_jax.suites.judge import EndpointJudge
from webagent_jax.suites.webarena import auth
from webagent_jax.suites.webarena.auth import AuthStateStore
from webagent_jax.types import InfraError

# No user can create files there, and a test may run as root.
READ_ONLY = Path("/proc")


def open_auth_store(folder: Path) -> None:
    AuthStateStore(cast(BrowserPool, None), folder, {}, {})


def open_judge(folder: Path) -> None:
    EndpointJudge("http://127.0.0.1:1/v1", "tiny", cache=folder)


@pytest.mark.parametrize(
    ("open_folder", "option"),
    [(open_auth_store, "auth_dir"), (open_judge, "judge.cache_dir")],
)
def test_unusable_folder_is_reported_at_construction(
    open_folder: Callable[[Path], None], option: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for folder in (READ_ONLY, tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(ConfigError, match=rf"suite\.webarena\.{option}='{folder}' is not"):
            open_folder(folder)


def test_missing_folder_is_created_empty(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    create_writable_folder(folder, "option", mode=0o700)
    assert folder.stat().st_mode & 0o777 == 0o700 and not list(folder.iterdir())


def test_unwritable_state_raises_infra_error() -> None:
    with pytest.raises(InfraError, match=r"cannot write /proc/state\.json: "):
        auth._write_state(READ_ONLY / "state.json", {"cookies": []})
