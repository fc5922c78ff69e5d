"""Environment, suite and sampler that need no browser or device."""

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


class FakeEnv:
    """Environment with one button, solved by two presses or by the answer 42."""

    def __init__(self, fail_step: int | None = None, page: str = "") -> None:
        """`page`: text before the button."""
        self.pressed = 0
        self.closed = False
        self._steps = 0
        self._fail_step, self._page = fail_step, page

    def reset(self) -> ResetResult:
        page = Observation(f"{self._page}button go [1]", "http://fake/")
        return ResetResult("Press 1 twice", page, seconds={"load": 0.5})

    def step(self, action: Action) -> StepResult:
        if self._steps == self._fail_step:
            raise InfraError("the browser is gone")
        self._steps += 1
        self.pressed += action.element_id == "1"
        error = None if action.element_id == "1" else "no such element"
        text = f"{self._page}button go {self.pressed} [1]"
        observation = Observation(text, "http://fake/", error=error)
        return StepResult(observation, terminated=self.pressed == 2, seconds={"act": 0.25})

    def compute_reward(self, answer: str | None) -> float:
        return float(self.pressed == 2 or answer == "42")

    def screenshot(self) -> bytes:
        return b"jpeg"

    def close(self) -> None:
        self.closed = True


class FakeSuite:
    """Suite that records the environments it makes."""

    def __init__(self, env_factory: Callable[[int], FakeEnv] = lambda index: FakeEnv()) -> None:
        self._env_factory = env_factory
        self._lock = threading.Lock()
        self.envs: list[FakeEnv] = []

    def make_env(self, task: Task) -> FakeEnv:
        with self._lock:
            self.envs.append(self._env_factory(len(self.envs)))
            return self.envs[-1]


class FakeSampler:
    """Sampler that completes each request with the next response and repeats the last one."""

    def __init__(self, tokenizer, responses: Iterable[str], *, by_letter: bool = False) -> None:
        """`by_letter`: sample one token per letter, not the tokens that the encoder chooses."""
        self._tokenizer, self._responses = tokenizer, list(responses)
        self._by_letter = by_letter
        self.requests: list[dict] = []

    def submit(self, prompt_ids, **options) -> Future:
        self.requests.append({"prompt_ids": prompt_ids, **options})
        response = self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]
        ids = self._tokenizer.encode_response(response)
        if self._by_letter:
            letters = [self._tokenizer.encode(letter) for letter in response]
            ids = np.concatenate([*letters, ids[-1:]])
        future: Future = Future()
        zeros = np.zeros(len(ids), np.int32)
        future.set_result(Completion(ids, zeros.astype(np.float32), zeros, "stop"))
        return future
