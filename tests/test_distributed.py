"""Tests of the end of a job of several processes, without other processes."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import pytest

from webagent_jax import distributed
from webagent_jax.config import PreemptedError
from webagent_jax.learn import NonFiniteStepError
from webagent_jax.train.metrics import GuardLimitError


@pytest.fixture
def calls(monkeypatch):
    """Calls of JAX and barriers in a job, in order."""
    calls: list[str] = []
    for name in ("initialize", "shutdown"):
        monkeypatch.setattr(jax.distributed, name, lambda name=name, **_: calls.append(name))
    monkeypatch.setattr(distributed, "barrier", calls.append)
    monkeypatch.setattr(distributed, "_DISTRIBUTED", SimpleNamespace(value=True))
    monkeypatch.setattr(distributed, "_COORDINATOR_ADDRESS", SimpleNamespace(value=""))
    return calls


@pytest.mark.parametrize(
    "error", [PreemptedError(3), GuardLimitError("limit"), NonFiniteStepError("not applied")]
)
def test_stopped_run_waits_for_all_processes(calls, error):
    # Without the barrier, a process whose last episodes end a minute later is aborted.
    with pytest.raises(type(error)), distributed.initialized():
        raise error
    assert calls == ["initialize", "end", "shutdown"]


def test_failed_process_does_not_wait_for_others(calls):
    with pytest.raises(OSError), distributed.initialized():
        raise OSError("disk")
    assert calls == ["initialize"]
