"""Tests of running verifiers: verdicts, faults, time limit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.suites.infinity.conftest import verifier
from webagent_jax.suites.infinity import verifier as verifier_module
from webagent_jax.suites.infinity.verifier import verify, verify_all
from webagent_jax.types import InfraError

TIMEOUT = 60.0  # seconds


def write(folder: Path, code: str, name: str = "task.py") -> Path:
    path = folder / name
    path.write_text(code)
    return path


@pytest.mark.parametrize(("state", "verdict"), [(b'{"count": 2}', True), (b'{"count": 3}', False)])
def test_verdict_depends_on_state(tmp_path: Path, state: bytes, verdict: bool) -> None:
    assert verify(write(tmp_path, verifier('state["count"] == 2')), state, TIMEOUT) is verdict


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (verifier('state["missing"]'), "KeyError: 'missing'"),
        (verifier("1"), "the verdict 1 is not a bool"),
        ("def check(url): return True, ''", "no attribute 'verify'"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("syntax error", "SyntaxError"),
        (verifier("True").replace("/api/state", "/api/other"), "may read .*/api/state only"),
        ("import os\nos._exit(0)", "ended its process"),
        ("raise SystemExit(0)", "ended its process"),
    ],
)
def test_fault_of_verifier_raises_infra_error(tmp_path: Path, code: str, message: str) -> None:
    with pytest.raises(InfraError, match=message):
        verify(write(tmp_path, code), b"{}", TIMEOUT)


def test_endless_verifier_is_stopped(tmp_path: Path) -> None:
    endless = write(tmp_path, "def verify(url):\n    while True: pass")
    with pytest.raises(InfraError, match=r"took more than 1 s"):
        verify(endless, b"{}", 1.0)


@pytest.mark.parametrize("output", [b"", b'{"passed": tr', b'{"passed": true}'])
def test_killed_process_raises_infra_error(tmp_path: Path, monkeypatch, output: bytes) -> None:
    program = write(tmp_path, f"import sys\nsys.stdout.write({output.decode()!r})", "program.py")
    monkeypatch.setattr(verifier_module, "_PROGRAM", program)
    with pytest.raises(InfraError, match="ended its process"):
        verify(tmp_path / "task.py", b"{}", TIMEOUT)


def test_process_that_does_not_start_raises_infra_error(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    with pytest.raises(InfraError, match="did not start"):
        verify(write(tmp_path, verifier("True")), b"{}", TIMEOUT)


def test_invalid_state_raises_infra_error(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="JSONDecodeError"):
        verify(write(tmp_path, verifier("True")), b"{", TIMEOUT)


def test_printed_text_is_no_verdict(tmp_path: Path) -> None:
    code = verifier("False").replace("    return", "    print('{\"passed\": true}')\n    return")
    assert verify(write(tmp_path, code), b"{}", TIMEOUT) is False


def test_verifiers_share_no_state(tmp_path: Path) -> None:
    changing = write(tmp_path, verifier('state.pop("a") == 1'), "first.py")
    reading = write(tmp_path, verifier('"a" in state'), "second.py")
    assert verify_all([changing, reading, changing], b'{"a": 1, "b": 2}', TIMEOUT) == [
        True,
        True,
        True,
    ]


def test_verifier_folder_stays_unchanged(tmp_path: Path) -> None:
    path = write(tmp_path, verifier("True"))
    verify(path, b"{}", TIMEOUT)
    assert list(tmp_path.iterdir()) == [path]
