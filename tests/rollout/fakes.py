"""A world and a sampler that need neither browser nor device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future

import numpy as np

from webagent_jax.types import (
    Action,
    Completion,
    InfraError,
    Observation,
    ResetResult,
    StepResult,
    Task,
)

TASK = Task("fake/0", "fake", ("fake",), "Press 1 twice", "")


class FakeWorld:
    """Ends with reward 1 when button 1 was pressed twice, or at once when told an answer."""

    def __init__(self, fail_at: int | None = None, page: str = "") -> None:
        """`page`: what stands before the button."""
        self.pressed = 0
        self.closed = False
        self._steps = 0
        self._fail_at, self._page = fail_at, page

    def reset(self) -> ResetResult:
        page = Observation(f"{self._page}button go [1]", "http://fake/")
        return ResetResult("Press 1 twice", page, seconds={"load": 0.5})

    def step(self, action: Action) -> StepResult:
        if self._steps == self._fail_at:
            raise InfraError("the browser is gone")
        self._steps += 1
        self.pressed += action.element_id == "1"
        error = None if action.element_id == "1" else "no such element"
        text = f"{self._page}button go {self.pressed} [1]"
        seen = Observation(text, "http://fake/", error=error)
        return StepResult(seen, terminated=self.pressed == 2, seconds={"act": 0.25})

    def compute_reward(self, answer: str | None) -> float:
        return float(self.pressed == 2 or answer == "42")

    def screenshot(self) -> bytes:
        return b"jpeg"

    def close(self) -> None:
        self.closed = True


class FakeSuite:
    """Hands out worlds, and remembers them."""

    def __init__(self, make: Callable[[int], FakeWorld] = lambda number: FakeWorld()) -> None:
        self._make = make
        self._lock = threading.Lock()
        self.worlds: list[FakeWorld] = []

    def make_env(self, task: Task) -> FakeWorld:
        with self._lock:
            self.worlds.append(self._make(len(self.worlds)))
            return self.worlds[-1]


class FakeSampler:
    """Completes every request with the next of `replies`, over and over the last."""

    def __init__(self, tokenizer, replies: Iterable[str]) -> None:
        self._tokenizer, self._replies = tokenizer, list(replies)
        self.requests: list[dict] = []

    def submit(self, prompt_ids, **options) -> Future:
        self.requests.append({"prompt_ids": prompt_ids, **options})
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        ids = self._tokenizer.encode_response(reply)
        future: Future = Future()
        zeros = np.zeros(len(ids), np.int32)
        future.set_result(Completion(ids, zeros.astype(np.float32), zeros, "stop"))
        return future
