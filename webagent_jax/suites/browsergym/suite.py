"""The suite: BrowserGym has browser, task and reward; actions and observations cross.

BrowserGym holds one synchronous Playwright to a process, so every live environment has a process of
its own (worker.py), of whichever interpreter has BrowserGym. Drouin et al. 2024, arXiv 2412.05467.
"""

from __future__ import annotations

import base64
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from webagent_jax.browser import chromium
from webagent_jax.browser.context import ContextSpec, checked_origins, isolation
from webagent_jax.config import BrowserConfig, ConfigError
from webagent_jax.suites.browsergym import page
from webagent_jax.suites.browsergym.process import Worker
from webagent_jax.types import (
    Action,
    ActionKind,
    Expert,
    InfraError,
    Observation,
    Split,
    Start,
    Step,
    Task,
)

_FIRST_TEST_SEED = 1_000_000
_FULL_REWARD = 1.0 - 1e-6
_START_TIMEOUT = 120.0  # seconds: a browser, the site's pages, what the task prepares
_STEP_TIMEOUT = 60.0
_CLOSE_TIMEOUT = 20.0


class BrowserGym:
    """BrowserGym environments, by their ids.

    Args:
        ids: such as "browsergym/miniwob.click-test". What they need (MINIWOB_URL, WA_SHOPPING, ...)
            must stand in the environment of this process.
        origins: "host:port" of the sites that their pages may reach; nothing else is reached.
        config: `executable` and `observation_chars` hold here too; the format is `compact`.
        python: interpreter that has BrowserGym; empty means this one.
        options: more arguments of BrowserGym's environment, such as {"slow_mo": 0}.
        train_seeds: tasks per id in the training split; one is enough where seeds change nothing.
        test_seeds: tasks per id in the test split.

    Raises:
        ConfigError: BrowserGym does not run there, or does not know an id.
        ValueError: an origin is malformed.
        chromium.ChromiumMissing: there is no Chromium.
    """

    def __init__(
        self,
        ids: Sequence[str],
        *,
        origins: Sequence[str],
        config: BrowserConfig | None = None,
        python: str = "",
        options: Mapping[str, Any] | None = None,
        train_seeds: int = 100,
        test_seeds: int = 25,
    ) -> None:
        self.pages = tuple(ids)
        self._seeds: dict[Split, range] = {
            "train": range(train_seeds),
            "test": range(_FIRST_TEST_SEED, _FIRST_TEST_SEED + test_seeds),
        }
        self._python = python or sys.executable
        self._config = config or BrowserConfig()
        path = self._config.executable or chromium.find()
        self._options = _browser(path, checked_origins(origins)) | dict(options or {})
        self._origins = ContextSpec(checked_origins(origins), "", None, (0, 0))
        self._lock = threading.Lock()
        self._idle = [self._first_worker()]

    def names(self, split: Split) -> Sequence[str]:
        """The ids, in both splits: their seeds differ."""
        return self.pages

    def tasks(self, split: Split) -> Sequence[Task]:
        """All tasks of the split, id after id for each seed."""
        return [_task(name, seed) for seed in self._seeds[split] for name in self.pages]

    def task(self, name: str, split: Split, index: int) -> Task:
        """The index-th task of one id. Raises IndexError past the end of the split."""
        return _task(name, self._seeds[split][index])

    def open(self, task: Task) -> BrowserGymEnvironment:
        """A process for the task, a free one if there is one. Raises InfraError."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        return BrowserGymEnvironment(
            worker or Worker(self._python),
            task,
            origins=self._origins,
            options=self._options,
            budget=self._config.observation_chars,
            on_close=self._free,
        )

    def expert(self, task: Task, start: Start) -> Expert:
        """Raises KeyError: BrowserGym's tasks have no scripted solvers that could act here."""
        raise KeyError(task.id)

    def close(self) -> None:
        """Ends the free processes. One that is in use ends with its environment."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def _first_worker(self) -> Worker:
        try:
            worker = Worker(self._python)
            unknown = worker.ask("unknown", _START_TIMEOUT, ids=self.pages)
        except InfraError as error:  # at the import, which ended the process
            raise ConfigError(
                f"BrowserGym does not run in {self._python} ({error}); "
                "install it there with: pip install 'webagent_jax[browsergym]'"
            ) from error
        if unknown:
            worker.end()
            raise ConfigError(
                f"BrowserGym has no {unknown[0]}; each benchmark of it is a package of its own, "
                "such as browsergym-miniwob"
            )
        return worker

    def _free(self, worker: Worker) -> None:
        with self._lock:
            self._idle.append(worker)


class BrowserGymEnvironment:
    """One BrowserGym environment, in a process of its own."""

    def __init__(
        self,
        worker: Worker,
        task: Task,
        *,
        origins: ContextSpec,
        options: Mapping[str, Any],
        budget: int,
        on_close: Callable[[Worker], None],
    ) -> None:
        self._worker: Worker | None = worker
        self._task, self._origins, self._options = task, origins, options
        self._budget = budget
        self._on_close = on_close
        self._seen = Observation("", "")
        self._earned = 0.0

    def start(self) -> Start:
        """Resets it with the task's seed. Raises InfraError."""
        (name,) = self._task.sites
        told = self._ask(
            "start", _START_TIMEOUT, id=name, seed=self._task.seed, options=self._options
        )
        return Start(str(told["goal"]), self._observation(told["page"]))

    def step(self, action: Action) -> Step:
        """Raises InfraError when BrowserGym fails; what it refuses is told to the agent."""
        if action.kind is ActionKind.GOTO and not self._origins.allows(action.value or ""):
            refusal = self._origins.refusal(action.value or "")
            return Step(replace(self._seen, error=refusal), done=False)
        told = self._act(action)
        return Step(self._observation(told["page"]), done=bool(told["done"]))

    def reward(self, answer: str | None) -> float:
        """1.0 if BrowserGym's rewards of the episode add up to a full point, else 0.0.

        An answer is sent as a message to the user, on which BrowserGym judges once more; without
        one nothing is sent, and what was not earned by then is not earned. Raises InfraError.
        """
        if answer is not None:
            self._act(Action(ActionKind.EXIT, value=answer))
        return float(self._earned >= _FULL_REWARD)

    def picture(self) -> bytes:
        """JPEG of the page at the last observation."""
        return base64.b64decode(self._ask("picture", _STEP_TIMEOUT))

    def close(self) -> None:
        """Closes its browser; the process is free for another task. Never raises."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        try:
            worker.ask("close", _CLOSE_TIMEOUT)
        except InfraError:
            worker.end()
            return
        self._on_close(worker)

    def _act(self, action: Action) -> Mapping[str, Any]:
        told: dict[str, Any] = self._ask("step", _STEP_TIMEOUT, action=page.code(action))
        self._earned += told["reward"]
        return told

    def _ask(self, method: str, timeout: float, **arguments: Any) -> Any:
        if self._worker is None:
            raise InfraError("the environment is closed")
        return self._worker.ask(method, timeout, **arguments)

    def _observation(self, told: Mapping[str, Any]) -> Observation:
        self._seen = page.observation(told, self._budget)
        return self._seen


def first_tasks(ids: Sequence[str], split: Split) -> Iterator[Task]:
    """The first task of each id; whether BrowserGym knows it is not asked."""
    return (_task(name, _FIRST_TEST_SEED if split == "test" else 0) for name in ids)


def _task(name: str, seed: int) -> Task:
    return Task(
        id=f"{name}/{seed}", suite="browsergym", sites=(name,), intent="", start_url="", seed=seed
    )


def _browser(executable: str, origins: Sequence[str]) -> dict[str, Any]:
    """Arguments of BrowserGym's environment: our Chromium, and contexts held to `origins`."""
    return {
        "pw_chromium_kwargs": {"executable_path": executable},
        "pw_context_kwargs": isolation(origins),
    }
